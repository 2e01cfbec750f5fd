package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A one-shot service whose state refuses everything after the disk was full
// gives way: once there is room again commands work, without anybody ending
// anything. Until then they say what is wrong.
//
// proves R-D1
func TestOneShotWorksAgainOnceTheFullDiskHasRoom(t *testing.T) {
	t.Parallel()
	w := cold(t, 0)
	must(t, syscall.Mount("tmpfs", w.path("state"), "tmpfs", 0, "size=8m,mode=755"))
	t.Cleanup(func() { must(t, syscall.Unmount(w.path("state"), syscall.MNT_DETACH)) })
	ended(t, w.dispatch("edit", "--source", "repo", "--id", "before"), api.EventFinished, "")
	first := w.status().PID
	f, err := os.Create(w.path("state/filler"))
	must(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(t, f.Close())
	// A denial is an entry and nothing else: sooner or later there is no room
	// for one, and from then on the store refuses everything.
	var d done
	for n := 0; d.status != 1 && n < 100; n++ {
		d = w.try("dispatch", "run", "nobody")
	}
	if d.status != 1 || !strings.Contains(d.stderr, "see to the disk") {
		t.Fatalf("on a full disk: %s", d)
	}
	// Nothing else asks for it, and it does not wait for its idle time.
	for deadline := time.Now().Add(20 * time.Second); len(w.services()) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("the service that can serve nothing stays")
		}
	}
	w.refused(1, []string{"see to the disk"}, "dispatch", "run", "edit", "-q", "--id", "during")
	must(t, os.Remove(w.path("state/filler")))
	ended(t, w.dispatch("edit", "--source", "repo", "--id", "after"), api.EventFinished, "")
	if s := w.status(); s.PID == first || !s.Ready {
		t.Errorf("it is %+v", s)
	}
	ended(t, w.show("before"), api.EventFinished, "")
	if list := w.must("dispatch", "list", "-o", "name"); strings.Contains(list, "during") {
		t.Errorf("what was refused is listed: %s", list)
	}
}

// Why somebody cancels is kept, whether a worker is there to hear it or a
// question waits.
//
// proves R-D4
func TestWhySomebodyCancelsIsKept(t *testing.T) {
	t.Parallel()
	w := asking(t, 0, subagent{name: "sleeps", script: "echo begun; sleep 300"})
	waits := string(w.waits("asks").ID)
	w.try("dispatch", "run", "sleeps", "-d", "--id", "running")
	for _, id := range []string{waits, "running"} {
		out := w.must("dispatch", "cancel", id, "--reason", "changed my mind")
		d := w.show(id)
		ended(t, d, api.EventCancelled, "")
		if d.CancelWhy != "changed my mind" || !strings.Contains(d.Message, "changed my mind") || !strings.Contains(out, "changed my mind") {
			t.Errorf("%s: %+v, %s", id, d, out)
		}
		if log := w.must("audit", "list", "--dispatch", id, "--kind", "dispatch.cancel_requested"); !strings.Contains(log, "changed my mind") {
			t.Errorf("%s: the log says %s", id, log)
		}
	}
	w.refused(1, []string{"more than 4096"}, "dispatch", "cancel", "running", "--reason", strings.Repeat("r", 4097))
}
