package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// tiers creates a world whose account is granted subagents of three tiers up to
// stateful, with consent up to reversible.
func tiers(t *testing.T, uid int) *world {
	t.Helper()
	w := newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "looks", script: "true", tier: "observe"},
		subagent{name: "edits", script: "echo two > a.txt", tier: "reversible"},
		subagent{name: "applies", script: "true", tier: "stateful"},
	)
	w.replace(manifest, "ceiling: reversible}", "ceiling: stateful}")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	return w
}

// reaches tries each subagent and returns those that a client may dispatch.
func reaches(s *mcpSession, more ...map[string]any) string {
	s.t.Helper()
	var done []string
	for _, name := range []string{"looks", "edits", "applies"} {
		r := s.call("bailiwick_dispatch", members{"subagent": name}, more...)
		if r.IsError && r.failure().Code != api.CodeDenied {
			s.t.Fatalf("%s: %s", name, r.text())
		}
		if !r.IsError {
			done = append(done, name)
		}
	}
	return strings.Join(done, " ")
}

// A session or a request can only lower the ceiling: the lowest declared value
// applies, an invalid tier counts as the lowest, and nothing exceeds the
// operator's consent. The control is a client that declares nothing.
//
// takeover both modes, AI client: no widen
//
// proves R-T5
func TestADeclaredCeilingOnlyLowers(t *testing.T) {
	t.Parallel()
	w := tiers(t, 0)
	const key = "io.bailiwick/consentCeiling"
	for _, revision := range mcpRevisions() {
		if got := reaches(w.mcp(revision)); got != "looks edits" {
			t.Fatalf("%s: without a ceiling it reaches %q", revision, got)
		}
		for _, c := range []struct {
			value any
			want  string
		}{
			{"observe", "looks"},
			{"reversible", "looks edits"},
			{"irreversible", "looks edits"}, // raises nothing
			{members{"ceiling": "observe"}, "looks"},
			{members{"ceiling": "irreversible"}, "looks edits"},
			{"godlike", "looks"},
			{"Irreversible", "looks"},
			{" irreversible", "looks"},
			{"", "looks"},
			{7, "looks"},
			{nil, "looks"},
			{true, "looks"},
			{[]string{"irreversible"}, "looks"},
			{members{}, "looks"},
			{members{"ceiling": "irreversible", "x": 1}, "looks"},
			{members{"ceiling": 3}, "looks"},
		} {
			meta := members{"_meta": members{key: c.value}}
			if got := reaches(w.mcp(revision), meta); got != c.want {
				t.Errorf("%s: a request that declares %v reaches %q, want %q", revision, c.value, got, c.want)
			}
			if revision == mcpJuly {
				s := w.mcp(revision)
				s.meta["io.modelcontextprotocol/clientCapabilities"] = members{"experimental": members{key: c.value}}
				if got := reaches(s); got != c.want {
					t.Errorf("%s: capabilities that declare %v reach %q, want %q", revision, c.value, got, c.want)
				}
				continue
			}
			for where, more := range map[string]members{"_meta": meta, "experimental": {"capabilities": members{"experimental": members{key: c.value}}}} {
				s := w.mcpOf(mcpProgram(), revision, more)
				if got := reaches(s); got != c.want {
					t.Errorf("%s: initialize that declares %v in %s reaches %q, want %q", revision, c.value, where, got, c.want)
				}
				// Neither a later request nor another initialize raises it
				// again.
				if got := reaches(s, members{"_meta": members{key: "irreversible"}}); got != c.want {
					t.Errorf("%s: after %v in %s a request for more reaches %q, want %q", revision, c.value, where, got, c.want)
				}
				s.request("initialize", members{"protocolVersion": revision, "capabilities": members{}, "clientInfo": members{"name": "x", "version": "1"}, "_meta": members{key: "irreversible"}})
				if got := reaches(s); got != c.want {
					t.Errorf("%s: after %v in %s and another initialize it reaches %q, want %q", revision, c.value, where, got, c.want)
				}
			}
		}
		// A misspelt key is refused, and so is one in the wrong place.
		if got := reaches(w.mcp(revision), members{"_meta": members{"io.bailiwick/consentceiling": "irreversible"}}); got != "looks" {
			t.Errorf("%s: a misspelt ceiling reaches %q", revision, got)
		}
	}
	greeting := members{"protocolVersion": mcpNovember, "capabilities": members{}, "clientInfo": members{"name": "x", "version": "1"}, "consentCeiling": "observe"}
	if m := w.mcpRaw(mcpProgram()).request("initialize", greeting); m.Error == nil || !strings.Contains(m.Error.Message, key) {
		t.Errorf("a ceiling in the wrong place: %+v", m)
	}
	// A change of consent applies at once, also to a running client.
	s := w.mcp(mcpNovember)
	w.consent(w.me(), "stateful")
	if got := reaches(s); got != "looks edits applies" {
		t.Errorf("with a raised consent it reaches %q", got)
	}
	w.consent(w.me(), "observe")
	if got := reaches(s); got != "looks" {
		t.Errorf("with a lowered consent it reaches %q", got)
	}
	e := s.refused(api.CodeDenied, []string{"do not retry", "ceiling set"}, "bailiwick_dispatch", members{"subagent": "edits"})
	if e.AuditEntry == nil {
		t.Error("the refusal is not in the log")
	}
}

// Annotations only describe: a copy of the server that annotates dispatch as
// read-only is refused the same dispatches, and one that annotates a list as
// destructive can list.
//
// proves R-T8
func TestAnnotationsEnforceNothing(t *testing.T) {
	t.Parallel()
	w := tiers(t, 0)
	harmless := w.mcpOf(otherServer(t, "tools.go", "hints: hints{destructive: true, openWorld: true},\n\t}, s.dispatch)", "hints: hints{readOnly: true, idempotent: true},\n\t}, s.dispatch)"), mcpNovember, nil)
	if tool := harmless.tools()[0]; tool.Annotations["readOnlyHint"] != true {
		t.Fatalf("the control: the copy has the annotations %v", tool.Annotations)
	}
	if got := reaches(harmless); got != "looks edits" {
		t.Errorf("a server that annotates dispatch as read-only reaches %q", got)
	}
	if got := reaches(harmless, members{"_meta": members{"io.bailiwick/consentCeiling": "observe"}}); got != "looks" {
		t.Errorf("in a session with ceiling observe it reaches %q", got)
	}
	terrible := w.mcpOf(otherServer(t, "tools.go", "hints{readOnly: true},\n\t}, s.subagents)", "hints{destructive: true, openWorld: true},\n\t}, s.subagents)"), mcpNovember, nil)
	if tool := terrible.tools()[4]; tool.Annotations["destructiveHint"] != true {
		t.Fatalf("the control: the copy has the annotations %v", tool.Annotations)
	}
	terrible.ok("bailiwick_subagents_list", members{}, new(any), members{"_meta": members{"io.bailiwick/consentCeiling": "observe"}})
}

// The token file alone identifies the caller. The identity survives a restart
// of the service, and ends with the token.
//
// proves R-T4, R-T5
func TestTokenFileIdentifiesTheCaller(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, tokenFileIdentifiesTheCaller)
}

func tokenFileIdentifiesTheCaller(t *testing.T, uid int) {
	w := tiers(t, uid)
	w.replace(manifest, "grants:\n", "grants:\n  - {principal: \"agent:claude\", subagents: [looks, edits], sources: [repo], targets: [local], ceiling: reversible}\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.must("principal", "add", "agent:claude")
	w.must("token", "create", "agent:claude", "--out", w.path("claude.token"))
	s := w.mcpOf(mcpProgram(), mcpNovember, members{
		"clientInfo": members{"name": w.me(), "version": "1", "title": "local:root"}, "_meta": members{"principal": w.me(), "actor": w.me()},
	}, "--principal-token-file", w.path("claude.token"))
	var d mcpStanding
	s.ok("bailiwick_dispatch", members{"subagent": "looks", "wait": 50}, &d)
	if d.Record == nil || d.Record.Principal != "agent:claude" {
		t.Fatalf("the principal is %+v", d.Record)
	}
	if got := reaches(s); got != "looks" {
		t.Errorf("a client without consent reaches %q", got)
	}
	w.consent("agent:claude", "reversible")
	if got := reaches(s); got != "looks edits" {
		t.Errorf("after the consent it reaches %q", got)
	}
	// A dispatch of another principal is not found.
	own := w.dispatch("looks")
	s.refused(api.CodeNotFound, nil, "bailiwick_dispatch_describe", members{"dispatchId": string(own.ID)})
	s.refused(api.CodeNotFound, nil, "bailiwick_dispatch_cancel", members{"dispatchId": string(own.ID)})
	w.must("down")
	s.refused(api.CodeUnavailable, []string{w.starts()}, "bailiwick_subagents_list", members{})
	w.must("up")
	s.ok("bailiwick_subagents_list", members{}, new(any))
	var tokens []api.TokenInfo
	decode(t, w.must("token", "list", "-o", "json"), &tokens)
	if len(tokens) != 1 {
		t.Fatalf("the tokens are %+v", tokens)
	}
	w.must("token", "revoke", string(tokens[0].ID))
	s.refused(api.CodeUnauthenticated, []string{"do not retry", "token"}, "bailiwick_subagents_list", members{})
	s.refused(api.CodeUnauthenticated, nil, "bailiwick_dispatch", members{"subagent": "looks"})
	token, err := os.ReadFile(w.path("claude.token"))
	must(t, err)
	if log := w.must("audit", "list", "-o", "jsonl"); strings.Contains(log, strings.TrimSpace(string(token))) || !strings.Contains(log, "auth.refused") {
		t.Error("the log has the token, or lacks its refusal")
	}
}

// A token file that other accounts could have read or written is refused before
// the first message. The control: the same file with mode 0600.
//
// proves R-T4
func TestExposedTokenFileIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	token := fmt.Sprintf("bwt_%064x\n", 7)
	starts := func(path string) done {
		cmd := w.command(mcpProgram(), "--principal-token-file", path)
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), strings.TrimSpace(token)) {
			t.Errorf("%s: the token is shown: %s", path, out)
		}
		if err == nil {
			return done{0, string(out), ""}
		}
		return done{cmd.ProcessState.ExitCode(), string(out), ""}
	}
	w.write("good", token, 0o600)
	if d := starts(w.path("good")); d.status != 0 || !strings.Contains(d.stdout, `"id":1`) {
		t.Fatalf("the control: %s", d)
	}
	w.write("group", token, 0o640)
	w.write("world", token, 0o604)
	w.write("short", "bwt_1234\n", 0o600)
	w.write("long", strings.Repeat("x", 1<<20), 0o600)
	w.write("foreign", token, 0o600)
	must(t, os.Chown(w.path("foreign"), 0, 0))
	must(t, os.Symlink(w.path("good"), w.path("link")))
	must(t, syscall.Mkfifo(w.path("fifo"), 0o600))
	must(t, os.Chown(w.path("fifo"), w.uid, w.uid))
	for name, word := range map[string]string{
		"group": "chmod 600", "world": "chmod 600", "short": "64", "long": "64", "foreign": "token file", "link": "symbolic link", "fifo": "regular", "gone": "token create", ".": "regular",
	} {
		if d := starts(w.path(name)); d.status == 0 || !strings.Contains(d.stdout, word) || strings.Contains(d.stdout, `"id":1`) {
			t.Errorf("%s: want a refusal that says %q, got %s", name, word, d)
		}
	}
	// An unset variable does not change the caller's identity.
	if d := starts(""); d.status == 0 || !strings.Contains(d.stdout, "is empty") {
		t.Errorf("no name: %s", d)
	}
	for _, args := range [][]string{{"--token", "x"}, {"serve"}, {"--http", ""}, {"--http="}, {"--socket", ""}, {"--http", "127.0.0.1:0", "--rate", "0"}, {"--principal-token-file", w.path("good"), "--http", "127.0.0.1:0"}, {"--tls-cert", "x"}} {
		if d := w.exec(mcpProgram(), args...); d.status == 0 {
			t.Errorf("%v: %s", args, d)
		}
	}
}
