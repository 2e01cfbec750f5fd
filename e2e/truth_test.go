package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// kind is a kind of dispatch in a trial: what its worker does, and how every
// attempt must end when its worker is not killed.
type kind struct {
	subagent
	want   []end
	patch  bool   // a sealed last attempt has a patch with half.txt
	log    string // of a sealed last attempt
	cancel bool   // its caller cancels it while it runs
	answer bool   // its caller answers its question
	calls  int    // requests that its agent makes and that are refused
	// Requests to its model whose answers are cut, so that they stay uncounted.
	uncounted int64
}

// end is how an attempt ends.
type end struct {
	state  api.Event
	reason api.Reason
}

func (e end) String() string { return strings.TrimSpace(string(e.state) + " " + string(e.reason)) }

func endsWith(state api.Event, reason api.Reason) []end { return []end{{state, reason}} }

const half = "echo begun; echo half > half.txt; mkdir -p outputs; "

// kinds lists all kinds.
func kinds() []kind {
	return []kind{
		{subagent: subagent{name: "edits", script: half + "echo two > a.txt; echo out > outputs/x.txt; echo done"}, want: endsWith(api.EventFinished, ""), patch: true, log: "begun\ndone\n"},
		{subagent: subagent{name: "fails", script: half + "exit 3"}, want: endsWith(api.EventFailed, api.ReasonAgent), patch: true, log: "begun\n"},
		{subagent: subagent{name: "green", script: half, more: "    verify: {command: [grep, -q, half, half.txt]}\n"}, want: endsWith(api.EventFinished, ""), patch: true, log: "begun\n"},
		{subagent: subagent{name: "red", script: half, more: "    verify: {command: [grep, -q, whole, half.txt]}\n"}, want: endsWith(api.EventFailed, api.ReasonVerify), patch: true, log: "begun\n"},
		{subagent: subagent{name: "late", script: half + "sleep 300", more: "    limits: {timeout: 1s}\n"}, want: endsWith(api.EventFailed, api.ReasonTimeout), patch: true, log: "begun\n"},
		{subagent: subagent{name: "typed", script: half + `echo '{"n": 1}' > outputs/result.json`, more: "    output: {type: object, required: [n], properties: {n: {type: integer}}}\n"}, want: endsWith(api.EventFinished, ""), patch: true, log: "begun\n"},
		{subagent: subagent{name: "untyped", script: half + `echo '{"n": "x"}' > outputs/result.json`, more: "    output: {type: object, required: [n], properties: {n: {type: integer}}}\n"}, want: endsWith(api.EventFailed, api.ReasonOutput), patch: true, log: "begun\n"},
		{subagent: subagent{name: "stopped", script: half + "sleep 300"}, want: endsWith(api.EventCancelled, ""), cancel: true},
		{
			subagent: subagent{name: "asks", script: half + `if [ -e inputs/resume.json ]; then grep -q half half.txt && echo more > more.txt; else echo '{"question": "Which?", "options": ["this", "that"]}' > .bailiwick/question.json; fi`},
			want:     []end{{api.EventNeedsInput, ""}, {api.EventFinished, ""}}, patch: true, log: "begun\n", answer: true,
		},
		{
			subagent: subagent{name: "waits", script: half + `echo '{"question": "Which?"}' > .bailiwick/question.json`, more: "    limits: {answer: 1s}\n"},
			want:     endsWith(api.EventNeedsInput, ""), patch: true, log: "begun\n",
		},
		{
			subagent: subagent{name: "calls", script: half + `for i in 1 2 3; do exec 3<>/dev/tcp/127.0.0.1/19514; printf 'CONNECT evil%d.example:443 HTTP/1.1\r\nHost: evil%d.example:443\r\n\r\n' $i $i >&3; read -r line <&3; exec 3>&-; done; echo done`},
			want:     endsWith(api.EventFinished, ""), patch: true, log: "begun\ndone\n", calls: 3,
		},
		{
			subagent: subagent{name: "cut", script: half + cutScript, more: cutMore},
			want:     endsWith(api.EventFinished, ""), patch: true, log: "begun\ndone\n", uncounted: 2,
		},
		{
			subagent: subagent{name: "tools", script: half + toolScript + "call counter_add 1; call tell 2; call counter_secret 3; call report 4; echo done"},
			want:     endsWith(api.EventFinished, ""), patch: true, log: "begun\ndone\n",
		},
		{
			subagent: subagent{name: "requests", script: half + toolScript + "call counter_sign 1; call counter_add 2; echo done"},
			want:     endsWith(api.EventFinished, ""), patch: true, log: "begun\ndone\n",
		},
	}
}

// story is everything recorded about one dispatch that has ended: its record,
// the log, and what its caller saw. The checks read nothing else, so a planted
// fault in a story must make them fail.
type story struct {
	id       string
	kind     kind
	answered bool          // its caller got a response that it was accepted
	record   *api.Dispatch // nil if not found
	entries  []entry       // of this dispatch
	hits     []hit         // of its attempts
	killed   map[int]bool  // its workers that were killed
	blindly  map[int]bool  // its workers that were killed outside a failpoint
	patch    []byte        // as the service returns it
	applied  string        // what is wrong with the tree after applying the patch; empty if nothing
	log      string
	stopped  bool  // its caller got a response that the cancel was accepted
	arrived  []int // how often each of its tool calls arrived
}

// attemptOf is the number of the attempt that a failpoint's subject names; 0 if
// it belongs to another dispatch.
func attemptOf(id, subject string) int {
	dir, number := filepath.Split(subject)
	if filepath.Base(dir) != id {
		return 0
	}
	n, _ := strconv.Atoi(number)
	return n
}

// did returns which processes passed a failpoint in an attempt.
func (s *story) did(attempt int, name failpoint.Name) (pids []int) {
	for _, h := range s.hits {
		if h.name == name && h.action == "" && attemptOf(s.id, h.subject) == attempt {
			pids = append(pids, h.pid)
		}
	}
	return pids
}

func endEvent(kind string) (api.Event, bool) {
	e, ok := strings.CutPrefix(kind, "dispatch.")
	return api.Event(e), ok && api.Event(e).Ended() && slices.Contains(api.Events(), api.Event(e))
}

// wrong lists the violations: a dispatch lost or duplicated, or an outcome that
// is not true.
func (s *story) wrong() (bad []string) {
	say := func(format string, args ...any) {
		bad = append(bad, fmt.Sprintf("%s (%s): ", s.id, s.kind.name)+fmt.Sprintf(format, args...))
	}
	count := map[string]int{}
	ends := map[int][]end{}
	last := 0
	var endRefs map[string]api.Digest
	cancelled := false // a cancel is in the log before the end
	refused := map[int][]int64{}
	for _, e := range s.entries {
		if e.Kind == "egress.refused" {
			if len(ends[e.Attempt]) > 0 {
				say("UNTRUE: request %d of attempt %d was refused after its end", e.Detail.Number, e.Attempt)
			}
			refused[e.Attempt] = append(refused[e.Attempt], e.Detail.Number)
		}
		count[e.Kind+" "+strconv.Itoa(e.Attempt)]++
		last = max(last, e.Attempt)
		if (e.Kind == "dispatch.cancel_requested" || e.Kind == "dispatch.aborted") && !slices.ContainsFunc(ends[e.Attempt], func(e end) bool { return e.state != api.EventNeedsInput }) {
			cancelled = true
		}
		if event, ok := endEvent(e.Kind); ok {
			ends[e.Attempt] = append(ends[e.Attempt], end{event, api.Reason(e.Detail.Reason)})
			endRefs = e.Refs
		}
	}
	if s.record == nil && len(s.hits) == 0 && !slices.ContainsFunc(s.entries, func(e entry) bool { return e.Kind != "dispatch.denied" }) && len(s.entries) > 0 {
		return bad // it is of a task that was denied, again after a kill
	}
	if s.record == nil {
		if s.answered || len(s.entries) > 0 {
			say("LOST: it was accepted (answered: %v, entries: %d) but has no record", s.answered, len(s.entries))
		}
		return bad
	}
	if n := count["dispatch.accepted 1"]; n != 1 {
		say("DOUBLED or LOST: accepted %d times", n)
	}
	for attempt := 1; attempt <= last; attempt++ {
		s.wrongAttempt(attempt, last, cancelled, count, ends[attempt], say)
		s.wrongRefusals(attempt, refused[attempt], say)
	}
	if r := s.record; len(ends[last]) == 0 || r.State != ends[last][len(ends[last])-1].state || r.Reason != ends[last][len(ends[last])-1].reason || r.Attempt != last {
		say("UNTRUE: its record says attempt %d is %s %s, the log says attempt %d is %v", r.Attempt, r.State, r.Reason, last, ends[last])
	}
	s.wrongContent(endRefs, say)
	s.wrongCalls(say)
	s.wrongBudgets(say)
	return bad
}

// wrongAttempt checks one attempt.
func (s *story) wrongAttempt(attempt, last int, cancelled bool, count map[string]int, ends []end, say func(string, ...any)) {
	if n := count["dispatch.started "+strconv.Itoa(attempt)]; n > 1 {
		say("DOUBLED: attempt %d was started %d times", attempt, n)
	}
	if n := count["dispatch.answered "+strconv.Itoa(attempt)]; attempt > 1 && n != 1 {
		say("DOUBLED or LOST: attempt %d has %d answers", attempt, n)
	}
	pids := s.did(attempt, failpoint.WorkerAgent)
	if len(pids) > 1 {
		say("DOUBLED: the agent of attempt %d was started %d times, by %v", attempt, len(pids), pids)
	}
	if len(pids) == 0 && len(ends) > 0 && (ends[0].state == api.EventFinished || ends[0].state == api.EventNeedsInput) {
		say("UNTRUE: attempt %d ended with %s, and its agent was never started", attempt, ends[0])
	}
	// A question is an end that another end may follow if it is not answered.
	if len(ends) > 1 && ends[0].state == api.EventNeedsInput {
		if e := ends[1]; (!cancelled || e.state != api.EventCancelled) && e != (end{api.EventFailed, api.ReasonTimeout}) || attempt != last {
			say("UNTRUE: the question of attempt %d ended with %s", attempt, e)
		}
		ends = ends[:1]
	}
	if len(ends) != 1 {
		say("DOUBLED or LOST: attempt %d ended %d times: %v", attempt, len(ends), ends)
		return
	}
	if allowed := s.allowed(attempt, cancelled); !slices.Contains(allowed, ends[0]) {
		say("UNTRUE: attempt %d ended with %s, it must be one of %v (killed %v, blindly %v)", attempt, ends[0], allowed, s.killed, s.blindly)
	}
}

// wrongRefusals checks the refused requests of an attempt in the log.
func (s *story) wrongRefusals(attempt int, numbers []int64, say func(string, ...any)) {
	slices.Sort(numbers)
	if n := len(numbers); n > s.kind.calls || n != len(slices.Compact(slices.Clone(numbers))) {
		say("DOUBLED: the log has the refused requests %v of attempt %d, its agent made %d", numbers, attempt, s.kind.calls)
	}
	if sealed := len(s.did(attempt, failpoint.WorkerResultPlaced)) > 0; sealed && len(numbers) != s.kind.calls {
		say("LOST: the log has the refused requests %v of attempt %d, its agent made %d", numbers, attempt, s.kind.calls)
	}
}

// allowed lists how an attempt may have ended, given what its workers did and
// which were killed. A kill of the service excuses no other end.
func (s *story) allowed(attempt int, cancelled bool) []end {
	want := []end{s.kind.want[min(attempt, len(s.kind.want))-1]}
	if cancelled && !s.kind.cancel { // it may have ended before the cancel arrived
		want = append(want, end{api.EventCancelled, ""})
	}
	if len(s.did(attempt, failpoint.WorkerResultPlaced)) > 0 {
		return want
	}
	dead := end{api.EventFailed, api.ReasonLost}
	if cancelled {
		dead = end{api.EventCancelled, ""}
	}
	var allowed []end
	for _, pid := range s.did(attempt, failpoint.WorkerBegin) {
		if s.killed[pid] {
			allowed = append(allowed, dead)
		}
	}
	for _, pid := range s.did(attempt, failpoint.WorkerResultFile) {
		if s.blindly[pid] { // its last step may be done but not recorded
			allowed = append(allowed, want...)
		}
	}
	if cancelled && len(s.did(attempt, failpoint.WorkerProceed)) == 0 {
		allowed = append(allowed, dead) // it never began
	}
	return allowed
}

// wrongContent checks that the content that the end promises exists.
func (s *story) wrongContent(endRefs map[string]api.Digest, say func(string, ...any)) {
	r := s.record
	sealed := len(s.did(r.Attempt, failpoint.WorkerResultPlaced)) > 0
	if s.stopped && r.CancelBy == "" && r.State == api.EventCancelled || r.State == api.EventCancelled && r.CancelBy == "" {
		say("UNTRUE: cancelled without a caller")
	}
	if (r.Result != "") != sealed && len(s.blindly) == 0 {
		say("LOST: its worker sealed a result (%v), the record has %q", sealed, r.Result)
	}
	if r.Result != endRefs["result"] {
		say("UNTRUE: the record has the result %q, the log %q", r.Result, endRefs["result"])
	}
	var patch api.Digest
	if r.Outcome != nil && r.Outcome.Patch != nil {
		patch = r.Outcome.Patch.Digest
		if got := api.DigestOf(s.patch); got != patch {
			say("LOST: its patch has the digest %s, the record promises %s", got, patch)
		}
		if s.applied != "" {
			say("UNTRUE: its patch: %s", s.applied)
		}
	}
	if patch != endRefs["patch"] {
		say("UNTRUE: the record has the patch %q, the log %q", patch, endRefs["patch"])
	}
	// On a busy machine the time of an attempt may end before its agent has done anything.
	idle := r.Reason == api.ReasonTimeout && r.Outcome != nil && r.Outcome.LogBytes == 0 && s.log == ""
	if sealed && s.kind.patch && r.State != api.EventCancelled && !idle {
		if patch == "" {
			say("LOST: it has no patch")
		}
		if s.log != s.kind.log {
			say("LOST: its log is %q, want %q", s.log, s.kind.log)
		}
	}
}

// gaps reports a gap in the sequence numbers of the whole log.
func gaps(log []entry) (bad []string) {
	for i, e := range log {
		if e.Seq != uint64(i) {
			return []string{fmt.Sprintf("LOST: entry %d of the log has the sequence number %d", i, e.Seq)}
		}
	}
	return nil
}

// changed reports an entry that was changed or lost since an earlier reading.
func changed(earlier, now []entry) (bad []string) {
	for i, e := range earlier {
		if i >= len(now) || now[i].leaf != e.leaf {
			return []string{fmt.Sprintf("LOST: entry %d of the log changed", i)}
		}
	}
	return nil
}

// story gathers everything recorded about a dispatch that has ended.
func (k *trial) story(j *job, log []entry, hits []hit, killed, blindly map[int]bool) *story {
	k.t.Helper()
	s := &story{id: j.id, kind: j.kind, answered: j.answered, stopped: j.stopped, killed: map[int]bool{}, blindly: map[int]bool{}}
	for _, e := range log {
		if e.Dispatch == j.id && (strings.HasPrefix(e.Kind, "dispatch.") || strings.HasPrefix(e.Kind, "tool.") || e.Kind == "egress.refused") { // task entries count the attempts of the task
			s.entries = append(s.entries, e)
		}
	}
	for _, h := range hits {
		if attemptOf(j.id, h.subject) > 0 {
			s.hits = append(s.hits, h)
			if killed[h.pid] {
				s.killed[h.pid] = true
			}
			if blindly[h.pid] {
				s.blindly[h.pid] = true
			}
		}
	}
	d, err := k.describe(j.id)
	if err != nil {
		return s
	}
	s.record = &d
	if d.Outcome != nil && d.Outcome.Patch != nil {
		if err := k.insist("GET", runtimePath+"/"+j.id+"/patch", nil, &s.patch); err != nil {
			s.applied = err.Error()
		} else {
			s.applied = k.apply(j.id, s.patch, d.State != api.EventCancelled)
		}
	}
	s.log, s.arrived = k.text(j.id), k.counter.of(j.id)
	return s
}

// apply applies a patch to a fresh checkout with git itself, and returns what
// is wrong with the result.
func (k *trial) apply(id string, patch []byte, whole bool) string {
	dir := "applied-" + id
	defer os.RemoveAll(k.path(dir)) //nolint:errcheck // the world is removed too
	k.write(dir+"/p.patch", string(patch), 0o644)
	if d := k.exec("git", "clone", "-q", "-s", k.path("repo"), k.path(dir, "tree")); d.status != 0 {
		return d.String()
	}
	if d := k.exec("git", "-C", k.path(dir, "tree"), "apply", k.path(dir, "p.patch")); d.status != 0 {
		return d.String()
	}
	if b, err := os.ReadFile(k.path(dir, "tree/half.txt")); whole && (err != nil || string(b) != "half\n") {
		return fmt.Sprintf("half.txt is %q %v", b, err)
	}
	return ""
}
