package deploycli

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

// inspectVerbs are the verbs that read the catalog.
type inspectVerbs struct{ *program }

// inspect is a verb that reads the catalog.
func (p *inspectVerbs) inspect(v *console.Verb, run func(context.Context, *deploy.Catalog, []string) error) {
	v.Do(func(ctx context.Context, args []string) error {
		return p.withCatalog(nil, func(c *deploy.Catalog) error { return run(ctx, c, args) })
	})
	p.formatFlag(v)
}

type listed struct {
	Ref         api.Ref    `json:"ref"`
	Digest      api.Digest `json:"digest"`
	Project     api.Name   `json:"project,omitempty"`
	Description string     `json:"description,omitempty"`
}

func (p *inspectVerbs) listCommand(v *console.Verb) {
	var project string
	p.inspect(v, func(ctx context.Context, c *deploy.Catalog, args []string) error {
		if len(args) == 1 && !slices.Contains(api.Kinds(), api.Kind(args[0])) {
			return api.Errorf(api.CodeInvalid, "list: unknown kind %q; want one of %s", args[0], api.OneOf(api.Kinds()))
		}
		r, err := current(ctx, c)
		if err != nil {
			return err
		}
		all := []listed{}
		for _, kind := range api.Kinds() {
			if len(args) == 1 && kind != api.Kind(args[0]) {
				continue
			}
			for _, name := range r.Names(kind) {
				e, err := r.Entry(kind, name)
				if err != nil {
					return err
				}
				if !v.Flags().Changed("project") || string(e.Project) == project {
					all = append(all, listed{api.RefTo(kind, name), e.Digest, e.Project, e.Description})
				}
			}
		}
		if len(all) == 0 && v.Flags().Changed("project") {
			p.print("note: project %q has no such artifact; the projects are: %s", project, projectNames(r))
		}
		return p.answer(all, func(o *out) {
			rows := make([][]string, 0, len(all))
			for _, a := range all {
				rows = append(rows, []string{string(a.Ref), cmp.Or(string(a.Project), "-"), a.Digest.Short(), a.Description})
			}
			o.table([]string{"ARTIFACT", "PROJECT", "DIGEST", "DESCRIPTION"}, rows)
		}, each(all, func(a listed) string { return string(a.Ref) })...)
	})
	v.Flag(&project, "project")
}

// projectNames lists the projects of a revision.
func projectNames(r *deploy.Revision) string {
	names := map[string]bool{}
	for _, e := range r.Document().Artifacts {
		names[cmp.Or(string(e.Project), "''")] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

func (p *inspectVerbs) showCommand(v *console.Verb) {
	var file string
	var raw bool
	p.inspect(v, func(ctx context.Context, c *deploy.Catalog, args []string) error {
		r, args, err := shownOf(ctx, c, args)
		switch {
		case err != nil:
			return err
		case len(args) == 0 && file != "":
			return p.showOnlyFile(ctx, c, r, file, raw)
		case len(args) == 0:
			return p.showRevision(r)
		}
		kind, name, err := api.Ref(args[0]).Split()
		if err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err)
		}
		if file != "" {
			return p.showFile(ctx, c, r, kind, name, file, raw)
		}
		return p.showArtifact(r, kind, name)
	})
	v.Flag(&file, "file")
	v.Flag(&raw, "raw")
}

// shownOf returns the revision that show is about, and the arguments without it: the
// proposal, if the first argument is its digest or the word "proposal".
func shownOf(ctx context.Context, c *deploy.Catalog, args []string) (*deploy.Revision, []string, error) {
	if len(args) == 0 || strings.Contains(args[0], "/") {
		if len(args) > 1 {
			return nil, nil, api.Errorf(api.CodeInvalid, "show: %q: want the digest of a proposal before %s", args[0], args[1])
		}
		r, err := current(ctx, c)
		return r, args, err
	}
	waiting, err := c.Proposal(ctx)
	if err != nil {
		return nil, nil, err
	}
	if waiting == nil {
		return nil, nil, api.Errorf(api.CodeNotFound, "no proposal waits for a signature").WithHint("the current revision: bailiwick catalog show KIND/NAME")
	}
	d := waiting.Revision.Digest()
	if args[0] != "proposal" && args[0] != string(d) && args[0] != d.Short() {
		return nil, nil, api.Errorf(api.CodeNotFound, "the proposal that waits is %s, not %.80s", d, args[0])
	}
	return waiting.Revision, args[1:], nil
}

// showOnlyFile shows the file with a path of the only capability that has it.
func (p *inspectVerbs) showOnlyFile(ctx context.Context, c *deploy.Catalog, r *deploy.Revision, file string, raw bool) error {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(r.Set().Capabilities)) {
		if slices.ContainsFunc(r.Set().Capabilities[name].Files, func(f api.File) bool { return f.Path == file }) {
			found = append(found, string(name))
		}
	}
	switch len(found) {
	case 0:
		return api.Errorf(api.CodeNotFound, "no capability has a file %q", file)
	case 1:
		return p.showFile(ctx, c, r, api.KindCapability, api.Name(found[0]), file, raw)
	}
	return api.Errorf(api.CodeInvalid, "several capabilities have a file %q: %s", file, strings.Join(found, ", ")).WithHint("name one: bailiwick catalog show %s capability/%s --file %s", r.Digest().Short(), found[0], file)
}

type shownRevision struct {
	Digest   api.Digest   `json:"digest"`
	Manifest api.Digest   `json:"manifest"`
	Signers  []string     `json:"signers"`
	Revision api.Revision `json:"revision"`
}

func (p *inspectVerbs) showRevision(r *deploy.Revision) error {
	s := shownRevision{Digest: r.Digest(), Manifest: r.Manifest(), Signers: []string{}, Revision: r.Document()}
	for _, k := range r.Signers() {
		s.Signers = append(s.Signers, string(k))
	}
	return p.answer(s, func(o *out) {
		o.row("revision", strconv.FormatUint(r.Number(), 10))
		o.row("digest", string(r.Digest()))
		o.row("manifest", string(r.Manifest()))
		o.row("created", p.o.Time(r.CreatedAt()))
		o.row("author", r.Author())
		if r.Reason() != "" {
			o.row("reason", r.Reason())
		}
		o.row("signed by", strings.Join(s.Signers, ", "))
		o.row("artifacts", strconv.Itoa(len(s.Revision.Artifacts)))
	}, string(r.Digest()))
}

type shownArtifact struct {
	Ref      api.Ref    `json:"ref"`
	Digest   api.Digest `json:"digest"`
	Project  api.Name   `json:"project,omitempty"`
	Document rawJSON    `json:"document"`
}

// rawJSON is an encoded document.
type rawJSON []byte

func (b rawJSON) MarshalJSON() ([]byte, error) { return b, nil }

func (p *inspectVerbs) showArtifact(r *deploy.Revision, kind api.Kind, name api.Name) error {
	e, err := r.Entry(kind, name)
	if err != nil {
		return err
	}
	ref := api.RefTo(kind, name)
	doc := r.Set().Document(ref)
	one := catalog.NewSet()
	if err := one.Add(ref, doc); err != nil {
		return err
	}
	var fields []api.FieldChange
	for _, c := range catalogdiff.Changes(nil, one) {
		fields = c.Fields
	}
	return p.answer(shownArtifact{ref, e.Digest, e.Project, doc}, func(o *out) { o.artifact(ref, e, fields) }, string(ref))
}

func (p *inspectVerbs) showFile(ctx context.Context, c *deploy.Catalog, r *deploy.Revision, kind api.Kind, name api.Name, file string, raw bool) error {
	if kind != api.KindCapability {
		return api.Errorf(api.CodeInvalid, "show --file: %s is not a capability and has no files", api.RefTo(kind, name))
	}
	v, _, err := r.Capability(name)
	if err != nil {
		return err
	}
	for _, f := range v.Files {
		if f.Path == file {
			b, err := c.File(ctx, f)
			if err != nil {
				return err
			}
			return p.o.Content(raw, func(w io.Writer) error { _, err := w.Write(b); return err })
		}
	}
	return api.Errorf(api.CodeNotFound, "capability/%s has no file %q", name, file)
}

func (p *inspectVerbs) verifyCommand(v *console.Verb) {
	p.inspect(v, func(ctx context.Context, c *deploy.Catalog, _ []string) error {
		rows, failed := c.Reader().Verify(ctx)
		var failures []string
		for _, r := range rows {
			if !r.OK {
				failures = append(failures, r.Check)
			}
		}
		err := p.answer(rows, func(o *out) {
			for _, r := range rows {
				word, code := "ok  ", "32"
				if !r.OK {
					word, code = "FAIL", "1;31"
				}
				o.linef("%s  %-12s  %s", o.paint(code, word), r.Check, visible(r.Detail))
			}
		}, failures...)
		if err != nil {
			return err
		}
		if failed != nil {
			return api.Errorf(api.CodeIntegrity, "the catalog %s does not verify: %w", p.catalogPath(), failed)
		}
		return nil
	})
}

func (p *inspectVerbs) historyCommand(v *console.Verb) {
	var limit int
	p.inspect(v, func(ctx context.Context, c *deploy.Catalog, _ []string) error {
		if _, err := current(ctx, c); err != nil {
			return err
		}
		all, err := c.Reader().History(ctx, limit)
		if err != nil {
			return err
		}
		return p.answer(all, func(o *out) {
			var rows [][]string
			for _, h := range all {
				rows = append(rows, []string{
					strconv.FormatUint(h.Number, 10), h.Digest.Short(), p.o.Ago(h.CreatedAt),
					h.Author, strconv.Itoa(h.Artifacts), h.Reason,
				})
			}
			o.table([]string{"REVISION", "DIGEST", "CREATED", "AUTHOR", "ARTIFACTS", "REASON"}, rows)
		}, each(all, func(h api.CatalogRevision) string { return string(h.Digest) })...)
	})
	v.Flag(&limit, "limit")
}

type difference struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	api.CatalogDiff
}

func (p *inspectVerbs) diffCommand(v *console.Verb) {
	p.inspect(v, func(ctx context.Context, c *deploy.Catalog, args []string) error {
		head, err := current(ctx, c)
		if err != nil {
			return err
		}
		revs := []*deploy.Revision{nil, head}
		for i, a := range args {
			n, err := strconv.ParseUint(strings.TrimPrefix(a, "r"), 10, 64)
			if err != nil {
				return api.Errorf(api.CodeInvalid, "diff: revision %q: want a number", a)
			}
			if revs[i], err = c.Reader().Numbered(ctx, n); err != nil {
				return err
			}
		}
		d := difference{revs[0].Number(), revs[1].Number(), c.Compare(ctx, revs[0].Set(), revs[1].Set())}
		return p.answer(d, func(o *out) {
			o.linef("From revision %d to revision %d:", d.From, d.To)
			o.line("")
			o.changes(d.Changes)
			o.widens(d.Widens)
			o.narrows(d.Narrows)
			verb := "differ"
			if len(d.Changes) == 1 {
				verb = "differs"
			}
			o.linef("%s %s. %s.", artifactCount(len(d.Changes)), verb, authorityCount(len(d.Widens), len(d.Narrows)))
		}, each(d.Changes, func(c api.ArtifactChange) string { return string(c.Ref) })...)
	})
}
