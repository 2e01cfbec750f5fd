package webpage

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// revisionPage is a revision of the catalog with what it changed.
type revisionPage struct {
	api.RevisionChanges
	Previous, Next  uint64 // 0: none
	Artifacts       []changed
	Widens, Narrows []authorityLine
	Cut             []string // what is omitted, in words
}

// changed is an artifact that a revision changed.
type changed struct {
	api.ArtifactChange

	ID             string // of the part of the page
	Fields         []changedField
	Wider, Smaller int // lines about it
}

// changedField is a field of it, without the lines that both texts begin or end with.
type changedField struct {
	api.FieldChange

	Head, Tail int // how many such lines
}

// authorityLine is a line about authority.
type authorityLine struct {
	api.AuthorityChange

	At string // the part of the page about its artifact; empty: none
}

// revision shows what a revision of the catalog changed in the one before.
func (s catalogPages) revision(r *http.Request) (*view, error) {
	n, err := pathNumber(r, "number", "revision", 1)
	if err != nil {
		return nil, err
	}
	rev, err := s.operator(r.Context()).Revision(r.Context(), n)
	if err != nil {
		return nil, err
	}
	p := &revisionPage{RevisionChanges: rev, Previous: n - 1, Cut: cutWords(rev.Omitted)}
	if n < rev.Current {
		p.Next = n + 1
	}
	at := map[api.Ref]int{}
	for i, c := range rev.Changes {
		at[c.Ref] = i
		one := changed{ArtifactChange: c, ID: "change-" + decimal(i+1)}
		for _, f := range c.Fields {
			one.Fields = append(one.Fields, excerpt(f))
		}
		p.Artifacts = append(p.Artifacts, one)
	}
	lines := func(list []api.AuthorityChange, count func(*changed)) (all []authorityLine) {
		for _, l := range list {
			line := authorityLine{AuthorityChange: l}
			if i, ok := at[l.Ref]; ok {
				line.At = p.Artifacts[i].ID
				count(&p.Artifacts[i])
			}
			all = append(all, line)
		}
		return all
	}
	p.Widens = lines(rev.Widens, func(c *changed) { c.Wider++ })
	p.Narrows = lines(rev.Narrows, func(c *changed) { c.Smaller++ })
	return &view{"revision", "Revision " + strconv.FormatUint(n, 10) + " of the catalog", p}, nil
}

// excerpt is a field without the lines of a text that have not changed.
func excerpt(f api.FieldChange) changedField {
	c := changedField{FieldChange: f}
	if f.Op != api.OpChange || !strings.Contains(f.Old, "\n") && !strings.Contains(f.New, "\n") {
		return c
	}
	before, after, head, tail := f.Lines()
	if len(before)+len(after) == 0 {
		return c // only the end of the last line differs
	}
	c.Old, c.New, c.Head, c.Tail = strings.Join(before, "\n"), strings.Join(after, "\n"), head, tail
	return c
}

// cutWords says what the service omits of a revision.
func cutWords(o *api.DiffOmitted) (words []string) {
	if o == nil {
		return nil
	}
	for _, c := range []struct {
		n          int
		one, other string
	}{
		{o.Widens, "1 line that widens authority", "%d lines that widen authority"},
		{o.Narrows, "1 line that takes authority away", "%d lines that take authority away"},
		{o.Changes, "1 artifact", "%d artifacts"},
		{o.Fields, "1 field", "%d fields"},
		{o.Texts, "the end of 1 text", "the ends of %d texts"},
	} {
		switch {
		case c.n == 1:
			words = append(words, c.one)
		case c.n > 1:
			words = append(words, fmt.Sprintf(c.other, c.n))
		}
	}
	return words
}
