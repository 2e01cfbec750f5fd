package bundle

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// proves R-A7 (no file takes much more memory than it is long)
func TestDecodeCaseRefusesTooManyPartsBeforeParsing(t *testing.T) {
	b := []byte(`{"anchored":[` + strings.Repeat("{},", 1_000_000) + `{}]}`)
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.ReadMemStats(&before)
	_, err := decodeCase(b)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "too many parts") || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%v, %d bytes", err, after.TotalAlloc-before.TotalAlloc)
	}
}

// proves R-A7
func TestAnEnvelopeIsNamedOnce(t *testing.T) {
	d, other := api.DigestOf([]byte("a")), api.DigestOf([]byte("b"))
	c := Case{V: 1, Run: "r1", Anchored: []Anchored{}, Rotations: [][]byte{}, Content: []Content{}}
	for _, x := range []struct {
		revisions []Revision
		records   []api.Digest
		ok        bool
	}{
		{[]Revision{{d, []api.Digest{d}}}, []api.Digest{other}, true},
		{[]Revision{{d, []api.Digest{d, d}}}, []api.Digest{}, false},
		{[]Revision{{d, []api.Digest{d}}, {other, []api.Digest{d}}}, []api.Digest{}, false},
		{[]Revision{{d, []api.Digest{d}}}, []api.Digest{d}, false},
		{[]Revision{}, []api.Digest{other, other}, false},
	} {
		c.Revisions, c.Records = x.revisions, x.records
		if err := c.check(); (err == nil) != x.ok {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

// A case of a newer format says so. A malformed one does not.
func TestACaseOfANewerFormatIsNamedAsSuch(t *testing.T) {
	c := Case{V: 1, Run: "r1", Entries: api.DigestOf(nil), Proof: api.DigestOf([]byte("p")), Anchored: []Anchored{}, Rotations: [][]byte{}, Revisions: []Revision{}, Records: []api.Digest{}, Content: []Content{}}
	whole, err := canon.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeCase(whole); err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, x := range []struct {
		old, new string
		newer    bool
	}{
		{`"v":1}`, `"v":2}`, true},
		{`"v":1}`, `"v":2,"weight":1}`, true},
		{`"v":1}`, `"v":1,"weight":1}`, true},
		{`"v":1}`, `"v":0}`, false},
		{`"v":1}`, `"v":1 }`, false},
		{`"v":1}`, `"v":2`, false},
		{`"run"`, `"Run"`, false},
	} {
		text := strings.Replace(string(whole), x.old, x.new, 1)
		if _, err := decodeCase([]byte(text)); err == nil || text == string(whole) || errors.Is(err, canon.ErrNewer) != x.newer {
			t.Errorf("%s: %v; want an error that names a newer version: %t", text, err, x.newer)
		}
	}
}
