package deploycli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
)

// agentVerbs are the verbs about the programs of agents.
type agentVerbs struct{ *program }

func (p *agentVerbs) agentsPath() string { return api.Dirs{Data: p.data()}.Agents() }

func (p *agentVerbs) installCommand(v *console.Verb) {
	var version string
	v.ValidArgs = installable()
	v.Do(func(ctx context.Context, args []string) error {
		if !agent.Known(args[0]) {
			return api.Errorf(api.CodeNotFound, "unknown agent %q: this version installs %s", args[0], strings.Join(installable(), ", ")).WithHint("bailiwick agent list")
		}
		in := installation{name: args[0], version: version, dir: filepath.Join(p.agentsPath(), args[0]), output: p.Stderr}
		place, stamp, made, err := in.run(ctx)
		if err != nil {
			return err
		}
		return p.answer(listedAgent{Name: stamp.Adapter, Pinned: pinnedVersion(args[0]), Installed: &stamp, Dir: place}, func(o *out) {
			word := "installed"
			if !made {
				word = "already installed"
			}
			o.linef("%s %s %s in %s", word, stamp.Adapter, stamp.Version, visible(place))
		}, stamp.Adapter)
	})
	v.Flag(&version, "version")
	p.formatFlag(v)
}

// installable lists the agent programs that have packages.
func installable() []string {
	return slices.DeleteFunc(agent.Names(), func(n string) bool { return !agent.Known(n) })
}

// listedAgent is an agent of a list.
type listedAgent struct {
	Name      string         `json:"name"`
	APIs      []api.ModelAPI `json:"apis"`                // of models that it can use
	Pinned    string         `json:"pinned,omitempty"`    // the version that is known to work
	Installed *agent.Stamp   `json:"installed,omitempty"` // what workers use
	Dir       string         `json:"dir,omitempty"`
	Problem   string         `json:"problem,omitempty"`
}

func (p *agentVerbs) listCommand(v *console.Verb) {
	v.Do(func(_ context.Context, _ []string) error {
		var all []listedAgent
		for _, name := range agent.Names() {
			all = append(all, p.agent(name))
		}
		return p.answer(all, func(o *out) {
			var rows [][]string
			for _, a := range all {
				rows = append(rows, a.row())
			}
			o.table([]string{"AGENT", "MODELS", "PINNED", "INSTALLED", "DIRECTORY"}, rows)
		}, each(all, func(a listedAgent) string { return a.Name })...)
	})
	p.formatFlag(v)
}

func (p *agentVerbs) agent(name string) listedAgent {
	a := listedAgent{Name: name, APIs: api.AgentAPIs(name)}
	if !agent.Known(name) {
		return a
	}
	a.Pinned = pinnedVersion(name)
	dir, stamp, err := agent.Installed(p.agentsPath(), name)
	switch {
	case err == nil:
		a.Installed, a.Dir = &stamp, dir
	case !errors.Is(err, agent.ErrNotInstalled):
		a.Problem = err.Error()
	}
	return a
}

func (a listedAgent) row() []string {
	var apis []string
	for _, x := range a.APIs {
		apis = append(apis, string(x))
	}
	installed := "no"
	switch {
	case a.Pinned == "":
		a.Pinned, installed, a.Dir = "-", "-", "any program of the target"
	case a.Problem != "":
		installed, a.Dir = "broken", a.Problem
	case a.Installed != nil:
		installed = a.Installed.Version
	default:
		a.Dir = "install it with: bailiwick agent install " + a.Name
	}
	return []string{a.Name, strings.Join(apis, ","), a.Pinned, installed, a.Dir}
}

// readable lets everyone read a tree, as workers of another account must, and nobody
// but its owner write to it.
func readable(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()&^0o022 | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return root.Chmod(path, mode)
	})
}
