package catalogdiff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// executable is the bit of a mode that lets a file be run.
const executable = 0o100

// ranFiles lists the added, changed and removed files of a capability that an agent, a
// verify, a setup or a server of tools runs, if that can be known: a command names
// the file, or it is executable. The other files of such a capability are listed too, since
// what runs may load them, and so are all files of one that a command has whose words name
// none of them: make and pytest find their files themselves. The files of an agent program
// are text for it, but for hidden ones, which are its settings.
func (w *widening) ranFiles(ref api.Ref, old, v api.Capability) {
	before := map[string]api.File{}
	for _, f := range old.Files {
		before[f.Path] = f
	}
	users := w.usersOf(v)
	if len(users) == 0 {
		return
	}
	for _, f := range old.Files {
		is := func(now api.File) bool { return now.Path == f.Path }
		if who := namedBy(users, f); who != "" && !slices.ContainsFunc(v.Files, is) {
			w.add(ref, "removed file %s: %s runs it, and would run one of the source in its place", f.Path, who)
		}
	}
	loader := ""
	by := make([]string, len(v.Files))
	for i, f := range v.Files {
		if by[i] = runnerOf(users, f); by[i] != "" && loader == "" {
			loader = f.Path
		}
	}
	for i, f := range v.Files {
		was, had := before[f.Path]
		what := "changed"
		switch {
		case had && was == f || f.Path == v.Setup: // capability has the line of the setup script
			continue
		case !had:
			what = "new"
		case was.Digest == f.Digest && f.Mode&executable != 0:
			what = "now executable"
		}
		switch {
		case by[i] != "":
			w.add(ref, "%s file %s: %s", what, f.Path, by[i])
		case loader != "":
			w.add(ref, "%s file %s: %s is run and can load it", what, f.Path, loader)
		default:
			if who := loaderOf(users, f); who != "" {
				w.add(ref, "%s file %s: %s can load it", what, f.Path, who)
			}
		}
	}
}

// user is who has the files of a capability, and which of them it is known to run.
type user struct {
	what  string          // completes "X runs it"
	paths map[string]bool // nil: any executable file
}

// namedBy returns whose command names a file; empty if none does.
func namedBy(users []user, f api.File) string {
	for _, u := range users {
		if u.paths[f.Path] {
			return u.what
		}
	}
	return ""
}

// loaderOf returns who may load a file that no command names: any command, and an agent
// program if the file is hidden.
func loaderOf(users []user, f api.File) string {
	for _, u := range users {
		if len(u.paths) > 0 || u.paths == nil && strings.Contains("/"+f.Path, "/.") {
			return u.what
		}
	}
	return ""
}

// runnerOf says who runs a file; empty if nobody is known to.
func runnerOf(users []user, f api.File) string {
	if who := namedBy(users, f); who != "" {
		return who + " runs it"
	}
	for _, u := range users {
		if u.paths == nil && f.Mode&executable != 0 {
			return u.what + " can run it"
		}
	}
	return ""
}

// usersOf lists who has the files of a capability after the change.
func (w *widening) usersOf(c api.Capability) (all []user) {
	if c.Setup != "" {
		all = append(all, user{"setup", map[string]bool{c.Setup: true}})
	}
	for _, name := range slices.Sorted(maps.Keys(w.after.Subagents)) {
		s := w.after.Subagents[name]
		if !slices.Contains(s.Capabilities, c.Name) {
			continue
		}
		all = append(all, user{fmt.Sprintf("the agent of subagent %s", name), s.Command.Paths()})
		if s.Verify != nil {
			all = append(all, user{fmt.Sprintf("the verify of subagent %s", name), s.Verify.Command.Paths()})
		}
		all = append(all, user{what: fmt.Sprintf("the agent of subagent %s", name)})
	}
	for _, name := range slices.Sorted(maps.Keys(w.after.Tools)) {
		if h := w.after.Tools[name].Host(); h != nil && h.Capability == c.Name {
			all = append(all, user{fmt.Sprintf("server %s", name), hostCommand(w.after.Tools[name]).Paths()}, user{what: fmt.Sprintf("server %s", name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.after.Grants)) {
		if slices.Contains(w.after.Grants[name].Capabilities, c.Name) {
			all = append(all, user{what: fmt.Sprintf("an agent that grant %s lets have it", name)})
		}
	}
	return all
}

// lostFiles lists the files that a command of a subagent names and that it had from a
// capability which it no longer has: it would run a file of the source in their place.
func (w *widening) lostFiles(ref api.Ref, old, v api.Subagent) {
	runs := []user{{"the agent", v.Command.Paths()}}
	if v.Verify != nil {
		runs = append(runs, user{"the verify", v.Verify.Command.Paths()})
	}
	for _, name := range old.Capabilities {
		if slices.Contains(v.Capabilities, name) {
			continue
		}
		for _, f := range w.before.Capabilities[name].Files {
			if who := namedBy(runs, f); who != "" {
				w.add(ref, "no longer has file %s of capability %s: %s runs it, and would run one of the source in its place", f.Path, name, who)
			}
		}
	}
}

// hostCommand is what a server of tools runs in a jail.
func hostCommand(s api.ToolServer) api.Command {
	switch {
	case s.Stdio != nil:
		return s.Stdio.Command
	case s.Run != nil:
		return s.Run.Command
	}
	return nil
}
