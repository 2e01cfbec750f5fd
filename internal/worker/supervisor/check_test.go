package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A patch cannot hide behind a symbolic link that it changes what verify runs. Next to each
// case the ordinary one: what only the agent's work is about is not named.
//
// proves R-D10
func TestChangedFilesThatVerifyRuns(t *testing.T) {
	verify := &api.Verify{Command: api.Command{"sh", "-c", "./check.sh && ci/prüfung.sh && test -s one.txt"}, Protects: []string{"tests/**"}}
	for name, c := range map[string]struct {
		changed []string
		links   map[string]string
		want    string
	}{
		"other files":                {[]string{"one.txt", "src/check.sh", "ci/other.sh", "test"}, nil, ""},
		"the command's file":         {[]string{"check.sh", "one.txt"}, nil, "check.sh"},
		"a name with an umlaut":      {[]string{"ci/prüfung.sh"}, nil, "ci/prüfung.sh"},
		"a protected file":           {[]string{"tests/a.py", "a.py"}, nil, "tests/a.py"},
		"a name that is escaped":     {[]string{"tests/a\n.py"}, nil, `"tests/a\n.py"`},
		"a file in a directory's":    {[]string{"ci"}, map[string]string{"ci": "other"}, "ci"},
		"the target of a link":       {[]string{"tools/real.sh"}, map[string]string{"check.sh": "tools/real.sh"}, "tools/real.sh"},
		"of a link in a directory":   {[]string{"x.sh"}, map[string]string{"ci/prüfung.sh": "../x.sh"}, "x.sh"},
		"of an absolute link":        {[]string{"x.sh"}, map[string]string{"check.sh": "/workspace/x.sh"}, "x.sh"},
		"of two links":               {[]string{"b/x.sh"}, map[string]string{"check.sh": "a/x.sh", "a": "b"}, "b/x.sh"},
		"of a linked directory":      {[]string{"other/prüfung.sh", "other/x"}, map[string]string{"ci": "other"}, "other/prüfung.sh"},
		"protected through a link":   {[]string{"data/deep/a.py", "b.py"}, map[string]string{"tests/unit": "../data"}, "data/deep/a.py"},
		"a link out of the tree":     {[]string{"etc/x"}, map[string]string{"check.sh": "/etc/x"}, ""},
		"a link to the top":          {[]string{"one.txt", "ci/prüfung.sh"}, map[string]string{"loop": ".", "src/up": ".."}, "ci/prüfung.sh"},
		"links of other files":       {[]string{"x.sh"}, map[string]string{"other.sh": "x.sh"}, ""},
		"a link whose target is not": {[]string{"x.sh"}, map[string]string{"check.sh": "y.sh"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(changedBy(verify.Runs(), c.changed, c.links), " "); got != c.want {
				t.Errorf("verify runs %q, want %q", got, c.want)
			}
		})
	}
	many := make([]string, 3*api.MaxChanged)
	for i := range many {
		many[i] = fmt.Sprintf("tests/%d", i)
	}
	if got := changedBy(verify.Runs(), many, nil); len(got) != api.MaxChanged || !slices.IsSorted(got) {
		t.Errorf("%d names, want the first %d in order: %q", len(got), api.MaxChanged, got)
	}
	// A file with more names than are tried counts as one that verify runs.
	links := map[string]string{}
	for i := range 100 {
		links[fmt.Sprintf("l%d", i)] = "."
	}
	if got := changedBy(verify.Runs(), []string{"x"}, links); len(got) != 1 {
		t.Error("a file with countless names is not named")
	}
}
