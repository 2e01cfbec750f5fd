package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// edit is a scripted edit.
func edit() scriptmodel.Script {
	return scriptmodel.Steps(scriptmodel.Shell("sed -i s/one/two/ a.txt && cat a.txt"), scriptmodel.Say("I changed one to two."))
}

// The four agent programs that people use, as workers in a jail, each with a scripted
// model behind the broker: an edit, a question and its answer, a cancel in the middle of a
// turn, every limit, and the faults of a model. They run without a network. The broker
// counts exactly what the model sent, and the model's key reaches nothing but the model.
//
// proves R-D2, R-D6, R-D7, R-D8
func TestCodingAgentsWork(t *testing.T) {
	w := newCodingWorld(t, 0, nil)
	for _, c := range coders(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := w.in(t)
			for _, part := range []struct {
				name string
				try  func(*codingWorld, coder)
			}{
				{"edit", (*codingWorld).tryEdit},
				{"question", (*codingWorld).tryQuestion},
				{"cancel", (*codingWorld).tryCancel},
				{"limits", (*codingWorld).tryLimits},
				{"broken stream", (*codingWorld).tryBrokenStream},
				{"overload", (*codingWorld).tryOverload},
			} {
				t.Run(part.name, func(t *testing.T) { part.try(w.in(t), c) })
			}
		})
	}
}

// An ordinary user has the same.
//
// proves R-D2, R-D6
func TestCodingAgentsWorkForAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	w := newCodingWorld(t, ordinaryUID, nil)
	for _, c := range coders(t) {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			w.tryEdit(c)
			w.tryQuestion(c)
		})
	}
}

func (w *codingWorld) tryEdit(c coder) {
	t := w.t
	t.Helper()
	m := w.script(c.name, edit())
	d := w.code(c.name)
	wantEnd(t, d, api.EventFinished, "")
	if d.Outcome == nil || d.Outcome.Verify == nil || !d.Outcome.Verify.Passed {
		t.Fatalf("its verify command did not pass: %+v", d)
	}
	w.wantPatch(d, "two")
	w.wantUsage(d, m)
	o := d.Outcome
	if o.Text != "I changed one to two." || o.Transcript == nil || o.Network == nil || o.Agent == nil || o.Agent.Adapter != c.name || o.Agent.Version == "" {
		t.Errorf("the record says %q by %+v, transcript %+v, network %+v", o.Text, o.Agent, o.Transcript, o.Network)
	}
	if requests, asked := w.network(d); asked != requests || int64(requests) != o.Usage.Model.Requests {
		t.Errorf("the record of the network has %d requests, %d to the model, the usage %d", requests, asked, o.Usage.Model.Requests)
	}
	if transcript := w.must("dispatch", "transcript", string(d.ID)); !strings.Contains(transcript, "I changed on") || !strings.Contains(transcript, "sed -i") {
		t.Errorf("the transcript lacks the work: %.2000s", transcript)
	}
}

// network counts the requests in the record of a dispatch, and those to its model.
func (w *codingWorld) network(d api.Dispatch) (all, model int) {
	w.t.Helper()
	for line := range strings.Lines(w.must("dispatch", "network", string(d.ID), "-o", "jsonl")) {
		var n api.NetworkLine
		decode(w.t, line, &n)
		if all++; n.Form == "model" && n.Refused == "" {
			model++
		}
	}
	return all, model
}

// tryQuestion has the agent ask in the middle of its work. It resumes with its own session:
// the model sees its whole conversation again, with the answer.
func (w *codingWorld) tryQuestion(c coder) {
	t := w.t
	t.Helper()
	m := w.script(c.name, scriptmodel.After("turquoise",
		scriptmodel.Steps(
			scriptmodel.Shell("sed -i s/one/two/ a.txt; echo the-first-half"),
			scriptmodel.Ask(api.Question{Question: "Which colour?", Options: []string{"red", "turquoise"}}),
			scriptmodel.Say("I asked."),
		),
		scriptmodel.Steps(scriptmodel.Shell("echo turquoise >> a.txt"), scriptmodel.Say("Done in turquoise."))))
	d := w.code(c.name)
	wantEnd(t, d, api.EventNeedsInput, "")
	if d = w.show(string(d.ID)); d.Question == nil || d.Question.Question != "Which colour?" || len(d.Question.Options) != 2 {
		t.Fatalf("the question is %+v", d.Question)
	}
	w.wantUsage(d, m)
	before := len(m.Requests())
	w.must("dispatch", "answer", string(d.ID), "--option", "2", "-q")
	d = w.show(string(d.ID))
	wantEnd(t, d, api.EventFinished, "")
	if d.Attempt != 2 || d.Outcome == nil || d.Outcome.Text != "Done in turquoise." {
		t.Fatalf("after the answer: %+v", d.Outcome)
	}
	w.wantPatch(d, "two,turquoise")
	w.wantKey(d, m)
	for _, r := range m.Requests()[before:] {
		heard := func(tool bool, word string) bool {
			return slices.ContainsFunc(r.Turn.Items, func(i scriptmodel.Item) bool { return (i.Tool != "") == tool && strings.Contains(i.Text, word) })
		}
		if r.Turn != nil && len(r.Turn.Tools) > 0 && (!heard(true, "the-first-half") || !heard(false, "change the file a.txt")) {
			t.Errorf("the second attempt does not have the session of the first: %q", r.Turn.Items)
		}
	}
}

// tryCancel cancels while the model is speaking.
func (w *codingWorld) tryCancel(c coder) {
	t := w.t
	t.Helper()
	m := w.script(c.name, scriptmodel.Steps(scriptmodel.Shell("echo part >> a.txt"), scriptmodel.Endless(20*time.Millisecond)))
	id := strings.TrimSpace(w.must("dispatch", "run", c.name, "--source", "repo", "--set", "do=change the file a.txt", "--detach"))
	awaitTurn(t, m, 1)
	w.must("dispatch", "cancel", id, "--reason", "enough")
	d := w.show(id)
	wantEnd(t, d, api.EventCancelled, "")
	w.wantPatch(d, "one,part")
	m.Wait()
	if u := d.Outcome.Usage.Model; !d.Outcome.Partial || u == nil || u.Turns < 2 || u.Output == 0 && c.api == api.AnthropicMessages {
		t.Errorf("a cancelled dispatch: partial %t, usage %+v", d.Outcome.Partial, u)
	}
	w.wantKey(d, m)
}

// awaitTurn waits until the model is asked with the results of n calls.
func awaitTurn(t testing.TB, m *scriptmodel.Server, n int) {
	t.Helper()
	awaitRequest(t, m, func(all []scriptmodel.Request) bool {
		return slices.ContainsFunc(all, func(r scriptmodel.Request) bool { return r.Turn != nil && len(r.Turn.Results()) >= n })
	})
}

// awaitRequest waits until the requests to the model are as wanted.
func awaitRequest(t testing.TB, m *scriptmodel.Server, wanted func([]scriptmodel.Request) bool) {
	t.Helper()
	for late := range polling(2 * time.Minute) {
		if wanted(m.Requests()) {
			break
		}
		if late {
			t.Fatalf("the model was asked only: %+v", m.Requests())
		}
	}
}

// tryLimits spends each limit. The reason is clear, and the work so far is kept.
func (w *codingWorld) tryLimits(c coder) {
	t := w.t
	t.Helper()
	again := scriptmodel.Loop(scriptmodel.Shell("grep -q part a.txt || echo part >> a.txt"))
	for limit := range spending() {
		script, reason := again, api.ReasonLimit
		if limit == "timeout" {
			script, reason = scriptmodel.Steps(scriptmodel.Shell("echo part >> a.txt"), scriptmodel.Endless(20*time.Millisecond)), api.ReasonTimeout
		}
		m := w.script(c.name, script)
		d := w.code(c.name + "-" + limit)
		wantEnd(t, d, api.EventFailed, reason)
		if !strings.Contains(d.Message, limit) && limit != "timeout" {
			t.Errorf("%s: the message is %q", limit, d.Message)
		}
		w.wantPatch(d, "one,part")
		m.Wait()
		u := d.Outcome.Usage.Model
		if !d.Outcome.Partial || u == nil {
			t.Fatalf("%s: partial %t, usage %+v", limit, d.Outcome.Partial, u)
		}
		// The limit ends the agent at the first answer that exceeds it.
		if limit == "turns" && u.Turns > 4 || limit == "tokens" && (u.Total() < 60_000 || u.Total() > 120_000) || limit == "cost" && (u.Cost < 100_000 || u.Cost > 200_000) {
			t.Errorf("%s: it used %+v", limit, u)
		}
		w.wantKey(d, m)
	}
}

// tryBrokenStream breaks the first answer off. The program repeats its request, and what
// was sent before counts.
func (w *codingWorld) tryBrokenStream(c coder) {
	t := w.t
	t.Helper()
	broken := scriptmodel.Cut(1, 700, edit())
	if c.api == api.Gemini {
		broken = scriptmodel.Early(1, 300, edit()) // it does not retry a connection that breaks
	}
	m := w.script(c.name, broken)
	d := w.code(c.name)
	wantEnd(t, d, api.EventFinished, "")
	w.wantPatch(d, "two")
	w.wantUsage(d, m)
	if !slices.ContainsFunc(m.Requests(), func(r scriptmodel.Request) bool { return r.Broken }) {
		t.Errorf("no answer broke off: %+v", m.Requests())
	}
}

// tryOverload has the model answer its first request with an error, which the program
// retries by its own rules. A key that the model refuses is a clear failure.
func (w *codingWorld) tryOverload(c coder) {
	t := w.t
	t.Helper()
	for _, status := range []int{http.StatusTooManyRequests, 529, http.StatusInternalServerError} {
		for _, after := range []string{"", "1"} {
			m := w.script(c.name, scriptmodel.Steps(scriptmodel.Fail(1, status, after, edit()), edit()))
			d := w.code(c.name)
			if c.name == "codex" && status == http.StatusTooManyRequests && after == "" { // it takes that as final
				wantEnd(t, d, api.EventFailed, api.ReasonAgent)
			} else {
				wantEnd(t, d, api.EventFinished, "")
				w.wantPatch(d, "two")
				w.wantUsage(d, m)
			}
		}
	}
	w.script(c.name, edit()).Key = "another"
	d := w.code(c.name)
	wantEnd(t, d, api.EventFailed, api.ReasonAgent)
	if u := d.Outcome.Usage.Model; u == nil || u.Requests == 0 || u.Turns != 0 || u.Total() != 0 {
		t.Errorf("a model that refuses the key: %q, usage %+v", d.Message, u)
	}
}

// An agent program that exits with status 0 without having spoken to its model is not
// silently finished: the record says 0 requests, and a subagent with requireModel fails. What
// the program says of its own usage changes nothing.
//
// proves R-D7
func TestAgentsWithoutTheirModelAreNoticed(t *testing.T) {
	t.Parallel()
	lies := "#!/bin/sh\necho '{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"all done\",\"usage\":{\"input_tokens\":999999,\"output_tokens\":999999}}'\n"
	w := newCodingWorld(t, 0, map[string]string{
		"silent":   "agent: command, command: [\"true\"], model: codex/small",
		"required": "agent: command, command: [\"true\"], model: codex/small, requireModel: true",
		"liar":     "agent: claude-code, prompt: hello, model: claude-code/small",
		"honest":   "agent: claude-code, prompt: hello, model: claude-code/small, requireModel: true",
	})
	must(t, os.Chmod(w.dir, 0o755))
	w.write("fake/claude", strings.ReplaceAll(lies, "echo", "[ \"$1\" = --version ] && echo 2.1.330 && exit; echo"), 0o755)
	w.replace(manifest, "readOnly: [", "readOnly: ["+w.path("fake")+", ")
	w.replace(manifest, "path: [", "path: ["+w.path("fake")+", ")
	w.must("catalog", "apply", "-f", w.path(manifest))
	if _, check := w.doctor(filepath.Join(bin, "bailiwick")); !strings.HasPrefix(check["agent claude-code"], "note: not installed; 7 subagents for it, such as claude-code") {
		t.Errorf("doctor on an agent program that is not installed: %q", check["agent claude-code"])
	}
	for name, required := range map[string]bool{"silent": false, "required": true, "liar": false, "honest": true} {
		d := w.dispatch(name, "--source", "repo")
		if required {
			wantEnd(t, d, api.EventFailed, api.ReasonAgent)
			if !strings.Contains(d.Message, "the agent made no request to its model, which subagent \""+name+"\" requires") {
				t.Errorf("%s: the message is %q", name, d.Message)
			}
		} else {
			wantEnd(t, d, api.EventFinished, "")
		}
		if d.Outcome == nil || d.Outcome.Usage.Model == nil || *d.Outcome.Usage.Model != (api.ModelUsage{Currency: d.Outcome.Usage.Model.Currency}) {
			t.Errorf("%s: want a usage of 0 requests, got %+v", name, d.Outcome)
		}
		if text := w.must("dispatch", "show", string(d.ID)); !strings.Contains(text, "made no request to its model") {
			t.Errorf("%s: show does not say that it made no request:\n%s", name, text)
		}
	}
}
