package e2e

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// steering is what a terminal would obey: a title, a cleared screen, the same in
// one byte, a reversed line, a carriage return, text that cannot be seen.
const steering = "\x1b]0;owned\x07\x1b[2J\u009b2J\u202egpj.\x7f\rover\u200b"

// steers returns the first character that a terminal obeys or hides; the terminal
// itself puts a carriage return before a newline.
func steers(screen string) string {
	for _, r := range strings.ReplaceAll(progressLine.ReplaceAllString(screen, ""), "\r\n", "\n") {
		if r != '\n' && r != '\t' && (!unicode.IsPrint(r) || unicode.Is(unicode.Cf, r)) {
			return string(r)
		}
	}
	return ""
}

// progressLine matches the line that a command redraws while something is in progress, and
// its removal.
var progressLine = regexp.MustCompile(`(\r\x1b\[K[\w -]+, \d+s)+\r\x1b\[K`)

// On a terminal no command obeys or passes on control sequences of agents,
// callers and files: all of them are shown as text. Into a pipe, and with --raw,
// content is exact. The control: --raw on a terminal.
//
// proves R-D7, R-S4
func TestTerminalsObeyNoContent(t *testing.T) {
	t.Parallel()
	w := orchestrated(t, 0, subagent{name: "evil", script: "# " + steering})
	w.write("project/evil.sh", "#!/bin/sh\n# "+steering+"\n", 0o755)
	const octal = `\033]0;owned\007\033[2J\302\2332J\342\200\256gpj.\177\rover\342\200\213`
	script := `printf '` + octal + `\n' > a.txt; mkdir -p outputs; printf '` + octal + `\n' > outputs/report
printf x > "outputs/$(printf 'n\033[2J\302\233')"; printf x > "$(printf 'f\033[2J\302\233')"; printf '` + octal + `\n'`
	w.submit(planned("work", shellTask("a", script)))
	w.must("run", "wait", "work")
	id := strings.TrimSpace(w.must("dispatch", "list", "--run", "work", "-o", "name"))
	w.try("dispatch", "run", "edit"+steering, "-q") // an invalid request is in the log
	w.must("principal", "add", "agent:ann")
	w.must("stop", "--principal", "agent:ann", "--reason", steering)
	w.submit(planned("asking", shellTask("q", `mkdir -p .bailiwick; printf '{"question":"\\u001b[2J\\u009b2J\\u202eWhich?","options":["\\u001b[2Jx"]}' > .bailiwick/question.json`)))
	asks := strings.TrimSpace(w.must("dispatch", "list", "--run", "asking", "-o", "name"))
	w.write("hostile.yaml", "id: hostile\nlabels: {a: \"\\e[2J\\u009b2J\\u202e\"}\ntasks:\n  - {id: \"a\\e[2J\", subagent: sh, \"\\e[2Jx\": \"\\u009b2J\"}\n", 0o644)
	for _, args := range [][]string{
		{"dispatch", "patch", id},
		{"dispatch", "patch", id, "-o", "json"},
		{"dispatch", "outputs", id},
		{"dispatch", "outputs", id, "report"},
		{"dispatch", "outputs", id, "-o", "json"},
		{"dispatch", "outputs", id, "-o", "name"},
		{"dispatch", "outputs", id, "-o", "jsonl"},
		{"dispatch", "show", id},
		{"dispatch", "show", id, "-o", "json"},
		{"dispatch", "logs", id},
		{"dispatch", "logs", id, "-o", "jsonl"},
		{"dispatch", "list", "-o", "json"},
		{"run", "patch", "work", "a"},
		{"run", "outputs", "work"},
		{"run", "outputs", "work", "-o", "json"},
		{"run", "outputs", "work", "-o", "name"},
		{"run", "show", "work"},
		{"run", "show", "work", "-o", "json"},
		{"run", "logs", "work"},
		{"run", "logs", "work", "-o", "jsonl"},
		{"run", "show", steering},
		{"dispatch", "show", steering},
		{"dispatch", "show", steering, "-o", "json"},
		{"run", "render", w.path("hostile.yaml")},
		{"run", "apply", "work", "--repo", w.path("repo"), "--branch", "shown-run"},
		{"catalog", "history"},
		{"catalog", "list"},
		{"catalog", "verify"},
		{"catalog", "diff", steering},
		{steering},
		{"--" + steering},
		{"audit", "list"},
		{"audit", "list", "-o", "jsonl"},
		{"stop", "list"},
		{"stop", "list", "-o", "json"},
		{"dispatch", "run", "sh", "--input", steering},
		{"catalog", "show", steering},
		{"catalog", "plan", "-f", steering},
		{"run", "validate", w.path("project/evil.sh")},
		{"run", "import", w.path("project/evil.sh")},
		{"doctor", "--config", steering},
		{"catalog", "show", "capability/evil", "--file", "evil.sh"},
		{"catalog", "show", "capability/evil"},
		{"catalog", "show", "capability/evil", "-o", "json"},
		{"audit", "export", steering},
		{"can", steering},
		{"subagent", "show", steering},
		{"can", "local:root", "dispatch", "sh", "--socket", steering},
		{"waiting"},
		{"waiting", "-o", "json"},
		{"dispatch", "show", asks},
		{"run", "show", "asking"},
		{"run", "list"},
		{"run", "list", "-o", "json"},
		{"run", "validate", w.path("hostile.yaml")},
		{"run", "submit", w.path("hostile.yaml")},
		{"dispatch", "run", "sh", "--source", "repo", "--input", `{"do":"printf '` + strings.ReplaceAll(octal, `\`, `\\`) + `'"}`},
		{"dispatch", "apply", id, "--repo", w.path("repo"), "--branch", "shown"},
		{"gc"},
		{"principal", "list"},
		{"audit", "show", "1"},
		{"audit", "verify", w.path("hostile.yaml"), "--trust", w.path("hostile.yaml")},
		{"audit", "verify", steering, "--trust", steering},
		{"queue", "list"},
		{"completion", steering},
		{"doctor"},
		{"status"},
	} {
		if args[0] != "catalog" && args[0] != "doctor" { // other programs, without a pager
			args = append([]string{"--no-pager"}, args...)
		}
		s := w.onTerminal(200, args...)
		s.end()
		if r := steers(s.text()); r != "" || !strings.Contains(s.text(), "x") && len(s.text()) == 0 {
			t.Errorf("%q: the terminal gets %q:\n%q", args, r, s.text())
		}
	}
	// The controls: asked for, and into a pipe.
	for _, args := range [][]string{{"dispatch", "patch", id}, {"dispatch", "outputs", id, "report"}, {"run", "patch", "work", "a"}, {"catalog", "show", "capability/evil", "--file", "evil.sh"}} {
		s := w.onTerminal(200, append(args, "--raw")...)
		s.end()
		if steers(s.text()) == "" {
			t.Errorf("the control: %q --raw shows\n%q", args, s.text())
		}
		if got := w.must(args...); !strings.Contains(got, steering) {
			t.Errorf("the control: %q into a pipe: %q", args, got)
		}
	}
	if s := w.onTerminal(200, "dispatch", "patch", id); s.end() != 0 || !regexp.MustCompile(`\+\\x1b\]0;owned`).MatchString(s.text()) || !strings.Contains(s.text(), "--raw") {
		t.Errorf("the patch on a terminal: %q", s.text())
	}
}
