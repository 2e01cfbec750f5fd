package evidence

import (
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// Evidence that a service exported before models, secrets and egress were part of the
// catalog verifies: a run with a need and an answered question, whose subagents name
// their model in words of their own. Control: with one leaf changed it is refused.
//
// proves R-A7
func TestEvidenceOfAnEarlierVersionVerifies(t *testing.T) {
	packed, err := os.ReadFile("testdata/earlier.evidence.gz")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	file, err := gzip.NewReader(bytes.NewReader(packed))
	check(err)
	b, err := bundle.Read(file, bundle.Limits{})
	check(err)
	known, err := os.ReadFile("testdata/earlier.trust.json")
	check(err)
	trust, err := ParseTrust(known)
	check(err)
	r := Verify(b, trust, Options{})
	if text := r.Text(); r.Failed() || strings.Count(text, ": done;") != 4 || !strings.Contains(text, "answered task b") {
		t.Errorf("%s", text)
	}
	b.Entries[7].Leaf = bytes.Replace(b.Entries[7].Leaf, []byte(`"attempt":1`), []byte(`"attempt":2`), 1)
	if r := Verify(b, trust, Options{}); !r.Failed() {
		t.Errorf("the control:\n%s", r.Text())
	}
}
