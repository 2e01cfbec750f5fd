package evidence

import (
	"bytes"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// An entry that only a newer version writes fails, and the report says what to do. A
// malformed entry fails without that advice.
func TestEntriesOfANewerVersionAreNamedAsSuch(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	for _, c := range []struct {
		name, old, new string
		newer          bool
	}{
		{"kind", `"kind":"dispatch.started"`, `"kind":"dispatch.paused"`, true},
		{"member", `"v":1}`, `"v":1,"weight":2}`, true},
		{"member of the detail", `"detail":{`, `"detail":{"a":1,`, true},
		{"version", `"v":1}`, `"v":2}`, true},
		{"white space", `"v":1}`, `"v":1 }`, false},
		{"type", `"attempt":1`, `"attempt":"1"`, false},
		{"version 0", `"v":1}`, `"v":0}`, false},
		{"capitals", `"action"`, `"Action"`, false},
		{"name of the kind", `"kind":"dispatch.started"`, `"kind":"<b>"`, false},
	} {
		b := s.bundle(bundle.Case{Dispatch: "d-01"})
		i := slices.IndexFunc(b.Entries, func(e bundle.Entry) bool { return s.entries[e.Seq].Kind == record.KindDispatchStarted })
		b.Entries = slices.Clone(b.Entries)
		leaf := bytes.Replace(b.Entries[i].Leaf, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(leaf, b.Entries[i].Leaf) {
			t.Fatalf("%s: nothing changed in %s", c.name, leaf)
		}
		b.Entries[i].Leaf = leaf
		r := Verify(b, s.trust(), Options{})
		if row := r.Row(report.RowCompleteness); row.Status != report.Fail || strings.Contains(row.Why, report.UseNewer) != c.newer {
			t.Errorf("%s: want the advice: %t\n%s", c.name, c.newer, r.Text())
		}
	}
}

// A trust file of a newer version ends the command with what to do. A malformed one
// does not.
func TestATrustFileOfANewerVersionIsNamedAsSuch(t *testing.T) {
	s := newStory(t)
	trust, err := s.trust().Encode()
	s.must(err)
	for _, c := range []struct {
		name, old, new string
		newer          bool
	}{
		{"version", `"v":1}`, `"v":2}`, true},
		{"member", `"v":1}`, `"v":1,"weight":2}`, true},
		{"version 0", `"v":1}`, `"v":0}`, false},
		{"capitals", `"v":1}`, `"V":1}`, false},
		{"text", `"v":1}`, `"v":1`, false},
	} {
		text := strings.Replace(string(trust), c.old, c.new, 1)
		if text == string(trust) {
			t.Fatalf("%s: nothing changed in %s", c.name, trust)
		}
		var stderr bytes.Buffer
		status := Command([]string{"x.evidence", "--trust", "trust.json"}, io.Discard, &stderr, Files{Open: func(name string) (io.ReadCloser, error) {
			if name != "trust.json" {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(strings.NewReader(text)), nil
		}})
		if status != 1 || strings.Contains(stderr.String(), report.UseNewer) != c.newer {
			t.Errorf("%s: exit status %d, want the advice: %t: %s", c.name, status, c.newer, stderr.String())
		}
	}
}
