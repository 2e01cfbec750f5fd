package installer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Answers is what setup needs to know.
type Answers struct {
	Deploy    seal.TrustRoot // who signs the catalog, and how many must
	Operators seal.TrustRoot // who signs decisions; each key has a principal
	Login     []loginLine    // of the first identity provider; empty: passkeys only
	Members   []string       // accounts that write the catalog
}

// loginLine is a line of the section login.
type loginLine struct{ key, value string }

func loginKeys() []string { return []string{"issuer", "client", "groups", "address", "ca"} }

// settings is the first service.yaml.
func (a Answers) settings() []byte {
	var b bytes.Buffer
	b.WriteString("# Settings of the service: see docs/configuration.md. A change counts from the next start:\n# sudo systemctl restart bailiwick.service\nversion: 1\norchestrator: {}\n")
	if len(a.Login) > 0 {
		b.WriteString("login:\n")
		for _, l := range a.Login {
			fmt.Fprintf(&b, "  %s: %q\n", l.key, l.value)
		}
	}
	return b.Bytes()
}

// maxPublic bounds the file of a public key, in bytes.
const maxPublic = 64 << 10

// ReadPublic reads the file of a public key that bailiwick key create or operator passkey
// wrote. The account that owns it does not matter: a person compares its id.
func ReadPublic(path string) (seal.Key, error) {
	f, err := os.Open(path) //nolint:gosec // G304: as root named it
	if err != nil {
		return seal.Key{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxPublic+1))
	if err != nil {
		return seal.Key{}, err
	}
	if len(b) > maxPublic {
		return seal.Key{}, fmt.Errorf("%s: larger than %d bytes", path, maxPublic)
	}
	k, err := seal.ParsePublic(b)
	if err != nil {
		return seal.Key{}, fmt.Errorf("%s: want the public half of a key, FILE.pub: %w", path, err)
	}
	return k, nil
}

// ReadAnswers reads a file of answers. Paths in it are relative to it.
func ReadAnswers(path string) (a Answers, err error) {
	b, err := os.ReadFile(path) //nolint:gosec // G304: as root named it
	if err != nil {
		return a, api.Errorf(api.CodeInvalid, "answers: %w", err)
	}
	p := &strictyaml.Parser{List: strictyaml.List{File: path}}
	r := &answerReader{Parser: p, dir: filepath.Dir(path)}
	if n := p.Document(b); n != nil {
		p.Fields(n, "answers", map[string]func(*yaml.Node){
			"version": func(n *yaml.Node) {
				if r.versioned = true; p.Count(n, "version") != 1 {
					p.At(n, "version: this program reads version 1")
				}
			},
			"deploy":    func(n *yaml.Node) { a.Deploy = r.signers(n, "deploy", false) },
			"operators": func(n *yaml.Node) { a.Operators = r.signers(n, "operators", true) },
			"login":     func(n *yaml.Node) { a.Login = r.login(n) },
			"members":   func(n *yaml.Node) { a.Members = p.Texts(n, "members") },
		})
		if !r.versioned {
			p.At(n, "answers: the key \"version\" is missing; write \"version: 1\"")
		}
	}
	if err := p.Err(); err != nil {
		return a, err
	}
	return a, a.Check()
}

type answerReader struct {
	*strictyaml.Parser
	dir       string
	versioned bool
}

func (r *answerReader) signers(n *yaml.Node, what string, owned bool) (root seal.TrustRoot) {
	root.V = 1
	r.Fields(n, what, map[string]func(*yaml.Node){
		"threshold": func(n *yaml.Node) { root.Threshold = r.Count(n, what+".threshold") },
		"keys": func(n *yaml.Node) {
			r.Items(n, what+".keys", func(_ int, item *yaml.Node) {
				file, principal := "", api.Principal("")
				if owned {
					r.Fields(item, what+".keys", map[string]func(*yaml.Node){
						"file":      func(n *yaml.Node) { file = r.Line(n, what+".keys.file") },
						"principal": func(n *yaml.Node) { r.Scalar(n, what+".keys.principal", &principal) },
					})
				} else {
					file = r.Line(item, what+".keys")
				}
				if file == "" {
					r.At(item, "%s.keys: want the file of a public key", what)
					return
				}
				if !filepath.IsAbs(file) {
					file = filepath.Join(r.dir, file)
				}
				k, err := ReadPublic(file)
				if err != nil {
					r.At(item, "%s.keys: %v", what, err)
				}
				if k.Principal = principal; owned && principal == "" {
					r.At(item, "%s.keys: %s: write the principal that holds it", what, file)
				}
				root.Keys = append(root.Keys, k)
			})
		},
	})
	return root
}

func (r *answerReader) login(n *yaml.Node) (list []loginLine) {
	readers := map[string]func(*yaml.Node){}
	values := map[string]string{}
	for _, key := range loginKeys() {
		readers[key] = func(n *yaml.Node) { values[key] = r.Line(n, "login."+key) }
	}
	r.Fields(n, "login", readers)
	for _, key := range loginKeys() {
		if values[key] != "" {
			list = append(list, loginLine{key, values[key]})
		}
	}
	return list
}

// Check refuses answers that no machine could be set up with.
func (a Answers) Check() error {
	for _, set := range []struct {
		what string
		root seal.TrustRoot
	}{{"deploy", a.Deploy}, {"operators", a.Operators}} {
		if err := set.root.Validate(); err != nil {
			return api.Errorf(api.CodeInvalid, "%s: %w", set.what, err)
		}
	}
	if _, err := seal.NewOperators(a.Operators); err != nil {
		return api.Errorf(api.CodeInvalid, "operators: %w", err)
	}
	if !a.Operators.Assigned() {
		return api.Errorf(api.CodeInvalid, "operators: each key needs the principal that holds it")
	}
	if err := a.checkLogin(); err != nil {
		return api.Errorf(api.CodeInvalid, "login: %w", err)
	}
	if err := checkMembers(a.Members); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err)
	}
	return nil
}

// checkLogin refuses a provider that is incomplete. The service checks the rest.
func (a Answers) checkLogin() error {
	found := map[string]string{}
	for _, l := range a.Login {
		found[l.key] = l.value
	}
	switch {
	case len(found) == 0:
		return nil
	case !strings.HasPrefix(found["issuer"], "https://"):
		return errors.New("issuer: want https://HOST/PATH")
	case found["client"] == "":
		return errors.New("client: want the id that the issuer knows this service by")
	}
	return nil
}
