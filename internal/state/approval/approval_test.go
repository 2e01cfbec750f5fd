package approval

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// desk is the approvals of a state with one running dispatch. Votes are signed elsewhere:
// internal/state/operator tests their signatures.
type desk struct {
	*Approvals
	t      *testing.T
	dir    string
	wall   time.Time
	steady time.Time
	mu     sync.Mutex
	cast   map[api.Digest][]api.Vote // guarded by mu
	st     *store.Store
	ledger *audit.Ledger
	grants []api.Grant
	told   []api.TaskID // what was decided about; guarded by mu

	keyless  api.Principal // has no operator key
	operator api.Principal // has one, and so sees everything
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, dir: filepath.Join(t.TempDir(), "state"), wall: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), cast: map[api.Digest][]api.Vote{}, grants: []api.Grant{
		{Name: "ann", Principal: "human:ann", Approve: []api.Name{"transform"}},
		{Name: "bob", Principal: "human:bob", Approve: []api.Name{"transform"}},
		{Name: "local-ann", Principal: "local:ann", Approve: []api.Name{"transform"}},
		{Name: "ai", Principal: "agent:claude", Approve: []api.Name{"transform"}, ApproveOwn: true},
	}}
	d.steady = d.wall
	d.open(store.Create)
	t.Cleanup(func() { d.close() })
	d.begin("d-one")
	return d
}

func (d *desk) open(with func(context.Context, store.Config) (*store.Store, error)) {
	d.t.Helper()
	var err error
	d.st, err = with(d.t.Context(), store.Config{Dir: d.dir, Migrations: []store.Migration{audit.Migration(), Migration()}})
	d.must(err)
	d.ledger, err = audit.Open(d.t.Context(), audit.Config{Store: d.st, Now: func() time.Time { return d.wall }})
	d.must(err)
	d.Approvals, err = New(Config{Store: d.st, Ledger: d.ledger, Votes: d, Now: func() time.Time { return d.wall }, Steady: func() time.Time { return d.steady }, InForce: d, Tasks: d})
	d.must(err)
}

func (d *desk) close() {
	d.Close()
	d.must(d.st.Close())
}

func (d *desk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// Engine implements policy.InForce.
func (d *desk) Engine(context.Context) (*policy.Engine, error) {
	return policy.New(policy.Rules{Grants: d.grants, Operator: "local:service", Operators: func(p api.Principal) bool { return p != "" && p == d.operator }})
}

// Decided implements Tasks.
func (d *desk) Decided(_ api.RunID, task api.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = append(d.told, task)
}

// begin logs that a dispatch runs.
func (d *desk) begin(id api.DispatchID) {
	d.t.Helper()
	e, err := policy.New(policy.Rules{
		Grants:  []api.Grant{{Name: "g", Principal: "agent:claude", Subagents: []api.Name{"s"}, Targets: []api.Name{"t"}, Ceiling: api.Irreversible}},
		Targets: []api.Target{{Name: "t", Mode: api.Open}},
	})
	d.must(err)
	allowed := e.Decide(policy.Request{Principal: "agent:claude", Action: policy.ActionDispatch, Resource: "s", Target: "t", Consent: api.Irreversible, Session: api.Irreversible})
	_, err = d.ledger.Commit(d.t.Context(), allowed, record.Entry{Kind: record.KindDispatchAccepted, Dispatch: id, Attempt: 1, Detail: record.DispatchRequest{}}, nil)
	d.must(err)
	_, err = d.ledger.Record(d.t.Context(), record.Entry{Kind: record.KindDispatchStarted, Dispatch: id, Attempt: 1, Detail: record.DispatchStart{}}, nil)
	d.must(err)
}

func (d *desk) Votes(_ api.ApprovalID, action api.Digest) []api.Vote {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.cast[action])
}

func (d *desk) VotesIn(_ *store.Tx, id api.ApprovalID, action api.Digest) ([]api.Vote, error) {
	return d.Votes(id, action), nil
}

// CanVote lets everybody vote whose key is not missing.
func (d *desk) CanVote(p api.Principal) error {
	if p == d.keyless {
		return api.Errorf(api.CodeConflict, "no operator key belongs to %s", p).WithHint("add one")
	}
	return nil
}

// Vote takes a vote as it is: its envelope is its record.
func (d *desk) Vote(_ context.Context, _ api.Principal, envelope []byte, apply func(*store.Tx, *api.OperatorRecord, api.Vote, []api.Vote) error) (api.OperatorReceipt, error) {
	var signed struct {
		api.OperatorRecord
		Keys []string
	}
	d.must(json.Unmarshal(envelope, &signed))
	v := api.Vote{Principal: signed.Principal, Keys: signed.Keys, Approve: signed.Verb == api.VerbApprove}
	err := d.st.Update(d.t.Context(), func(tx *store.Tx) error { return apply(tx, &signed.OperatorRecord, v, d.Votes("", signed.Content)) })
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cast[signed.Content] = append(d.cast[signed.Content], v)
	}
	return api.OperatorReceipt{}, err
}

func action() api.ToolAction {
	return api.ToolAction{
		V: api.ToolActionVersion, Needs: 1, Tool: "warehouse/apply", Arguments: json.RawMessage(`{"sql":"x"}`), Definition: api.DigestOf([]byte("d")), Tier: api.Stateful, Dispatch: "d-one", Subagent: "s",
		Role: "transform", Target: "t", Principal: "agent:claude", Revision: api.DigestOf([]byte("r")), Policies: []string{"approval"},
	}
}

func (d *desk) ask(a api.ToolAction) api.Approval {
	d.t.Helper()
	a.Needs = policy.ToolApprovers(a.Tier)
	got, err := d.Ask(d.t.Context(), a, 1, "I need it")
	d.must(err)
	return got
}

// says votes about a request; change alters the record.
func (d *desk) says(verb api.OperatorVerb, p api.Principal, key string, a api.Approval, change func(*api.OperatorRecord)) error {
	r := api.OperatorRecord{Verb: verb, Principal: p, Approval: a.Action.ID, Content: a.Digest}
	by := p
	if change != nil {
		change(&r)
	}
	envelope, err := json.Marshal(struct {
		api.OperatorRecord
		Keys []string
	}{r, []string{key}})
	d.must(err)
	_, err = d.Approvals.Vote(d.t.Context(), by, a.Action.ID, envelope)
	return err
}

func (d *desk) use(id api.ApprovalID) error {
	return d.st.Update(d.t.Context(), func(tx *store.Tx) error { return d.Use(tx, id) })
}

func (d *desk) state(id api.ApprovalID) api.ApprovalState {
	d.t.Helper()
	got, err := d.Get(d.t.Context(), id)
	d.must(err)
	return got.State
}

func wants(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, want %q", err, words)
	}
}

// A request is bound to all of the action: any other call gets a request of its own. The
// same call finds it, and its entry is in the log once.
//
// proves R-G6
func TestARequestIsBoundToItsCall(t *testing.T) {
	d := newDesk(t)
	d.begin("d-two")
	first := d.ask(action())
	if again := d.ask(action()); again.Action.ID != first.Action.ID {
		t.Fatalf("control: %s, then %s", first.Action.ID, again.Action.ID)
	}
	seen := map[api.ApprovalID]string{first.Action.ID: "control"}
	for name, change := range map[string]func(*api.ToolAction){
		"arguments":  func(a *api.ToolAction) { a.Arguments = json.RawMessage(`{"sql":"y"}`) },
		"tool":       func(a *api.ToolAction) { a.Tool = "warehouse/drop" },
		"dispatch":   func(a *api.ToolAction) { a.Dispatch = "d-two" },
		"role":       func(a *api.ToolAction) { a.Role = "quality" },
		"revision":   func(a *api.ToolAction) { a.Revision = api.DigestOf([]byte("r2")) },
		"definition": func(a *api.ToolAction) { a.Definition = api.DigestOf([]byte("d2")) },
		"tier":       func(a *api.ToolAction) { a.Tier = api.Irreversible },
		"taint":      func(a *api.ToolAction) { a.Taint = &api.Taint{Dispatch: "d-one", Attempt: 1, Call: 1, Tool: "web"} },
		"policies":   func(a *api.ToolAction) { a.Policies = []string{"taint"} },
		"principal":  func(a *api.ToolAction) { a.Principal = "human:bob" },
	} {
		a := action()
		change(&a)
		id := d.ask(a).Action.ID
		if other, twice := seen[id]; twice {
			t.Errorf("%s: the request of %s", name, other)
		}
		seen[id] = name
	}
	n, err := d.ledger.List(t.Context(), audit.Query{Kind: record.KindApprovalRequest, Limit: 100})
	if d.must(err); len(n) != len(seen) {
		t.Errorf("%d entries, %d requests", len(n), len(seen))
	}
}

// A row that says it is about another call than people approved allows neither.
//
// takeover both modes, database: no approve
//
// proves R-G6
func TestARowOfAnotherCallIsNotFound(t *testing.T) {
	d := newDesk(t)
	a := d.ask(action())
	d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
	if got := d.ask(action()); got.State != api.ApprovalApproved {
		t.Fatalf("control: %s", got.State)
	}
	other := *a.Action.Call
	other.Arguments = json.RawMessage(`{"sql":"drop"}`)
	same, err := sameness(other)
	d.must(err)
	d.must(d.st.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE approval SET same = ?", string(same))
		return err
	}))
	_, err = d.Ask(t.Context(), other, 1, "")
	wants(t, err, "about another call")
}

// A vote counts from one who may give it, about exactly this action. Control: the same
// vote without the change counts.
//
// takeover both modes, database: no approve
//
// proves R-G6
func TestOnlyAMatchingVoteCounts(t *testing.T) {
	d := newDesk(t)
	a := d.ask(action())
	wants(t, d.use(a.Action.ID), "is not approved")
	for words, c := range map[string]struct {
		by     api.Principal
		change func(*api.OperatorRecord)
	}{
		"only people":               {by: "agent:claude"},
		"no grant lets":             {by: "human:eve"},
		"submits it":                {"human:ann", func(r *api.OperatorRecord) { r.Principal = "human:bob" }},
		"about approval":            {"human:ann", func(r *api.OperatorRecord) { r.Approval = "a-bbbbbbbbbbbb" }},
		"the vote is about action ": {"human:ann", func(r *api.OperatorRecord) { r.Content = api.DigestOf([]byte("other")) }},
	} {
		wants(t, d.says(api.VerbApprove, c.by, "k1", a, c.change), words)
	}
	d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
	if s := d.state(a.Action.ID); s != api.ApprovalApproved {
		t.Fatalf("control: %s", s)
	}
	d.grants = d.grants[1:] // ann may not approve any more
	if s := d.state(a.Action.ID); s != api.ApprovalOpen {
		t.Errorf("after the grant was removed: %s", s)
	}
	wants(t, d.use(a.Action.ID), "is not approved")
}

// Two different people with different keys approve what cannot be taken back, and neither
// is the submitter.
//
// proves R-G6
func TestIrreversibleNeedsTwoPeople(t *testing.T) {
	d := newDesk(t)
	act := action()
	act.Tier, act.Principal = api.Irreversible, "human:eve"
	a := d.ask(act)
	d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
	wants(t, d.use(a.Action.ID), "is not approved")
	wants(t, d.says(api.VerbApprove, "local:ann", "k2", a, nil), "another person has to")
	wants(t, d.says(api.VerbApprove, "human:bob", "k1", a, nil), "signed with a key that another vote has")
	d.must(d.says(api.VerbApprove, "human:bob", "k2", a, nil))
	d.must(d.use(a.Action.ID))

	act.Principal = "human:ann"
	own := d.ask(act)
	wants(t, d.says(api.VerbApprove, "local:ann", "k1", own, nil), "submitted the work")
}

// A request is used once, also by two calls at once and after a restart; a use whose
// transaction fails does not count.
//
// proves R-G6
func TestAnApprovalIsUsedOnce(t *testing.T) {
	d := newDesk(t)
	a := d.ask(action())
	d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
	id := a.Action.ID
	lost := errors.New("lost")
	if err := d.st.Update(t.Context(), func(tx *store.Tx) error { return errors.Join(d.Use(tx, id), lost) }); !errors.Is(err, lost) || d.state(id) != api.ApprovalApproved {
		t.Fatalf("control: %v %s", err, d.state(id))
	}
	var work sync.WaitGroup
	used := make(chan error, 8)
	for range cap(used) {
		work.Go(func() { used <- d.use(id) })
	}
	work.Wait()
	close(used)
	n := 0
	for err := range used {
		if err == nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("used %d times", n)
	}
	d.close()
	d.open(store.Open)
	if s := d.state(id); s != api.ApprovalUsed {
		t.Errorf("after a restart: %s", s)
	}
	wants(t, d.use(id), "is used")
	if again := d.ask(action()); again.Action.ID == id {
		t.Error("a used request is found again")
	}
}

// A denial of a call denies it for the rest of its dispatch, whatever the dispatch reads
// after it and whichever rule wants the approval: also requests that are open already.
// Controls: without a denial, and after one of another call, the same requests are open
// and can be approved.
//
// proves R-G6
func TestADenialIsNotShedByReading(t *testing.T) {
	tainted := func(a *api.ToolAction) { a.Taint = &api.Taint{Dispatch: "d-one", Attempt: 1, Call: 1, Tool: "web"} }
	ways := map[string]func(*api.ToolAction){
		"again":              func(*api.ToolAction) {},
		"tainted":            tainted,
		"by another rule":    func(a *api.ToolAction) { a.Policies = []string{"taint"} },
		"tainted, by both":   func(a *api.ToolAction) { tainted(a); a.Policies = []string{"approval", "taint"} },
		"in another writing": func(a *api.ToolAction) { a.Arguments = json.RawMessage(" {\n\"sql\": \"x\"}"); tainted(a) },
	}
	for name, change := range ways {
		for _, order := range []string{"denied before", "denied after", "not denied", "another denied"} {
			d := newDesk(t)
			first, again := d.ask(action()), action()
			change(&again)
			var second api.Approval
			if order == "denied after" {
				second = d.ask(again)
			}
			switch denied := first; order {
			case "not denied":
			case "another denied":
				other := action()
				other.Arguments = json.RawMessage(`{"sql":"y"}`)
				denied = d.ask(other)
				fallthrough
			default:
				d.must(d.says(api.VerbDeny, "human:ann", "k1", denied, nil))
			}
			if order == "denied after" {
				if err := d.use(second.Action.ID); err == nil || d.state(second.Action.ID) != api.ApprovalDenied {
					t.Errorf("%s, %s: %v, %s", name, order, err, d.state(second.Action.ID))
				}
			}
			second = d.ask(again)
			if want := order == "denied before" || order == "denied after"; (second.State == api.ApprovalDenied) != want {
				t.Errorf("%s, %s: %s", name, order, second.State)
			} else if want {
				continue
			}
			d.must(d.says(api.VerbApprove, "human:bob", "k2", second, nil))
			d.must(d.use(second.Action.ID))
		}
	}
}

// A request that was open beside a denied one before a service bound denials to calls
// cannot be used.
//
// proves R-G6
func TestARequestBesideADenialCannotBeUsed(t *testing.T) {
	d := newDesk(t)
	other := action()
	other.Taint = &api.Taint{Dispatch: "d-one", Attempt: 1, Call: 1, Tool: "web"}
	first, second := d.ask(action()), d.ask(other)
	d.must(d.says(api.VerbApprove, "human:bob", "k2", second, nil))
	if s := d.state(second.Action.ID); s != api.ApprovalApproved {
		t.Fatalf("control: %s", s)
	}
	d.must(d.st.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE approval SET state = 'denied' WHERE id = ?", string(first.Action.ID))
		return err
	}))
	wants(t, d.use(second.Action.ID), "the same call was denied in approval "+string(first.Action.ID))
}

// One denial denies, for the rest of the dispatch.
func TestADenialStands(t *testing.T) {
	d := newDesk(t)
	a := d.ask(action())
	waited := make(chan api.Approval, 1)
	go func() {
		got, _ := d.Wait(t.Context(), a.Action.ID)
		waited <- got
	}()
	d.must(d.says(api.VerbDeny, "human:ann", "k1", a, nil))
	if got := <-waited; got.State != api.ApprovalDenied {
		t.Errorf("the waiting call sees %s", got.State)
	}
	wants(t, d.says(api.VerbApprove, "human:bob", "k2", a, nil), "is denied")
	wants(t, d.use(a.Action.ID), "is denied")
	if again := d.ask(action()); again.Action.ID != a.Action.ID || again.State != api.ApprovalDenied {
		t.Errorf("asked again: %s %s", again.Action.ID, again.State)
	}
}

// What is not decided in time is denied, also over a restart; a clock that is set back
// gives no time, and votes and uses after it fail. Control: before it they do not.
//
// proves R-G6
func TestARequestExpires(t *testing.T) {
	pass := func(d *desk, wall, steady time.Duration) {
		d.wall, d.steady = d.wall.Add(wall), d.steady.Add(steady)
	}
	for name, late := range map[string]func(*desk){
		"time passes":              func(d *desk) { pass(d, 25*time.Hour, 25*time.Hour) },
		"the clock is set forward": func(d *desk) { pass(d, 25*time.Hour, time.Minute) },
		"the clock is set back":    func(d *desk) { pass(d, -48*time.Hour, 25*time.Hour) },
		"no service runs":          func(d *desk) { d.close(); pass(d, 25*time.Hour, 0); d.open(store.Open) },
	} {
		d := newDesk(t)
		a := d.ask(action())
		pass(d, 23*time.Hour, 23*time.Hour)
		if _, err := d.expireDue(t.Context()); err != nil || d.state(a.Action.ID) != api.ApprovalOpen {
			t.Fatalf("control: %v", err)
		}
		d.must(d.says(api.VerbApprove, "human:ann", "k1", a, nil))
		late(d)
		if s := d.state(a.Action.ID); s != api.ApprovalExpired {
			t.Errorf("%s: %s", name, s)
		}
		wants(t, d.use(a.Action.ID), "expired at")
		wants(t, d.says(api.VerbApprove, "human:bob", "k2", a, nil), "expired at")
		_, err := d.expireDue(t.Context())
		d.must(err)
		n, err := d.ledger.List(t.Context(), audit.Query{Kind: record.KindApprovalExpired, Limit: 10})
		if d.must(err); len(n) != 1 || d.state(a.Action.ID) != api.ApprovalExpired {
			t.Errorf("%s: %d entries", name, len(n))
		}
	}
}

// Nothing is approved for a dispatch that ended, and a dispatch has a bounded number of
// open requests.
func TestRequestsEndWithTheirDispatch(t *testing.T) {
	d := newDesk(t)
	var last api.Approval
	for i := range maxOpen {
		a := action()
		a.Tool = strings.Repeat("t", i+1)
		last = d.ask(a)
	}
	_, err := d.Ask(t.Context(), action(), 1, "")
	wants(t, err, "open requests for approvals, the limit is 32")
	d.must(d.says(api.VerbApprove, "human:ann", "k1", last, nil))
	d.must(d.st.Update(t.Context(), func(tx *store.Tx) error { return d.EndDispatch(tx, "d-one") }))
	wants(t, d.use(last.Action.ID), "is ended")
	wants(t, d.says(api.VerbApprove, "human:bob", "k2", last, nil), "is ended")
	_, err = d.ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchFinished, Dispatch: "d-one", Attempt: 1, Detail: record.DispatchEnd{}}, nil)
	d.must(err)
	if _, err := d.Ask(t.Context(), action(), 1, ""); err == nil {
		t.Error("an ended dispatch asks")
	}
}
