package orchestrator

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// run is a run that is not settled, or one that was read to be shown.
type run struct {
	seq  int64 // its row
	id   api.RunID
	plan *plan.Plan
	doc  runDoc
	// What follows is as the last commit left it, or as the next one will.
	principal api.Principal
	submitted time.Time
	settled   time.Time
	state     api.RunState // once it is settled
	pausedBy  api.Principal
	cancelBy  api.Principal
	cancelWhy string
	tasks     []task
	counts    map[api.TaskState]int
	asking    int // tasks that wait for an answer
	left      int // tasks that are not settled
	queue     *queue
	dirty     bool // its row has to be written with the next commit
}

// runDoc is what a run's row says that never changes.
type runDoc struct {
	Queue      api.Name          `json:"queue"`
	Ceiling    api.Tier          `json:"ceiling"` // that the request had bound itself to
	Digest     api.Digest        `json:"digest"`  // of the canonical plan
	Revision   api.Digest        `json:"revision"`
	Number     uint64            `json:"number"`            // of the revision
	Commits    map[string]string `json:"commits,omitempty"` // of each source as the plan names it: see sourceKey
	Nonce      string            `json:"nonce"`             // 128 random bits; nobody can know a task's dispatch id before
	DeadlineAt time.Time         `json:"deadline,omitzero"`
	RetryOf    api.RunID         `json:"retryOf,omitempty"`
	Trace      api.Trace         `json:"trace,omitempty"`
}

func sourceKey(s *api.SourceRequest) string { return string(s.Name) + "@" + s.Commit }

// task is a task of a run. Its state is ready where it is stored as pending, or
// as waiting for what has come by now.
type task struct {
	state   api.TaskState
	deps    int32 // that are not done
	attempt int32
	cause   int32 // of a task that is skipped: the one that is not done; -1
	asked   int32 // attempt of the dispatch whose question waits, or was answered last
	fence   uint64

	dispatch  api.DispatchID // of the latest attempt
	reason    api.Reason
	message   string
	notBefore time.Time // of a task that is tried again
	answer    *answer   // to be given when it goes on
	cancelBy  api.Principal
	cancelWhy string
	started   time.Time
	ended     time.Time
	takenOver bool

	lease    *lease // while it holds or waits for its locks
	ending   bool   // the end of its dispatch was asked for
	inFlight bool   // its dispatch was asked for, and nothing has come back
	missed   bool   // its dispatch has ended, as the last sweep found, and nobody has told
	verdict  error  // why it could not go on with an answer; it ends by that when its dispatch has
	dirty    bool   // its row has to be written with the next commit
}

// answer is what somebody answered.
type answer struct {
	Text   string        `json:"text,omitempty"`
	Option int           `json:"option,omitempty"`
	By     api.Principal `json:"by"`
}

// asks reports whether the task waits for an answer.
func (t *task) asks() bool { return t.state == api.TaskWaiting && t.notBefore.IsZero() }

// open reports whether there is a dispatch that has not come to its end: one
// that runs, or that asks something.
func (t *task) open() bool {
	return t.state == api.TaskRunning || t.asks() || t.state == api.TaskReady && t.answer != nil
}

// newRun returns a run of which every task is pending.
func newRun(id api.RunID, p *plan.Plan, doc runDoc) *run {
	r := &run{id: id, plan: p, doc: doc, tasks: make([]task, len(p.Tasks)), left: len(p.Tasks), counts: map[api.TaskState]int{api.TaskPending: len(p.Tasks)}}
	for i := range r.tasks {
		r.tasks[i] = task{state: api.TaskPending, deps: int32(len(p.Deps(i))), cause: -1} //nolint:gosec // G115: bounded by api.MaxPlanEdges
	}
	return r
}

// set changes a task's state in memory, and what is counted.
func (r *run) set(i int32, to api.TaskState) {
	t := &r.tasks[i]
	r.counts[t.state]--
	r.counts[to]++
	if !t.state.Settled() && to.Settled() {
		r.left--
	}
	t.state = to
}

// now is the state of the run as it follows from its tasks.
func (r *run) now() api.RunState {
	if !r.settled.IsZero() {
		return r.state
	}
	paused := r.pausedBy != "" || r.queue != nil && r.queue.paused()
	blocked := r.asking > 0 && r.counts[api.TaskRunning] == 0 && r.counts[api.TaskReady] == 0 && r.counts[api.TaskWaiting] == r.asking
	return plan.RunState(paused, blocked)
}

// dispatchID derives the id of an attempt's dispatch: asking for it again finds
// what was asked for before, and nobody can take it first.
func (r *run) dispatchID(i, attempt int32) api.DispatchID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d", r.doc.Nonce, r.id, r.plan.Tasks[i].ID, attempt))
	return api.DispatchID("t-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15])))
}

// request is what a task asks for, as vetted: its source is at the commit that
// was pinned.
func (r *run) request(i int32) api.DispatchRequest {
	req := requestOf(&r.plan.Tasks[i])
	if req.Source != nil {
		req.Source = &api.SourceRequest{Name: req.Source.Name, Commit: r.doc.Commits[sourceKey(req.Source)]}
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

// order is the task's dispatch with all that it takes over from others.
func (r *run) order(i int32) dispatch.TaskRequest {
	t := &r.plan.Tasks[i]
	o := dispatch.TaskRequest{Request: r.request(i), Run: r.id, Task: t.ID, Revision: r.doc.Revision, Fence: r.tasks[i].fence}
	for name, n := range t.Needs {
		from, _ := r.plan.Index(n.From) // the plan was checked
		need := dispatch.Need{Name: name, Task: n.From, Dispatch: r.tasks[from].dispatch, Kind: record.NeedKind(n), Path: n.Output}
		o.Needs = append(o.Needs, need)
	}
	slices.SortFunc(o.Needs, func(a, b dispatch.Need) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return o
}

// needed reports whether another task takes something over from task i.
func (r *run) needed(i int32) bool {
	id := r.plan.Tasks[i].ID
	for _, d := range r.plan.Dependents(int(i)) {
		for _, n := range r.plan.Tasks[d].Needs {
			if n.From == id {
				return true
			}
		}
	}
	return false
}

// caller is who asks for the run's dispatches. The token by which it was
// submitted is not asked about again: the run is the principal's.
func (r *run) caller() dispatch.Caller {
	return dispatch.Caller{Principal: r.principal, Ceiling: r.doc.Ceiling}
}
