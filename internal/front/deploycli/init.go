package deploycli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

type made struct {
	Path string `json:"path"`
	Made bool   `json:"made"` // false: it existed and was left alone
	What string `json:"what"`
}

// initVerb is the verb that sets up keys, trust roots, catalog and sample.
type initVerb struct{ *program }

func (p *initVerb) command(v *console.Verb) {
	var unencrypted bool
	project, agent := "", "command"
	v.Do(func(ctx context.Context, args []string) error {
		dir := "."
		if len(args) == 1 {
			dir = args[0]
		}
		return p.init(ctx, dir, project, agent, unencrypted)
	})
	v.Flag(&unencrypted, "insecure-unencrypted")
	v.Flag(&project, "project")
	v.Flag(&agent, "agent")
	_ = v.RegisterFlagCompletionFunc("agent", cobra.FixedCompletions(api.Agents(), cobra.ShellCompDirectiveNoFileComp)) // it fails only if there is one already
	p.formatFlag(v)
}

func (p *initVerb) init(ctx context.Context, dir, project, agent string, unencrypted bool) error {
	deployPath, err := p.keys.path(deployKey(p.Dirs))
	if err != nil {
		return err
	}
	if err := p.lostRoot(); err != nil {
		return err
	}
	begun, err := p.newSample(ctx, dir, project, agent) // checks before anything is made
	if err != nil {
		return err
	}
	operatorPath := p.Dirs.OperatorKey()
	phrase, err := p.askPassphrase(ctx, deployPath, unencrypted)
	if err != nil {
		return err
	}
	steps := []func() (made, error){
		func() (made, error) { return p.key(deployKey(p.Dirs), deployPath, phrase) },
		func() (made, error) { return initRoot(p.trustPath(), "trust root", deployPath, "") },
		func() (made, error) { return p.key(operatorKey(p.Dirs), operatorPath, phrase) },
		func() (made, error) {
			return initRoot(p.operatorsPath(), "operators", operatorPath, api.Principal("local:"+p.Login))
		},
		p.catalog,
	}
	all := []made{}
	for _, step := range steps {
		m, err := step()
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	samples, err := begun.write()
	if err != nil {
		return err
	}
	all = append(all, samples...)
	err = p.answer(all, func(o *out) {
		for _, m := range all {
			word := "made"
			if !m.Made {
				word = "exists"
			}
			o.linef("%-6s  %-14s %s", word, m.What, visible(m.Path))
		}
	}, each(all, func(m made) string { return m.Path })...)
	begun.report(p.program)
	if p.Beside != "" {
		p.print("For other AI clients: bailiwick mcp config --client codex|opencode|gemini|cursor. For Claude Code:\n  %s", console.ShellText("claude", "mcp", "add", "bailiwick", "--", filepath.Join(p.Beside, "bailiwick-mcp")))
	}
	return err
}

// askPassphrase asks once for the passphrase of the keys that do not exist yet.
func (p *initVerb) askPassphrase(ctx context.Context, deployPath string, unencrypted bool) (passphrase, error) {
	if unencrypted {
		return passphrase{unencrypted: true}, nil
	}
	var missing []string
	for _, k := range []struct {
		kind keyKind
		path string
	}{{deployKey(p.Dirs), deployPath}, {operatorKey(p.Dirs), p.Dirs.OperatorKey()}} {
		found, err := exists(k.path)
		if err != nil {
			return passphrase{}, err
		}
		if !found {
			missing = append(missing, "the "+k.kind.name+" "+visible(k.path))
		}
	}
	if missing == nil {
		return passphrase{}, nil
	}
	text, err := newPassphrase(ctx, strings.Join(missing, " and "))
	return passphrase{text: text}, err
}

// key creates a key unless it exists.
func (p *initVerb) key(kind keyKind, path string, phrase passphrase) (made, error) {
	m := made{Path: path, What: kind.name}
	found, err := exists(path)
	if found || err != nil {
		return m, err
	}
	m.Made = true
	_, err = p.keys.create(kind, path, "", phrase)
	return m, err
}

// initRoot writes a trust root that lists the key at keyPath, of owner, unless the file
// exists; then it checks that file. A deploy key has no owner.
func initRoot(path, what, keyPath string, owner api.Principal) (made, error) {
	m := made{Path: path, What: what}
	found, err := exists(path)
	if found {
		_, err = seal.LoadTrustRoot(path)
	}
	if found || err != nil {
		return m, err
	}
	k, err := seal.LoadPublic(keyPath)
	if err != nil {
		return m, err
	}
	k.Principal, m.Made = owner, true
	return m, seal.CreateTrustRoot(path, seal.RootOf(k))
}

// catalog creates the catalog unless it exists.
func (p *initVerb) catalog() (made, error) {
	m := made{Path: p.catalogPath(), What: "catalog"}
	root, err := seal.LoadDeployKeys(p.dirs())
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

func writeNew(name, text string, script bool) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // G301: a manifest is meant to be read
		return false, err
	}
	mode := fs.FileMode(0o644)
	if script {
		mode = 0o755
	}
	err := durable.WriteNew(nil, name, mode, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}
