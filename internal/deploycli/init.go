package deploycli

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

//go:embed all:sample
var sample embed.FS //nolint:gochecknoglobals // go:embed needs a variable; nothing writes it

type made struct {
	Path string `json:"path"`
	Made bool   `json:"made"` // false: it was there and was left alone
	What string `json:"what"`
}

func (p *program) initCommand() *cobra.Command {
	var plain bool
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make the keys, the files that list them, an empty catalog, and a sample manifest in DIR",
		Long: `init sets up what is not there yet and never overwrites anything: the deploy key, which signs
catalogs, and the trust root that lists it; the operator key, which signs decisions about
principals, and operators.json that lists it; an empty catalog; and in DIR a commented
bailiwick.yaml that applies as it is. One passphrase is asked for, for the keys that it makes.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return p.init(cmd.Context(), dir, plain)
		},
	}
	cmd.Flags().BoolVar(&plain, "insecure-unencrypted", false, "make the keys without a passphrase: whoever can read the files can sign")
	p.formatFlag(cmd, "text")
	return cmd
}

func (p *program) init(ctx context.Context, dir string, plain bool) error {
	phrase, err := p.initPhrase(ctx, plain)
	if err != nil {
		return err
	}
	steps := []func() (made, error){
		func() (made, error) { return p.initKey(phrase) },
		p.initTrust,
		func() (made, error) { return p.initOperatorKey(phrase) },
		p.initOperators,
		p.initCatalog,
	}
	all := []made{}
	for _, step := range steps {
		m, err := step()
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	samples, err := p.initSample(dir)
	if err != nil {
		return err
	}
	all = append(all, samples...)
	err = p.answer(all, func(o *out) {
		for _, m := range all {
			word := "made "
			if !m.Made {
				word = "there"
			}
			o.linef("%s  %-14s %s", word, m.What, visible(m.Path))
		}
	}, func(o *out) {
		for _, m := range all {
			o.line(m.Path)
		}
	})
	p.say("Next: read %s, then run: bailiwick catalog plan -f %s", filepath.Join(dir, manifestName), filepath.Join(dir, manifestName))
	if p.Beside != "" {
		p.say("For other AI clients: bailiwick mcp config --client codex|opencode|gemini|cursor. For Claude Code:\n  claude mcp add bailiwick -- %s", visible(filepath.Join(p.Beside, "bailiwick-mcp")))
	}
	return err
}

// initPhrase asks once for the passphrase of the keys that are not there yet.
func (p *program) initPhrase(ctx context.Context, plain bool) (passphrase, error) {
	path, err := p.keyPath()
	if err != nil || plain {
		return passphrase{plain: plain}, err
	}
	var missing []string
	for _, k := range []struct{ what, path string }{{deployKey, path}, {operatorKey, p.Dirs.OperatorKey()}} {
		there, err := exists(k.path)
		if err != nil {
			return passphrase{}, err
		}
		if !there {
			missing = append(missing, "the "+k.what+" "+visible(k.path))
		}
	}
	if missing == nil {
		return passphrase{}, nil
	}
	text, err := newPassphrase(ctx, strings.Join(missing, " and "))
	return passphrase{text: text}, err
}

func (p *program) initKey(phrase passphrase) (made, error) {
	path, err := p.keyPath()
	if err != nil {
		return made{}, err
	}
	m := made{Path: path, What: deployKey}
	if there, err := exists(path); there || err != nil {
		return m, err
	}
	m.Made = true
	_, err = p.createKey(deployKey, path, "", phrase)
	return m, err
}

func (p *program) initTrust() (made, error) {
	m := made{Path: p.trustPath(), What: "trust root"}
	if _, err := os.Lstat(m.Path); err == nil {
		_, err := seal.LoadTrustRoot(m.Path)
		return m, err
	}
	path, err := p.keyPath()
	if err != nil {
		return m, err
	}
	k, err := seal.LoadPublic(path)
	if err != nil {
		return m, err
	}
	m.Made = true
	return m, seal.CreateTrustRoot(m.Path, seal.RootOf(k))
}

func (p *program) initCatalog() (made, error) {
	m := made{Path: p.catalogPath(), What: "catalog"}
	root, err := seal.LoadTrustRoot(p.trustPath())
	if err != nil {
		return m, err
	}
	cfg := deploy.Config{Dir: m.Path, TrustRoot: root, Now: p.Now}
	c, err := deploy.Open(cfg)
	if errors.Is(err, blob.ErrNoStore) {
		m.Made = true
		c, err = deploy.Create(cfg)
	}
	if err != nil {
		return m, err
	}
	return m, c.Close()
}

// initSample writes the sample manifest with the files that it names, unless
// there is a manifest already.
func (p *program) initSample(dir string) ([]made, error) {
	manifest := filepath.Join(dir, manifestName)
	if _, err := os.Lstat(manifest); err == nil {
		return []made{{Path: manifest, What: "manifest"}}, nil
	}
	var all []made
	err := fs.WalkDir(sample, "sample", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sample.ReadFile(name)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, "sample/")
		text := strings.ReplaceAll(string(b), "LOGIN", p.Login)
		m := made{Path: filepath.Join(dir, filepath.FromSlash(rel)), What: "sample"}
		if rel == manifestName {
			m.What = "manifest"
		}
		m.Made, err = writeNew(m.Path, text, path.Ext(rel) == ".sh")
		all = append(all, m)
		return err
	})
	return all, err
}

func writeNew(name, text string, script bool) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // G301: a manifest is meant to be read
		return false, err
	}
	mode := fs.FileMode(0o644)
	if script {
		mode = 0o755
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // G304: in the directory that the caller named
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(text)
	return true, errors.Join(err, f.Close())
}
