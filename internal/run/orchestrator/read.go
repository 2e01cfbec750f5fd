package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	defaultPage = 100
	maxPage     = 1000 // tasks, or events
)

// Archive shows stored runs. It needs no engine, so that runs stay readable in a
// service that does not drive them (R-O1).
type Archive struct {
	cfg         ArchiveConfig
	settledRuns settledRuns
	driver      *driver // knows what the open runs wait for; nil: nothing drives them
}

// ArchiveConfig is what an Archive needs.
type ArchiveConfig struct {
	Store  *store.Store
	Ledger *audit.Ledger
	Rules  Rules
	Now    func() time.Time
	Mode   string // of the service

	Approvals Approvals // nil: nobody approves tasks
}

// Rules decides who may see a run.
type Rules interface {
	Engine(ctx context.Context) (*policy.Engine, error)
}

// Owners returns who submitted the runs whose id begins with prefix and has length
// characters, by id. Among expired runs it finds only the one whose id equals prefix. It checks
// no permissions.
func (a *Archive) Owners(ctx context.Context, prefix string, length int) (map[string]api.Principal, error) {
	found, err := dispatch.OwnersIn(ctx, a.cfg.Store, "run", prefix, length)
	if err != nil || len(found) > 0 || length != len(prefix) {
		return found, err
	}
	if owner, told, err := a.expired(ctx, api.RunID(prefix)); err != nil || told != nil {
		return map[string]api.Principal{prefix: owner}, err
	}
	return found, nil
}

// NewArchive returns the archive of a service without an orchestrator.
func NewArchive(cfg ArchiveConfig) *Archive { return &Archive{cfg: cfg} }

// OpenRuns counts the runs that are not settled.
func (a *Archive) OpenRuns(ctx context.Context) (n int, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT count(*) FROM run WHERE settled IS NULL", nil, &n)
	})
	return n, err
}

// decide decides whether the caller may act on a run. A run that does not exist and
// one of another principal give the same answer.
func (a *Archive) decide(ctx context.Context, caller dispatch.Caller, action policy.Action, id api.RunID) (d policy.Decision, err error) {
	rules, err := a.cfg.Rules.Engine(ctx)
	if err != nil {
		return d, err
	}
	var seq int64
	var owner api.Principal
	missing := api.Errorf(api.CodeNotFound, "run %q not found", id).WithHint("see: bailiwick run list")
	shown := missing // to those who may see it
	if err := a.cfg.Store.Read(ctx, func(v *store.View) error {
		err := v.Get("SELECT seq, principal FROM run WHERE id = ?", store.Args{id}, &seq, &owner)
		if errors.Is(err, store.ErrNoRow) {
			return nil
		}
		return err
	}); err != nil {
		return d, err
	}
	if seq == 0 {
		of, told, err := a.expired(ctx, id)
		if err != nil {
			return d, err
		}
		if told != nil {
			owner, shown = of, told
		}
	}
	d = rules.Decide(policy.Request{Principal: caller.Principal, Action: action, Resource: string(id), Owner: owner, Token: caller.TokenValid != nil})
	if !d.Allowed() {
		return d, a.cfg.Ledger.Deny(ctx, d, audit.AccessEntry("", string(action)+" "+string(id)), func(e *api.Error) *api.Error {
			missing.AuditEntry = e.AuditEntry
			return missing
		})
	}
	if seq == 0 {
		return d, shown
	}
	return d, nil
}

// LimitAnswer shortens the time for an answer to a task's dispatch to that of its
// run, which is cancelled at its deadline with every question in it.
func (a *Archive) LimitAnswer(ctx context.Context, d *api.Dispatch) error {
	if d.Run == "" || d.AnswerBy == nil {
		return nil
	}
	deadline, err := a.deadline(ctx, d.Run)
	if err == nil && !deadline.IsZero() && deadline.Before(*d.AnswerBy) {
		d.AnswerBy = &deadline
	}
	return err
}

// deadline returns when a run is cancelled if it is not settled by then; zero for
// none.
func (a *Archive) deadline(ctx context.Context, id api.RunID) (time.Time, error) {
	var text string
	var doc runDoc
	err := a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT doc FROM run WHERE id = ?", store.Args{id}, &text)
	})
	if errors.Is(err, store.ErrNoRow) { // removed by retention
		return time.Time{}, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &doc)
	}
	return doc.DeadlineAt, err
}

// readable refuses a principal who may not see a run.
func (a *Archive) readable(ctx context.Context, p api.Principal, id api.RunID) error {
	_, err := a.decide(ctx, dispatch.Caller{Principal: p}, policy.ActionRunRead, id)
	return err
}

// stored returns a run as it is stored.
func (a *Archive) stored(ctx context.Context, id api.RunID) (r *run, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		var ok bool
		if r, ok, err = runByID(v, id); err == nil && !ok {
			err = api.Errorf(api.CodeNotFound, "no such run %s", id)
		}
		return err
	})
	return r, err
}

// Describe returns a run with a page of its tasks: those after a cursor, at most
// limit.
func (a *Archive) Describe(ctx context.Context, p api.Principal, id api.RunID, after string, limit int) (api.Run, error) {
	from := 0
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 || n > api.MaxRunTasks {
			return api.Run{}, api.Errorf(api.CodeInvalid, "after=%.20q: want next of the previous page", after)
		}
		from = n
	}
	if err := a.readable(ctx, p, id); err != nil {
		return api.Run{}, err
	}
	if limit <= 0 {
		limit = defaultPage
	}
	return a.show(ctx, id, from, min(limit, maxPage))
}

// show returns a run as it is durable now.
func (a *Archive) show(ctx context.Context, id api.RunID, from, limit int) (api.Run, error) {
	if a.driver != nil {
		open, err := query(ctx, a.driver, func(e *engine) *api.Run {
			r := e.byID[id]
			if r == nil {
				return nil
			}
			v := view(r, from, limit)
			return &v
		})
		if err != nil || open != nil {
			return *cmp.Or(open, &api.Run{}), err
		}
	}
	r, err := a.settledRuns.get(id, func() (*run, error) { return a.stored(ctx, id) })
	if err != nil {
		return api.Run{}, err
	}
	v := view(r, from, limit)
	a.drive(&v)
	return v, nil
}

// drive says of an open run that nothing drives it, and what a person does about that.
func (a *Archive) drive(r *api.Run) {
	if r.Undriven = a.driver == nil && r.SettledAt == nil; r.Undriven {
		r.StartWith = api.StartRuns(a.cfg.Mode)
	}
}

// settledRuns caches the settled run that was read last, which is read page by page
// and never changes.
type settledRuns struct {
	mu   sync.Mutex
	last *run // guarded by mu
}

// forget removes a run from the cache.
func (s *settledRuns) forget(id api.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.id == id {
		s.last = nil
	}
}

// get returns a stored run from the cache, or from read.
func (s *settledRuns) get(id api.RunID, read func() (*run, error)) (*run, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil && last.id == id {
		return last, nil
	}
	r, err := read()
	if err == nil && !r.settled.IsZero() {
		s.mu.Lock()
		s.last = r
		s.mu.Unlock()
	}
	return r, err
}

// Plan returns the canonical plan of a run.
func (a *Archive) Plan(ctx context.Context, p api.Principal, id api.RunID) (json.RawMessage, error) {
	if err := a.readable(ctx, p, id); err != nil {
		return nil, err
	}
	r, err := a.stored(ctx, id)
	if err != nil {
		return nil, err
	}
	return r.plan.Canonical(), nil
}

// Queues returns every queue, by name.
func (o *Orchestrator) Queues(ctx context.Context) ([]api.Queue, error) {
	return query(ctx, o.driver, func(e *engine) (list []api.Queue) {
		ready := map[*queue]int{} // paused ones, and those that wait for their locks, included
		for _, r := range e.runs {
			ready[r.queue] += r.counts[api.TaskReady]
		}
		for _, q := range slices.SortedFunc(maps.Values(e.resources.queues), func(a, b *queue) int { return cmp.Compare(a.name, b.name) }) {
			list = append(list, api.Queue{Name: q.name, Slots: q.slots, Running: q.running, Ready: ready[q], Weights: q.weights, Runs: q.runs, PausedBy: q.pausedBy, PausedAt: pointer(q.pausedAt)})
		}
		return list
	})
}

// Events returns the log's entries about a run after a cursor, at most maxPage, and
// waits for the first of them.
func (a *Archive) Events(ctx context.Context, p api.Principal, id api.RunID, after string, wait time.Duration) (api.RunEvents, error) {
	var from uint64
	if after != "" {
		n, err := strconv.ParseUint(after, 10, 62)
		if err != nil {
			return api.RunEvents{}, api.Errorf(api.CodeInvalid, "after=%.20q: want next of the previous answer", after)
		}
		from = n
	}
	if err := a.readable(ctx, p, id); err != nil {
		return api.RunEvents{}, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		changed := a.cfg.Store.Committed()
		v, err := a.events(ctx, id, from)
		if err != nil || len(v.Events) > 0 || v.Done || wait <= 0 {
			return v, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return v, nil
		case <-ctx.Done():
			return v, ctx.Err()
		case <-a.closed():
			return v, nil
		}
	}
}

// closed is closed when the orchestrator is; without one it stays open.
func (a *Archive) closed() <-chan struct{} {
	if a.driver == nil {
		return nil
	}
	return a.driver.life.Done()
}

func (a *Archive) events(ctx context.Context, id api.RunID, from uint64) (api.RunEvents, error) {
	v := api.RunEvents{Events: []api.RunEvent{}, Next: strconv.FormatUint(from, 10)}
	var settled bool // read before the log: every entry of a settled run is in it
	if err := a.cfg.Store.Read(ctx, func(view *store.View) error {
		return view.Get("SELECT settled IS NOT NULL FROM run WHERE id = ?", store.Args{id}, &settled)
	}); err != nil {
		return v, err
	}
	list, err := a.cfg.Ledger.List(ctx, audit.Query{Run: id, From: from, Limit: maxPage})
	if err != nil {
		return v, err
	}
	for i := range list {
		e := eventOf(&list[i])
		v.Events = append(v.Events, e)
		v.Next = strconv.FormatUint(e.Seq+1, 10)
	}
	v.Done = settled && len(list) < maxPage
	return v, nil
}

// eventOf returns an entry as an event.
func eventOf(c *audit.Committed) api.RunEvent {
	e := &c.Entry
	v := api.RunEvent{Seq: c.Seq, At: e.At, Event: string(e.Kind), Task: api.TaskID(e.Task), DispatchID: e.Dispatch, Attempt: e.Attempt, Tool: e.Tool, Text: e.Line(c.Seq)}
	switch d := e.Detail.(type) {
	case record.TaskStep:
		v.Reason, v.Cause = api.Reason(d.Reason), api.TaskID(d.Cause)
	case record.DispatchEnd:
		v.Reason = api.Reason(d.Reason)
	case record.RunEnd:
		v.State = d.State
	}
	return v
}
