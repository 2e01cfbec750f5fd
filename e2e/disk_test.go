package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Commands report the full disk to those who have only a one-shot service, and
// work again as soon as there is room, without an operator stopping anything.
//
// proves R-D1
func TestOneShotWorksAgainOnceTheFullDiskHasRoom(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	must(t, syscall.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=24m,mode=755"))
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state"), syscall.MNT_DETACH)) })
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "before"), api.EventFinished, "")
	f, err := os.Create(w.path("state/filler"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	// A denial writes only an entry. Eventually there is no room for one, and
	// from then on the store refuses everything.
	var d done
	for n := 0; d.status != 1 && n < 100; n++ {
		d = w.try("dispatch", "run", "nobody")
	}
	if d.status != 1 || !strings.Contains(d.stderr, "state is on a full disk") {
		t.Fatalf("on a full disk: %s", d)
	}
	w.refused(1, []string{"state is on a full disk"}, "dispatch", "run", "edit", "-q", "--id", "during")
	must(t, os.Remove(w.path("state/filler")))
	// The service looks for room twice a second, and opens its state again.
	for range polling(time.Minute) {
		if w.try("status").status == 0 {
			break
		}
	}
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "after"), api.EventFinished, "")
	if s := w.status(); !s.Ready {
		t.Errorf("it is %+v", s)
	}
	wantEnd(t, w.show("before"), api.EventFinished, "")
	if list := w.must("dispatch", "list", "-o", "name"); strings.Contains(list, "during") {
		t.Errorf("a refused dispatch is listed: %s", list)
	}
}

// A separate disk under the tree is full and stays full. Entries remain
// durable, so running work is not lost; after a grace period the service
// refuses new work and reports why. When there is room again it recovers
// without a restart, and the log is complete.
//
// proves R-A2 (no degraded mode), R-A5
func TestAFullDiskUnderTheTreeRefusesNewWorkUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	w.must("down")
	must(t, syscall.Mount("tmpfs", w.path("state/bailiwick/log"), "tmpfs", 0, "size=2m,mode=700")) // takes the tree away
	w.own("state/bailiwick/log")
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state/bailiwick/log"), syscall.MNT_DETACH)) })
	w.must("up")
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "before"), api.EventFinished, "")
	covered := w.checkpoint()
	f, err := os.Create(w.path("state/bailiwick/log/filler"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "soon"), api.EventFinished, "") // it is not refused at once
	w.awaitReady(false)
	s := w.status()
	if s.Log == nil || !strings.Contains(s.Log.Error, "no space left") {
		t.Errorf("status: %+v", s.Log)
	}
	// New work is accepted for the grace period, and covered by a checkpoint
	// later.
	var d done
	n := 0
	for deadline := time.Now().Add(2 * time.Minute); d.status == 0; n++ {
		if time.Now().After(deadline) {
			t.Fatal("new work is never refused")
		}
		d = w.try("dispatch", "run", "edit", "-q", "--id", fmt.Sprintf("during-%d", n))
	}
	if d.status != 1 || !strings.Contains(d.stderr, "the log's tree is not kept") || !strings.Contains(d.stderr, "no space left") {
		t.Errorf("refused with %s", d)
	}
	last := fmt.Sprintf("during-%d", n-1)
	w.refused(1, []string{"the log's tree is not kept"}, "dispatch", "run", "edit", "-q", "--id", last)
	w.must("dispatch", "show", "soon") // the control: reading is not refused
	must(t, os.Remove(w.path("state/bailiwick/log/filler")))
	w.awaitReady(true)
	wantEnd(t, w.dispatch("edit", "--source", "repo", "--id", "after"), api.EventFinished, "")
	if list := w.must("dispatch", "list", "-o", "name"); slices.Contains(strings.Fields(list), last) {
		t.Errorf("a refused dispatch is listed: %s", list)
	}
	if now := w.checkpoint(); now.Size <= covered.Size {
		t.Errorf("the checkpoint covers %d entries, and %d before", now.Size, covered.Size)
	}
	for _, l := range w.lines() {
		w.verifyProof(l.Seq, l.Leaf)
	}
	w.must("audit", "verify", "--log")
}

// awaitReady waits until the service is ready, or not ready.
func (w *world) awaitReady(ready bool) {
	w.t.Helper()
	for late := range polling(2 * time.Minute) {
		var s api.ServiceStatus
		d := w.try("status", "-o", "json")
		// While its state is not open, the service of a machine knows no operators: it tells
		// people what is wrong, and no more.
		if err := json.Unmarshal([]byte(d.stdout), &s); err == nil && s.Ready == ready || err != nil && !ready && strings.Contains(d.stderr, "nothing is allowed") {
			return
		}
		if late {
			w.t.Fatalf("ready stays %t: %s", !ready, d)
		}
	}
}

// The reason of a cancel is recorded, whether a worker is running or a question
// is pending.
//
// proves R-D4
func TestCancelReasonIsRecorded(t *testing.T) {
	t.Parallel()
	w := asking(t, 0, subagent{name: "sleeps", script: "echo begun; sleep 300"})
	waits := string(w.awaitQuestion("asks").ID)
	w.try("dispatch", "run", "sleeps", "-d", "--id", "running")
	for _, id := range []string{waits, "running"} {
		out := w.must("dispatch", "cancel", id, "--reason", "changed my mind")
		d := w.show(id)
		wantEnd(t, d, api.EventCancelled, "")
		if d.CancelReason != "changed my mind" || !strings.Contains(d.Message, "changed my mind") || !strings.Contains(out, "changed my mind") {
			t.Errorf("%s: %+v, %s", id, d, out)
		}
		if log := w.must("audit", "list", "--dispatch", id, "--kind", "dispatch.cancel_requested"); !strings.Contains(log, "changed my mind") {
			t.Errorf("%s: the log says %s", id, log)
		}
	}
	w.refused(1, []string{"the limit is 4096"}, "dispatch", "cancel", "running", "--reason", strings.Repeat("r", 4097))
}
