package deploy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// check reports what the manifest declares and a service would refuse, at its place
// in the manifest: unresolved references, paths that no jail is shown, principals
// that are easily taken for others, and sources that are no repositories.
func (p *Plan) check(l *strictyaml.List, declared map[api.Ref]*decl, private api.Private) {
	p.references(l, declared)
	p.models(l, declared)
	p.programs(l, declared)
	p.budgets(l, declared)
	p.mounts(l, declared, private)
	p.principals(l, declared)
	p.schedules(l, declared)
	if !p.SourcesElsewhere {
		p.sources(l, declared)
	}
}

// references reports unresolved references, also those of artifacts that stay in the
// catalog.
func (p *Plan) references(l *strictyaml.List, declared map[api.Ref]*decl) {
	for _, problem := range p.set.Problems() {
		if d, ok := declared[problem.Ref]; ok {
			n := d.at(problem.Field)
			l.Add(n.Line, n.Column, "%s: %s: %s%s", problem.Ref, problem.Field, problem.Message, p.suggestion(problem.Missing))
			continue
		}
		l.Add(0, 0, "%s of %s, which stays in the catalog: %s: %s; keep what it needs, or change it first", problem.Ref, projectText(p.set.Project(problem.Ref)), problem.Field, problem.Message)
	}
}

// suggestion names the artifact of the same kind that the author of a reference to a
// missing one probably meant.
func (p *Plan) suggestion(missing api.Ref) string {
	kind, name, err := missing.Split()
	if err != nil {
		return ""
	}
	var have []string
	for _, ref := range p.set.Refs() {
		if k, n, err := ref.Split(); err == nil && k == kind {
			have = append(have, string(n))
		}
	}
	return strictyaml.Suggestion(string(name), have)
}

// models refuses a subagent that does not speak its model's format, or whose cost
// cannot be counted. It has the place of the subagent also when the model changed.
func (p *Plan) models(l *strictyaml.List, declared map[api.Ref]*decl) {
	for _, name := range slices.Sorted(maps.Keys(p.set.Subagents)) {
		s, ref := p.set.Subagents[name], api.RefTo(api.KindSubagent, name)
		d := declared[ref]
		add := func(field, format string, args ...any) {
			if d != nil {
				l.Add(d.at(field).Line, d.at(field).Column, "%s: %s: "+format, append([]any{ref, field}, args...)...)
				return
			}
			l.Add(0, 0, "%s of %s, which stays in the catalog: %s: "+format, append([]any{ref, projectText(p.set.Project(ref)), field}, args...)...)
		}
		from, level, err := api.SplitModel(s.Model)
		if s.Model == "" || err != nil {
			continue // the reader refuses other text; older revisions have it
		}
		m, ok := p.set.Models[from]
		switch {
		case !ok && len(p.set.Models) == 0 && d != nil: // else references says so
			add("model", "no such model %q; declare it in models", from)
		case !ok:
		case !slices.Contains(api.AgentAPIs(s.Agent), m.API):
			add("model", "agent %s speaks %s, and model %s is %s", s.Agent, api.OneOf(api.AgentAPIs(s.Agent)), from, m.API)
		case s.Limits.Cost > 0 || p.set.Targets[s.Target].Limits.Cost > 0:
			if _, priced := m.Prices[m.Levels[level]]; !priced {
				add("limits", "cost cannot be limited: model %s has no prices for %s; add them, or limit tokens", from, m.Levels[level])
			}
		}
	}
}

// mounts refuses paths of targets that no jail is shown.
func (p *Plan) mounts(l *strictyaml.List, declared map[api.Ref]*decl, private api.Private) {
	for name, t := range p.set.Targets {
		if d := declared[api.RefTo(api.KindTarget, name)]; d != nil {
			readOnly(l, d, t.ReadOnly, private)
		}
	}
}

func readOnly(l *strictyaml.List, d *decl, paths []string, private api.Private) {
	for i, path := range paths {
		if err := private.CheckReadOnly(path); err != nil {
			n := d.at("readOnly")
			if i < len(n.Content) {
				n = n.Content[i]
			}
			l.Add(n.Line, n.Column, "%s: readOnly[%d]: %v", d.ref, i, err)
		}
	}
}

// toolPlaces refuses paths and sockets that the jail of a declared server does not have.
func toolPlaces(l *strictyaml.List, d *decl, private api.Private) {
	host := d.tool.Host()
	if host == nil {
		return
	}
	readOnly(l, d, host.ReadOnly, private)
	for port, to := range host.Connect {
		if socket, ok := strings.CutPrefix(to, "unix:"); ok {
			if err := private.CheckSocket(socket); err != nil {
				n := d.at(fmt.Sprintf("connect.%d", port))
				l.Add(n.Line, n.Column, "%s: connect.%d: %v", d.ref, port, err)
			}
		}
	}
}

func projectText(name api.Name) string {
	if name == "" {
		return "no project"
	}
	return "project " + string(name)
}

// principals refuses a grant to a principal that is easily taken for one that
// another grant names.
func (p *Plan) principals(l *strictyaml.List, declared map[api.Ref]*decl) {
	looks := map[string]api.Principal{} // of grants that stay, then of those that the manifest adds
	add := func(who api.Principal) {
		for _, look := range who.Looks() {
			looks[look] = who
		}
	}
	names := slices.Sorted(maps.Keys(p.set.Grants))
	fresh := func(name api.Name) bool { return p.before.Grants[name].Principal != p.set.Grants[name].Principal }
	for _, name := range names {
		if !fresh(name) {
			add(p.set.Grants[name].Principal)
		}
	}
	for _, name := range names {
		d, who := declared[api.RefTo(api.KindGrant, name)], p.set.Grants[name].Principal
		if d == nil || !fresh(name) {
			continue
		}
		for _, look := range who.Looks() {
			if other, ok := looks[look]; ok && other != who {
				n := d.at("principal")
				l.Add(n.Line, n.Column, "%s: principal: %s is easily taken for %s, which another grant names; use one spelling", d.ref, who, other)
				break
			}
		}
		add(who)
	}
}

// sources refuses a declared source that the service could not open.
func (p *Plan) sources(l *strictyaml.List, declared map[api.Ref]*decl) {
	for _, name := range slices.Sorted(maps.Keys(p.set.Sources)) {
		ref := api.RefTo(api.KindSource, name)
		d := declared[ref]
		if d == nil || api.IsRemote(p.set.Sources[name].Repo) {
			continue
		}
		if err := CheckSource(p.set.Sources[name].Repo); err != nil {
			n := d.at("repo")
			l.Add(n.Line, n.Column, "%s: repo: %v", ref, err)
		}
	}
}

// CheckSource refuses a path that the service could not open as a source.
func CheckSource(repo string) error {
	switch st, err := os.Stat(repo); { //nolint:gosec // G703: the path of a source, which only the author of the manifest chooses
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist on this machine; clone it there, or plan with --sources-elsewhere if the service runs on another machine", repo)
	case err == nil && !st.IsDir():
		return fmt.Errorf("%s is %s, want the directory of a git repository", repo, typeOf(st.Mode()))
	}
	switch _, _, err := gitexec.Find(repo); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not a git repository; make it one with: %s", repo, visibletext.ShellText("git", "-C", repo, "init"))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied; plan as a user who may read it, or with --sources-elsewhere", repo)
	default:
		return err
	}
}
