package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func config(dir string) store.Config {
	return store.Config{Dir: dir, Migrations: []store.Migration{Migration(), {
		Owner: "pair", Steps: []string{"CREATE TABLE pair (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID"},
	}}}
}

func now() time.Time { return time.Date(2026, 11, 21, 14, 22, 11, 0, time.UTC) }

// ledger returns a new log and its store.
func ledger(t *testing.T) (*Ledger, *store.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := store.Create(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return open(t, s), s, dir
}

func open(t *testing.T, s *store.Store) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), Config{Store: s, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func decide(t *testing.T, p api.Principal) policy.Decision {
	t.Helper()
	eng, err := policy.New(policy.Rules{Operator: "local:root"})
	if err != nil {
		t.Fatal(err)
	}
	return eng.Decide(policy.Request{Principal: p, Action: policy.ActionAuditRead, Resource: "log"})
}

func accepted(id string) record.Entry {
	return record.Entry{
		Kind: record.KindDispatchAccepted, Dispatch: api.DispatchID(id), Attempt: 1,
		Refs:   map[string]api.Digest{record.RefManifest: api.DigestOf([]byte(id))},
		Detail: record.DispatchRequest{Subagent: "code-edit", Target: "local"},
	}
}

func stopped() record.Entry {
	return record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: "test"}}
}

func pair(id string) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO pair (id) VALUES (?)", id)
		return err
	}
}

func rows(t *testing.T, s *store.Store) (ids []string) {
	t.Helper()
	err := s.Read(t.Context(), func(v *store.View) error {
		return v.Each("SELECT id FROM pair ORDER BY id", nil, func(scan store.Scan) error {
			var id string
			err := scan(&id)
			ids = append(ids, id)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// proves R-A2 (no effect before its decision is durable: the zero values)
func TestNothingIsAdmittedWithoutADecision(t *testing.T) {
	l, s, _ := ledger(t)
	if a, err := l.Commit(t.Context(), policy.Decision{}, accepted("d-zero"), pair("zero")); err == nil || a != (Admission{}) {
		t.Errorf("the zero decision: %v, %v", a, err)
	}
	if err := (Admission{}).Redeem(record.KindDispatchAccepted, "", ""); err == nil {
		t.Error("the zero admission was redeemed")
	}
	if n, err := l.Len(t.Context()); err != nil || n != 0 || len(rows(t, s)) != 0 {
		t.Errorf("%d entries and rows %v, %v; want none", n, rows(t, s), err)
	}
}

func TestAnAdmissionIsValidForOneActionOnce(t *testing.T) {
	l, _, _ := ledger(t)
	a, err := l.Commit(t.Context(), decide(t, "local:root"), accepted("d-one"), nil)
	if err != nil {
		t.Fatal(err)
	}
	manifest := api.DigestOf([]byte("d-one"))
	for name, err := range map[string]error{
		"another kind":     a.Redeem(record.KindCancelRequested, "d-one", manifest),
		"another dispatch": a.Redeem(record.KindDispatchAccepted, "d-two", manifest),
		"another manifest": a.Redeem(record.KindDispatchAccepted, "d-one", api.DigestOf(nil)),
		"no manifest":      a.Redeem(record.KindDispatchAccepted, "d-one", ""),
	} {
		if err == nil {
			t.Errorf("redeemed for %s", name)
		}
	}
	copied := a
	if err := a.Redeem(record.KindDispatchAccepted, "d-one", manifest); err != nil { // control
		t.Error(err)
	}
	if copied.Redeem(record.KindDispatchAccepted, "d-one", manifest) == nil {
		t.Error("redeemed twice, by a copy")
	}
	if a, err = l.Readmit(t.Context(), record.KindDispatchAccepted, a.Seq()); err != nil || a.Redeem(record.KindDispatchAccepted, "d-one", manifest) != nil {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := l.Readmit(t.Context(), record.KindDispatchAccepted, 1); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("readmitted an entry that does not exist: %v", err)
	}
	if _, err := l.Readmit(t.Context(), record.KindCancelRequested, 0); err == nil {
		t.Error("readmitted as another kind")
	}
}

// proves R-A3 (denials are in the log)
func TestADenialIsLoggedAndAdmitsNothing(t *testing.T) {
	l, s, _ := ledger(t)
	a, err := l.Commit(t.Context(), decide(t, "local:eve"), accepted("d-eve"), pair("eve"))
	denied, ok := errors.AsType[*api.Error](err)
	if a != (Admission{}) || !ok || denied.Code != api.CodeDenied || denied.AuditEntry == nil || *denied.AuditEntry != 0 {
		t.Fatalf("%v, %v; want a denial that names entry #0", a, err)
	}
	if len(rows(t, s)) != 0 {
		t.Error("the state of a denied request was written")
	}
	c, err := l.Get(t.Context(), 0)
	if err != nil || c.Entry.Kind != record.KindDispatchDenied || c.Entry.Decision != record.Deny || c.Entry.Principal != "local:eve" ||
		!strings.Contains(c.Line().Text, "local:eve") || !strings.Contains(c.Line().Text, "denied") {
		t.Errorf("%v: %s", err, c.Line().Text)
	}
	if _, err := l.Readmit(t.Context(), record.KindDispatchDenied, 0); err == nil {
		t.Error("a denial was readmitted")
	}
}

func TestCommitTakesPrincipalAndActionFromTheDecision(t *testing.T) {
	l, _, _ := ledger(t)
	e := accepted("d-forged")
	e.Principal, e.Action, e.Resource, e.Policies, e.Decision = "human:ann", "x", "y", []string{"z"}, record.Deny
	e.At = now().AddDate(-1, 0, 0)
	d := decide(t, "local:root")
	if _, err := l.Commit(t.Context(), d, e, nil); err != nil {
		t.Fatal(err)
	}
	c, err := l.Get(t.Context(), 0)
	got := c.Entry
	if err != nil || got.Principal != "local:root" || got.Action != d.Action() || got.Resource != d.Resource() || got.Decision != record.Allow ||
		strings.Join(got.Policies, ",") != strings.Join(d.Policies(), ",") || !got.At.Equal(now()) {
		t.Errorf("%v: %+v", err, got)
	}
	if _, err := l.Commit(t.Context(), d, stopped(), nil); err == nil {
		t.Error("a fact was committed as a decision")
	}
	denied, err := e.Denied(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []record.Entry{e, denied} {
		if _, err := l.Record(t.Context(), e, nil); err == nil {
			t.Errorf("%s was recorded without a decision", e.Kind)
		}
	}
	if _, err := l.Commit(t.Context(), d, denied, nil); err == nil {
		t.Error("an allowed decision was committed as a denial")
	}
	if n, _ := l.Len(t.Context()); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
}

// proves R-A2 (state and entry in one transaction)
func TestAFailedFunctionLeavesNeitherStateNorEntry(t *testing.T) {
	l, s, _ := ledger(t)
	mine := errors.New("mine")
	_, err := l.Commit(t.Context(), decide(t, "local:root"), accepted("d-a"), func(tx *store.Tx) error { _ = pair("a")(tx); return mine })
	if err != mine { //nolint:errorlint // as it is
		t.Errorf("%v, want fn's own error", err)
	}
	_, err = l.Record(t.Context(), stopped(), func(tx *store.Tx) error { _ = pair("a")(tx); panic("boom") })
	if _, ok := errors.AsType[*store.PanicError](err); !ok {
		t.Errorf("a panic: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Record(gone, stopped(), pair("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
	if n, err := l.Len(t.Context()); err != nil || n != 0 || len(rows(t, s)) != 0 {
		t.Errorf("%d entries, rows %v, %v", n, rows(t, s), err)
	}
	if seq, err := l.Record(t.Context(), stopped(), pair("a")); err != nil || seq != 0 || len(rows(t, s)) != 1 { // control
		t.Errorf("#%d, %v", seq, err)
	}
}

// proves R-A2
func TestSequenceNumbersStayContiguousAfterFailures(t *testing.T) {
	l, s, dir := ledger(t)
	d := decide(t, "local:root")
	var mu sync.Mutex
	seqs := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := range 30 {
				id, dice := fmt.Sprintf("d-%d-%d", w, i), rand.IntN(6)
				a, err := l.Commit(t.Context(), d, accepted(id), func(tx *store.Tx) error {
					if err := pair(id)(tx); err != nil {
						return err
					}
					switch dice {
					case 0:
						return errors.New("no")
					case 1:
						panic("no")
					case 2:
						return pair(id)(tx) // duplicate key
					}
					return nil
				})
				if (err == nil) != (dice > 2) {
					t.Errorf("%s: dice %d: %v", id, dice, err)
				}
				if err == nil {
					mu.Lock()
					seqs[a.Seq()] = id
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	n, err := l.Check(t.Context())
	if err != nil || n != uint64(len(seqs)) || len(rows(t, s)) != len(seqs) {
		t.Fatalf("%d entries, %d acknowledged, %d rows, %v", n, len(seqs), len(rows(t, s)), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(t.Context(), config(dir)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for c, err := range open(t, s).Watch(t.Context(), Query{}) {
		if err != nil || string(c.Entry.Dispatch) != seqs[c.Seq] {
			t.Fatalf("#%d is %q, acknowledged as %q, %v", c.Seq, c.Entry.Dispatch, seqs[c.Seq], err)
		}
		if c.Seq == n-1 {
			break
		}
	}
}

// The triggers guard against our own mistakes, not against an attacker with
// write access to the file.
func TestTheLogIsAppendOnly(t *testing.T) {
	l, s, _ := ledger(t)
	if _, err := l.Record(t.Context(), stopped(), nil); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"UPDATE audit_entry SET kind = 'x'", "DELETE FROM audit_entry",
		"INSERT OR REPLACE INTO audit_entry SELECT * FROM audit_entry",
		"INSERT INTO audit_entry SELECT * FROM audit_entry WHERE true ON CONFLICT (seq) DO UPDATE SET kind = 'x'",
	} {
		err := s.Update(t.Context(), func(tx *store.Tx) error { _, err := tx.Exec(q); return err })
		if !errors.Is(err, store.ErrConstraint) {
			t.Errorf("%s: %v, want a refusal", q, err)
		}
	}
	if _, err := l.Get(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func TestListFiltersAndPages(t *testing.T) {
	l, _, _ := ledger(t)
	d, eve := decide(t, "local:root"), decide(t, "local:eve")
	for i := range 10 {
		if _, err := l.Commit(t.Context(), d, AccessEntry(api.DispatchID(fmt.Sprintf("d-%03d", i%2)), "read"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Commit(t.Context(), eve, AccessEntry("d-eve", "read"), nil); api.CodeOf(err) != api.CodeDenied {
			t.Fatal(err)
		}
	}
	for want, q := range map[string]Query{
		"[0 1 2]":              {Limit: 3},
		"[3 4 5]":              {From: 3, Limit: 3},
		"[17 18 19]":           {Newest: true, Limit: 3},
		"[19]":                 {From: 19},
		"[]":                   {From: 20},
		"[0 4 8 12 16]":        {Dispatch: "d-000"},
		"[13 15 17 19]":        {From: 12, Kind: record.KindAccessDenied},
		"[16 18]":              {Principal: "local:root", Newest: true, Limit: 2},
		"[1 3]":                {Principal: "local:eve", Kind: record.KindAccessDenied, Dispatch: "d-eve", Limit: 2},
		"[0 2 4 6 8 10 12 14]": {Principal: "local:root", Limit: 8},
	} {
		list, err := l.List(t.Context(), q)
		seqs := make([]uint64, len(list))
		for i, c := range list {
			seqs[i] = c.Seq
		}
		if err != nil || fmt.Sprint(seqs) != want {
			t.Errorf("%+v: %v, %v; want %s", q, seqs, err, want)
		}
	}
}

func TestWatchYieldsEachEntryOnceAndInOrder(t *testing.T) {
	l, s, _ := ledger(t)
	const total = 600
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			next := uint64(0)
			for c, err := range l.Watch(ctx, Query{}) {
				if err != nil || c.Seq != next {
					t.Errorf("#%d, %v; want #%d", c.Seq, err, next)
					return
				}
				if next++; next == total {
					return
				}
			}
		})
	}
	filtered := make(chan uint64, 1)
	wg.Go(func() {
		for c, err := range l.Watch(ctx, Query{Kind: record.KindServiceStarted}) {
			if err != nil {
				t.Error(err)
			}
			filtered <- c.Seq
			return
		}
	})
	var writers sync.WaitGroup
	for range 6 {
		writers.Go(func() {
			for range total / 6 {
				if _, err := l.Record(t.Context(), stopped(), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if _, err := l.Record(t.Context(), record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{}}, nil); err != nil {
		t.Fatal(err)
	}
	if seq := <-filtered; seq != total {
		t.Errorf("the filtered watch got #%d", seq)
	}
	wg.Wait()
	// The watch ends when its context is done, and when the store closes.
	ended := make(chan error, 2)
	go func() {
		for c, err := range l.Watch(ctx, Query{From: total + 1}) {
			t.Errorf("an entry that does not exist: #%d, %v", c.Seq, err)
		}
		ended <- nil
	}()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	go func() {
		for _, err := range l.Watch(t.Context(), Query{From: total + 1}) {
			ended <- err
		}
	}()
	_ = s.Close()
	if err := <-ended; !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close the watch ended with %v", err)
	}
}

// What the service does on its own is nobody's act: an entry that says otherwise is
// refused, alone and among others. The control: the same entry without a principal.
//
// proves R-A3
func TestTheLogNamesOnlyWhoDidIt(t *testing.T) {
	l, _, _ := ledger(t)
	refused := func(err error) bool { return err != nil && strings.Contains(err.Error(), "who did not do it") }
	for _, k := range record.Kinds() {
		if k.Actor() != record.ActorService {
			continue
		}
		for _, p := range []api.Principal{"local:ann", ""} {
			e := record.Entry{Kind: k, Principal: p, Detail: k.Detail()}
			if k == record.KindCatalogRevision {
				e.Detail = record.RevisionSeen{Number: 1}
			}
			_, err := l.Record(t.Context(), e, nil)
			if k == record.KindCatalogRevision {
				e.Detail = record.RevisionSeen{Number: 2}
			}
			all := l.CommitAll(t.Context(), []Item{{Entry: e}}, nil)
			if refused(err) != (p != "") || refused(all) != (p != "") {
				t.Errorf("%s by %q: %v, %v", k, p, err, all)
			}
		}
	}
	if _, err := l.Record(t.Context(), record.Entry{Kind: record.KindRequestInvalid, Principal: "local:ann", Detail: record.InvalidRequest{}}, nil); err != nil {
		t.Errorf("positive control: a caller's act: %v", err)
	}
}
