package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// The unit of the service restarts it, after a kill too, while people work: no command fails,
// and nothing is done twice. Control: callers that repeat nothing meet refused and broken calls.
//
// proves R-D1, R-D3
func TestNoCommandFailsWhileTheServiceRestarts(t *testing.T) {
	t.Parallel()
	s := newTeam(t, (*team).keepSocket)
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "quick", script: "echo two >> a.txt"})
	w.publish("reversible")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	loop := func(do func(n int)) {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				do(n)
			}
		})
	}
	var lists, runs, refused, broken atomic.Int32
	ids := make(chan string, 1000)
	command := func(count *atomic.Int32, args ...string) {
		d := w.plain(filepath.Join(bin, "bailiwick"), args...)
		count.Add(1)
		if d.status != 0 {
			t.Errorf("%q: %s", args, d)
		}
	}
	for range 2 {
		loop(func(int) { command(&lists, "dispatch", "list", "-o", "name") })
	}
	loop(func(n int) {
		id := fmt.Sprintf("again-%d", n)
		command(&runs, "dispatch", "run", "quick", "--source", "repo", "--id", id)
		ids <- id
	})
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Path("/run/bailiwick/api.sock"))
	}}
	for range 4 {
		loop(func(int) {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://x"+api.CallDispatchList.Path(), http.NoBody)
			must(t, err)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				broken.Add(1)
				return
			}
			defer resp.Body.Close() //nolint:errcheck // only read
			if b, _ := io.ReadAll(resp.Body); resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") != "" {
				refused.Add(1)
			} else if resp.StatusCode != http.StatusOK {
				t.Errorf("control: %d %s", resp.StatusCode, b)
			}
		})
	}
	restarts := 0
	for late := range polling(2 * time.Minute) {
		before := lists.Load()
		s.restart(restarts%2 == 1)
		restarts++
		for range polling(30 * time.Second) {
			if lists.Load() > before+4 {
				break
			}
		}
		if restarts >= 8 && refused.Load() > 0 && broken.Load() > 0 && runs.Load() > 3 {
			break
		}
		if late {
			t.Errorf("control: %d calls refused and %d broken in %d restarts, with %d runs", refused.Load(), broken.Load(), restarts, runs.Load())
		}
	}
	stop()
	group.Wait()
	close(ids)
	t.Logf("%d restarts: %d lists and %d runs; of the control, %d refused and %d broken", restarts, lists.Load(), runs.Load(), refused.Load(), broken.Load())

	listed := strings.Fields(w.must("dispatch", "list", "-o", "name"))
	if len(listed) != int(runs.Load()) {
		t.Errorf("%d runs made %d dispatches: %v", runs.Load(), len(listed), listed)
	}
	for id := range ids {
		wantEnd(t, w.show(id), api.EventFinished, "")
		w.loggedOnce(id, "dispatch.finished")
	}
}
