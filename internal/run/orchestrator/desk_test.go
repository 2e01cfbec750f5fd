package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// The people of these tests, and what their tasks' subagents do when they are
// fired. Every other one waits until the test ends it.
const (
	ann  api.Principal = "local:ann"
	ben  api.Principal = "local:ben"
	root api.Principal = "local:root"

	work   api.Name = "work"   // waits for the test to end it
	quick  api.Name = "quick"  // has finished, and told so, before Fire returns
	denied api.Name = "denied" // was granted when the plan was submitted and is not when it is fired
	absent api.Name = "absent" // Fire finds that a product which it needs is not there
	slow   api.Name = "slow"   // Fire does not return until the test lets it
	before api.Name = "before" // the service is killed as it is fired, before anything came of that
	after  api.Name = "after"  // the service is killed when it is fired, and nobody hears of it
	busy   api.Name = "busy"   // cannot be reached the first two times
	stuck  api.Name = "stuck"  // cannot be reached until the test lets it
	fickle api.Name = "fickle" // may not resume with an answer
	secret api.Name = "secret" // is granted to nobody
)

// desk is a fake of dispatch.Service and everything below it. It keeps its
// dispatches when the engine is killed, as the rows of the real one do, and
// takes down whatever no engine should ever have asked of it.
type desk struct {
	engine *policy.Engine
	now    func() time.Time
	kill   func()                                 // ends the service at this instant
	locks  func(api.RunID, api.TaskID) []api.Lock // of a task
	gives  func(api.TaskID) *api.ResultSummary    // what a task returns; may be nil
	vetted func()                                 // called while a plan is validated
	held   func(*replayTask) bool                 // whether its run or its queue is paused
	full   func(*replayTask) bool                 // whether attempts have all slots of its queue

	booking sync.Mutex // held while an attempt begins or ends, and before mu
	purse   *purse     // what attempts spend; nil: there are no budgets

	mu    sync.Mutex
	gen   int                // the engine that lives; calls of earlier ones come to nothing
	tell  func(api.Dispatch) // notifies the engine of an end; nil without one
	early []api.Dispatch     // ends while an engine was being opened
	jobs  map[api.DispatchID]*job
	gates map[string]chan struct{} // of slow tasks, by run and task: closed when Fire may return
	once  map[string]bool          // kills that have been, and gates that were opened
	tries map[string]int           // of busy tasks, by run and task
	tried map[string]time.Time     // when that was last
	calls map[string]int
	idled map[api.DispatchID]bool // of tasks that were started, paused and not there
	wrong []string
	last  uint64    // the highest fence that was ever used
	moved sync.Cond // signalled by every call
	over  bool      // dispatches no longer end
}

// job is a dispatch.
type job struct {
	order   dispatch.TaskRequest
	by      api.Principal
	d       api.Dispatch
	fence   uint64                    // of the current attempt
	answers map[int]api.AnswerRequest // by the attempt that asked
	history []api.Dispatch            // ends of attempts
	product *product                  // of a finished one; nil: happy
	untold  time.Time                 // since when its end is not notified; zero: it was
	heard   time.Time                 // when an older end of it was told of, late
	bills   []*bill                   // of its attempts
	usage   usage                     // of its current attempt
}

// GoString is how rapid prints what it has drawn.
func (j *job) GoString() string {
	return fmt.Sprintf("%s/%s %s attempt %d", j.order.Run, j.order.Task, j.d.State, j.d.Attempt)
}

func (j *job) active() bool { return !j.d.State.Ended() }

func (j *job) asks() bool { return j.d.State == api.EventNeedsInput }

// deskGrants are the grants without budgets.
func deskGrants() (grants []api.Grant) {
	for _, p := range []api.Principal{ann, ben, nightly} {
		grants = append(grants, api.Grant{
			Name: api.Name("of-" + strings.SplitN(string(p), ":", 2)[1]), Principal: p, Targets: []api.Name{"local"}, Ceiling: api.Reversible,
			Subagents: []api.Name{work, quick, denied, absent, slow, busy, stuck, fickle, before, after, checker, fixer, voter},
		})
	}
	return grants
}

func deskEngine(grants []api.Grant) (*policy.Engine, error) {
	return policy.New(policy.Rules{Grants: grants, Operator: root, Targets: []api.Target{{Name: "local", Mode: api.Guarded}}})
}

func newDesk(now func() time.Time) *desk {
	engine, err := deskEngine(deskGrants())
	if err != nil {
		panic(err)
	}
	k := &desk{
		engine: engine, now: now, kill: func() {}, locks: func(api.RunID, api.TaskID) []api.Lock { return nil }, vetted: func() {},
		jobs: map[api.DispatchID]*job{}, gates: map[string]chan struct{}{}, once: map[string]bool{}, tries: map[string]int{}, tried: map[string]time.Time{}, calls: map[string]int{}, idled: map[api.DispatchID]bool{}, held: func(*replayTask) bool { return false }, full: func(*replayTask) bool { return false },
	}
	k.moved.L = &k.mu
	return k
}

// seat is the desk as one engine sees it.
type seat struct {
	*desk
	gen   int
	ended func(api.Dispatch) // of the engine; nil while that is being opened; guarded by mu
}

// sit gives the desk to a new engine.
func (k *desk) sit() *seat {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gen++
	k.early = nil
	s := &seat{desk: k, gen: k.gen}
	k.tell = func(d api.Dispatch) {
		k.mu.Lock()
		tell := s.ended
		if tell == nil {
			k.early = append(k.early, d)
		}
		k.mu.Unlock()
		if tell != nil {
			tell(d)
		}
	}
	return s
}

// generation is the desk as the engine sees it that lives.
func (k *desk) generation() *seat {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &seat{desk: k, gen: k.gen}
}

// listen says whom to tell, also of what has ended while that one was opened.
func (s *seat) listen(tell func(api.Dispatch)) {
	s.mu.Lock()
	early := s.early
	s.ended, s.early = tell, nil
	s.mu.Unlock()
	for _, d := range early {
		tell(d)
	}
}

// freeze makes that nothing comes of what the engine asks for from now on.
func (k *desk) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gen++
	k.tell, k.early = nil, nil
	for _, key := range slices.Collect(maps.Keys(k.gates)) {
		close(k.gates[key])
		delete(k.gates, key)
	}
}

var errKilled = errors.New("the service was killed")

// enter begins a call, which is refused to who is dead.
func (s *seat) enter(what string) error {
	s.mu.Lock()
	if s.gen != s.desk.gen {
		s.mu.Unlock()
		return errKilled
	}
	s.calls[what]++
	s.moved.Broadcast() // who waits looks when this call has given the mutex back
	return nil
}

func (k *desk) object(format string, args ...any) {
	k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
}

// Validate grants everything but one name.
func (s *seat) Validate(_ context.Context, caller dispatch.Caller, reqs []api.DispatchRequest) (dispatch.Validation, error) {
	s.vetted()
	if err := s.enter("vet"); err != nil {
		return dispatch.Validation{}, err
	}
	defer s.mu.Unlock()
	v := dispatch.Validation{Revision: revision, Number: 7, Commits: make([]string, len(reqs)), HasResult: make([]bool, len(reqs)), HasPatch: make([]bool, len(reqs)), HasVerify: make([]bool, len(reqs)), Allowed: make([]bool, len(reqs))}
	decisions := map[api.Name]policy.Decision{}
	for i, r := range reqs {
		v.HasResult[i], v.HasPatch[i], v.Allowed[i] = true, true, true
		if r.Source != nil {
			v.Commits[i] = "1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c1f3c"
		}
		d := decisions[r.Subagent]
		if !d.Valid() {
			d = s.decision(caller, r.Subagent)
			decisions[r.Subagent] = d
		}
		if strings.Contains(string(r.Input), "refused") {
			v.Problems = append(v.Problems, dispatch.RequestProblem{Index: i, Member: "input", Message: "input does not match the schema"})
		}
		if !d.Allowed() {
			v.Problems = append(v.Problems, dispatch.RequestProblem{Index: i, Message: "it may not be dispatched"})
			if !v.Denied.Valid() {
				v.Denied = d
			}
		}
	}
	return v, nil
}

// decision is about a dispatch of a subagent. The caller holds the mutex.
func (k *desk) decision(caller dispatch.Caller, subagent api.Name) policy.Decision {
	return k.engine.Decide(policy.Request{
		Principal: caller.Principal, Action: policy.ActionDispatch, Resource: string(subagent), Target: "local",
		Consent: api.Reversible, Session: api.Irreversible,
	})
}

// Engine is what requests about runs are decided by.
func (s *seat) Engine(context.Context) (*policy.Engine, error) {
	if err := s.enter("engine"); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return s.engine, nil
}

// Look returns a record.
func (s *seat) Get(_ context.Context, id api.DispatchID) (api.Dispatch, bool, error) {
	if err := s.enter("look"); err != nil {
		return api.Dispatch{}, false, err
	}
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j == nil {
		return api.Dispatch{}, false, nil
	}
	return j.d, true, nil
}

// Fire makes a dispatch, once.
func (s *seat) SubmitTask(ctx context.Context, caller dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, error) {
	key := string(o.Run) + " " + string(o.Task)
	if err := s.pause(ctx, key, o.Request.Subagent); err != nil {
		return api.Dispatch{}, err
	}
	if s.first(before, key, o.Request.Subagent) {
		s.kill()
	}
	d, tell, err := s.fire(caller, o)
	if tell != nil {
		tell(d)
	}
	if err == nil && s.first(after, key, o.Request.Subagent) {
		s.kill()
		return api.Dispatch{}, errKilled
	}
	return d, err
}

// pause holds back the Fire of a slow task until the test opens its gate.
func (s *seat) pause(ctx context.Context, key string, subagent api.Name) error {
	if subagent != slow {
		return nil
	}
	if err := s.enter("slow"); err != nil {
		return err
	}
	gate := s.gates[key]
	if gate == nil && !s.once["open "+key] {
		gate = make(chan struct{})
		s.gates[key] = gate
	}
	s.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open lets the slow tasks on that are being fired, and returns how many those
// were.
func (k *desk) open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.gates)
	for key := range k.tries {
		k.once["open "+key] = true
	}
	for key, gate := range k.gates {
		k.once["open "+key] = true
		close(gate)
	}
	clear(k.gates)
	return n
}

func (s *seat) first(want api.Name, key string, subagent api.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subagent != want || s.gen != s.desk.gen || s.once[key] {
		return false
	}
	s.once[key] = true
	return true
}

// fire returns also whom to tell that it has ended already.
func (s *seat) fire(caller dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, func(api.Dispatch), error) {
	s.booking.Lock()
	defer s.booking.Unlock()
	if err := s.enter("fire"); err != nil {
		return api.Dispatch{}, nil, err
	}
	defer s.mu.Unlock()
	id := o.Request.DispatchID
	switch {
	case id == "" || o.Run == "" || o.Task == "" || o.Fence == 0 || o.Revision != revision:
		s.object("fired with a part missing: %+v", o)
	case caller.TokenValid != nil:
		s.object("task %s of run %s is fired with a token of long ago", o.Task, o.Run)
	}
	if j := s.jobs[id]; j != nil {
		if j.order.Run != o.Run || j.order.Task != o.Task || j.by != caller.Principal || j.order.Request.Subagent != o.Request.Subagent {
			s.object("dispatch %s is fired for task %s of run %s and was for task %s of run %s", id, o.Task, o.Run, j.order.Task, j.order.Run)
		}
		return j.d, nil, nil
	}
	switch o.Request.Subagent {
	case denied:
		return api.Dispatch{}, nil, api.Errorf(api.CodeDenied, "%s may not dispatch it any more", caller.Principal)
	case absent:
		return api.Dispatch{}, nil, api.Errorf(api.CodeNotFound, "task up has no output x")
	case busy, stuck:
		key := string(o.Run) + " " + string(o.Task)
		if o.Request.Subagent == busy && s.tries[key] < 2 || o.Request.Subagent == stuck && !s.once["open "+key] {
			s.tries[key]++
			s.tried[key] = s.now()
			return api.Dispatch{}, nil, api.Errorf(api.CodeUnavailable, "not now")
		}
	default:
	}
	at := s.now()
	j := &job{order: o, by: caller.Principal, answers: map[int]api.AnswerRequest{}, d: api.Dispatch{
		ID: id, State: api.EventStarted, Attempt: 1, Principal: caller.Principal, Run: o.Run, Task: o.Task,
		Subagent: o.Request.Subagent, Role: "transform", Target: "local", Revision: 7, Manifest: revision, AcceptedAt: at, StartedAt: &at,
	}}
	decision := s.decision(caller, o.Request.Subagent)
	s.mu.Unlock()
	b, err := s.reserve(j.owner(1), o.Budget, decision, at, o.Fence, o.Behind)
	s.mu.Lock()
	if err != nil {
		return api.Dispatch{}, nil, err
	}
	j.bills = append(j.bills, b)
	s.begin(j, o.Fence)
	s.jobs[id] = j
	if o.Request.Subagent == quick {
		if s.purse != nil { // else nobody sees it run
			s.mu.Unlock()
			err = s.settle(j)
			s.mu.Lock()
		}
		if err == nil {
			s.finish(j, api.EventFinished, "", "")
			return j.d, s.tell, nil
		}
	}
	return j.d, nil, nil
}

// begin looks at what else runs when an attempt does, and at its fence.
func (k *desk) begin(j *job, fence uint64) {
	j.fence = fence
	mine := k.locks(j.order.Run, j.order.Task)
	for _, other := range k.jobs {
		if other == j || !other.active() {
			continue
		}
		if other.order.Run == j.order.Run && other.order.Task == j.order.Task {
			k.object("task %s of run %s runs twice: as %s and as %s", j.order.Task, j.order.Run, other.d.ID, j.d.ID)
		}
		theirs := k.locks(other.order.Run, other.order.Task)
		if key := clash(mine, theirs); key != "" {
			k.object("%s/%s and %s/%s hold %q at once", j.order.Run, j.order.Task, other.order.Run, other.order.Task, key)
		}
		if clash(mine, theirs) != "" && other.fence >= fence {
			k.object("fence %d comes after %d", fence, other.fence)
		}
	}
	for _, other := range k.jobs {
		if len(mine) > 0 && other != j && clash(mine, k.locks(other.order.Run, other.order.Task)) != "" && other.fence >= fence {
			k.object("%s/%s has fence %d after %s/%s had %d", j.order.Run, j.order.Task, fence, other.order.Run, other.order.Task, other.fence)
		}
	}
	k.last = max(k.last, fence)
}

// clash returns a key that two tasks cannot hold at once.
func clash(a, b []api.Lock) string {
	for _, x := range a {
		for _, y := range b {
			if x.Key == y.Key && (!x.Shared || !y.Shared) {
				return x.Key
			}
		}
	}
	return ""
}

// ValidateAnswer says whether an answer would be taken now.
func (s *seat) ValidateAnswer(_ context.Context, id api.DispatchID, req api.AnswerRequest) (int, error) {
	if err := s.enter("check"); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j == nil || !j.asks() {
		return 0, api.Errorf(api.CodeConflict, "dispatch %s does not ask anything", id)
	}
	if req.Attempt != 0 && req.Attempt != j.d.Attempt {
		return 0, api.Errorf(api.CodeConflict, "attempt %d does not ask", req.Attempt)
	}
	return req.Option, nil
}

// Resume begins the next attempt, once for each answer.
func (s *seat) ResumeTask(_ context.Context, caller dispatch.Caller, id api.DispatchID, req api.AnswerRequest, by api.Principal, fence uint64, behind []string) (api.Dispatch, error) {
	s.booking.Lock()
	defer s.booking.Unlock()
	if err := s.enter("resume"); err != nil {
		return api.Dispatch{}, err
	}
	defer s.mu.Unlock()
	j := s.jobs[id]
	if j == nil {
		s.object("resumed: dispatch %s, which there is not", id)
		return api.Dispatch{}, api.Errorf(api.CodeNotFound, "no dispatch %s", id)
	}
	if req.Attempt == 0 || by == "" || caller.Principal != j.by || fence == 0 {
		s.object("dispatch %s is resumed by %q for %q with %+v and fence %d", id, by, caller.Principal, req, fence)
	}
	if given, ok := j.answers[req.Attempt]; ok {
		if given != req {
			s.object("dispatch %s attempt %d is answered with %+v and was with %+v", id, req.Attempt, req, given)
		}
		return j.d, nil
	}
	if !j.asks() || req.Attempt != j.d.Attempt {
		return api.Dispatch{}, api.Errorf(api.CodeConflict, "dispatch %s attempt %d does not ask anything", id, req.Attempt)
	}
	if j.order.Request.Subagent == fickle {
		return api.Dispatch{}, api.Errorf(api.CodeDenied, "%s may not dispatch it any more", caller.Principal)
	}
	if fence <= j.fence {
		s.object("dispatch %s resumes with fence %d after %d", id, fence, j.fence)
	}
	at, decision, next := s.now(), s.decision(caller, j.order.Request.Subagent), j.owner(j.d.Attempt+1)
	s.mu.Unlock()
	b, err := s.reserve(next, nil, decision, at, fence, behind)
	s.mu.Lock()
	if err != nil {
		return api.Dispatch{}, err
	}
	j.bills, j.usage = append(j.bills, b), usage{}
	j.answers[req.Attempt] = req
	j.d.Attempt++
	j.d.State, j.d.Reason, j.d.Message, j.d.EndedAt, j.d.AnswerBy, j.d.ResumedAt, j.untold = api.EventStarted, "", "", nil, nil, &at, time.Time{}
	s.begin(j, fence)
	return j.d, nil
}

// Cancel asks for the end of a dispatch; one that waits ends at once.
func (s *seat) Cancel(_ context.Context, by api.Principal, id api.DispatchID, why string) (api.Dispatch, error) {
	return s.cancel(api.Actor(by), id, why)
}

// Abort is Cancel by the service.
func (s *seat) Abort(_ context.Context, id api.DispatchID, why string) (api.Dispatch, error) {
	return s.cancel(api.Service, id, why)
}

func (s *seat) cancel(by api.Actor, id api.DispatchID, why string) (api.Dispatch, error) {
	s.booking.Lock()
	if err := s.enter("cancel"); err != nil {
		s.booking.Unlock()
		return api.Dispatch{}, err
	}
	j := s.jobs[id]
	switch {
	case j == nil:
		s.mu.Unlock()
		s.booking.Unlock()
		return api.Dispatch{}, api.Errorf(api.CodeNotFound, "no dispatch %s", id)
	case by == "":
		s.object("dispatch %s is cancelled by nobody", id)
	}
	tell := func(api.Dispatch) {}
	switch {
	case j.asks():
		j.d.CancelBy, j.d.CancelReason = by, why
		s.finish(j, api.EventCancelled, "", "cancelled")
		if s.tell != nil {
			tell = s.tell
		}
	case j.active() && j.d.CancelBy == "":
		j.d.CancelBy, j.d.CancelReason = by, why
	}
	d := j.d
	s.mu.Unlock()
	s.booking.Unlock()
	tell(d)
	return d, nil
}

// finish ends an attempt.
func (k *desk) finish(j *job, state api.Event, reason api.Reason, message string) {
	at := k.now()
	j.d.State, j.d.Reason, j.d.Message, j.d.EndedAt, j.d.AnswerBy = state, reason, message, &at, nil
	switch state {
	case api.EventNeedsInput:
		until := at.Add(time.Hour)
		j.d.AnswerBy = &until
	case api.EventCancelled:
	default:
		j.d.CancelBy, j.d.CancelReason = "", ""
	}
	switch {
	case state != api.EventFinished:
	case k.gives != nil:
		j.d.Outcome = k.gives(j.order.Task)
	default:
		p := happy(j.order.Request.Subagent)
		if j.product != nil {
			p = *j.product
		}
		raw, err := json.Marshal(p)
		if err != nil {
			panic(err)
		}
		j.d.Outcome, j.d.Result = &api.ResultSummary{Captured: true, Value: raw}, api.DigestOf(raw)
	}
	j.history = append(j.history, j.d)
}

// returns decides what a dispatch will have returned when it has finished.
func (k *desk) returns(j *job, p product) {
	k.mu.Lock()
	defer k.mu.Unlock()
	j.product = &p
}

// productOf is the structured result of a dispatch.
func (k *desk) productOf(id api.DispatchID) json.RawMessage {
	k.mu.Lock()
	defer k.mu.Unlock()
	if j := k.jobs[id]; j != nil && j.d.Outcome != nil {
		return j.d.Outcome.Value
	}
	return nil
}

// end is the test's way to end an attempt. Untold, nobody hears of it. A
// question of a dispatch that was cancelled before ends at once. It returns whether the
// end is durable: that takes a service that lives, and a disk.
func (k *desk) end(j *job, state api.Event, reason api.Reason, told bool) bool {
	k.booking.Lock()
	err := k.settle(j)
	k.mu.Lock()
	ending := j
	if err != nil {
		lost := *j
		lost.history = nil
		ending = &lost
	}
	stopped := state == api.EventNeedsInput && j.d.CancelBy != ""
	k.finish(ending, state, reason, "words of "+string(j.order.Task))
	ends := []api.Dispatch{ending.d}
	if stopped {
		k.finish(ending, api.EventCancelled, "", "cancelled")
		ends = append(ends, ending.d)
	}
	tell := k.tell
	if err == nil {
		j.untold = time.Time{}
		if !told || tell == nil {
			j.untold = k.now()
		}
	}
	k.mu.Unlock()
	k.booking.Unlock()
	for _, d := range ends {
		if told && tell != nil {
			tell(d)
		}
	}
	return err == nil
}

// say tells the engine of an end, whatever it knows and however old that is.
func (k *desk) say(d api.Dispatch) {
	k.mu.Lock()
	tell := k.tell
	if j := k.jobs[d.ID]; j != nil {
		j.heard = k.now()
	}
	k.mu.Unlock()
	if tell != nil {
		tell(d)
	}
}

// sorted returns the jobs that which chooses, in an order that does not depend
// on ids that are made up or on which of two effects was first.
func (k *desk) sorted(which func(*job) bool) []*job {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*job
	for _, j := range k.jobs {
		if which(j) {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *job) int {
		if c := cmpString(string(a.order.Run), string(b.order.Run)); c != 0 {
			return c
		}
		if c := cmpString(string(a.order.Task), string(b.order.Task)); c != 0 {
			return c
		}
		return int(int64(a.order.Fence) - int64(b.order.Fence))
	})
	return list
}

func cmpString(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// complaints returns what was wrong since the last time.
func (k *desk) complaints() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	list := k.wrong
	k.wrong = nil
	return list
}

var revision = api.DigestOf([]byte("the catalog"))

// asking reports whether a dispatch asks something.
func (k *desk) asking(id api.DispatchID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	j := k.jobs[id]
	return j != nil && j.asks()
}

// gated is how many slow tasks are being fired, and how many were that cannot be
// reached.
func (k *desk) gated() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.gates) + len(k.tries)
}

// count is how often an operation was called.
func (k *desk) count(what string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.calls[what]
}

// delayed reports whether a task may be without its dispatch for a while. The
// caller holds the mutex.
func (k *desk) delayed(t *replayTask) bool {
	key := t.key()
	switch since := k.now().Sub(k.tried[key]); t.plan.Subagent {
	case busy:
		return k.tries[key] > 0 && since < time.Second
	case stuck:
		return k.tries[key] > 0 && since < 31*time.Second
	default:
		return k.gates[key] != nil
	}
}

// await waits until ok, which is evaluated again whenever the engine has called
// something.
func (k *desk) await(ok func() bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !ok() {
		k.moved.Wait()
	}
}

// countActive is how many dispatches of a run run. It is for await.
func (k *desk) countActive(id api.RunID) (n int) {
	for _, j := range k.jobs {
		if j.active() && j.order.Run == id {
			n++
		}
	}
	return n
}

// stop marks a dispatch as an emergency stop does.
func (k *desk) stop(j *job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if j.d.CancelBy == "" {
		j.d.CancelBy = api.Actor(root)
	}
}

// attempt is the current attempt of a dispatch.
func (k *desk) attempt(id api.DispatchID) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.jobs[id].d.Attempt
}
