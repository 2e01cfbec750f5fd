package e2e

import (
	"os"
	"strings"
	"testing"
)

// can, up, status and doctor advise the same next command, whatever an installation
// lacks. Control: nothing is missing for any of them where a dispatch is possible, and
// none of them shows the advice of another state.
func TestFourVerbsAdviseTheSameCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.must("init", w.path("repo"), "--insecure-unencrypted")
	trust := w.path("data/bailiwick/trust.json")
	apply, ceiling, lift, restore := "bailiwick catalog apply", "bailiwick ceiling set "+w.me()+" reversible", "bailiwick stop lift s-1", "cp BACKUP/trust.json "+trust
	all := []string{apply, ceiling, lift, restore}
	for _, state := range []struct {
		name, advice string // advice is empty where nothing is missing
		enter        func()
	}{
		{"no catalog", apply, func() { w.must("up") }},
		{"no ceiling", ceiling, func() { w.must("catalog", "apply", "-f", w.path("repo/bailiwick.yaml")) }},
		{"ready", "", func() { w.consent(w.me(), "reversible") }},
		{"stopped", lift, func() { w.must("stop", "--all", "--reason", "test") }},
		{"a lost trust root", restore, func() { must(t, os.Rename(trust, trust+".lost")) }},
	} {
		state.enter()
		for _, verb := range []string{"can", "up", "status", "doctor"} {
			d := w.try("-o", "text", verb)
			if state.advice == "" && (strings.Contains(d.stdout, "MISSING") || strings.Contains(d.stdout, "lacks")) {
				t.Errorf("%s: %s misses something: %s", state.name, verb, d)
			}
			for _, advice := range all {
				if got := strings.Contains(d.stdout, advice+"\n"); got != (advice == state.advice) {
					t.Errorf("%s: %s advises %q: %t\n%s", state.name, verb, advice, got, d)
				}
			}
		}
	}
}
