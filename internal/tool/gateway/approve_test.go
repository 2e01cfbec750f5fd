package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// people are the humans of a world: a request stands until decide is called.
type people struct {
	w *world

	mu      sync.Mutex
	list    []*api.Approval
	full    bool // no request is made any more
	changed chan struct{}
	asked   chan struct{} // gets one for each new request
}

func (w *world) withPeople() *people {
	p := &people{w: w, changed: make(chan struct{}), asked: make(chan struct{}, 100)}
	w.cfg.Approvals = p
	return p
}

func (p *people) Ask(ctx context.Context, action api.ToolAction, attempt int, words string) (api.Approval, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.list {
		if a.Action.Dispatch == action.Dispatch && a.Action.Call.Tool == action.Tool && string(a.Action.Call.Arguments) == string(action.Arguments) &&
			(a.Action.Call.Taint == nil) == (action.Taint == nil) && a.State != api.ApprovalUsed {
			return *a, nil
		}
	}
	if p.full {
		return api.Approval{}, api.Errorf(api.CodeConflict, "too many open requests")
	}
	action.ID = api.ApprovalID("a-" + strings.Repeat("a", 11) + string(rune('a'+len(p.list))))
	a := &api.Approval{Action: action.Action(), State: api.ApprovalOpen, Words: words}
	e := record.Entry{
		Kind: record.KindApprovalRequest, Dispatch: action.Dispatch, Attempt: attempt, Tool: action.Tool,
		Detail: record.ApprovalRequest{Approval: string(action.ID), Needs: int64(action.Needs)},
	}
	if _, err := p.w.cfg.Ledger.Record(ctx, e, nil); err != nil {
		return *a, err
	}
	p.list = append(p.list, a)
	p.asked <- struct{}{}
	return *a, nil
}

func (p *people) Wait(ctx context.Context, id api.ApprovalID) (api.Approval, error) {
	for {
		p.mu.Lock()
		changed := p.changed
		i := slices.IndexFunc(p.list, func(a *api.Approval) bool { return a.Action.ID == id })
		a := *p.list[i]
		p.mu.Unlock()
		if a.State != api.ApprovalOpen {
			return a, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}

func (p *people) Use(_ *store.Tx, id api.ApprovalID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.list {
		if a.Action.ID == id && a.State == api.ApprovalApproved {
			a.State = api.ApprovalUsed
			return nil
		}
	}
	return api.Errorf(api.CodeConflict, "approval %s is not approved", id)
}

func (p *people) decide(state api.ApprovalState, votes ...api.Vote) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.list[len(p.list)-1]
	last.State, last.Votes = state, votes
	close(p.changed)
	p.changed = make(chan struct{})
}

// proves R-G6
func TestCallsWaitForPeople(t *testing.T) {
	w := newWorld(t)
	p := w.withPeople()
	v := w.view("transform", "free", api.Irreversible)
	if r := post(t, v, callMessage("report", map[string]any{"text": "I need a column"})); r.Result.IsError {
		t.Fatal(r.raw)
	}
	// Approved while it waits: the same request proceeds.
	with := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"warehouse_apply_change","arguments":{"sql":"alter"},"_meta":{"progressToken":"t"}}}`
	got := make(chan *reply)
	go func() { got <- post(t, v, with) }()
	<-p.asked
	call1(t, v, "search_find") // others do not wait
	p.decide(api.ApprovalApproved)
	r := <-got
	if r.Result.IsError || r.text() != "ok" || !strings.Contains(r.raw, "notifications/progress") || !strings.Contains(r.raw, `"progressToken":"t"`) {
		t.Fatalf("approved: %s", r.raw)
	}
	a := p.list[0].Action.Call
	if a.Tool != "warehouse/apply_change" || string(a.Arguments) != `{"sql":"alter"}` || a.Needs != 1 || a.Principal != "local:ann" || a.Role != "transform" || a.Revision != w.rev.Digest() || p.list[0].Words != "I need a column" || !slices.Contains(a.Policies, "approval") || a.Definition == "" {
		t.Errorf("people approve %+v", a)
	}
	// Other arguments are another call; an approval is of one use.
	for range 2 {
		go func() { got <- post(t, v, with) }()
		<-p.asked
		p.decide(api.ApprovalDenied, api.Vote{Principal: "human:bob", Reason: "not today"})
		if r := <-got; !r.Result.IsError || !strings.Contains(r.text(), "human:bob denied approval") || !strings.Contains(r.text(), "not today") {
			t.Errorf("denied: %s", r.raw)
		}
		p.list = nil
	}
	// Nobody decides: a clear result, no entry but the request, and the same request again.
	before := len(w.entries())
	r = post(t, v, callMessage("warehouse_apply_change", map[string]any{"sql": "drop"}))
	if !r.Result.IsError || !strings.HasPrefix(r.text(), "waiting for a human") || !strings.Contains(r.text(), "call again with the same arguments") || len(w.entries()) != before {
		t.Errorf("not yet: %s", r.raw)
	}
	<-p.asked
	p.decide(api.ApprovalApproved)
	if r = post(t, v, callMessage("warehouse_apply_change", map[string]any{"sql": "drop"})); r.Result.IsError {
		t.Errorf("called again: %s", r.raw)
	}
	p.list = nil
	// Expired is denied.
	go func() { got <- post(t, v, callMessage("warehouse_drop", nil)) }()
	<-p.asked
	if n := p.list[0].Action.Needs; n != 2 {
		t.Errorf("an irreversible call needs %d people", n)
	}
	p.decide(api.ApprovalExpired)
	if r := <-got; !r.Result.IsError || !strings.Contains(r.text(), "expired") {
		t.Errorf("expired: %s", r.raw)
	}
	last := w.entries()[len(w.entries())-1].Entry
	if d := last.Detail.(record.ToolCall); last.Kind != record.KindToolDenied || d.Approval == "" || !slices.Contains(last.Policies, "approval") {
		t.Errorf("entry %+v", last)
	}
}

// usedMeanwhile is an attempt that another call with the same approval precedes.
type usedMeanwhile struct{ *people }

func (u usedMeanwhile) Mark(*store.Tx, Mark) error {
	u.list[0].State = api.ApprovalUsed
	return nil
}

func (usedMeanwhile) Ask(context.Context, api.Question) error { return nil }

func (usedMeanwhile) Spent(string) {}

// An approval that is no longer one when the call is committed allows nothing.
func TestApprovalsAreCheckedWithTheCall(t *testing.T) {
	w := newWorld(t)
	p := w.withPeople()
	v := w.view("transform", "free", api.Irreversible)
	v.a.Running = usedMeanwhile{p}
	got := make(chan *reply)
	go func() { got <- call1(t, v, "warehouse_apply_change") }()
	<-p.asked
	p.decide(api.ApprovalApproved)
	if r := <-got; !r.Result.IsError || len(w.calls) > 0 || !strings.Contains(r.text(), "not approved") {
		t.Errorf("%s", r.raw)
	}
	if got := w.kinds(); !slices.Equal(got, []record.Kind{record.KindToolDenied}) {
		t.Errorf("entries %v", got)
	}
}

// What people approved is a call of a dispatch as they saw it: text from outside that
// comes while they decide needs another approval, which shows it.
//
// proves R-G6
func TestAnApprovalDoesNotCoverALaterTaint(t *testing.T) {
	for name, taint := range map[string]func(w *world, v *View, p *people){
		"while they decide": func(w *world, v *View, p *people) { call1(w.t, v, "warehouse_query") },
		"none":              func(*world, *View, *people) {}, // the control: the same approval is enough
	} {
		w := newWorld(t)
		p := w.withPeople()
		v := w.view("transform", "free", api.Irreversible)
		got := make(chan *reply)
		go func() { got <- call1(t, v, "warehouse_apply_change") }()
		<-p.asked
		taint(w, v, p)
		p.decide(api.ApprovalApproved)
		if name != "none" {
			select {
			case <-p.asked:
			case r := <-got:
				t.Fatalf("%s: people were not requested again: %s", name, r.raw)
			}
			if a := p.list[1].Action.Call; a.Taint == nil || a.Taint.Tool != "warehouse/query" {
				t.Errorf("%s: people approve %+v", name, a)
			}
			p.decide(api.ApprovalApproved)
		}
		if r := <-got; r.Result.IsError {
			t.Errorf("%s: %s", name, r.raw)
		}
		last := p.list[len(p.list)-1]
		for _, c := range w.entries() {
			d, ok := c.Entry.Detail.(record.ToolCall)
			if ok && d.Approval != "" && (d.Approval != string(last.Action.ID) || d.Tainted != (last.Action.Call.Taint != nil)) {
				t.Errorf("%s: the call is by approval %s, tainted %t", name, d.Approval, d.Tainted)
			}
		}
	}
}

// Rules that change while people decide count: the call is decided again.
//
// proves R-G3
func TestRulesThatChangeWhilePeopleDecideCount(t *testing.T) {
	strict, err := policy.New(policy.Rules{Targets: []api.Target{{Name: "free", Mode: api.ReadOnly}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, changes := range []bool{true, false} { // false: the control
		w := newWorld(t)
		p := w.withPeople()
		v := w.view("transform", "free", api.Irreversible)
		got := make(chan *reply)
		go func() { got <- call1(t, v, "warehouse_apply_change") }()
		<-p.asked
		if changes {
			w.mu.Lock()
			w.engine = strict
			w.mu.Unlock()
		}
		p.decide(api.ApprovalApproved)
		if r := <-got; r.Result.IsError != changes || len(w.calls) > 0 == changes {
			t.Errorf("rules change %t: %s", changes, r.raw)
		}
	}
}

// A call for which no further approval can be requested is a denial: in the log, and of
// the calls that the attempt may make.
//
// proves R-G3
func TestARequestTooManyIsDenied(t *testing.T) {
	w := newWorld(t)
	w.withPeople().full = true
	v := w.view("transform", "free", api.Irreversible)
	r := call1(t, v, "warehouse_apply_change")
	if !r.Result.IsError || !strings.HasPrefix(r.text(), "denied: too many open requests") || len(w.calls) > 0 {
		t.Errorf("%s", r.raw)
	}
	if got := w.kinds(); !slices.Equal(got, []record.Kind{record.KindToolDenied}) {
		t.Errorf("entries %v", got)
	}
}

// A client that goes away while it waits leaves the request, and nothing is called.
func TestAWaitingCallCanBeCancelled(t *testing.T) {
	w := newWorld(t)
	p := w.withPeople()
	v := w.view("transform", "free", api.Irreversible)
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan *reply)
	go func() { got <- postIn(ctx, t, v, callMessage("warehouse_apply_change", nil)) }()
	<-p.asked
	cancel(errors.New("gone"))
	if r := <-got; !r.Result.IsError || len(w.calls) > 0 || len(w.entries()) > 0 {
		t.Errorf("%s, entries %v", r.raw, w.kinds())
	}
	go func() { got <- call1(t, v, "warehouse_apply_change") }()
	time.AfterFunc(time.Millisecond, v.Close)
	if r := <-got; len(w.calls) > 0 {
		t.Errorf("closed: %s", r.raw)
	}
}
