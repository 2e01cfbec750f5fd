package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

var honestFlag = flag.Int("honest", 50, "number of runs and dispatches in TestHonestRunsAndDispatchesVerifyOffline")

// voters are the people who approve tasks, each with a key of their own.
func voters() []string { return []string{"kim", "lee"} }

// honestRound is the number of subjects between two rotations of the key.
const honestRound = 25

// behaviours returns what tasks and dispatches do. Some never end unless another
// party ends them.
func behaviours() map[string]string {
	const ask = `echo '{"question": "Which?", "options": ["red", "blue"]}' > .bailiwick/question.json`
	return map[string]string{
		"edit":  "echo more >> a.txt; echo out > outputs/o.txt",
		"fail":  "echo half >> a.txt; exit 3",
		"flaky": `case $(printf %s "$BAILIWICK_DISPATCH" | sha256sum) in [0-7]*) exit 3;; esac; echo whole > f.txt`,
		"ask":   "test -f inputs/resume.json && { echo answered >> a.txt; exit 0; }\n" + ask,
		"again": "if test -f inputs/resume.json && test -f once; then exit 0; fi\ntouch once\n" + ask,
		"long":  "echo begun; sleep 600",
		"slow":  "sleep 30",
		"typed": `echo '{"n": 1}' > outputs/result.json`,
		"bad":   "echo bad > a.txt",
		"good":  "echo good > good",
		"takes": "cp inputs/change inputs/file inputs/value outputs/",
	}
}

// honest creates random runs and dispatches, and applies every legitimate
// operation to them.
type honest struct {
	*world
	rng    *rand.Rand // owned by the test's goroutine
	face   *client.Conn
	tokens []string // of principals; empty: the world's account
	next   []string // operations on the service

	mu   sync.Mutex
	all  []string // subjects of evidence; guarded by mu
	bad  []string // guarded by mu
	seen map[string]int
}

func newHonest(t *testing.T) *honest {
	w := prepared(t, 0, growers()...)
	for _, name := range voters() {
		w.operator(name)
	}
	w.upRuns()
	w.downAtEnd()
	w.grants("agent:one", "agent:two")
	for _, name := range voters() {
		w.token("human:" + name)
	}
	h := &honest{world: w, rng: rand.New(rand.NewPCG(6, uint64(*honestFlag))), face: w.conn(), tokens: []string{""}, seen: map[string]int{}} //nolint:gosec // G115, G404: reproducible on purpose
	for _, p := range []string{"agent:one", "agent:two"} {
		token, _ := w.token(p)
		h.tokens = append(h.tokens, token)
		w.consent(p, "reversible")
	}
	return h
}

// as returns a client for a principal. Sessions end with the service, so it is
// not kept.
func (h *honest) as(token string) (client.Runtime, error) {
	if token == "" {
		return h.face.Runtime(), nil
	}
	s, err := h.face.Exchange(h.t.Context(), token)
	ceiling := api.Reversible
	return h.face.Runtime().With(s.Handle, &ceiling), err
}

func (h *honest) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad = append(h.bad, fmt.Sprintf(format, args...))
}

func (h *honest) subject(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, id)
}

func inputOf(do string) json.RawMessage {
	b, _ := json.Marshal(map[string]string{"do": do}) // a map of strings always encodes
	return b
}

func subagentOf(kind string) api.Name {
	switch kind {
	case "typed":
		return "typed"
	case "bad", "good":
		return "checked"
	}
	return "sh"
}

// plan is a random plan.
func (h *honest) plan(id string) api.Plan {
	p := api.Plan{ID: api.RunID(id), Source: &api.SourceRequest{Name: "repo"}}
	add := func(kind string) *api.PlanTask {
		t := api.PlanTask{ID: api.TaskID(fmt.Sprintf("%s.%d", kind, len(p.Tasks))), Subagent: subagentOf(kind), Input: inputOf(behaviours()[kind])}
		if kind == "ask" && h.rng.IntN(3) == 0 {
			t.Subagent = "brief" // the question may expire
		}
		if kind == "slow" {
			t.Timeout = api.Duration(time.Second)
		}
		if kind == "flaky" || h.rng.IntN(3) == 0 {
			t.Retry = api.Retry{Attempts: 2 + h.rng.IntN(2), Backoff: api.Backoff{Min: api.Duration(10 * time.Millisecond), Max: api.Duration(300 * time.Millisecond)}}
		}
		for _, key := range []string{"k1", "k2"} {
			if h.rng.IntN(5) == 0 {
				t.Locks = append(t.Locks, api.Lock{Key: key, Shared: h.rng.IntN(2) == 0})
			}
		}
		for _, earlier := range p.Tasks {
			if h.rng.IntN(4) == 0 {
				t.DependsOn = append(t.DependsOn, earlier.ID)
			}
		}
		p.Tasks = append(p.Tasks, t)
		return &p.Tasks[len(p.Tasks)-1]
	}
	kinds := []string{"edit", "edit", "fail", "flaky", "ask", "again", "long", "slow", "typed", "bad", "good"}
	for range 2 + h.rng.IntN(4) {
		add(kinds[h.rng.IntN(len(kinds))])
	}
	if h.rng.IntN(2) == 0 {
		from, typed := add("edit").ID, add("typed").ID
		add("takes").Needs = map[api.Name]api.Need{"change": {From: from, Patch: true}, "file": {From: from, Output: "o.txt"}, "value": {From: typed, Result: true}}
	}
	if h.rng.IntN(2) == 0 {
		h.grows(&p)
	}
	if h.rng.IntN(3) == 0 {
		shown := add("edit").ID
		p.Tasks = append(p.Tasks, api.PlanTask{ID: "signed", Approval: h.approval(), DependsOn: []api.TaskID{shown}})
	}
	if h.rng.IntN(6) == 0 {
		p.Limits.Wall = api.Duration(time.Duration(1+h.rng.IntN(4)) * time.Second)
	}
	return p
}

// approval waits for votes, or expires before: on a slow machine only one of 20 seconds gets any.
func (h *honest) approval() *api.TaskApproval {
	seconds := []int{1, 4, 20, 20}[h.rng.IntN(4)]
	a := &api.TaskApproval{Count: 1 + h.rng.IntN(len(voters())), Timeout: api.Duration(time.Duration(seconds) * time.Second)}
	for _, name := range voters() {
		a.By = append(a.By, api.Principal("human:"+name))
	}
	return a
}

// fate is what happens to a run or a dispatch, and when.
type fate struct {
	token                           string
	cancel, task, pause, retry, add bool
	which                           int // of the tasks
	answer                          int // 0: none, and it is cancelled at the end
	at, last                        time.Duration
}

func (h *honest) fate() fate {
	one := func(n int) bool { return h.rng.IntN(n) == 0 }
	return fate{
		token: h.tokens[h.rng.IntN(len(h.tokens))], cancel: one(5), task: one(4), pause: one(3), retry: one(3), add: one(3), which: 1 + h.rng.IntN(20), answer: h.rng.IntN(4),
		at: time.Duration(h.rng.IntN(2500)) * time.Millisecond, last: 6 * time.Second,
	}
}

// refused reports whether an error is legitimate here: the service is down, the
// subject has ended, or policy denies it meanwhile.
func refused(err error) bool {
	switch api.CodeOf(err) { //nolint:exhaustive // see above
	case api.CodeConflict, api.CodeDenied, api.CodeUnavailable, api.CodeUnauthenticated, api.CodeNotFound, api.CodeAuditUnavailable, api.CodeThrottled:
		return true
	}
	return err != nil && !errors.As(err, new(*api.Error))
}

// until polls f until it returns true.
func (h *honest) until(what string, f func(since time.Duration) (bool, error)) {
	began := time.Now()
	for late := range polling(3 * time.Minute) {
		over, err := f(time.Since(began))
		switch {
		case over:
			return
		case err != nil && !refused(err):
			h.note("%s: %v", what, err)
			return
		case late:
			h.note("%s does not end: %v", what, err)
			return
		}
	}
}

// carryOut submits a run and applies its fate.
func (h *honest) carryOut(p api.Plan, f fate) {
	ctx, op := h.t.Context(), h.face.Operator()
	req := api.RunRequest{}
	req.Plan, _ = json.Marshal(p) // a plan always encodes
	begun := false
	h.until(string(p.ID), func(time.Duration) (bool, error) {
		face, err := h.as(f.token)
		if err == nil {
			var run api.Run
			if run, err = face.Submit(ctx, req); err == nil {
				p.ID, begun = run.RunID, true // as it is stored for that principal
			}
		}
		return begun || api.CodeOf(err) == api.CodeDenied, err // it may have been denied
	})
	if begun {
		h.follow(ctx, op, p.ID, f)
	}
}

func (h *honest) follow(ctx context.Context, op client.Operator, id api.RunID, f fate) {
	h.subject(string(id))
	h.until(string(id), func(since time.Duration) (bool, error) {
		run, err := h.face.Runtime().Run(ctx, id, "", 0)
		if err != nil || run.State.Settled() {
			return err == nil, err
		}
		if since > f.at {
			if err := h.steer(ctx, op, &run, &f); err != nil {
				return false, err
			}
		}
		if since > f.last {
			_, err = op.CancelRun(ctx, id, api.RunCancel{Reason: "long enough"})
			return false, err
		}
		for _, t := range run.Tasks {
			if t.Asks && f.answer > 0 {
				_, err = op.AnswerRun(ctx, id, api.RunAnswer{Task: t.Task, DispatchID: t.DispatchID, Option: 1 + f.answer%2})
			}
		}
		return false, err
	})
	_, _ = op.CancelRun(ctx, id, api.RunCancel{Reason: "too late"}) // must change nothing
	if !f.retry {
		return
	}
	next := id + "-r"
	f.retry, f.cancel = strings.Count(string(id), "-r") == 0 && f.pause, false
	again := false
	h.until(string(next), func(time.Duration) (bool, error) {
		req := api.RunRetry{RunID: next}
		if run, err := h.face.Runtime().Run(ctx, id, "", 0); err == nil && f.which%3 == 0 {
			req.From = []api.TaskID{run.Tasks[f.which%len(run.Tasks)].Task}
		}
		_, err := op.RetryRun(ctx, id, req)
		again = err == nil
		return again || slices.Contains([]api.Code{api.CodeConflict, api.CodeDenied}, api.CodeOf(err)), err // nothing left to retry, or another principal's
	})
	if again {
		h.follow(ctx, op, next, f)
	}
}

// steer applies the operations on a running run, each once.
func (h *honest) steer(ctx context.Context, op client.Operator, run *api.Run, f *fate) (err error) {
	switch {
	case f.pause:
		f.pause = false
		if _, err = op.PauseRun(ctx, run.RunID); err == nil {
			h.until("resume "+string(run.RunID), func(time.Duration) (bool, error) {
				_, err := op.ResumeRun(ctx, run.RunID)
				return err == nil, err
			})
		}
	case f.task && len(run.Tasks) > 1:
		f.task = false
		_, err = op.CancelRun(ctx, run.RunID, api.RunCancel{Task: run.Tasks[f.which%len(run.Tasks)].Task, Reason: "not this"})
	case f.add:
		f.add = false
		if _, err = op.AppendRun(ctx, run.RunID, moreTasks(run)); api.CodeOf(err) == api.CodeInvalid {
			err = nil // it was added before
		}
	case f.cancel:
		f.cancel = false
		_, err = op.CancelRun(ctx, run.RunID, api.RunCancel{Reason: "enough"})
	}
	return err
}

// dispatchOne submits a dispatch and applies its fate.
func (h *honest) dispatchOne(id, kind string, f fate) {
	ctx := h.t.Context()
	req := api.DispatchRequest{DispatchID: api.DispatchID(id), Subagent: subagentOf(kind), Input: inputOf(behaviours()[kind]), Source: &api.SourceRequest{Name: "repo"}}
	if kind == "slow" {
		req.TimeoutSeconds = 1
	}
	if kind == "ask" && f.answer == 0 && f.cancel {
		req.Subagent = "brief"
	}
	begun := false
	h.until(id, func(since time.Duration) (bool, error) {
		face, err := h.as(f.token)
		if err == nil {
			var d api.Dispatch
			if d, err = face.Dispatch(ctx, req); err == nil {
				id, begun = string(d.ID), true // as it is stored for that principal
			}
		}
		return begun || api.CodeOf(err) == api.CodeDenied, err
	})
	if !begun {
		return
	}
	h.subject(id)
	h.until(id, func(since time.Duration) (bool, error) {
		face, err := h.as(f.token)
		if err != nil {
			return false, err
		}
		d, err := face.Describe(ctx, req.DispatchID, 0)
		switch {
		case err != nil || d.State.Ended() && d.State != api.EventNeedsInput:
			return err == nil, err
		case since > f.last || f.cancel && since > f.at && req.Subagent != "brief":
			_, err = face.Cancel(ctx, d.ID, "enough")
		case d.State == api.EventNeedsInput && f.answer > 0:
			_, err = face.Answer(ctx, d.ID, api.AnswerRequest{Attempt: d.Attempt, Option: 1 + f.answer%2})
		}
		return false, err
	})
	_, _ = h.face.Runtime().Cancel(ctx, req.DispatchID, "too late") // must change nothing
}

// round creates n subjects while the service is disturbed, and returns when all
// have ended.
func (h *honest) round(number, n int) {
	kinds := []string{"edit", "fail", "ask", "again", "long", "slow", "typed", "bad", "good"}
	var jobs sync.WaitGroup
	places := make(chan struct{}, 6)
	for i := range n {
		f, id := h.fate(), fmt.Sprintf("h%d-%d", number, i)
		switch i % 5 { // each kind must occur
		case 0:
			f.pause, f.at = true, 0
		case 1:
			f.cancel, f.retry = true, true
		case 2:
			f.answer, f.add, f.at = 1, true, 0
		}
		p, kind := h.plan(id), kinds[h.rng.IntN(len(kinds))]
		jobs.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if i%5 < 3 {
				h.carryOut(p, f)
			} else {
				h.dispatchOne(id+"-d", kind, f)
			}
		})
	}
	over := make(chan struct{})
	go func() { jobs.Wait(); close(over) }()
	for h.disturbs(over) {
	}
}

// disturbs applies one operation to the service, unless all subjects have ended.
func (h *honest) disturbs(over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	case <-time.After(time.Duration(300+h.rng.IntN(700)) * time.Millisecond): //nolint:forbidigo // when things happen is left to chance on purpose
	}
	if len(h.next) == 0 {
		h.next = []string{"kill worker", "kill worker", "kill service", "kill service", "down", "stop run", "stop principal", "consent", "catalog", "grant", "queue"}
		h.rng.Shuffle(len(h.next), func(i, j int) { h.next[i], h.next[j] = h.next[j], h.next[i] })
	}
	h.votes()
	what := h.next[0]
	h.next = h.next[1:]
	h.seen[what]++
	switch what {
	case "kill worker":
		if pids := h.workers(); len(pids) > 0 {
			_ = syscall.Kill(pids[h.rng.IntN(len(pids))], syscall.SIGKILL) // it may have exited
		}
	case "kill service":
		kill(h.t, h.status().PID)
		h.upRuns()
	case "down":
		h.must("down")
		h.upRuns()
	case "stop run", "stop principal":
		args := []string{"stop", "-o", "json", "--principal", "agent:one"}
		h.mu.Lock()
		if n := len(h.all); n > 0 && what == "stop run" && !strings.Contains(h.all[n-1]+"-", "-d-") { // no dispatch, by either spelling
			args = []string{"stop", "-o", "json", "--run", h.all[n-1]}
		}
		h.mu.Unlock()
		var s api.Stop
		decode(h.t, h.must(args...), &s)
		h.must("stop", "lift", s.ID, "--reason", "looked at")
	case "consent":
		h.must("ceiling", "set", "agent:two", "observe")
		h.must("ceiling", "set", "agent:two", "reversible")
	case "catalog":
		h.replace("project/capabilities/sh/sh.sh", "set -e\n", "set -e\n: again\n")
		h.must("catalog", "apply", "-f", h.path(manifest))
	case "grant":
		h.replace(manifest, "agent:two", "agent:three")
		h.must("catalog", "apply", "-f", h.path(manifest))
		h.must("can", h.me(), "dispatch", "sh") // makes the service load it
		h.replace(manifest, "agent:three", "agent:two")
		h.must("catalog", "apply", "-f", h.path(manifest))
	case "queue":
		h.must("queue", "pause", "default")
		h.must("queue", "resume", "default")
	}
	return true
}

// votes requests decisions of people about tasks; some requests end before they do.
func (h *honest) votes() {
	for id := range strings.FieldsSeq(h.try("approval", "list", "--all", "-o", "name").stdout) {
		verb, people := []string{"approve", "approve", "approve", "deny"}[h.rng.IntN(4)], voters()
		for _, i := range h.rng.Perm(len(people)) {
			if h.try(append([]string{"approval", verb, id}, h.person(people[i])...)...).status == 0 {
				h.seen[verb]++
			}
		}
	}
}

// verify fails the test unless the evidence about each subject verifies with the
// current trust file.
func (h *honest) verify() {
	h.t.Helper()
	trust := h.trustFile()
	for i, id := range h.all {
		// As the auditor's guide says: fetch a copy, then export with it.
		copied := h.copied(i)
		file := h.exported(id, "--checkpoint", copied)
		d := h.verifyOffline(file, "--trust", trust, "--anchor", copied, "-o", "json")
		var r report.Report
		if err := json.Unmarshal([]byte(d.stdout), &r); err != nil || d.status != 0 || r.Failed() {
			h.t.Errorf("the evidence about %s does not verify (%v):\n%s\n%s", id, err, r.Text(), h.must("audit", "list", "--run", id))
			if kept, err := os.MkdirTemp("", "bailiwick-false-alarm-"); err == nil { //nolint:usetesting // it is to be looked at afterwards
				_ = os.Rename(file, filepath.Join(kept, id+".evidence"))
				_ = os.Link(trust, filepath.Join(kept, "trust.json"))
				h.t.Logf("kept in %s", kept)
			}
		}
		for _, row := range r.Rows {
			free := row.Row == report.RowAnchor || row.Row == report.RowTime || row.Row == report.RowConsistency || row.Row == report.RowTools ||
				r.Dispatches == 0 && (row.Row == report.RowManifest || row.Row == report.RowResult || row.Row == report.RowProvenance)
			if row.Status == report.NA && !free {
				h.t.Errorf("%s: %s is %s: %s", id, row.Row, row.Status, row.Why)
			}
		}
		h.count(&r)
		_ = os.Remove(file) // a thousand of them need space
	}
	h.all = nil
}

// copied returns a world-readable copy of the file anchor, each time in another form of
// the auditor's guide.
func (h *honest) copied(i int) string {
	h.t.Helper()
	from, to := h.path("state/bailiwick/high-water"), h.path("tmp/copy")
	forms := []string{"cp $0 $1", "tail -n 1 $0 > $1", "tail -n 1 $0 | jq -r . > $1"}
	if out, err := exec.Command("bash", "-c", forms[i%len(forms)]+" && chmod 644 $1", from, to).CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return to
}

func (h *honest) count(r *report.Report) {
	h.seen["entries"] += r.Entries
	h.seen["dispatches"] += r.Dispatches
	if r.Run != "" {
		h.seen["runs"]++
	} else {
		h.seen["single dispatches"]++
	}
}

// happened counts the kinds of entries in the log that are new since the last call.
func (h *honest) happened() {
	h.t.Helper()
	lines := h.lines()
	for _, l := range lines[h.seen["log entries"]:] {
		h.seen["log entries"]++
		var e struct {
			Kind   string
			Detail struct{ Reason, Until, RetryOf, Cause string }
		}
		must(h.t, json.Unmarshal(l.Leaf, &e))
		h.seen[e.Kind]++
		switch d := e.Detail; {
		case e.Kind == "run.grown":
			h.seen["growth: "+d.Cause]++
		case d.Until != "":
			h.seen["retried"]++
		case d.RetryOf != "":
			h.seen["retry of a run"]++
		case d.Reason != "" && strings.HasPrefix(e.Kind, "dispatch."):
			h.seen["dispatch: "+d.Reason]++
		}
	}
}

// missing returns what the test is about and has not occurred. When things happen is
// left to chance, so a round may lack any of it.
func (h *honest) missing() []string {
	kinds := []string{
		"retried", "retry of a run", "dispatch: timeout", "dispatch.recovered", "dispatch.answered", "dispatch.cancelled", "dispatch.cancel_requested",
		"task.answered", "task.skipped", "task.cancelled", "task.failed", "run.cancel_requested", "run.paused", "run.resumed", "stop.engaged", "operator.recorded", "service.key_rotated",
		"run.appended", "growth: for_each", "growth: gate", "growth: quorum", "approve",
	}
	return slices.DeleteFunc(kinds, func(kind string) bool { return h.seen[kind] > 0 })
}

// Runs and dispatches of several principals, with retries, answered and expired
// questions, pauses, early and late cancels, timeouts, stops and their lifting,
// changes of consent and catalog, votes of two people, killed workers and services, and key rotations:
// the evidence about each verifies offline, and the service agrees.
//
// proves R-A7, R-A3, R-A9 (no false alarm)
func TestHonestRunsAndDispatchesVerifyOffline(t *testing.T) {
	t.Parallel()
	h := newHonest(t)
	most := *honestFlag + 6*honestRound // as long as something is missing
	for round, made := 0, 0; made < *honestFlag || made < most && len(h.missing()) > 0; round++ {
		if round > 0 {
			h.must("down")
			h.rotate()
			h.upRuns()
		}
		n := honestRound
		if made < *honestFlag {
			n = min(n, *honestFlag-made)
		}
		h.round(round, n)
		made += n
		h.verify()
		if len(h.bad) > 0 {
			t.Fatalf("setup failed:\n%s", strings.Join(h.bad, "\n"))
		}
		if t.Failed() {
			break
		}
		h.happened()
	}
	if m := h.missing(); len(m) > 0 && !t.Failed() {
		t.Errorf("%q never happened: %v", m, h.seen)
	}
	t.Logf("%v", h.seen)
	if h.seen["evidence.refused"] != 0 {
		t.Errorf("the service refuses its own evidence:\n%s", h.must("audit", "list", "--kind", "evidence.refused"))
	}
	if st := h.evidenceStatus(); st.Refused != 0 {
		t.Errorf("the service refuses its own evidence: %+v", st)
	}
	if out := h.must("audit", "verify", "--log"); !strings.Contains(out, "verified against the signed root: ") {
		t.Errorf("audit check: %s", out)
	}
}
