package catalogdiff

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
)

// What is within the bounds is whole, and nothing else is without a count.
func TestADiffIsCutWithACount(t *testing.T) {
	small := api.CatalogDiff{
		Changes: []api.ArtifactChange{{Op: api.OpChange, Ref: "env/a", Fields: []api.FieldChange{{Op: api.OpChange, Field: "values.A", Old: strings.Repeat("a", MaxText), New: "b"}}}},
		Widens:  []api.AuthorityChange{{Ref: "env/a", What: "x"}}, Narrows: []api.AuthorityChange{},
	}
	if got, omitted := Bound(small); omitted != nil || !reflect.DeepEqual(got, small) {
		t.Fatalf("a small diff is %.200v, and omits %+v", got, omitted)
	}
	huge := api.CatalogDiff{}
	for i := range MaxChanges + 7 {
		c := api.ArtifactChange{Op: api.OpAdd, Ref: api.RefTo(api.KindEnv, api.Name(fmt.Sprintf("e%d", i)))}
		for j := range 20 {
			c.Fields = append(c.Fields, api.FieldChange{Op: api.OpAdd, Field: fmt.Sprintf("values.V%d", j), New: "x"})
		}
		huge.Changes = append(huge.Changes, c)
	}
	for i := range MaxLines + 3 {
		huge.Widens = append(huge.Widens, api.AuthorityChange{Ref: "env/a", What: fmt.Sprint(i)})
		huge.Narrows = append(huge.Narrows, api.AuthorityChange{Ref: "env/a", What: fmt.Sprint(i)})
	}
	last := huge.Changes[len(huge.Changes)-1].Ref
	huge.Widens[0].Ref = last
	got, omitted := Bound(huge)
	if !slices.ContainsFunc(got.Changes, func(c api.ArtifactChange) bool { return c.Ref == last && len(c.Fields) == 20 }) {
		t.Errorf("the fields of %s, which widen authority, are omitted", last)
	}
	fields := 0
	for _, c := range got.Changes {
		fields += len(c.Fields)
	}
	if want := (api.DiffOmitted{Changes: 7, Fields: 20*MaxChanges - MaxFields, Widens: 3, Narrows: 3}); omitted == nil || *omitted != want {
		t.Errorf("it omits %+v, want %+v", omitted, want)
	}
	if len(got.Changes) != MaxChanges || fields != MaxFields || len(got.Widens) != MaxLines || len(got.Narrows) != MaxLines {
		t.Errorf("it has %d artifacts, %d fields, %d and %d lines", len(got.Changes), fields, len(got.Widens), len(got.Narrows))
	}
}

// A long value is cut at a character, and shows the difference rather than the
// beginning that both values share. Values do not crowd out lines.
func TestLongValuesAreCut(t *testing.T) {
	same := strings.Repeat("unchanged\n", MaxText)
	long := api.CatalogDiff{Widens: []api.AuthorityChange{{Ref: "env/a", What: "a" + strings.Repeat("ü", MaxText)}}}
	c := api.ArtifactChange{Op: api.OpChange, Ref: "subagent/a", Fields: []api.FieldChange{{Op: api.OpChange, Field: "system", Old: same + "be careful\n", New: same + "be quick\n"}}}
	for i := range 1000 {
		c.Fields = append(c.Fields, api.FieldChange{Op: api.OpAdd, Field: fmt.Sprintf("files/%d", i), New: strings.Repeat("ü", MaxText)})
	}
	long.Changes = append(long.Changes, c)
	got, omitted := Bound(long)
	if f := got.Changes[0].Fields[0]; !strings.HasSuffix(f.Old, "not changed)\nbe careful\n") || !strings.HasSuffix(f.New, "not changed)\nbe quick\n") || len(f.New) > 200 {
		t.Errorf("%.300q, %.300q", f.Old, f.New)
	}
	line := got.Widens[0].What
	if !utf8.ValidString(line) || len(line) > MaxText+50 || !strings.HasSuffix(line, fmt.Sprintf("\n(%d bytes more)", MaxText+2)) {
		t.Errorf("the line has %d bytes and ends with %q", len(line), line[len(line)-40:])
	}
	size, kept := 0, len(got.Changes[0].Fields)
	for _, f := range got.Changes[0].Fields {
		size += len(f.Old) + len(f.New)
	}
	if omitted == nil || omitted.Fields != 1001-kept || omitted.Texts != kept || omitted.Bytes < int64(kept-1)*MaxText || size > MaxTexts+(MaxText+100)*2+100*kept {
		t.Errorf("it has %d fields of %d bytes, and omits %+v", kept, size, omitted)
	}
}
