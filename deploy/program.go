package deploy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// programs refuses a declared command of the form ./FILE that could not start: of a server
// of tools, whose directory has the files of its capability alone, or of a subagent, whose
// workspace has those of its capabilities and of the source that it starts from.
func (p *Plan) programs(l *strictyaml.List, declared map[api.Ref]*decl) {
	for _, name := range slices.Sorted(maps.Keys(p.set.Tools)) {
		d, v := declared[api.RefTo(api.KindTool, name)], p.set.Tools[name]
		if d == nil || v.Host() == nil || v.Host().Capability == "" {
			continue
		}
		key, command := "stdio.command", api.Command(nil)
		switch {
		case v.Stdio != nil:
			command = v.Stdio.Command
		case v.Run != nil:
			key, command = "run", v.Run.Command
		}
		p.program(l, d, key, command, []api.Name{v.Host().Capability}, false)
	}
	for _, name := range slices.Sorted(maps.Keys(p.set.Subagents)) {
		d, v := declared[api.RefTo(api.KindSubagent, name)], p.set.Subagents[name]
		if d == nil {
			continue
		}
		elsewhere := p.filesElsewhere(name)
		p.program(l, d, "command", v.Command, v.Capabilities, elsewhere)
		if v.Verify != nil {
			p.program(l, d, "verify", v.Verify.Command, v.Capabilities, true) // the agent may write it
		}
	}
}

// filesElsewhere reports whether a subagent may find files that its capabilities do not
// have: those of a source, or of a capability that its caller adds. As long as no grant
// names the subagent, nothing says where it starts.
func (p *Plan) filesElsewhere(subagent api.Name) bool {
	granted := false
	for _, g := range p.set.Grants {
		if !slices.Contains(g.Subagents, subagent) {
			continue
		}
		if granted = true; len(g.Sources) > 0 || len(g.Capabilities) > 0 {
			return true
		}
	}
	return !granted
}

// unprotected says what the verify of a subagent runs that its patch may change,
// if known; empty if it protects files, or all are of its capabilities.
func (p *Plan) unprotected(s api.Subagent) string {
	if s.Verify == nil || len(s.Verify.Protects) > 0 {
		return ""
	}
	own := map[string]bool{}
	for _, name := range s.Capabilities {
		for _, f := range p.set.Capabilities[name].Files {
			for dir := f.Path; dir != "."; dir = path.Dir(dir) {
				own[dir] = true
			}
		}
	}
	programs := s.Verify.Command.Programs()
	files := map[string]bool{}
	for name := range programs {
		if !own[name] {
			files[name] = true
		}
	}
	for name := range programs {
		delete(files, path.Dir(name))
	}
	if len(files) > 0 {
		return strings.Join(slices.Sorted(maps.Keys(files)), ", ") + ", which a patch may change"
	}
	if runner := s.Verify.Command.Runner(); runner != "" {
		return runner + ", which does what files of the source say, and a patch may change those"
	}
	return ""
}

// program refuses a command whose file is in none of its capabilities, unless it can be
// elsewhere, or is not executable there. Of several the last one counts, as in a jail.
func (p *Plan) program(l *strictyaml.List, d *decl, field string, command api.Command, in []api.Name, elsewhere bool) {
	if len(command) == 0 || !strings.HasPrefix(command[0], "./") {
		return
	}
	file, n := path.Clean(command[0]), d.at(field)
	var found *api.File
	from := api.Name("")
	for _, name := range in {
		v, known := p.set.Capabilities[name]
		if !known {
			return // references reports it
		}
		for i := range v.Files {
			if v.Files[i].Path == file {
				found, from = &v.Files[i], name
			}
		}
	}
	switch {
	case found != nil && found.Mode&0o111 == 0:
		l.Add(n.Line, n.Column, "%s: %s: %s of capability %s is not executable: chmod +x it", d.ref, field, strictyaml.Clip(command[0]), from)
	case found == nil && !elsewhere && len(in) == 0:
		l.Add(n.Line, n.Column, "%s: %s: %s would be a file of a capability or a source, and it has none", d.ref, field, strictyaml.Clip(command[0]))
	case found == nil && !elsewhere:
		l.Add(n.Line, n.Column, "%s: %s: no file %s in the capabilities %s", d.ref, field, strictyaml.Clip(command[0]), in)
	}
}
