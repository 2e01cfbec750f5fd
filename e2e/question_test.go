package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// asks is an agent that works, asks a question, and resumes where it stopped.
const asks = `
set -e
if [ -f inputs/resume.json ]; then
	grep -q half a.txt && [ ! -e gone.txt ] && [ "$(cat made/new.txt)" = made ]
	cp inputs/resume.json outputs/resume.json
	sed -n 's/.*"answer":"\([^"]*\)".*/\1/p' inputs/resume.json > answer.txt
	echo whole >> a.txt
	exit 0
fi
echo half > a.txt
rm gone.txt
mkdir made; echo made > made/new.txt
echo "one moment"
cat > .bailiwick/question.json <<'Q'
{"question": "Which colour?\nThe tests allow two.", "options": ["red", "blue"], "context": {"seen": ["a.txt"]}, "state": {"step": 3, "note": "é"}}
Q
`

func asking(t *testing.T, uid int, more ...subagent) *world {
	w := newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n", "gone.txt": "x\n", "same.txt": "same\n"})
	w.catalog(append(more, subagent{name: "asks", script: asks, more: "    verify: {command: [grep, -q, whole, a.txt]}\n"})...)
	w.up()
	return w
}

// awaitQuestion dispatches name, which must end with a question.
func (w *world) awaitQuestion(name string) api.Dispatch {
	w.t.Helper()
	d := w.dispatch(name, "--source", "repo")
	wantEnd(w.t, d, api.EventNeedsInput, "")
	return w.show(string(d.ID))
}

// A question is shown whole and survives a restart. Its answer resumes the
// dispatch with its state and work so far; the final patch contains both
// attempts.
//
// proves R-D6, R-D3
func TestAnswerResumesTheWork(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := asking(t, uid)
		if d := w.try("dispatch", "run", "asks", "--source", "repo"); d.status != 9 || !strings.Contains(d.stdout, "Which colour?") || !strings.Contains(d.stdout, "dispatch answer") {
			t.Errorf("a dispatch that asks: %s", d)
		}
		d := w.awaitQuestion("asks")
		id := string(d.ID)
		q := d.Question
		if q == nil || q.Question != "Which colour?\nThe tests allow two." || len(q.Options) != 2 || string(q.Context) == "" || d.AnswerBy == nil {
			t.Fatalf("the question is %+v of %+v", q, d)
		}
		if o := d.Outcome; !o.Partial || o.Patch == nil || o.Verify != nil {
			t.Errorf("the work so far: %+v", o)
		}
		w.must("down")
		w.must("up")
		w.refused(1, []string{"option 3"}, "dispatch", "answer", id, "--option", "3")
		w.refused(1, []string{"text or"}, "dispatch", "answer", id)
		out := w.must("dispatch", "answer", id, "--option", "2", "-q", "-o", "json")
		after := w.show(id)
		wantEnd(t, after, api.EventFinished, "")
		if !strings.Contains(out, id) || after.Attempt != 2 || len(after.Attempts) != 1 || !after.Outcome.Verify.Passed || after.Outcome.Partial {
			t.Fatalf("after the answer: %+v", after)
		}
		if a := after.Attempts[0]; a.Attempt != 1 || a.State != api.EventNeedsInput || a.Answer == nil || a.Answer.Text != "blue" || a.Answer.Option != 2 || string(a.Answer.By) != w.me() {
			t.Errorf("the chain is %+v", after.Attempts)
		}
		var got struct {
			Answer string
			Option int
			State  json.RawMessage
		}
		if err := json.Unmarshal([]byte(w.must("dispatch", "outputs", id, "resume.json")), &got); err != nil || got.Answer != "blue" || got.Option != 2 || string(got.State) != `{"note":"\u00e9","step":3}` {
			t.Errorf("the agent received %+v, %v", got, err)
		}
		w.must("dispatch", "patch", id, "--to", w.path("p.patch"))
		w.git(".", "clone", "-q", w.path("repo"), w.path("clone"))
		w.git("clone", "apply", w.path("p.patch"))
		if status := w.git("clone", "status", "--porcelain", "-uall"); status != "M a.txt\n D gone.txt\n?? answer.txt\n?? made/new.txt" {
			t.Errorf("the patch of both attempts results in %q", status)
		}
		// The content of the first attempt is still available.
		if first := w.must("dispatch", "patch", id, "--attempt", "1"); !strings.Contains(first, "+half") || strings.Contains(first, "whole") {
			t.Errorf("the first patch is %s", first)
		}
		if log := w.must("dispatch", "logs", id, "--attempt", "1"); log != "one moment\n" {
			t.Errorf("the first log is %q", log)
		}
		if text := w.must("dispatch", "show", id, "--attempt", "1"); !strings.Contains(text, "Which colour?") || !strings.Contains(text, "blue, by "+w.me()) {
			t.Errorf("the first attempt is shown as %s", text)
		}
		log := w.must("audit", "list", "--dispatch", id)
		for _, want := range []string{"needs input", " (attempt 1)", "with option 2", "(attempt 2) started", "(attempt 2) finished"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %q:\n%s", want, log)
			}
		}
		// The same answer again changes nothing, a different one is refused.
		if again := w.must("dispatch", "answer", id, "--option", "2", "--attempt", "1", "-d"); !strings.Contains(again, id) {
			t.Errorf("the same answer again: %s", again)
		}
		w.refused(1, []string{"already has another answer"}, "dispatch", "answer", id, "red", "--attempt", "1")
		w.refused(1, []string{"no open question"}, "dispatch", "answer", id, "red")
		if n := len(w.entries("--dispatch", id, "--kind", "dispatch.answered")); n != 1 {
			t.Errorf("the log says %d times that it was answered", n)
		}
	})
}

// proves R-D6
func TestAgentMayAskRepeatedly(t *testing.T) {
	t.Parallel()
	w := asking(t, 0, subagent{name: "counts", script: `
n=$(ls | grep -c '^round' || true)
[ "$n" = 0 ] || grep -q "answer $n" inputs/resume.json || exit 5
echo "$n" > "round$n"
[ "$n" = 3 ] || echo "{\"question\": \"continue from $n?\"}" > .bailiwick/question.json`})
	d := w.awaitQuestion("counts")
	for _, n := range []string{"1", "2", "3"} {
		w.try("dispatch", "answer", string(d.ID), "answer "+n, "-q")
		d = w.show(string(d.ID))
	}
	wantEnd(t, d, api.EventFinished, "")
	if d.Attempt != 4 || len(d.Attempts) != 3 || len(d.Outcome.Files) != 4 {
		t.Errorf("the dispatch ended as %+v", d)
	}
	// No directory of an attempt is left.
	if left, err := os.ReadDir(w.path("state/bailiwick/dispatches")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// A worker ends an agent that asks and does not exit; an invalid question is a
// failure that keeps the work; a failing agent fails even with a question.
//
// proves R-D3, R-D6
func TestQuestionFilesAreValidated(t *testing.T) {
	t.Parallel()
	const work = "echo half > a.txt\n"
	ask := func(doc string) string {
		return work + "cat > .bailiwick/question.json <<'Q'\n" + doc + "\nQ\n"
	}
	w := asking(t, 0,
		subagent{name: "stays", script: ask(`{"question":"and now?"}`) + "trap '' TERM\nwhile :; do sleep 1; done"},
		subagent{name: "fails", script: ask(`{"question":"and now?"}`) + "exit 3"},
		subagent{name: "empty", script: ask(`{"question":" "}`)},
		subagent{name: "unknown", script: ask(`{"question":"x","cheat":true}`)},
		subagent{name: "broken", script: ask(`{"question":`)},
		subagent{name: "huge", script: work + `(printf '{"question":"x","context":"'; head -c 1048576 /dev/zero | tr '\0' x; printf '"}') > .bailiwick/question.json`},
		subagent{name: "link", script: work + `ln -s /etc/passwd .bailiwick/question.json`},
		subagent{name: "fifo", script: work + `mkfifo .bailiwick/question.json`},
		subagent{name: "full", script: work + `(printf '{"question":"x","context":"'; head -c 1048000 /dev/zero | tr '\0' x; printf '"}') > .bailiwick/question.json`},
	)
	for name, reason := range map[string]api.Reason{
		"stays": "", "full": "", "fails": api.ReasonAgent,
		"empty": api.ReasonOutput, "unknown": api.ReasonOutput, "broken": api.ReasonOutput, "huge": api.ReasonOutput, "link": api.ReasonOutput, "fifo": api.ReasonOutput,
	} {
		d := w.dispatch(name, "--source", "repo")
		state := api.EventFailed
		if reason == "" {
			state = api.EventNeedsInput
		}
		wantEnd(t, d, state, reason)
		if reason == api.ReasonOutput && !strings.Contains(d.Message, "question.json") {
			t.Errorf("%s: message %q", name, d.Message)
		}
		if d.Outcome == nil || d.Outcome.Patch == nil || !d.Outcome.Partial {
			t.Errorf("%s: the partial work is not kept: %+v", name, d.Outcome)
		}
	}
}

// An unanswered question expires, a cancelled one ends, and neither can be
// answered afterwards. The work so far is kept.
//
// proves R-D6, R-D3, R-D4
func TestAQuestionExpiresOrIsCancelled(t *testing.T) {
	t.Parallel()
	w := asking(t, 0, subagent{name: "short", script: asks, more: "    limits: {answer: 1s}\n"})
	d := w.dispatch("short", "--source", "repo")
	id := string(d.ID)
	w.awaitEntry(id, "dispatch.failed")
	d = w.show(id)
	wantEnd(t, d, api.EventFailed, api.ReasonTimeout)
	if !strings.Contains(d.Message, "no answer by") || d.Outcome.Patch == nil || d.Question == nil {
		t.Errorf("expired: %+v", d)
	}
	w.refused(1, []string{"no open question"}, "dispatch", "answer", id, "late")

	// A question that expired while no service ran is not answered by the next
	// service.
	d = w.dispatch("short", "--source", "repo")
	id = string(d.ID)
	w.must("down")
	time.Sleep(time.Until(*d.AnswerBy)) // the service is down: nothing notices the expiry
	w.refused(1, []string{id}, "dispatch", "answer", id, "late")
	w.awaitEntry(id, "dispatch.failed")
	wantEnd(t, w.show(id), api.EventFailed, api.ReasonTimeout)

	d = w.awaitQuestion("asks")
	id = string(d.ID)
	w.must("dispatch", "cancel", id, "--reason", "enough")
	d = w.show(id)
	wantEnd(t, d, api.EventCancelled, "")
	if string(d.CancelBy) != w.me() || d.Outcome.Patch == nil {
		t.Errorf("cancelled: %+v", d)
	}
	w.refused(1, []string{"no open question"}, "dispatch", "answer", id, "late")
	w.loggedOnce(id, "dispatch.cancelled")
}

// The policy at the time of the answer decides whether a dispatch may resume: a
// grant may have been revoked. The dispatch keeps waiting, and can be answered
// once the grant is restored. The resumed attempt runs what was pinned at
// first.
//
// proves R-D6, R-C4, R-B5
func TestAnswersFollowCurrentPolicy(t *testing.T) {
	t.Parallel()
	w := asking(t, 0)
	d := w.awaitQuestion("asks")
	id := string(d.ID)
	manifest, err := os.ReadFile(w.path("project/bailiwick.yaml"))
	must(t, err)
	// The grant loses the subagent, and the subagent changes.
	lost := strings.Replace(string(manifest), "subagents: [", "subagents: [none, ", 1)
	lost = strings.ReplaceAll(lost, "subagents: [none, asks]", "subagents: [none]")
	lost = strings.Replace(lost, "subagents:\n", "subagents:\n  - {name: none, agent: command, command: [\"true\"], role: transform, tier: reversible}\n", 1)
	if lost == string(manifest) || strings.Contains(lost, "none, asks") {
		t.Fatalf("the manifest is not as this test expects: %s", manifest)
	}
	w.write("project/bailiwick.yaml", lost, 0o644)
	w.write("project/capabilities/asks/asks.sh", "#!/bin/sh\nexit 99\n", 0o755)
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
	w.refused(3, []string{"asks"}, "dispatch", "answer", id, "red")
	if d = w.show(id); d.State != api.EventNeedsInput || d.Attempt != 1 {
		t.Errorf("after a denial it is %+v", d)
	}
	w.loggedOnce(id, "dispatch.denied")
	w.write("project/bailiwick.yaml", string(manifest), 0o644)
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
	w.must("dispatch", "answer", id, "red", "-q")
	if d = w.show(id); d.State != api.EventFinished || d.Revision != 1 {
		t.Errorf("it ended as %+v", d)
	}
}

// proves R-D6, R-B7
func TestAnswersAreBoundToCallerAndQuestion(t *testing.T) {
	t.Parallel()
	w := asking(t, 0)
	d := w.awaitQuestion("asks")
	path := "/v1/runtime/dispatches/" + string(d.ID) + "/answer"
	for body, want := range map[string]int{
		`{}`: http.StatusBadRequest, `{"text":"a","option":1}`: http.StatusBadRequest, `{"option":-1}`: http.StatusBadRequest,
		`{"text":"a","principal":"human:ann"}`: http.StatusBadRequest, `{"text":"a","attempt":2}`: http.StatusConflict,
		`{"text":"` + strings.Repeat("x", api.MaxAnswer+1) + `"}`: http.StatusBadRequest,
	} {
		if status, e := w.refusal(path, "application/json", strings.NewReader(body)); status != want {
			t.Errorf("%.60s: %d %+v", body, status, e)
		}
	}
	if now := w.show(string(d.ID)); now.State != api.EventNeedsInput || now.Attempt != 1 {
		t.Errorf("it is %+v", now)
	}
	// An invalid attempt number is not replaced by the current one. The
	// control: 1 is valid.
	for _, line := range []string{"show", "patch", "outputs", "logs", "answer --detach --option 1"} {
		for _, attempt := range []string{"-1", "2"} {
			d := w.try(append([]string{"dispatch"}, append(strings.Fields(line), string(d.ID), "--attempt", attempt)...)...)
			if d.status != 1 || d.stdout != "" || !strings.Contains(d.stderr, "attempt") || strings.Contains(d.stderr, "no open question") {
				t.Errorf("%s --attempt %s: %s", line, attempt, d)
			}
		}
		w.must(append([]string{"dispatch"}, append(strings.Fields(line), string(d.ID), "--attempt", "1")...)...)
	}
	wantEnd(t, w.awaitEnd(string(d.ID)), api.EventFinished, "")
}

// A caller that got no response repeats its answer, even while the first
// request is in progress. The control: a different answer is refused.
//
// proves R-D6, R-D2
func TestConcurrentAnswersCountOnce(t *testing.T) {
	t.Parallel()
	w := asking(t, 0)
	for range 3 {
		id := string(w.awaitQuestion("asks").ID)
		var at [6]done
		var answers sync.WaitGroup
		for i := range at {
			answers.Go(func() { at[i] = w.try("dispatch", "answer", id, "red", "--attempt", "1", "--detach") })
		}
		answers.Wait()
		for _, d := range at {
			if d.status != 0 || strings.TrimSpace(d.stdout) != id {
				t.Errorf("the same answer concurrently: %s", d)
			}
		}
		w.refused(1, []string{"already has another answer"}, "dispatch", "answer", id, "blue", "--attempt", "1", "--detach")
		w.must("dispatch", "logs", "-f", id)
		if out := w.must("audit", "list", "--dispatch", id, "--kind", "dispatch.answered", "-o", "jsonl"); strings.Count(out, "\n") != 1 {
			t.Errorf("the log has not exactly one answer:\n%s", out)
		}
	}
}

// awaitEntry follows the log until it contains an entry of kind about a
// dispatch.
func (w *world) awaitEntry(id, kind string) {
	w.t.Helper()
	cmd := w.command(filepath.Join(bin, "bailiwick"), "audit", "watch", "--dispatch", id, "--kind", kind)
	out, err := cmd.StdoutPipe()
	must(w.t, err)
	must(w.t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		w.t.Errorf("the log ended without %s: %q, %v", kind, line, err)
	}
	must(w.t, cmd.Process.Kill())
	_ = cmd.Wait()
}
