package e2e

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// rawText is what the libraries say that the programs are built with.
var rawText = regexp.MustCompile(`arg\(s\)|flag\(s\)|unknown command|unknown shorthand|unknown flag:|invalid argument|strconv\.|validating root|flag needs|flags in the group|not defined:|parse error|Usage of|into Go|yaml:|json:|\b(open|stat|lstat) [^ ]+:|%!|panic|goroutine`)

// typedFlag is a flag in a help text whose value has a form.
var typedFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+) (int|uint|duration|float)\b`)

// operand is an argument in a usage line.
var operand = regexp.MustCompile(` [A-Z][A-Z|/-]+`)

// Every command of every program says in our words what is wrong with its
// arguments and flags, as text and as JSON.
func TestNoLibrarySpeaksToUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	try := func(program string, args ...string) {
		t.Helper()
		d := w.exec(filepath.Join(bin, program), args...)
		if d.status == 0 || d.stdout != "" || rawText.MatchString(d.stderr) || !strings.HasPrefix(d.stderr, program+": ") && !strings.HasPrefix(d.stderr, "bailiwick-deploy: ") && !strings.HasPrefix(d.stderr, "bailiwickd: ") {
			t.Errorf("%s %q: %s", program, args, d)
		}
	}
	seen := 0
	for _, program := range []string{"bailiwick", "bailiwick-deploy", "bailiwickd"} {
		var walk func(path ...string)
		walk = func(path ...string) {
			help := w.exec(filepath.Join(bin, program), append(path, "--help")...).stdout
			_, usage, _ := strings.Cut(help, "Usage:\n")
			usage, _, _ = strings.Cut(usage, "\n\n")
			verbs := 0
			for line := range strings.Lines(help) {
				name, short, ok := strings.Cut(strings.TrimSpace(line), "  ")
				if ok && strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ") && regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(name) && short != "" && name != "help" && name != "completion" {
					walk(append(append([]string{}, path...), name)...)
					verbs++
				}
			}
			seen++
			try(program, append(path, "--no-such-flag")...)
			try(program, append(path, "one", "two", "three", "four", "five")...)
			if verbs == 0 && operand.MatchString(strings.SplitN(usage, "[", 2)[0]) {
				try(program, path...)
			}
			for _, flag := range typedFlag.FindAllStringSubmatch(help, -1) {
				try(program, append(path, "--"+flag[1], "x1")...)
			}
		}
		walk()
	}
	if seen < 60 {
		t.Errorf("only %d commands were tried", seen)
	}
	for _, program := range []string{"bailiwick-mcp", "bailiwick-verify", "bailiwick-worker", "bailiwick-fetch", "bailiwick-toolhost"} {
		for _, line := range []string{"--no-such-flag", "one two three", "-o"} {
			try(program, strings.Fields(line)...)
		}
	}
	try("bailiwick-mcp", "--rate", "x")
	try("bailiwick-verify", "/nonexistent", "--trust", "/nonexistent")
	try("bailiwick-verify", "/nonexistent")
	if !rawText.MatchString("accepts 1 arg(s), received 0") || !rawText.MatchString("open x.yaml: no such file") {
		t.Error("control: what a library says passes")
	}
}

// With -o json an error is one JSON value on standard error, whatever program
// found it and wherever it was found.
func TestErrorsAreJSONOnRequest(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0)
	w.write("bad.yaml", "tasks:\n  - {id: a, subagent: sh, depends_on: [b]}\n  - {id: A_}\n", 0o644)
	for _, c := range []struct {
		line string
		code api.Code
		exit int
		has  string
	}{
		{"run show", api.CodeInvalid, 1, "argument RUN is missing"},
		{"run shwo", api.CodeInvalid, 1, "did you mean: bailiwick run show"},
		{"nothing", api.CodeInvalid, 1, `unknown verb \"nothing\"`},
		{"help nothing", api.CodeInvalid, 1, `unknown verb \"nothing\"`},
		{"completion nothing", api.CodeInvalid, 1, `unknown verb \"nothing\"`},
		{"run show r1 --last x", api.CodeInvalid, 1, "unknown flag --last"},
		{"audit list --last x", api.CodeInvalid, 1, "want a number from 1 to 1000"},
		{"audit list --first 1 --last 1", api.CodeInvalid, 1, "--first and --last exclude each other"},
		{"run show r-none", api.CodeNotFound, 1, "run list"},
		{"run submit " + w.path("bad.yaml"), api.CodeInvalid, 1, `"path":"$.tasks[0].depends_on[0]","task":"a"`},
		{"run submit " + w.path("none.yaml"), "", 1, "none.yaml: no such file"},
		{"dispatch run nobody", api.CodeDenied, 3, `"auditEntry":`},
		{"catalog show subagent/none", api.CodeNotFound, 1, "none"},
		{"catalog show --nothing", api.CodeInvalid, 1, "unknown flag --nothing"},
		{"audit verify " + w.path("none.evidence") + " --trust " + w.path("none.json"), api.CodeInvalid, 1, "none.json: no such file"},
	} {
		for _, format := range []string{"-o json", "--output=jsonl"} {
			if format != "-o json" && (strings.HasPrefix(c.line, "catalog") || strings.HasPrefix(c.line, "audit verify")) {
				continue
			}
			d := w.try(strings.Fields(c.line + " " + format)...)
			var out struct {
				Error api.Error `json:"error"`
			}
			if err := json.Unmarshal([]byte(d.stderr), &out); err != nil || d.status != c.exit || d.stdout != "" || strings.Count(d.stderr, "\n") != 1 {
				t.Errorf("%s %s: %v: %s", c.line, format, err, d)
				continue
			}
			if out.Error.Code != c.code && c.code != "" || out.Error.Message == "" || !strings.Contains(d.stderr, c.has) {
				t.Errorf("%s %s: want %s and %q: %s", c.line, format, c.code, c.has, d.stderr)
			}
		}
	}
}
