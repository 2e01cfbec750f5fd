package api

import (
	"slices"
	"strings"
	"testing"
)

func TestFilesThatACommandRuns(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		runs    string // paths, separated by spaces
		not     string
	}{
		"the program":            {Command{"./check.sh", "one.txt"}, "check.sh", "one.txt"},
		"in a directory":         {Command{"ci/check.sh"}, "ci/check.sh ci", "ci/other.sh"},
		"of the whole path":      {Command{"/workspace/ci/check.sh"}, "ci/check.sh", ""},
		"an umlaut":              {Command{"./prüfung.sh"}, "prüfung.sh", ""},
		"a script":               {Command{"sh", "check.sh", "one.txt"}, "check.sh", "one.txt sh"},
		"a script after options": {Command{"bash", "-eu", "-o", "pipefail", "check.sh"}, "check.sh", ""},
		"of a newer interpreter": {Command{"/usr/bin/python3.13", "tools/check.py"}, "tools/check.py", "usr/bin/python3.13"},
		"a required script":      {Command{"node", "--require", "hook.js", "main.js"}, "hook.js main.js", ""},
		"in a shell text":        {Command{"sh", "-c", "cd ci && sh check.sh | tee out.txt; ! tools/lint out.txt"}, "ci/check.sh tools/lint", "out.txt"},
		"behind another program": {Command{"sh", "-c", `LANG=C ci/check.sh; timeout 10 "./slow.sh"; . lib.sh; if ci/more.sh; then :; fi`}, "ci/check.sh slow.sh lib.sh ci/more.sh", "10"},
		"what it only names":     {Command{"sh", "-c", "test -s one.txt && grep -q x two/three.txt"}, "", "one.txt two/three.txt two test"},
		"a file with a blank":    {Command{"sh", "my check.sh"}, "", "check.sh"},
		"no file for the shell":  {Command{"bash", "-ec", "sh check.sh; x"}, "check.sh", ""},
		"packages of Go":         {Command{"go", "test", "./..."}, "", "..."},
		"elsewhere":              {Command{"../check.sh", "/bin/true", "./../x"}, "", "check.sh bin/true x"},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.command.Programs()
			for path := range strings.FieldsSeq(c.runs) {
				if !got[path] {
					t.Errorf("does not run %s: %v", path, got)
				}
			}
			if name == "a file with a blank" && !got["my check.sh"] || got["sh check.sh; x"] {
				t.Errorf("runs %v", got)
			}
			for path := range strings.FieldsSeq(c.not) {
				if got[path] {
					t.Errorf("runs %s", path)
				}
			}
		})
	}
}

func TestProgramsThatDoWhatFilesSay(t *testing.T) {
	for want, list := range map[string][]Command{
		"make":   {{"make", "check"}, {"sh", "-c", "cd x && LANG=C make -s; ! grep go x"}, {"/usr/bin/make"}},
		"pytest": {{"python3", "-m", "pytest", "tests"}},
		"":       {{"test", "-f", "make"}, {"sh", "-c", "grep make x"}, {"./check.sh"}},
	} {
		for _, c := range list {
			if got := c.Runner(); got != want {
				t.Errorf("%q: %q, want %q", c, got, want)
			}
		}
	}
}

func TestPatternsOfProtectedFiles(t *testing.T) {
	for _, c := range []struct {
		pattern, match, not string
	}{
		{"check.sh", "check.sh check.sh/x", "check.shx a/check.sh"},
		{"tests", "tests tests/a.py tests/a/b.py", "test tests2/a.py a/tests"},
		{"tests/**", "tests tests/a.py tests/a/b.py", "test tests2/a.py"},
		{"**/*_test.go", "a_test.go x/a_test.go x/y/ä_test.go", "a_test.goo x/a.go"},
		{"tests/**/conf?.py", "tests/conf1.py tests/a/b/confü.py", "tests/conf.py conf1.py"},
		{"**", "a a/b", ""},
		{"**/a/**/b", "a/b x/a/y/z/b x/a/b/c", "a/c b/a"},
		{"[Mm]akefile", "Makefile makefile", "x/Makefile"},
	} {
		if err := CheckPattern(c.pattern); err != nil {
			t.Error(err)
		}
		for name := range strings.FieldsSeq(c.match) {
			if !MatchPath(c.pattern, name) {
				t.Errorf("%s does not match %s", c.pattern, name)
			}
		}
		for name := range strings.FieldsSeq(c.not) {
			if MatchPath(c.pattern, name) {
				t.Errorf("%s matches %s", c.pattern, name)
			}
		}
	}
	for _, pattern := range []string{"", "/check.sh", "./check.sh", "../x", "..", ".", "tests/", "a//b", "a/../b", "a**", "**.py/x", "[a", strings.Repeat("a", MaxProtect+1)} {
		if CheckPattern(pattern) == nil {
			t.Errorf("pattern %q is accepted", pattern)
		}
	}
	// Many ** take no longer than the product of both lengths.
	if MatchPath(strings.Repeat("**/a/", 40)+"b", strings.Repeat("a/", 2000)+"c") {
		t.Error("matches")
	}
}

func TestWhatVerifyRuns(t *testing.T) {
	if (*Verify)(nil).Runs()("a") {
		t.Error("without verify, something runs")
	}
	runs := (&Verify{Command: Command{"make", "check"}, Protects: []string{"Makefile", "tests/**"}}).Runs()
	var got []string
	for _, name := range []string{"Makefile", "check", "tests/a.py", "src/a.py"} {
		if runs(name) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, []string{"Makefile", "tests/a.py"}) {
		t.Errorf("runs %q", got)
	}
	if text := (&VerifyReport{Changed: got}).ChangedText(func(s string) string { return s }); text != "the patch changes Makefile, tests/a.py, which verify runs" {
		t.Error(text)
	}
	for _, none := range []*VerifyReport{nil, {Passed: true}} {
		if text := none.ChangedText(nil); text != "" {
			t.Error(text)
		}
	}
}
