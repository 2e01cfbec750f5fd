package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The documents are executed. In every Markdown file of the tree:
//
//   - In a console block, a line "$ COMMAND" is executed, and the lines below it
//     are its output, stdout and stderr together. The line "…" stands for any
//     lines, and "…" within a line for any text. A status other than 0 is the
//     last line of the output, "(exit status N)".
//   - An sh block is executed with "set -e".
//   - A block behind a line that only names a file, as in "`plan.yaml`:", is
//     written to that file, with mode 0644: a document says chmod where a reader has to.
//   - A block behind the line "<!-- not executed: REASON -->" is not executed.
//
// The commands of a document share one shell, in an empty home directory. No test does for
// a document what the document does not say. What remains is in newGuideWorld: the
// programs on the PATH, an identity for git, the directory examples of the tree, and for
// guide-agents.md alone the agent programs, which it says how to install. The commands of
// guide-team.md change a machine: TestTheTeamsGuideRuns executes them on one of its own.
//
// Digests, ids, times, durations and the like are compared as equal.

var updateGuides = flag.Bool("update", false, "write the output of a real run into the documents")

// maxNotExecuted is how many blocks of all documents may be left out.
const maxNotExecuted = 3

// guideStep is one command or file of a document.
type guideStep struct {
	line    int    // of the command, from 0
	script  string // for the shell
	checked bool   // whether its output is compared
	want    []string
	last    int // the line after its output
}

var (
	fence     = regexp.MustCompile("^```(\\w*)$")
	fileName  = regexp.MustCompile("^`([A-Za-z0-9_./~-]+)`:$")
	exception = regexp.MustCompile(`^<!-- not executed: (.+) -->$`)
)

// parseGuide finds the steps of a document, and how many blocks it leaves out.
func parseGuide(lines []string) (steps []guideStep, skipped int, err error) {
	for i := 0; i < len(lines); i++ {
		m := fence.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		end := i + 1
		for ; end < len(lines) && lines[end] != "```"; end++ { //nolint:revive // finds the end
		}
		if end == len(lines) {
			return nil, 0, fmt.Errorf("line %d: the block has no end", i+1)
		}
		before := ""
		for j := i - 1; j >= 0 && before == ""; j-- {
			before = lines[j]
		}
		body := lines[i+1 : end]
		name := fileName.FindStringSubmatch(before)
		switch {
		case exception.MatchString(before):
			skipped++
		case name != nil:
			steps = append(steps, guideStep{line: i, script: writeScript(name[1], body)})
		case m[1] == "sh":
			steps = append(steps, guideStep{line: i, script: "set -e\n" + strings.Join(body, "\n") + "\nset +e"})
		case m[1] == "console":
			found, err := consoleSteps(body, i+1)
			if err != nil {
				return nil, 0, err
			}
			steps = append(steps, found...)
		}
		i = end
	}
	return steps, skipped, nil
}

func writeScript(name string, body []string) string {
	return "mkdir -p " + filepath.Dir(name) + " && cat > " + name + " <<'END_OF_FILE'\n" + strings.Join(body, "\n") + "\nEND_OF_FILE\n"
}

func consoleSteps(body []string, first int) (steps []guideStep, err error) {
	for i, line := range body {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, guideStep{line: first + i, script: command, checked: true})
		} else if len(steps) == 0 {
			return nil, fmt.Errorf("line %d: output without a command", first+i+1)
		} else if s := &steps[len(steps)-1]; strings.HasSuffix(s.script, "\\") && len(s.want) == 0 {
			s.script += "\n" + line
		} else {
			s.want = append(s.want, line)
		}
		steps[len(steps)-1].last = first + i + 1
	}
	return steps, nil
}

// shell runs the steps in one shell and returns the output of each.
func (w *world) shell(steps []guideStep) (outputs [][]string) {
	w.t.Helper()
	var script strings.Builder
	for i, s := range steps {
		out := w.path("out", strconv.Itoa(i))
		fmt.Fprintf(&script, "{\n%s\n} > %s 2>&1 < /dev/null\nstatus=$?\n[ $status -eq 0 ] || echo \"(exit status $status)\" >> %s\n", s.script, out, out)
	}
	limit := 5 * time.Minute
	if *teamFlag { // on an emulated processor
		limit = 30 * time.Minute
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc")
	if w.bash != nil {
		cmd = w.bash(ctx)
	}
	cmd.Dir, cmd.Env, cmd.Stdin = w.path("home"), w.env, strings.NewReader(script.String())
	var own bytes.Buffer
	cmd.Stdout, cmd.Stderr = &own, &own
	start := cmd.Start
	if w.net != nil {
		start = func() error { return w.net.start(cmd) }
	}
	failed := start()
	if failed == nil {
		failed = cmd.Wait() // in an sh block
	}
	if own.Len() > 0 {
		w.t.Errorf("the shell says %s", own.String())
	}
	for i, s := range steps {
		text, err := os.ReadFile(w.path("out", strconv.Itoa(i)))
		if _, next := os.Stat(w.path("out", strconv.Itoa(i+1))); failed != nil && err == nil && next != nil {
			w.t.Errorf("the block at line %d: %v\n%s", s.line+1, failed, text)
		}
		if err != nil {
			text = []byte("(not executed: an earlier block failed)\n")
		}
		outputs = append(outputs, w.outputLines(string(text)))
	}
	return outputs
}

// waiting matches a line that a command prints when it takes longer than a second.
var waiting = regexp.MustCompile(`(?m)^waiting up to \S+ for a signed checkpoint that covers .*\n`)

// outputLines splits output and replaces the directories of this world by those of a
// reader. It leaves out what only a slow machine prints.
func (w *world) outputLines(text string) []string {
	text = waiting.ReplaceAllString(text, "")
	text = strings.ReplaceAll(text, w.path("home"), "~")
	text = strings.ReplaceAll(text, bin, "~/bailiwick/bin")
	if text = strings.TrimRight(text, "\n"); text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

// newGuideWorld makes a world like a reader's: one home directory, no variables.
func newGuideWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 0)
	must(t, os.Chmod(w.dir, 0o755))
	w.mkdir("out")
	w.write("gitconfig", "[user]\n\tname = Ann\n\temail = ann@localhost\n", 0o644)
	must(t, os.CopyFS(w.path("home/examples"), os.DirFS("../examples")))
	must(t, os.Chmod(w.path("home/examples/setup"), 0o755))
	w.env = []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"), "LC_ALL=C.UTF-8", "NO_COLOR=1",
		"XDG_RUNTIME_DIR=" + w.path("none"), // so that the socket lies with the state
		"GIT_CONFIG_GLOBAL=" + w.path("gitconfig"), "GIT_CONFIG_SYSTEM=/dev/null",
	}
	w.downAtEnd()
	return w
}

func guides(t *testing.T) []string {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md"):
			files = append(files, name)
		}
		return nil
	}))
	return files
}

// Each command of every document runs and prints what the document shows.
func TestDocumentedCommandsRun(t *testing.T) {
	t.Parallel()
	skipped := 0
	for _, file := range guides(t) {
		if slices.Contains(teamGuides(), file) {
			continue // TestTheTeamsGuideRuns
		}
		text, err := os.ReadFile(file)
		must(t, err)
		lines := strings.Split(string(text), "\n")
		steps, n, err := parseGuide(lines)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if skipped += n; len(steps) == 0 {
			continue
		}
		t.Run(strings.TrimPrefix(file, "../"), func(t *testing.T) {
			t.Parallel()
			w := newGuideWorld(t)
			if strings.HasSuffix(file, "/guide-agents.md") {
				w.withAgents(t)
			}
			outputs := w.shell(steps)
			for i, s := range slices.Backward(steps) { // from the end, so that lines stay where they are
				if got := outputs[i]; !s.checked && len(got) > 0 && strings.HasPrefix(got[len(got)-1], "(") {
					t.Errorf("%s:%d: the block fails:\n%s", file, s.line+1, strings.Join(got, "\n"))
				} else if s.checked && *updateGuides { // the whole page, so that it shows one session
					lines = slices.Replace(lines, s.last-len(s.want), s.last, refresh(s.want, got)...)
				} else if s.checked && !outputMatches(s.want, got) {
					t.Errorf("%s:%d: $ %s\nprints\n%s\nbut the document shows\n%s", file, s.line+1, s.script, strings.Join(got, "\n"), strings.Join(s.want, "\n"))
				}
			}
			if *updateGuides && !t.Failed() {
				must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644)) //nolint:gosec // a document
			}
		})
	}
	if skipped > maxNotExecuted {
		t.Errorf("%d blocks are not executed, want at most %d", skipped, maxNotExecuted)
	}
}

// alike has the parts of lines that differ from run to run.
var alike = []struct {
	part *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z|[+-]\d\d:\d\d)?)?`), "DATE"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b(a|d|t|r|run)-[0-9a-z]{12,}\b`), "$1-ID"},
	{regexp.MustCompile(`\b[0-9a-f]{7,64}\b`), "HEX"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(ns|µs|ms|s|m|h|bytes|B|KiB|MiB|GiB|TiB)\b`), "N $2"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+s\b`), "N s"},
	{regexp.MustCompile(`\bjust now\b|\b\d+ (second|minute)s? ago\b`), "AGO"},
	{regexp.MustCompile(`(process|pid:?) \d+`), "$1 N"},
	{regexp.MustCompile(`#\d+`), "#N"},
	{regexp.MustCompile(`\b\d+ (entries|other checkpoints)\b`), "N $1"}, // of a log that grows meanwhile
	{regexp.MustCompile(`root@[\w.-]+`), "root@HOST"},
	{regexp.MustCompile(`go1\.\d+(\.\d+)?`), "GO"},
	{regexp.MustCompile(`blw_[0-9A-Za-z_-]+`), "TOKEN"},
	{regexp.MustCompile(`[ \t─-]+`), " "}, // columns are as wide as what is in them
}

func normal(line string) string {
	for _, a := range alike {
		line = a.part.ReplaceAllString(line, a.as)
	}
	return strings.TrimSpace(line)
}

// outputMatches reports whether output is what a document shows of it.
func outputMatches(want, got []string) bool {
	_, ok := fill(want, got)
	return ok
}

// fill returns want with the lines of got that it matches. Lines with "…" stay.
func fill(want, got []string) (shown []string, ok bool) {
	if len(want) == 0 {
		return nil, len(got) == 0
	}
	if want[0] == "…" {
		if shown, ok = fill(want[1:], got); ok {
			return append([]string{"…"}, shown...), true
		}
		if len(got) == 0 || exitStatus(got[0]) {
			return nil, false
		}
		return fill(want, got[1:])
	}
	if len(got) == 0 || !lineMatches(want[0], got[0]) {
		return nil, false
	}
	line := got[0]
	if strings.Contains(want[0], "…") {
		line = want[0]
	}
	shown, ok = fill(want[1:], got[1:])
	return append([]string{line}, shown...), ok
}

// exitStatus reports whether a line shows a failure, which "…" never stands for.
func exitStatus(line string) bool { return strings.HasPrefix(line, "(exit status ") }

func lineMatches(want, got string) bool {
	parts := strings.Split(normal(want), "…")
	got = normal(got)
	for i, part := range parts {
		part = strings.TrimSpace(part)
		at := strings.Index(got, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		got = got[at+len(part):]
	}
	return len(parts) > 1 && strings.TrimSpace(parts[len(parts)-1]) == "" || strings.TrimSpace(got) == ""
}

// refresh returns the part of output that a document shows. If it does not match,
// each line shown becomes the most similar line of the output, in order, and the
// lines between stay left out. The line "<all>" becomes the whole output.
func refresh(want, got []string) (shown []string) {
	if shown, ok := fill(want, got); ok {
		return shown
	}
	if slices.Contains(want, "<all>") {
		return got
	}
	from := 0
	for i, line := range want {
		if line == "…" {
			continue
		}
		best, score := -1, 0.3
		for j := from; j < len(got); j++ {
			if s := similar(line, got[j]); s > score {
				best, score = j, s
			}
		}
		if best < 0 {
			continue
		}
		if best > from || i > 0 && want[i-1] == "…" && best > 0 && len(shown) == 0 {
			shown = append(shown, "…")
		}
		shown, from = append(shown, got[best]), best+1
	}
	switch {
	case from == len(got):
	case exitStatus(got[len(got)-1]):
		if from < len(got)-1 {
			shown = append(shown, "…")
		}
		shown = append(shown, got[len(got)-1])
	default:
		shown = append(shown, "…")
	}
	return shown
}

// similar is the share of words that two lines have in common.
func similar(a, b string) float64 {
	if normal(a) == normal(b) {
		return 2
	}
	x, y := strings.Fields(normal(a)), strings.Fields(normal(b))
	common := 0
	for _, word := range x {
		if i := slices.Index(y, word); i >= 0 {
			common++
			y = slices.Delete(y, i, i+1)
		}
	}
	return float64(2*common) / float64(len(x)+common+len(y))
}

// The check of documents fails on different output, and accepts what differs from
// run to run.
func TestDocumentCheckFindsFalseOutput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want, got string
		matches         bool
	}{
		{"the same", "a\nb", "a\nb", true},
		{"another line", "a\nb", "a\nc", false},
		{"a line more", "a", "a\nb", false},
		{"a line less", "a\nb", "a", false},
		{"left out", "a\n…\nd", "a\nb\nc\nd", true},
		{"nothing left out", "a\n…", "a", true},
		{"a failure that is left out", "a\n…", "a\n(exit status 1)", false},
		{"a failure that is shown", "a\n…\n(exit status 1)", "a\nb\n(exit status 1)", true},
		{"another status", "(exit status 3)", "(exit status 1)", false},
		{"left out in a line", "dispatch … finished", "dispatch x finished", true},
		{"another end of a line", "dispatch … finished", "dispatch x failed", false},
		{"the end of a line left out", "dispatch …", "dispatch x failed", true},
		{"another time and digest", "21:01:24 at 90fa948e6390 after 0.411 s [#5]", "07:11:00 at 0123456789ab after 1.4 s [#17]", true},
		{"another number", "3 tasks", "4 tasks", false},
	} {
		if got := outputMatches(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")); got != c.matches {
			t.Errorf("%s: matches is %t", c.name, got)
		}
	}
	steps, skipped, err := parseGuide(strings.Split("text\n```console\n$ false\n$ echo a \\\n  b\na b\n```\n`f.sh`:\n\n```sh\ntrue\n```\n\n<!-- not executed: needs a terminal -->\n```sh\nx\n```", "\n"))
	if err != nil || skipped != 1 || len(steps) != 3 {
		t.Fatalf("steps %+v, %d skipped, %v", steps, skipped, err)
	}
	w := newGuideWorld(t)
	outputs := w.shell(steps)
	if !slices.Equal(outputs[0], []string{"(exit status 1)"}) || !slices.Equal(outputs[1], steps[1].want) || len(outputs[2]) > 0 {
		t.Errorf("outputs %q", outputs)
	}
	if info, err := os.Stat(w.path("home/f.sh")); err != nil || info.Mode()&0o111 != 0 {
		t.Errorf("the file of the document, which no command made executable: %v, %v", info, err)
	}
	if _, _, err := parseGuide([]string{"```console", "$ true"}); err == nil {
		t.Error("a block without an end is accepted")
	}
	if got := refresh([]string{"the service runs as process 1", "…", "old"}, []string{"x", "the service is running as process 2", "y", "z"}); !slices.Equal(got, []string{"…", "the service is running as process 2", "…"}) {
		t.Errorf("refresh = %q", got)
	}
}

// Links between documents lead to files, and to headings where they name one.
func TestLinksBetweenDocumentsResolve(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	check := func(file, target string) error {
		path, anchor, _ := strings.Cut(target, "#")
		if strings.Contains(target, "://") {
			return nil
		}
		if path = filepath.Join(filepath.Dir(file), path); strings.HasPrefix(target, "#") {
			path = file
		}
		text, err := os.ReadFile(path)
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		if anchor != "" && !slices.Contains(headings(string(text)), anchor) {
			return fmt.Errorf("%s has no heading #%s", path, anchor)
		}
		return nil
	}
	for _, file := range guides(t) {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if err := check(file, m[1]); err != nil {
				t.Errorf("%s: (%s): %v", file, m[1], err)
			}
		}
	}
	if check("../README.md", "docs/nowhere.md") == nil || check("../README.md", "CONTRIBUTING.md#nowhere") == nil {
		t.Error("a link that leads nowhere is not noticed")
	}
}

// headings are the anchors of a document, as GitHub makes them.
func headings(text string) (anchors []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for line := range strings.Lines(text) {
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			anchors = append(anchors, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-"))
		}
	}
	return anchors
}

// Pictures are legible in light and dark, described in words, and run no code.
func TestPicturesAreReadableEverywhere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.svg")
	if must(t, err); len(files) < 5 {
		t.Fatalf("%d pictures", len(files))
	}
	lacking := func(text string) (bad []string) {
		for _, part := range []string{"<title", "<desc", "prefers-color-scheme: dark"} {
			if !strings.Contains(text, part) {
				bad = append(bad, part)
			}
		}
		if strings.Contains(text, "<script") || strings.Contains(text, "href=") {
			bad = append(bad, "safety: it has a script or a link")
		}
		return bad
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if bad := lacking(string(text)); len(bad) > 0 {
			t.Errorf("%s lacks %q", file, bad)
		}
	}
	if len(lacking("<svg><script/></svg>")) != 4 {
		t.Error("a picture without any of it is not noticed")
	}
}

// A reader of README.md sees the tour on two screens.
func TestReadmeTourIsShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	must(t, err)
	steps, _, err := parseGuide(strings.Split(string(text), "\n"))
	must(t, err)
	n := 0
	for _, s := range steps {
		n += len(s.want)
	}
	if n < 20 || n > 60 {
		t.Errorf("the tour shows %d lines of output, want 20 to 60", n)
	}
}
