package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

func TestResultsNameWhatVerifyRuns(t *testing.T) {
	verify := &api.Verify{Command: api.Command{"./check.sh"}, Protects: []string{"tests/**"}}
	files := func(names ...string) (list []api.FileChange) {
		for _, name := range names {
			list = append(list, api.FileChange{Path: name, Change: "modified"})
		}
		return list
	}
	many := make([]string, api.MaxFiles)
	for i := range many {
		many[i] = fmt.Sprintf("x/%04d", i)
	}
	for name, c := range map[string]struct {
		files   []api.FileChange
		changed []string
		failed  string
	}{
		"nothing":               {files("one.txt"), nil, ""},
		"all":                   {files("check.sh", "one.txt", "tests/ä.py"), []string{"check.sh", "tests/ä.py"}, ""},
		"through a link":        {files("check.sh", "real.sh"), []string{"check.sh", "real.sh"}, ""},
		"one is missing":        {files("check.sh", "tests/a.py"), []string{"check.sh"}, "tests/a.py, which verify runs"},
		"all are missing":       {files("check.sh"), nil, "check.sh, which verify runs"},
		"an escaped one":        {files(`"tests/a\n.py"`), nil, "which verify runs"},
		"an umlaut":             {files("tests/ä.py"), nil, "which verify runs"},
		"not of the patch":      {files("one.txt"), []string{"check.sh"}, "which the patch does not change"},
		"beyond what is listed": {files(many...), []string{"check.sh"}, ""},
		"twice":                 {files("check.sh"), []string{"check.sh", "check.sh"}, "sorted"},
		"not in order":          {files("check.sh", "tests/a"), []string{"tests/a", "check.sh"}, "sorted"},
	} {
		t.Run(name, func(t *testing.T) {
			sum := &api.ResultSummary{Files: c.files, Verify: &api.VerifyReport{Passed: true, Changed: c.changed}}
			err := CheckChanged(verify, sum)
			if (err != nil) != (c.failed != "") || err != nil && !strings.Contains(err.Error(), c.failed) {
				t.Errorf("%v, want %q", err, c.failed)
			}
			sum.Verify = nil
			if err := CheckChanged(verify, sum); err != nil {
				t.Errorf("without a verify: %v", err)
			}
		})
	}
}

func TestEntriesCountWhatVerifyRuns(t *testing.T) {
	end, _ := EndOf(&api.ResultSummary{Verify: &api.VerifyReport{Passed: true, Changed: []string{"check.sh"}}})
	if text := end.describe(&Entry{Kind: KindDispatchFinished}); !strings.Contains(text, "verify passed (the patch changes 1 file that it runs)") {
		t.Error(text)
	}
	end, _ = EndOf(&api.ResultSummary{Verify: &api.VerifyReport{Passed: true}})
	if text := end.describe(&Entry{Kind: KindDispatchFinished}); !strings.HasSuffix(text, "verify passed") {
		t.Error(text)
	}
}
