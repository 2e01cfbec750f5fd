package deploycli

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

//go:embed all:sample
var sample embed.FS //nolint:gochecknoglobals // go:embed needs a variable; nothing writes it

// sampleOf is the sample manifest that init writes into a directory, with its files.
type sampleOf struct {
	dir, login string
	agent      string // adapter of its subagent
	exists     bool   // the directory has a manifest, which stays as it is
	project    api.Name
	prefix     string           // of the sample's names: it keeps them apart from those of other projects
	others     map[api.Name]int // artifacts of the projects in the catalog
	repository bool             // the directory is a git repository, and thus a source
}

// newSample checks what init would write into dir. It refuses a project that has
// artifacts already: its manifest is elsewhere.
func (p *initVerb) newSample(ctx context.Context, dir, project, agent string) (sampleOf, error) {
	s := sampleOf{dir: dir, login: p.Login, agent: agent, project: api.Name(project)}
	if !slices.Contains(api.Agents(), agent) {
		return s, api.Errorf(api.CodeInvalid, "agent %q: want one of %s", agent, api.OneOf(api.Agents()))
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return s, err
	}
	if _, err := os.Lstat(filepath.Join(dir, manifestName)); err == nil {
		s.exists = true
		if project != "" {
			return s, api.Errorf(api.CodeConflict, "%s exists already", visible(filepath.Join(dir, manifestName))).WithHint("set \"project: %s\" in it; init does not change files", project)
		}
		if agent != "command" {
			return s, api.Errorf(api.CodeConflict, "%s exists already", visible(filepath.Join(dir, manifestName))).WithHint("declare a subagent with agent: %s in it; init does not change files", agent)
		}
	}
	if project == "" {
		s.project = deploy.ProjectOf(abs)
	}
	if _, err := api.ParseName(string(s.project)); err != nil && !s.exists {
		return s, api.Errorf(api.CodeInvalid, "project: %w", err).WithHint("name the project with --project NAME")
	}
	s.repository = deploy.CheckSource(abs) == nil
	if s.others, err = p.projects(ctx); err != nil || s.exists {
		return s, err
	}
	if s.others != nil {
		s.prefix = string(s.project[:min(32, len(s.project))]) + "-"
	}
	if s.others[s.project] > 0 {
		return s, api.Errorf(api.CodeConflict, "the catalog has a project %s already, and %s has no %s", s.project, visible(abs), manifestName).
			WithHint("run this where its manifest is, or name another project with --project NAME")
	}
	return s, nil
}

// projects counts the artifacts of each project of the catalog. It is nil if there
// is no catalog yet.
func (p *initVerb) projects(ctx context.Context) (map[api.Name]int, error) {
	var all map[api.Name]int
	err := p.withCatalog(nil, func(c *deploy.Catalog) error {
		all = map[api.Name]int{}
		head, err := c.Current(ctx)
		if err != nil || head == nil {
			return err
		}
		for _, e := range head.Document().Artifacts {
			all[e.Project]++
		}
		return nil
	})
	if api.CodeOf(err) == api.CodeNotFound || errors.Is(err, fs.ErrNotExist) || errors.Is(err, blob.ErrNoStore) {
		return nil, nil
	}
	return all, err
}

// write writes the manifest and its files, unless a manifest exists.
func (s sampleOf) write() ([]made, error) {
	if s.exists {
		return []made{{Path: filepath.Join(s.dir, manifestName), What: "manifest"}}, nil
	}
	var all []made
	from := "sample/agent"
	if s.agent == "command" {
		from = "sample/command"
	}
	err := fs.WalkDir(sample, from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sample.ReadFile(name)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, from+"/")
		m := made{Path: filepath.Join(s.dir, filepath.FromSlash(rel)), What: "sample"}
		if rel == manifestName {
			m.What = "manifest"
		}
		m.Made, err = writeNew(m.Path, s.fill(string(b)), path.Ext(rel) == ".sh")
		all = append(all, m)
		return err
	})
	return all, err
}

// fill puts the names into a file of the sample. A directory that is no repository
// cannot be a source: it becomes a comment.
func (s sampleOf) fill(text string) string {
	if !s.repository {
		text = strings.NewReplacer(
			"sources:\n  - {name: PREFIXhere, repo: .}\n", "sources: []\n#  - {name: PREFIXhere, repo: .}    # once this directory is one, and in the grant too\n",
			"    sources: [PREFIXhere]\n", "#   sources: [PREFIXhere]\n",
		).Replace(text)
	}
	if s.agent != "command" {
		text = providerOf(s.agent).replacer(s.agent).Replace(text)
	}
	return strings.NewReplacer("PROJECT", string(s.project), "PREFIX", s.prefix, "LOGIN", s.login).Replace(text)
}

// report says what other projects mean for this one, and what to type next.
func (s sampleOf) report(p *program) {
	if !s.exists && s.prefix != "" {
		p.print("The keys and the catalog serve all projects%s. This one is project %s; the names of its sample begin with %q.", s.otherNames(), s.project, s.prefix)
	}
	if !s.exists && !s.repository {
		p.print("%s is not a git repository, so the manifest declares no source.", visible(s.dir))
	}
	if !s.exists && s.agent != "command" {
		p.print("The subagent needs its program and the key of its model, once for this machine:\n  bailiwick agent install %s\n  bailiwick secret set %s%s", s.agent, s.prefix, providerOf(s.agent).name)
	}
	next := []string{"bailiwick", "catalog", "plan"}
	if filepath.Clean(s.dir) != "." {
		next = append(next, "-f", filepath.Join(s.dir, manifestName))
	}
	p.next(next...)
}

// otherNames lists the projects of the catalog in parentheses.
func (s sampleOf) otherNames() string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(s.others)) {
		if n != "" {
			all = append(all, string(n))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (so far " + strings.Join(all, ", ") + ")"
}
