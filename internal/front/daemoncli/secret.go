package daemoncli

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/secret"
)

const (
	maxHelpers   = 32
	maxSecretEnv = 64
	helperMost   = time.Minute
	vaultTimeout = 10 * time.Second // of one exchange
)

// secretsSettings is the section secrets.
type secretsSettings struct {
	Env   []string
	Exec  map[api.Name]helperSettings
	Vault vaultSettings
}

type helperSettings struct {
	Command []string
	Timeout time.Duration // 0: secret.DefaultTimeout
}

// vaultSettings configures a vault; an empty address means no vault.
type vaultSettings struct {
	Address, Namespace, CA string
	TokenFile              string // empty: AppRole
	RoleID, SecretIDFile   string
	Mount                  string
}

// private returns the files that the section names.
func (s *secretsSettings) private() []string {
	return []string{s.Vault.TokenFile, s.Vault.SecretIDFile}
}

func (r *settingsReader) secrets(n *yaml.Node) {
	r.Fields(n, "secrets", map[string]func(*yaml.Node){
		"env":   r.secretEnv,
		"exec":  r.secretExec,
		"vault": r.vault,
	})
}

func (r *settingsReader) secretEnv(n *yaml.Node) {
	r.Items(n, "secrets.env", func(i int, item *yaml.Node) {
		what := fmt.Sprintf("secrets.env[%d]", i)
		name := r.Line(item, what)
		switch {
		case i >= maxSecretEnv:
			r.At(item, "secrets.env: more than %d", maxSecretEnv)
		case !api.IsVariable(name):
			r.At(item, "%s: want the name of an environment variable", what) // not quoted: it may be the value
		default:
			r.s.Secrets.Env = append(r.s.Secrets.Env, name)
		}
	})
}

func (r *settingsReader) secretExec(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.At(n, "secrets.exec: want names with {command: [/absolute/path, ARGUMENT, ...]}")
		return
	}
	r.s.Secrets.Exec = map[api.Name]helperSettings{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name, err := api.ParseName(key.Value)
		_, duplicate := r.s.Secrets.Exec[name]
		switch {
		case err != nil:
			r.At(key, "secrets.exec: %v", err)
		case duplicate:
			r.At(key, "secrets.exec: duplicate name %q", name)
		case len(r.s.Secrets.Exec) == maxHelpers:
			r.At(key, "secrets.exec: more than %d", maxHelpers)
			return
		default:
			r.s.Secrets.Exec[name] = r.helper(value, "secrets.exec."+string(name))
		}
	}
}

func (r *settingsReader) helper(n *yaml.Node, what string) (h helperSettings) {
	before := r.Len()
	r.Fields(n, what, map[string]func(*yaml.Node){
		"command": func(n *yaml.Node) { h.Command = r.argv(n, what+".command") },
		"timeout": func(n *yaml.Node) {
			var d api.Duration
			if err := d.UnmarshalText([]byte(r.Line(n, what+".timeout"))); err != nil || time.Duration(d) > helperMost {
				r.At(n, "%s.timeout: want a duration such as 10s, at most %s", what, helperMost)
			}
			h.Timeout = time.Duration(d)
		},
	})
	if r.Len() == before && h.Command == nil {
		r.At(n, "%s: the key \"command\" is missing", what)
	}
	return h
}

func (r *settingsReader) vault(n *yaml.Node) {
	v, before := &r.s.Secrets.Vault, r.Len()
	r.Fields(n, "secrets.vault", map[string]func(*yaml.Node){
		"address":   func(n *yaml.Node) { v.Address = r.Line(n, "secrets.vault.address") },
		"namespace": func(n *yaml.Node) { v.Namespace = r.Line(n, "secrets.vault.namespace") },
		"ca":        func(n *yaml.Node) { v.CA = r.path(n, "secrets.vault.ca") },
		"tokenFile": func(n *yaml.Node) { v.TokenFile = r.path(n, "secrets.vault.tokenFile") },
		"appRole": func(n *yaml.Node) {
			r.Fields(n, "secrets.vault.appRole", map[string]func(*yaml.Node){
				"roleID":       func(n *yaml.Node) { v.RoleID = r.Line(n, "secrets.vault.appRole.roleID") },
				"secretIDFile": func(n *yaml.Node) { v.SecretIDFile = r.path(n, "secrets.vault.appRole.secretIDFile") },
				"mount":        func(n *yaml.Node) { v.Mount = r.Line(n, "secrets.vault.appRole.mount") },
			})
		},
	})
	if r.Len() > before {
		return
	}
	switch _, err := dialFor(v.Address); {
	case err != nil:
		r.At(n, "secrets.vault.address: %q: %s", strictyaml.Clip(v.Address), strings.ReplaceAll(err.Error(), "/absolute/path or ", ""))
	case strings.Contains(v.Address, "?"):
		r.At(n, "secrets.vault.address: %q: want https://HOST[:PORT]", strictyaml.Clip(v.Address))
	}
	role := v.RoleID != "" && v.SecretIDFile != ""
	if (v.TokenFile != "") == role || !role && v.RoleID+v.SecretIDFile+v.Mount != "" {
		r.At(n, "secrets.vault: write one of tokenFile and appRole: {roleID, secretIDFile}")
	}
}

// secretStore opens what the section names. It connects to nothing and runs nothing,
// but files that it names must be valid.
func (t *tree) secretStore(set *secretsSettings, files *secret.Files, digest func(api.Name) (api.Digest, bool)) (*secret.Store, error) {
	cfg := secret.Config{Files: files, Digest: digest, Env: map[string]string{}, Helpers: map[api.Name]secret.Helper{}}
	cfg.Credentials, _ = t.Lookup("CREDENTIALS_DIRECTORY")
	for _, name := range set.Env {
		if v, ok := t.Lookup(name); ok {
			cfg.Env[name] = v
		}
	}
	for name, h := range set.Exec {
		check := func() error { return t.files().program(h.Command[0]) }
		if err := check(); err != nil {
			return nil, fmt.Errorf("secrets.exec.%s: %w", name, err)
		}
		cfg.Helpers[name] = secret.Helper{Argv: h.Command, Env: t.programEnv(), Timeout: h.Timeout, Check: check}
	}
	if set.Vault.Address != "" {
		var err error
		if cfg.Vault, err = openVault(t.files(), &set.Vault); err != nil {
			return nil, fmt.Errorf("secrets.vault: %w", err)
		}
	}
	return secret.New(cfg), nil
}

func openVault(files ownFiles, set *vaultSettings) (*secret.Vault, error) {
	cfg := egress.ClientConfig{Timeout: vaultTimeout, MaxBody: 8 * record.MaxSecret}
	var err error
	if cfg.Dial, err = dialFor(set.Address); err != nil {
		return nil, err
	}
	if cfg.Roots, err = files.pool(set.CA); err != nil {
		return nil, err
	}
	v := &secret.Vault{Address: set.Address, Namespace: set.Namespace, Client: egress.Client(cfg)}
	read := func(path string) func() ([]byte, error) {
		return func() ([]byte, error) { return files.readSecret(path) }
	}
	key := read(set.TokenFile)
	if set.TokenFile != "" {
		v.Token = key
	} else {
		key = read(set.SecretIDFile)
		v.AppRole = &secret.AppRole{Mount: set.Mount, RoleID: set.RoleID, SecretID: key}
	}
	_, err = key()
	return v, err
}

// openSecrets opens the stores. It needs the registry.
func (s *service) openSecrets() (err error) {
	if s.secrets, err = s.t.secretStore(&s.set.Secrets, s.files, s.registry.Secret); err != nil {
		return api.Errorf(api.CodeInvalid, "%w", err).WithHint("fix the section secrets in %s", s.set.File)
	}
	s.checkSecret = readSecret(s.secrets) // wire has the launcher do it in mode system
	return nil
}
