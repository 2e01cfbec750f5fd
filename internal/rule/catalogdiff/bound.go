package catalogdiff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// Bounds of what Bound returns.
const (
	MaxChanges = 500     // artifacts
	MaxFields  = 4000    // of all of them
	MaxLines   = 1000    // that widen authority, and as many that narrow it
	MaxText    = 4 << 10 // bytes of a value or line
	MaxTexts   = 1 << 20 // bytes of all values, and as many of all lines
)

// Bound returns a diff within the bounds, which is then for people to read, and what
// that omits: nil if nothing. Artifacts with a line that widens authority are kept before
// others, and the lines have bytes of their own, so that many changes hide no widening.
// The beginning that two long values share is omitted first.
func Bound(d api.CatalogDiff) (api.CatalogDiff, *api.DiffOmitted) {
	b := &bounds{left: MaxTexts}
	out := api.CatalogDiff{Changes: []api.ArtifactChange{}}
	out.Widens, b.omitted.Widens = b.lines(d.Widens)
	out.Narrows, b.omitted.Narrows = b.lines(d.Narrows)
	b.left = MaxTexts
	fields := 0
	for i, c := range widenedFirst(d) {
		if i == MaxChanges {
			b.omitted.Changes = len(d.Changes) - i
			break
		}
		kept := api.ArtifactChange{Op: c.Op, Ref: c.Ref, Fields: []api.FieldChange{}}
		for _, f := range c.Fields {
			if fields == MaxFields || b.left <= 0 {
				b.omitted.Fields++
				continue
			}
			fields++
			kept.Fields = append(kept.Fields, b.field(f))
		}
		out.Changes = append(out.Changes, kept)
	}
	slices.SortFunc(out.Changes, func(x, y api.ArtifactChange) int { return api.CompareRefs(x.Ref, y.Ref) })
	if b.omitted == (api.DiffOmitted{}) {
		return out, nil
	}
	return out, &b.omitted
}

// widenedFirst returns the changes, first those of artifacts with a line that widens
// authority.
func widenedFirst(d api.CatalogDiff) []api.ArtifactChange {
	widened := map[api.Ref]bool{}
	for _, l := range d.Widens {
		widened[l.Ref] = true
	}
	rank := func(c api.ArtifactChange) int {
		if widened[c.Ref] {
			return 0
		}
		return 1
	}
	changes := slices.Clone(d.Changes)
	slices.SortStableFunc(changes, func(x, y api.ArtifactChange) int { return rank(x) - rank(y) })
	return changes
}

type bounds struct {
	omitted api.DiffOmitted
	left    int // bytes
}

func (b *bounds) lines(all []api.AuthorityChange) (kept []api.AuthorityChange, omitted int) {
	kept = []api.AuthorityChange{}
	for i, l := range all {
		if i == MaxLines || b.left <= 0 {
			return kept, len(all) - i
		}
		l.What = b.text(l.What, 0)
		kept = append(kept, l)
	}
	return kept, 0
}

func (b *bounds) field(f api.FieldChange) api.FieldChange {
	same := 0
	if f.Op == api.OpChange && max(len(f.Old), len(f.New)) > MaxText {
		same = shared(f.Old, f.New)
	}
	f.Field = b.text(f.Field, 0)
	f.Old, f.New = b.text(f.Old, same), b.text(f.New, same)
	return f
}

// text returns s from the byte from on, within the bounds, and says in words how much it
// omits.
func (b *bounds) text(s string, from int) string {
	rest, before, after := s[from:], "", ""
	if from > 0 {
		before = fmt.Sprintf("(%d bytes, which have not changed)\n", from)
	}
	if len(rest) > MaxText {
		n := len(cuttext.Within(rest, MaxText))
		b.omitted.Texts++
		b.omitted.Bytes += int64(len(rest) - n)
		rest, after = rest[:n], fmt.Sprintf("\n(%d bytes more)", len(rest)-n)
	}
	b.left -= len(rest)
	return before + rest + after
}

// shared returns the length of the common beginning of two texts, up to the beginning of a
// line.
func shared(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return strings.LastIndexByte(a[:n], '\n') + 1
}
