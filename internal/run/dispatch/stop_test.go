package dispatch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const stopManifest = `version: 1
subagents:
  - {name: edit, agent: command, command: ["true"], role: transform, tier: observe, target: local}
  - {name: change, agent: command, command: ["true"], role: transform, tier: reversible, target: local}
  - {name: strong, agent: command, command: ["true"], role: transform, tier: stateful, target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
  - {name: other, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [edit, change, strong], targets: [local, other], ceiling: reversible}
`

func newStopGate(t *testing.T) gate {
	t.Helper()
	return newCatalogGate(t, stopManifest)
}

// newCatalogGate is a gate with a catalog.
func newCatalogGate(t testing.TB, manifest string) gate {
	t.Helper()
	g := newGate(t)
	g.cfg.Dirs.Data = t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(g.cfg.Dirs.Scratch(), 0o700))
	key, err := seal.NewEphemeral()
	must(err)
	root := seal.RootOf(seal.KeyOf(key, "ann"))
	must(seal.CreateTrustRoot(g.cfg.Dirs.TrustRoot(), root))
	cat, err := deploy.Create(deploy.Config{Dir: g.cfg.Dirs.Catalog(), TrustRoot: root, Now: time.Now})
	must(err)
	must(cat.Close())
	g.publish(t, root, key, manifest)
	g.deployKey = key
	g.readCatalog(t)
	return g
}

// publish applies a manifest, signed with key.
func (g gate) publish(t testing.TB, root seal.TrustRoot, key deploy.Signer, manifest string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cat, err := deploy.Open(deploy.Config{Dir: g.cfg.Dirs.Catalog(), TrustRoot: root, Now: time.Now})
	must(err)
	file := filepath.Join(t.TempDir(), "bailiwick.yaml")
	must(os.WriteFile(file, []byte("project: test\n"+manifest), 0o600))
	m, err := deploy.Load(t.Context(), file)
	must(err)
	plan, err := cat.Plan(t.Context(), m, deploy.Options{SourcesElsewhere: true})
	must(err)
	_, err = cat.Apply(t.Context(), plan, deploy.Approval{Author: "ann", Signers: []deploy.Signer{key}})
	must(err)
	must(cat.Close())
}

// overtaken is a registry at which something happens just after it was asked
// what holds a request, which is after the last look before the transaction.
type overtaken struct {
	*operator.Registry
	then func()
}

func (o *overtaken) StopsFor(w api.StopSubject) []string {
	ids := o.Registry.StopsFor(w)
	if o.then != nil {
		then := o.then
		o.then = nil
		then()
	}
	return ids
}

func (g gate) overtake(then func()) {
	g.cfg.Registry = &overtaken{g.cfg.Registry.(*operator.Registry), then}
}

func (g gate) kinds(t *testing.T) (kinds []record.Kind) {
	t.Helper()
	list, err := g.cfg.Ledger.List(t.Context(), audit.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Entry.Kind != record.KindCatalogRevision {
			kinds = append(kinds, c.Entry.Kind)
		}
	}
	return kinds
}

func (g gate) mustStop(t *testing.T, req api.StopRequest) api.Stop {
	t.Helper()
	s, err := g.Stop(t.Context(), "local:ann", req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ann = Caller{Principal: "local:ann", Ceiling: api.Irreversible}

// A stop that is engaged after a request was allowed and before that is durable
// wins. The controls are a stop of another scope, and no stop.
//
// proves R-T10
func TestStopWinsOverConcurrentRequest(t *testing.T) {
	for name, c := range map[string]struct {
		stop   *api.StopRequest
		denied bool
	}{
		"none":               {nil, false},
		"another target":     {&api.StopRequest{Scope: api.StopTarget, Name: "other"}, false},
		"another principal":  {&api.StopRequest{Scope: api.StopPrincipal, Name: "local:bob"}, false},
		"everything":         {&api.StopRequest{Scope: api.StopAll}, true},
		"its default target": {&api.StopRequest{Scope: api.StopTarget, Name: "local"}, true},
		"its principal":      {&api.StopRequest{Scope: api.StopPrincipal, Name: "local:ann"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStopGate(t)
			g.overtake(func() {
				if c.stop != nil {
					if s := g.mustStop(t, *c.stop); s.Cancelled != 0 {
						t.Errorf("it cancelled %d", s.Cancelled)
					}
				}
			})
			d, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: "d-1234"})
			_, there, rowErr := g.row(t.Context(), "d-1234")
			if rowErr != nil || there == c.denied || g.started(t) == c.denied {
				t.Errorf("row %v, started %v, %v", there, !c.denied, rowErr)
			}
			if !c.denied {
				if err != nil || d.State != api.EventAccepted {
					t.Errorf("%+v, %v", d, err)
				}
				return
			}
			if api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "emergency stop s-1 is engaged") || !strings.Contains(err.Error(), "hint: do not retry until an operator lifts it: bailiwick stop lift s-1") {
				t.Errorf("%v", err)
			}
			if kinds := g.kinds(t); !slices.Equal(kinds, []record.Kind{record.KindStopEngaged, record.KindDispatchDenied}) {
				t.Errorf("the log has %v", kinds)
			}
		})
	}
}

// asked is a dispatch that waits for an answer.
func (g gate) asked(t *testing.T, change ...func(*api.Dispatch, *record.Manifest, *record.Result)) row {
	t.Helper()
	r := g.asks(t, change...)
	if _, err := g.cfg.Blobs.Put(t.Context(), []byte(r.record.ID)); err != nil { // its input, by its manifest
		t.Fatal(err)
	}
	if err := g.collect(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got, _, err := g.row(t.Context(), r.record.ID)
	if err != nil || got.record.State != api.EventNeedsInput {
		t.Fatalf("%+v, %v", got.record, err)
	}
	return got
}

// proves R-T10
func TestStopWinsOverConcurrentAnswer(t *testing.T) {
	g := newStopGate(t)
	r := g.asked(t)
	g.overtake(func() {
		if s := g.mustStop(t, api.StopRequest{Scope: api.StopDispatch, Name: string(r.record.ID), Reason: "odd"}); s.Cancelled != 1 {
			t.Errorf("%+v", s)
		}
	})
	_, err := g.Answer(t.Context(), ann, r.record.ID, api.AnswerRequest{Text: "this one"})
	if api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "emergency stop s-1 is engaged") {
		t.Errorf("%v", err)
	}
	got, _, err := g.row(t.Context(), r.record.ID)
	if d := got.record; err != nil || d.State != api.EventCancelled || d.Attempt != 1 || d.CancelBy != "local:ann" || !strings.Contains(d.Message, "emergency stop s-1: odd") {
		t.Errorf("%+v, %v", d, err)
	}
	if g.started(t) {
		t.Error("the next attempt was started")
	}

	// The control: without a stop the answer is taken.
	g = newStopGate(t)
	r = g.asked(t)
	g.overtake(func() {})
	if d, err := g.Answer(t.Context(), ann, r.record.ID, api.AnswerRequest{Text: "this one"}); err != nil || d.Attempt != 2 || !g.started(t) {
		t.Errorf("%+v, %v", d, err)
	}
}

// What a service was killed over, in the middle of a stop, is held by the next
// one: nothing that is marked is started, and what waits is ended. The control is
// what the stop is not about.
//
// proves R-T10
func TestRestartCarriesOutInterruptedStop(t *testing.T) {
	g := newStopGate(t)
	waits := g.asked(t)
	var open []row
	for i, p := range []api.Principal{"local:ann", "local:bob"} {
		r := testRow(api.DispatchID(fmt.Sprintf("open-%d", i)))
		r.record.Principal = p
		m := record.Manifest{
			V: 1, ID: r.record.ID, Attempt: 1, Principal: p, RevisionDigest: r.record.Manifest, Subagent: "edit", Role: "transform", Target: "local",
			Limits: api.DefaultLimits(), Egress: []string{}, Input: api.DigestOf([]byte("{}")), Expires: time.Now().Add(time.Hour).UTC(), Nonce: strings.Repeat("0", 32),
		}
		var err error
		if r.record.Manifest, err = g.admitter.storeManifest(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if _, err := g.cfg.Blobs.Put(t.Context(), []byte("{}")); err != nil {
			t.Fatal(err)
		}
		g.admission(t, r)
		open = append(open, r)
	}
	stop, err := g.cfg.Registry.Engage(t.Context(), "local:ann", api.StopRequest{Scope: api.StopPrincipal, Name: "local:ann"}, func(tx *store.Tx, s api.Stop) (int, error) {
		held, err := cancelCovered(tx, s)
		return len(held), err
	})
	if err != nil || stop.Cancelled != 2 {
		t.Fatalf("%+v, %v", stop, err)
	}
	// The service ends here, and the next one starts.
	if err := g.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.work.Wait()
	ends := map[api.DispatchID]api.Dispatch{}
	for _, id := range []api.DispatchID{waits.record.ID, open[0].record.ID, open[1].record.ID} {
		r, _, err := g.row(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		ends[id] = r.record
	}
	for _, id := range []api.DispatchID{waits.record.ID, open[0].record.ID} {
		if d := ends[id]; d.State != api.EventCancelled || d.CancelBy != "local:ann" || d.CancelReason != "emergency stop s-1" {
			t.Errorf("%s: %+v", id, d)
		}
	}
	if d := ends[open[1].record.ID]; d.State == api.EventCancelled || !g.started(t) {
		t.Errorf("what the stop is not about was not started: %+v", d)
	}
	found, err := g.cfg.Ledger.List(t.Context(), audit.Query{Kind: record.KindDispatchRecovered, Dispatch: open[0].record.ID})
	if err != nil || len(found) != 1 || strings.Contains(found[0].Line().Text, "absent") {
		t.Errorf("%v, %v", found, err)
	}
}

// A stop with an unknown name is refused, since it would stop nothing. The
// controls are the same stops with the right names.
//
// proves R-T10
func TestStopWithUnknownNameIsRefused(t *testing.T) {
	g := newStopGate(t)
	r := testRow("dispatch-1")
	r.record.Principal, r.record.Target = "agent:gone", "removed"
	g.admission(t, r)
	for _, c := range []struct {
		scope api.StopScope
		name  string
		ok    bool
	}{
		{api.StopTarget, "local", true},
		{api.StopTarget, "removed", true}, // something is on it, whatever the catalog says now
		{api.StopTarget, "locla", false},
		{api.StopPrincipal, "agent:gone", true},
		{api.StopPrincipal, "local:who-may-come", true},
		{api.StopPrincipal, "agent:goen", false},
		{api.StopDispatch, "dispatch-1", true},
		{api.StopDispatch, "dispatch-2", false},
	} {
		_, err := g.Stop(t.Context(), "local:ann", api.StopRequest{Scope: c.scope, Name: c.name})
		if (err == nil) != c.ok || err != nil && (api.CodeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "bailiwick stop --all")) {
			t.Errorf("%s %s: %v", c.scope, c.name, err)
		}
	}
}

// A denial hints at what a person can do about it: exactly the command that
// removes the obstacle.
//
// proves R-T5
func TestDenialHintNamesTheObstacle(t *testing.T) {
	g := newStopGate(t)
	for subagent, want := range map[api.Name]string{
		"change": "an operator can consent to it: bailiwick ceiling set local:ann reversible",
		"strong": "a human can add it to a grant of local:ann in bailiwick.yaml",
		"absent": "a human can add it to a grant of local:ann in bailiwick.yaml",
	} {
		_, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: subagent})
		if api.CodeOf(err) != api.CodeDenied || !strings.Contains(err.Error(), "do not retry; "+want) {
			t.Errorf("%s: %v", subagent, err)
		}
	}
	// The control: what observes needs no consent.
	if _, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit"}); err != nil {
		t.Error(err)
	}
}

// A worker that ignores its cancel is killed, and the record says that it was
// cancelled. The control is the same worker without a cancel.
//
// proves R-T10, R-D4
func TestWorkerThatIgnoresCancelIsKilled(t *testing.T) {
	for name, shorten := range map[string]func(gate){
		"after its time":     func(g gate) { g.cancelTime = time.Millisecond },
		"sooner if it hangs": func(g gate) { g.hangTime, g.heartbeat = 20*time.Millisecond, time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			g := newStopGate(t)
			shorten(g)
			testCancelledAndDeaf(t, g)
		})
	}
}

func testCancelledAndDeaf(t *testing.T, g gate) {
	t.Helper()
	if err := os.WriteFile(string(g.cfg.Executor.Launcher.(program)), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	var deaf []*active
	for _, id := range []api.DispatchID{"deaf-1", "deaf-2"} {
		if _, err := g.Submit(t.Context(), ann, api.DispatchRequest{Subagent: "edit", DispatchID: id}); err != nil {
			t.Fatal(err)
		}
		g.mu.Lock()
		deaf = append(deaf, g.active[id])
		g.mu.Unlock()
	}
	t.Cleanup(func() { _ = deaf[1].worker.Kill("the test is over") })
	g.mustStop(t, api.StopRequest{Scope: api.StopDispatch, Name: "deaf-1"})
	<-deaf[0].ended
	r, _, err := g.row(t.Context(), "deaf-1")
	if err != nil || r.record.State != api.EventCancelled || r.record.CancelReason != "emergency stop s-1" {
		t.Errorf("%+v, %v", r.record, err)
	}
	select {
	case <-deaf[1].ended:
		t.Error("a worker was killed without a cancel")
	default:
	}
}
