package dispatch

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// gate is a service whose worker is a program that leaves a mark.
type gate struct {
	*Service
	mark      string
	commits   *atomic.Int64
	deployKey seal.Signer // of the catalog, where there is one
}

func newGate(t testing.TB) gate {
	t.Helper()
	dir := t.TempDir()
	g := gate{mark: filepath.Join(dir, "mark"), commits: new(atomic.Int64)}
	observe := func(int) func() { g.commits.Add(1); return func() {} }
	st, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(dir, "store"), Observe: observe, Migrations: []store.Migration{audit.Migration(), operator.Migration(), gateway.Migration(), budget.Migration(), Migration()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	ledger, err := audit.Open(t.Context(), audit.Config{Store: st, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Create(blob.Config{Dir: filepath.Join(dir, "blobs"), Private: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	key, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	registry, err := operator.Open(t.Context(), operator.Config{Root: filepath.Join(dir, "operators.json"), Service: key.KeyID(), Store: st, Ledger: ledger, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	worker := filepath.Join(dir, "worker")
	if err := os.WriteFile(worker, []byte("#!/bin/sh\n: > '"+g.mark+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	g.Service = newService(t.Context(), Config{
		Dirs: api.Dirs{State: dir}, Store: st, Blobs: blobs, Key: key, Ledger: ledger, Registry: registry, Now: time.Now, Logger: logger,
		Executor: &executor.Local{Launcher: program(worker), Logger: logger},
		Tools:    noTools{}, People: nobody{}, Secrets: noSecrets{}, Observer: noObserver{}, Sweep: func() {},
	})
	g.readCatalog(t)
	t.Cleanup(func() {
		_ = g.Close()
		awaitWorkers(t, dir)
	})
	return g
}

// awaitWorkers waits for the workers of a closed service, which outlive it and write to
// its directory.
func awaitWorkers(t testing.TB, state string) {
	t.Helper()
	locks, err := filepath.Glob(filepath.Join(state, "dispatches", "*", "*.lock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range locks {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(durable.RLock(f), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

func (g gate) started(t *testing.T) bool {
	t.Helper()
	g.work.Wait()
	_, err := os.Stat(g.mark)
	return err == nil
}

func testRow(id api.DispatchID) row {
	return row{record: api.Dispatch{ID: id, State: api.EventAccepted, Attempt: 1, Principal: "local:ann", Subagent: "edit", Role: "transform", Target: "local", Manifest: api.DigestOf([]byte(id)), AcceptedAt: time.Now()}}
}

func (g gate) admission(t *testing.T, r row) audit.Admission {
	t.Helper()
	engine, err := policy.New(policy.Rules{
		Grants:  []api.Grant{{Name: "g", Principal: "local:ann", Subagents: []api.Name{"edit"}, Targets: []api.Name{"local"}}},
		Targets: []api.Target{{Name: "local", Mode: api.Guarded}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := engine.Decide(policy.Request{Principal: "local:ann", Action: policy.ActionDispatch, Resource: "edit", Target: "local"})
	adm, err := g.cfg.Ledger.Commit(t.Context(), d, record.Entry{
		Kind: record.KindDispatchAccepted, Dispatch: r.record.ID, Refs: map[string]api.Digest{record.RefManifest: r.record.Manifest},
		Detail: record.DispatchRequest{Subagent: "edit"},
	}, func(tx *store.Tx) error { return insert(tx, r) })
	if err != nil {
		t.Fatal(err)
	}
	return adm
}

// No effect before its decision is durable: nothing starts a worker but the
// admission for exactly this dispatch and manifest.
//
// proves R-A2
func TestWorkerStartsOnlyWithItsAdmission(t *testing.T) {
	for name, c := range map[string]struct {
		starts bool
		use    func(g gate, r row) (audit.Admission, row)
	}{
		"its own": {true, func(g gate, r row) (audit.Admission, row) { return g.admission(t, r), r }},
		"none":    {false, func(_ gate, r row) (audit.Admission, row) { return audit.Admission{}, r }},
		"another dispatch's": {false, func(g gate, r row) (audit.Admission, row) {
			return g.admission(t, testRow("another-one")), r
		}},
		"for another manifest": {false, func(g gate, r row) (audit.Admission, row) {
			adm := g.admission(t, r)
			r.record.Manifest = api.DigestOf([]byte("altered"))
			return adm, r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			adm, r := c.use(g, testRow("dispatch-1"))
			g.start(adm, r, jobFor(g, &r))
			if g.started(t) != c.starts {
				t.Errorf("started = %v, want %v", !c.starts, c.starts)
			}
		})
	}
}

// A crash between the durable decision and its effect repeats the effect, for
// exactly what the log admitted; one that may have had its effect is not
// repeated.
//
// proves R-O6
func TestRestartStartsAdmittedDispatches(t *testing.T) {
	for name, c := range map[string]struct {
		begins bool
		change func(*row, *record.Manifest)
	}{
		"never started":   {true, func(*row, *record.Manifest) {}},
		"maybe begun":     {false, func(r *row, _ *record.Manifest) { r.key = "a2V5" }},
		"cancelled":       {false, func(r *row, _ *record.Manifest) { r.record.CancelBy = "local:ann" }},
		"expired by then": {false, func(_ *row, m *record.Manifest) { m.Expires = time.Now().Add(-time.Minute) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			r := testRow("dispatch-1")
			m := record.Manifest{
				V: 1, ID: r.record.ID, Attempt: 1, Principal: "local:ann", RevisionDigest: r.record.Manifest, Subagent: "edit", Role: "transform", Target: "local",
				Limits: api.DefaultLimits(), Egress: []string{}, Input: api.DigestOf([]byte("{}")), Expires: time.Now().Add(time.Hour).UTC(), Nonce: strings.Repeat("0", 32),
			}
			c.change(&r, &m)
			var err error
			if r.record.Manifest, err = g.admitter.storeManifest(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if _, err := g.cfg.Blobs.Put(t.Context(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			g.admission(t, r) // and the service ends here
			if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return update(tx, r) }); err != nil {
				t.Fatal(err)
			}
			if err := g.recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			if g.started(t) != c.begins {
				t.Errorf("begun = %v, want %v", !c.begins, c.begins)
			}
			if got, _, err := g.row(t.Context(), r.record.ID); err != nil || !got.record.State.Ended() {
				t.Errorf("record %+v, %v", got.record, err)
			}
		})
	}
}

// A worker that says nothing and leaves nothing is lost, not finished.
//
// proves R-D3
func TestWorkerWithoutResultIsLost(t *testing.T) {
	g := newGate(t)
	r := testRow("dispatch-1")
	g.start(g.admission(t, r), r, jobFor(g, &r))
	if !g.started(t) {
		t.Fatal("not started")
	}
	got, ok, err := g.row(t.Context(), r.record.ID)
	if err != nil || !ok || got.record.State != api.EventFailed || got.record.Reason != api.ReasonLost {
		t.Errorf("record %+v, %v, %v", got.record, ok, err)
	}
	entries, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchFailed})
	if err != nil || len(entries) != 1 || !strings.Contains(entries[0].Line().Text, "lost") {
		t.Errorf("entries %v, %v", entries, err)
	}
	if _, err := os.Stat(filepath.Dir(g.files.dir(&r))); !os.IsNotExist(err) {
		t.Errorf("the directory of the attempt is left: %v", err)
	}
}
