package orchestrator

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
)

// run is an unsettled run, or a settled one that was read to be described.
type run struct {
	seq  int64 // its row
	id   api.RunID
	plan *plan.Plan
	doc  runDoc
	// The rest is the state that the next commit makes durable.
	principal api.Principal
	submitted time.Time
	settled   time.Time
	state     api.RunState // once it is settled
	pausedBy  api.Principal
	cancelBy  api.Actor
	cancelWhy string
	tasks     []task
	counts    map[api.TaskState]int
	asking    int // tasks that wait for an answer, or for people to approve
	left      int // unsettled tasks
	queue     *queue
	growths   []growth
	bytes     int  // of the plan and the growths
	dirty     bool // the next commit writes its row
	dry       bool // it is only validated: nothing of it is logged or stored
}

// runDoc is the part of a run's row that never changes.
type runDoc struct {
	Queue      api.Name          `json:"queue"`
	Ceiling    api.Tier          `json:"ceiling"` // declared by the session of the request
	Digest     api.Digest        `json:"digest"`  // of the canonical plan
	Revision   api.Digest        `json:"revision"`
	Number     uint64            `json:"number"`            // of the revision
	Commits    map[string]string `json:"commits,omitempty"` // by source: see sourceKey
	Nonce      string            `json:"nonce"`             // 128 random bits, so that the dispatch ids of tasks cannot be guessed
	DeadlineAt time.Time         `json:"deadline,omitzero"`
	RetryOf    api.RunID         `json:"retryOf,omitempty"`
	// Labels of the plan; Template and Parameters as in record.RunRequest.
	Labels     map[api.Name]string `json:"labels,omitempty"`
	Template   api.Digest          `json:"template,omitempty"`
	Parameters []string            `json:"-"`                 // until the run is submitted: they may be long, and the entry bounds them
	From       []api.TaskID        `json:"from,omitempty"`    // of a retry: tasks to run again
	Changed    []string            `json:"changed,omitempty"` // of a retry: see plan.Retry
	Key        string              `json:"key,omitempty"`     // of the request that submitted it
	Asked      api.Digest          `json:"asked,omitempty"`   // of a retry: the digest of its request
	NoReuse    bool                `json:"noReuse,omitempty"`
	Grown      int                 `json:"grown,omitempty"` // of a retry: growths of the earlier run, that it began with
	Trace      api.Trace           `json:"trace,omitempty"`
	Slot       *Slot               `json:"slot,omitempty"`  // of a schedule
	Rules      int64               `json:"rules,omitempty"` // see plan.Rules
}

func sourceKey(s *api.SourceRequest) string { return string(s.Name) + "@" + s.Commit }

// task is a task of a run. A task in state ready is stored as pending or waiting.
type task struct {
	state      api.TaskState
	deps       int32 // dependencies that are not done
	attempt    int32
	cause      int32 // of a skipped task: the one that did not finish; -1
	questionOf int32 // attempt of the dispatch that asked the latest question
	fence      uint64

	dispatch  api.DispatchID // of the latest attempt
	reason    api.Reason
	message   string
	notBefore time.Time // of a task that is retried
	answer    *answer   // to resume with
	cancelBy  api.Actor
	cancelWhy string
	started   time.Time
	ended     time.Time
	takenOver bool
	approved  bool // it is ready because people approved what it is to write
	asked     bool // people were asked about what it is to write

	affording  *affording // while it waits for room in a budget
	ends       int        // of its principal, when its dispatch was submitted
	lease      *lease     // while it holds or waits for its locks
	cancelSent bool       // its dispatch was cancelled
	inFlight   bool       // an effect on its dispatch is under way
	holds      bool       // the condition of its When
	counted    bool       // its vote is
	faulty     string     // what is wrong with the verdict of a voter
	children   children
	missed     bool  // the last sweep saw a completion that the engine was not notified of
	failure    error // why it could not resume with an answer; reported once its dispatch has ended
	dirty      bool  // the next commit writes its row
}

// answer is the answer to a question.
type answer struct {
	Text   string        `json:"text,omitempty"`
	Option int           `json:"option,omitempty"`
	By     api.Principal `json:"by"`
}

// asking reports whether the task waits for an answer, or for people to approve.
func (t *task) asking() bool { return t.state == api.TaskWaiting && t.notBefore.IsZero() }

// writing reports whether the task waits for people to approve what its latest attempt is
// to write. The dispatch of that is not admitted.
func (t *task) writing() bool { return t.asking() && t.dispatch != "" && t.questionOf == 0 }

// open reports whether the task has a dispatch that has not ended: one that runs, or
// waits for an answer.
func (t *task) open() bool {
	return t.dispatch != "" && (t.state == api.TaskRunning || t.asking() && !t.writing() || t.state == api.TaskReady && t.answer != nil)
}

// newRun returns a run whose tasks are all pending.
func newRun(id api.RunID, p *plan.Plan, doc runDoc) *run {
	r := &run{id: id, plan: p, doc: doc, counts: map[api.TaskState]int{}, bytes: p.Size()}
	r.addTasks()
	return r
}

// locksOf returns the locks that a task takes when it starts.
func (r *run) locksOf(i int32) []api.Lock { return r.plan.LocksOf(int(i), r.doc.Rules) }

// holdsForGate reports whether a task holds its locks until its gate is settled.
func (r *run) holdsForGate(i int32) bool { return r.plan.HoldsForGate(int(i), r.doc.Rules) }

// set changes a task's state and the counts.
func (r *run) set(i int32, to api.TaskState) {
	t := &r.tasks[i]
	r.counts[t.state]--
	r.counts[to]++
	if !t.state.Settled() && to.Settled() {
		r.left--
	}
	t.state = to
}

// now derives the state of the run from its tasks.
func (r *run) now() api.RunState {
	if !r.settled.IsZero() {
		return r.state
	}
	paused := r.pausedBy != "" || r.queue != nil && r.queue.paused()
	blocked := r.asking > 0 && r.counts[api.TaskRunning] == 0 && r.counts[api.TaskReady] == 0 && r.counts[api.TaskWaiting] == r.asking
	return plan.RunState(paused, blocked)
}

// dispatchID derives the id of an attempt's dispatch, so that submitting it again is
// idempotent, and no other principal can take it first.
func (r *run) dispatchID(i, attempt int32) api.DispatchID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", r.doc.Nonce, r.id, r.plan.Tasks[i].ID, attempt))
	return api.DispatchID("t-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15])))
}

// request returns the request of a task as validated: with its source at the pinned
// commit.
func (r *run) request(i int32) api.DispatchRequest {
	req := requestOf(&r.plan.Tasks[i])
	if req.Source != nil {
		// An appended task has its commit in its definition, unless the run has pinned it.
		req.Source = &api.SourceRequest{Name: req.Source.Name, Commit: cmp.Or(r.doc.Commits[sourceKey(req.Source)], req.Source.Commit)}
	}
	req.DispatchID = r.tasks[i].dispatch
	return req
}

func requestOf(t *api.PlanTask) api.DispatchRequest {
	return api.DispatchRequest{
		Subagent: t.Subagent, Input: t.Input, Target: t.Target, Envs: t.Envs, Capabilities: t.Capabilities, Source: t.Source,
		TimeoutSeconds: int(time.Duration(t.Timeout) / time.Second),
	}
}

// taskRequest returns the request of a task with its needs.
func (r *run) taskRequest(i int32) dispatch.TaskRequest {
	t := &r.plan.Tasks[i]
	o := dispatch.TaskRequest{Request: r.request(i), Run: r.id, Task: t.ID, Revision: r.doc.Revision, Fence: r.tasks[i].fence, Budget: r.plan.Budget}
	o.Reuse = r.plan.Reuse(int(i), r.doc.NoReuse, r.doc.From)
	if from := r.plan.ItemFrom(int(i)); from >= 0 {
		o.ItemFrom = r.tasks[from].dispatch
	}
	for _, n := range r.plan.Influences(int(i)) {
		if t := &r.tasks[n]; t.state == api.TaskDone && t.dispatch != "" {
			o.Influences = append(o.Influences, t.dispatch)
		}
	}
	for name, n := range t.Needs {
		from, _ := r.plan.Index(n.From) // plan.Parse checked it
		if r.plan.Tasks[from].ForEach == nil {
			if r.tasks[from].state != api.TaskSkipped { // by its condition: nothing is there
				o.Needs = append(o.Needs, r.need(i, int32(from), name, n)) //nolint:gosec // G115: bounded by api.MaxRunTasks
			}
			continue
		}
		for _, child := range r.plan.Children(from) {
			if r.tasks[child].state == api.TaskDone {
				need := r.need(i, child, name, n)
				need.Item = r.plan.ItemName(child)
				o.Needs = append(o.Needs, need)
			}
		}
	}
	slices.SortFunc(o.Needs, func(a, b dispatch.Need) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Item, b.Item)) })
	return o
}

// need is what task i takes of another.
func (r *run) need(i, from int32, name api.Name, n api.Need) dispatch.Need {
	giver := from
	if n.Patch {
		giver = r.plan.Giver(i, from)
	}
	return dispatch.Need{Name: name, Task: r.plan.Tasks[giver].ID, Dispatch: r.tasks[giver].dispatch, Kind: record.NeedKind(n), Path: n.Output}
}

// needed reports whether another task uses the products of task i.
func (r *run) needed(i int32) bool {
	id := r.plan.Tasks[i].ID
	if r.plan.Tasks[i].Gate != nil {
		return true
	}
	if parent := r.plan.Parent(int(i)); parent >= 0 && (r.plan.Tasks[parent].ForEach == nil || r.needed(parent)) {
		return true
	}
	for _, d := range r.plan.Dependents(int(i)) {
		if r.plan.Tasks[d].Approval != nil || r.plan.Tasks[d].Quorum != nil { // people look at it
			return true
		}
		if f := r.plan.Tasks[d].ForEach; f != nil && f.From == id {
			return true
		}
		for _, n := range r.plan.Tasks[d].Needs {
			if n.From == id {
				return true
			}
		}
	}
	return false
}

// caller is the caller of the run's dispatches. The token that submitted the run is
// not checked again: the run belongs to its principal.
func (r *run) caller() dispatch.Caller {
	return dispatch.Caller{Principal: r.principal, Ceiling: r.doc.Ceiling}
}
