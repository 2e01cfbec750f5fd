package cli

import (
	"net/http"
	"strings"
	"testing"
)

// A hostile service cannot put anything on a command line that a shell would read
// as more than a word, nor anything on the terminal.
func TestCompletionPassesOnlyPlainWords(t *testing.T) {
	hostile := []string{`good`, `$(touch x)`, `a;b`, `a b`, "a\u001b[31m", `-rf`, "`id`", `a'b`, `a\"b`, `a|b`, `~x`, "a\nb", `*`, `é`}
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var items []string
		for _, word := range hostile {
			word = strings.NewReplacer("\x1b", `\u001b`, "\n", `\n`).Replace(word)
			items = append(items, `{"path":"`+word+`"}`)
		}
		_, _ = w.Write([]byte(`{"dispatchId":"d-one","state":"finished","outcome":{"outputs":[` + strings.Join(items, ",") + `]},"message":"` + r.Method + `"}`))
	})
	status, out, _ := at(t, socket, "__complete dispatch outputs d-one x")
	if status != 0 || strings.Contains(out, "x") {
		t.Errorf("a prefix: %d, %q", status, out)
	}
	status, out, _ = at(t, socket, "__complete dispatch outputs d-one g")
	if want := "good\n:36\n"; status != 0 || out != want {
		t.Errorf("%d, %q, want %q", status, out, want)
	}
	for _, word := range hostile[1:] {
		if safeWord.MatchString(word) {
			t.Errorf("%q is offered", word)
		}
	}
	for _, word := range []string{"good", "local:uid:7", "sub/x.txt", "2026-01-01", "a::b~1"} {
		if !safeWord.MatchString(word) {
			t.Errorf("%q is not offered", word)
		}
	}
	if words, directive := parseCompletions([]byte("plan\tabout \x1b[31m\n$(id)\n--flag\n:4\n")); strings.Join(words, "|") != "plan\tabout \\x1b[31m|--flag\t" && strings.Join(words, "|") != "plan\tabout \\x1b[31m|--flag" || directive != 4 {
		t.Errorf("of another program: %q, %d", words, directive)
	}
	if words, _ := parseCompletions([]byte("no directive")); words != nil {
		t.Errorf("%q", words)
	}
}

// An unknown word names the verb that people mean by it, of other nouns too.
func TestUnknownVerbsSuggestTheRightOne(t *testing.T) {
	for line, want := range map[string]string{
		"list":         "did you mean: bailiwick dispatch list, bailiwick run list,",
		"run start":    "did you mean: bailiwick run submit,",
		"submit":       "bailiwick run submit",
		"logs":         "did you mean: bailiwick dispatch logs, bailiwick login, bailiwick run logs;",
		"ps":           "did you mean: bailiwick dispatch list, bailiwick run list, bailiwick status;",
		"dipatch":      "did you mean: bailiwick dispatch;",
		"dispatch lst": "did you mean: bailiwick dispatch list;",
		"agents":       "bailiwick subagent list",
		"run catalog":  "bailiwick catalog",
		"frobnicate":   "see: bailiwick --help",
	} {
		if status, _, errs := at(t, "/nonexistent", line); status != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %s", line, status, errs)
		}
	}
}
