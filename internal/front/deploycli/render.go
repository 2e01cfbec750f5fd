package deploycli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
)

const maxBlockLines = 60

// plan writes a plan for a reviewer: every changed field, then what widens and what
// takes away authority, then the summary.
func (o *out) plan(p *deploy.Plan) {
	switch {
	case p.Manifest == "":
		o.linef("Moves artifacts to project %s.", p.Project)
	case p.Derived:
		o.linef("Project %s, after the name of the manifest's directory; \"project: %[1]s\" in the manifest keeps it.", p.Project)
	default:
		o.linef("Project %s.", p.Project)
	}
	if p.Base == (deploy.Mark{}) {
		o.line("Compared with an empty catalog:")
	} else {
		o.linef("Compared with revision %d (%s):", p.Base.Number, p.Base.Digest.Short())
	}
	o.line("")
	o.changes(p.Changes)
	for _, ref := range p.Stay {
		o.linef("= %s is not in the manifest and stays; --prune would remove it", ref)
	}
	for _, project := range slices.Sorted(maps.Keys(p.Others)) {
		if project == "" {
			o.linef("= %s of no project: untouched; give them to one with: bailiwick catalog move", artifactCount(p.Others[project]))
		} else if p.Manifest != "" {
			o.linef("= %s of project %s: untouched", artifactCount(p.Others[project]), project)
		}
	}
	if len(p.Stay)+len(p.Others) > 0 {
		o.line("")
	}
	o.widens(p.Widens)
	o.narrows(p.Narrows)
	for _, n := range p.Notes {
		o.linef("note: %s", visible(n))
	}
	if len(p.Notes) > 0 {
		o.line("")
	}
	o.line(summary(p))
}

func artifactCount(n int) string {
	if n == 1 {
		return "1 artifact"
	}
	return fmt.Sprintf("%d artifacts", n)
}

func summary(p *deploy.Plan) string {
	if p.Empty() && p.Manifest == "" {
		return fmt.Sprintf("No changes. All of it belongs to project %s.", p.Project)
	}
	if p.Empty() {
		return "No changes. The catalog matches the manifest."
	}
	added, changed, removed := p.Count()
	return fmt.Sprintf("Plan: %d to add, %d to change, %d to remove. %s.", added, changed, removed, authorityCount(len(p.Widens), len(p.Narrows)))
}

// authorityCount says how many lines widen authority, and how many take it away.
func authorityCount(widens, narrows int) string {
	text := "Nothing widens authority"
	switch {
	case widens == 1:
		text = "1 line widens authority"
	case widens > 1:
		text = fmt.Sprintf("%d lines widen authority", widens)
	}
	switch {
	case narrows == 1:
		text += ", 1 line takes it away"
	case narrows > 1:
		text += fmt.Sprintf(", %d lines take it away", narrows)
	}
	return text
}

func (o *out) widens(all []api.AuthorityChange) {
	o.marked("Widens authority:", "1;35", "!", each(all, func(w api.AuthorityChange) string { return fmt.Sprintf("%s: %s", w.Ref, visible(w.What)) }))
}

func (o *out) narrows(all []api.AuthorityChange) {
	o.marked("Takes authority away:", "1;31", "x", each(all, func(n api.AuthorityChange) string { return fmt.Sprintf("%s: %s", n.Ref, visible(n.What)) }))
}

func (o *out) marked(title, code, mark string, all []string) {
	if len(all) == 0 {
		return
	}
	o.line(title)
	for _, text := range all {
		o.line(o.paint(code, mark+" "+text))
	}
	o.line("")
}

func (o *out) changes(all []api.ArtifactChange) {
	for _, c := range all {
		sign, code := mark(c.Op)
		o.line(o.paint(code, sign+" "+string(c.Ref)))
		for _, f := range c.Fields {
			if c.Op == api.OpRemove && strings.Contains(f.Old, "\n") {
				f.Old = fmt.Sprintf("%d lines", strings.Count(f.Old, "\n")+1)
			}
			o.field(c.Op, f)
		}
		o.line("")
	}
}

func mark(op api.ChangeOp) (sign, code string) {
	switch op {
	case api.OpAdd:
		return "+", "32"
	case api.OpRemove:
		return "-", "31"
	case api.OpChange:
		return "~", "33"
	}
	return "?", "0"
}

func (o *out) field(artifact api.ChangeOp, f api.FieldChange) {
	sign, code := mark(f.Op)
	name := visible(f.Field)
	if f.Field == api.FieldProject && artifact == api.OpChange {
		o.line(o.paint(code, fmt.Sprintf("    %s belongs to project: %s -> %s", sign, orNone(f.Old), orNone(f.New))))
		return
	}
	if strings.Contains(f.Old, "\n") || strings.Contains(f.New, "\n") {
		o.line(o.paint(code, fmt.Sprintf("    %s %s:", sign, name)))
		o.block(f)
		return
	}
	text := ""
	switch f.Op {
	case api.OpAdd:
		text = visible(f.New)
	case api.OpRemove:
		text = visible(f.Old)
	case api.OpChange:
		text = visible(f.Old) + " -> " + visible(f.New)
	}
	if artifact != api.OpChange {
		code = "0"
	}
	o.line(o.paint(code, fmt.Sprintf("    %s %s: %s", sign, name, text)))
	o.content(f)
}

// content shows how the content of a file changes, and what of it is not shown. The plan
// has bounded it.
func (o *out) content(f api.FieldChange) {
	codes := map[byte]string{'+': "32", '-': "31", '@': "36"}
	for l := range strings.Lines(f.Text) {
		l = strings.TrimSuffix(l, "\n")
		o.line(o.paint(cmp.Or(codes[l[0]], "0"), "        "+visible(tabs(l))))
	}
	if f.Unshown != "" {
		o.linef("        (not shown: %s)", visible(f.Unshown))
	}
}

// orNone is the name of a project, or the placeholder of an artifact without one.
func orNone(project string) string {
	if project == "" {
		return "(none)"
	}
	return project
}

// block shows how a text of several lines changes, without the unchanged lines at
// its beginning and end.
func (o *out) block(f api.FieldChange) {
	before, after, head, tail := f.Lines()
	if head > 0 {
		o.linef("        (%s unchanged)", lineCount(head))
	}
	o.part("31", "- ", before)
	o.part("32", "+ ", after)
	if tail > 0 {
		o.linef("        (%s unchanged)", lineCount(tail))
	}
}

func (o *out) part(code, sign string, all []string) {
	for i, l := range all {
		if i == maxBlockLines {
			o.linef("        %s(%d more lines; catalog show has all)", sign, len(all)-i)
			return
		}
		o.line(o.paint(code, "        "+sign+visible(tabs(l))))
	}
}

// tabs makes the tabs of a changed line visible: spaces in their place are another line.
func tabs(l string) string { return strings.ReplaceAll(l, "\t", "→   ") }

func lineCount(n int) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

func (o *out) artifact(ref api.Ref, e api.Entry, fields []api.FieldChange) {
	o.row("artifact", string(ref))
	o.row("project", orNone(string(e.Project)))
	o.row("digest", string(e.Digest))
	for _, f := range fields {
		if !strings.Contains(f.New, "\n") {
			o.linef("%s: %s", visible(f.Field), visible(f.New))
			continue
		}
		o.linef("%s:", visible(f.Field))
		for l := range strings.SplitSeq(strings.TrimSuffix(f.New, "\n"), "\n") {
			o.line("    " + visible(strings.ReplaceAll(l, "\t", "    ")))
		}
	}
}
