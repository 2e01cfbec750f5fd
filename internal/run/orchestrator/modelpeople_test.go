package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/approval"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// The people who vote, as themselves or by another way in, and a program that may not.
var voters = []api.Principal{ann, "human:ann", ben, "human:ben", "human:cid", "local:dan", "agent:bot"}

// ballots keep votes without their signatures, which internal/state/operator tests. As there,
// reading them takes no connection.
type ballots struct {
	store *store.Store

	mu   sync.Mutex
	cast map[api.ApprovalID][]api.Vote // that are durable; guarded by mu
}

func ballotMigration() store.Migration {
	return store.Migration{Owner: "ballots", Steps: []string{"CREATE TABLE ballot (n INTEGER PRIMARY KEY, approval TEXT NOT NULL, principal TEXT NOT NULL, key TEXT NOT NULL, approve INTEGER NOT NULL) STRICT"}}
}

func newBallots(s *store.Store) (*ballots, error) {
	b := &ballots{store: s, cast: map[api.ApprovalID][]api.Vote{}}
	return b, s.Read(context.Background(), func(v *store.View) error {
		return v.Each("SELECT approval, principal, key, approve FROM ballot ORDER BY n", nil, func(scan store.Scan) error {
			var id, by, key string
			var approve int
			err := scan(&id, &by, &key, &approve)
			b.cast[api.ApprovalID(id)] = append(b.cast[api.ApprovalID(id)], api.Vote{Principal: api.Principal(by), Keys: []string{key}, Approve: approve == 1})
			return err
		})
	})
}

func (b *ballots) Votes(id api.ApprovalID, _ api.Digest) []api.Vote {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.cast[id])
}

func (b *ballots) VotesIn(_ *store.Tx, id api.ApprovalID, action api.Digest) ([]api.Vote, error) {
	return b.Votes(id, action), nil
}

// CanVote lets everybody vote: whose a key is does not concern the engine.
func (b *ballots) CanVote(api.Principal) error { return nil }

// slip is a vote as it is handed in.
type slip struct {
	api.OperatorRecord
	Key string
}

func (b *ballots) Vote(ctx context.Context, _ api.Principal, envelope []byte, apply func(*store.Tx, *api.OperatorRecord, api.Vote, []api.Vote) error) (api.OperatorReceipt, error) {
	var s slip
	if err := json.Unmarshal(envelope, &s); err != nil {
		return api.OperatorReceipt{}, err
	}
	v := api.Vote{Principal: s.Principal, Keys: []string{s.Key}, Approve: s.Verb == api.VerbApprove}
	err := b.store.Update(ctx, func(tx *store.Tx) error {
		earlier := b.Votes(s.Approval, "")
		if slices.ContainsFunc(earlier, func(o api.Vote) bool { return o.Principal == s.Principal }) {
			return api.Errorf(api.CodeConflict, "%s voted", s.Principal)
		}
		if err := apply(tx, &s.OperatorRecord, v, earlier); err != nil {
			return err
		}
		approve := 0
		if v.Approve {
			approve = 1
		}
		_, err := tx.Exec("INSERT INTO ballot(approval, principal, key, approve) VALUES (?, ?, ?, ?)", string(s.Approval), string(s.Principal), s.Key, approve)
		return err
	})
	if err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cast[s.Approval] = append(b.cast[s.Approval], v)
	}
	return api.OperatorReceipt{}, err
}

// decisions tells the engine what people decided, once it is open.
type decisions struct {
	atomic.Pointer[orchestrator.Orchestrator]
}

// Decided implements approval.Tasks.
func (d *decisions) Decided(run api.RunID, task api.TaskID) {
	if o := d.Load(); o != nil {
		o.Decided(run, task)
	}
}

// askPeople opens what asks people. It returns how to start it for the engine that is told
// of what they decided.
func (w *world) askPeople() (start func(*orchestrator.Orchestrator)) {
	w.t.Helper()
	engine := &decisions{}
	var err error
	w.ballots, err = newBallots(w.store)
	w.must(err)
	seat := w.desk.generation()
	people, err := approval.New(approval.Config{Store: w.store, Ledger: w.ledger, Votes: w.ballots, InForce: seat, Tasks: engine, Now: w.config.Now})
	w.must(err)
	w.people = people
	return func(o *orchestrator.Orchestrator) {
		engine.Store(o)
		people.Start(context.Background())
	}
}

// ask is what the log says about the request of a task for approval.
type ask struct {
	id      api.ApprovalID
	expires time.Time
	over    bool // it expired
}

// approves takes an entry about a request for approval.
func (m *replay) approves(c *audit.Committed, t *replayTask) {
	d, _ := c.Entry.Detail.(record.ApprovalRequest)
	a := t.plan.Approval
	switch {
	case a == nil || t.state != api.TaskWaiting:
		m.object(c.Seq, "%s for task %s, which is %s", c.Entry.Kind, t.name(), t.state)
	case c.Entry.Kind == record.KindApprovalExpired:
		if t.ask == nil || c.Entry.At.Before(t.ask.expires) || t.ask.over || m.decided(t) != "" {
			m.object(c.Seq, "the request of task %s expires, decided %q", t.name(), m.decided(t))
			return
		}
		t.ask.over = true
	case t.ask != nil || d.Needs != int64(max(1, a.Count)):
		m.object(c.Seq, "task %s asks again, or for %d people", t.name(), d.Needs)
	default:
		timeout := time.Duration(a.Timeout)
		if timeout == 0 {
			timeout = time.Duration(api.DefaultApprovalExpiry)
		}
		t.ask = &ask{id: api.ApprovalID(d.Approval), expires: c.Entry.At.Add(timeout).Truncate(time.Second)}
	}
}

// decided is what became of a request by its votes and its time; empty: nothing yet.
func (m *replay) decided(t *replayTask) api.TaskState {
	if t.ask == nil {
		return ""
	}
	n := 0
	for _, v := range m.votes(t) {
		if !v.Approve {
			return api.TaskDenied
		}
		n++
	}
	switch {
	case n >= max(1, t.plan.Approval.Count):
		return api.TaskDone
	case t.ask.over:
		return api.TaskFailed
	}
	return ""
}

func person(p api.Principal) (name string, ok bool) {
	kind, name, _ := strings.Cut(string(p), ":")
	return name, kind == "local" || kind == "human"
}

// mayVote reports whether a vote about an open request counts.
func (m *replay) mayVote(t *replayTask, by api.Principal, key string, approve bool, now time.Time) bool {
	name, ok := person(by)
	owner, _ := person(t.run.by)
	if !ok || name == owner || !slices.Contains(t.plan.Approval.By, by) || m.decided(t) != "" || !now.Before(t.ask.expires) || t.state != api.TaskWaiting {
		return false
	}
	for _, v := range m.votes(t) {
		if v.Principal == by {
			return false
		}
		if other, _ := person(v.Principal); approve && (other == name || v.Keys[0] == key) {
			return false
		}
	}
	return true
}

// asked are the tasks that have asked people.
func (m *machine) asked(open bool) (list []*replayTask) {
	for t := range m.log.each {
		if t.ask != nil && (t.state == api.TaskWaiting) == open {
			list = append(list, t)
		}
	}
	return list
}

// vote has somebody vote about a task, whether they may or not.
func (m *machine) vote(rt *rapid.T) {
	list := m.asked(true)
	if old := m.asked(false); len(list) == 0 || len(old) > 0 && m.seen["steps"]%10 == 0 {
		list = old
	}
	if len(list) == 0 {
		rt.Skip()
	}
	t := rapid.SampledFrom(list).Draw(rt, "task")
	by := rapid.SampledFrom(append(slices.Clone(voters), t.plan.Approval.By...)).Draw(rt, "by")
	name, _ := person(by)
	s := slip{Key: rapid.SampledFrom([]string{name, name, name, "shared"}).Draw(rt, "key"), OperatorRecord: api.OperatorRecord{Principal: by, Approval: t.ask.id, Verb: rapid.SampledFrom([]api.OperatorVerb{
		api.VerbApprove, api.VerbApprove, api.VerbApprove, api.VerbDeny,
	}).Draw(rt, "verb")}}
	m.begin("vote")
	may := m.log.mayVote(t, by, s.Key, s.Verb == api.VerbApprove, time.Now())
	asked, err := m.people.Get(context.Background(), t.ask.id)
	if err == nil {
		s.Content = asked.Digest
		var envelope []byte
		envelope, err = json.Marshal(s)
		m.must(err)
		_, err = m.people.Vote(context.Background(), by, t.ask.id, envelope)
	}
	m.expect(func() []string {
		if api.CodeOf(err) == api.CodeConflict && t.state != api.TaskWaiting {
			may = false // a timer that was due at the instant of this step ended the task first
		}
		if (err == nil) != may {
			return []string{fmt.Sprintf("%s votes %s about task %s, listed %v, needed %d, voted %v: %v", by, s.Verb, t.name(), t.plan.Approval.By, t.plan.Approval.Count, m.log.votes(t), err)}
		}
		return nil
	})
}

// decideAll has each open request denied, and a run cancelled whose people have voted or
// may not.
func (m *machine) decideAll() {
	for _, t := range m.asked(true) {
		if !m.deny(t) {
			_, _ = m.o.Cancel(context.Background(), as(root), t.run.id, api.RunCancel{Reason: "nobody is left to decide"})
		}
	}
}

func (m *machine) deny(t *replayTask) bool {
	asked, err := m.people.Get(context.Background(), t.ask.id)
	if err != nil {
		return false
	}
	for _, by := range t.plan.Approval.By {
		envelope, err := json.Marshal(slip{Key: string(by), OperatorRecord: api.OperatorRecord{Principal: by, Approval: t.ask.id, Content: asked.Digest, Verb: api.VerbDeny}})
		m.must(err)
		if _, err := m.people.Vote(context.Background(), by, t.ask.id, envelope); err == nil {
			return true
		}
	}
	return false
}

// approved draws whom a task asks.
func approved(rt *rapid.T) *api.TaskApproval {
	by := rapid.Permutation([]api.Principal{ann, ben, "human:cid", "local:dan"}).Draw(rt, "people")[:rapid.IntRange(1, 4).Draw(rt, "listed")]
	if rapid.Bool().Draw(rt, "human") {
		name, _ := person(by[0])
		by[0] = api.Principal("human:" + name)
	}
	return &api.TaskApproval{By: by, Count: rapid.IntRange(1, min(2, len(by))).Draw(rt, "count"), Timeout: rapid.SampledFrom([]api.Duration{0, api.Duration(5 * time.Minute), api.Duration(time.Hour)}).Draw(rt, "timeout")}
}

// votes reads those about the request of a task.
func (w *world) votes(t *replayTask) []api.Vote {
	if t.ask == nil {
		return nil
	}
	return w.ballots.Votes(t.ask.id, "")
}

// peopleDecide looks at the end of a task that people approve: as they decided, or as it
// was asked to. It returns from which states.
func (m *replay) peopleDecide(c *audit.Committed, t *replayTask, from []api.TaskState) []api.TaskState {
	to := api.TaskState(strings.TrimPrefix(string(c.Entry.Kind), "task."))
	switch to { //nolint:exhaustive // the others are as those of any task
	case api.TaskWaiting:
		if holds, fault := m.condition(t); !t.settledUps() || !holds || fault {
			m.object(c.Seq, "task %s asks people before its time", t.name())
		}
		return []api.TaskState{api.TaskPending}
	case api.TaskFailed:
		if t.state == api.TaskPending {
			return from
		}
		fallthrough
	case api.TaskDone, api.TaskDenied:
		if m.decided(t) != to {
			m.object(c.Seq, "task %s is %s and people decided %q", t.name(), to, m.decided(t))
		}
		return []api.TaskState{api.TaskWaiting}
	}
	return from
}
