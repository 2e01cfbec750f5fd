package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// kept answers on a socket that stays, as that of a machine, whose unit restarts the service:
// the first requests with before, one after the other, and the rest with last.
func kept(t *testing.T, mode string, last http.HandlerFunc, before ...http.HandlerFunc) (c *Conn, requests *atomic.Int32, gone func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	dirs := api.Dirs{Mode: mode, Runtime: dir}
	l, err := net.Listen("unix", dirs.Sockets()[0])
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int32)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // G112: only this test calls
		if n := int(requests.Add(1)); n <= len(before) {
			before[n-1](w, r)
		} else {
			last(w, r)
		}
	})}
	go srv.Serve(l) //nolint:errcheck // ends with the test
	c = New(Config{Dirs: dirs, UIDs: []int{os.Getuid()}})
	t.Cleanup(func() {
		c.Close()
		_ = srv.Close()
		_ = os.RemoveAll(dir)
	})
	return c, requests, func() { _ = l.Close() }
}

// On a machine a call waits for the service that its unit restarts: it is repeated if it had
// no effect, or if it is safe. Controls: a call that might be done twice, a service that
// stays, and a service that no unit restarts.
//
// proves R-D1
func TestACallMeetsARestartOfTheMachinesService(t *testing.T) {
	t.Parallel()
	named, unnamed := api.DispatchRequest{DispatchID: "d-one"}, api.DispatchRequest{}
	for name, c := range map[string]struct {
		mode     string
		before   []http.HandlerFunc
		request  api.DispatchRequest
		ok       bool
		requests int32
	}{
		"refused while it shuts down":             {api.ModeSystem, []http.HandlerFunc{refuse, refuse, refuse}, unnamed, true, 4},
		"broken, and the id makes it the same":    {api.ModeSystem, []http.HandlerFunc{leave, refuse, leave}, named, true, 4},
		"broken, and it might be done twice":      {api.ModeSystem, []http.HandlerFunc{leave}, unnamed, false, 1},
		"refused, broken, may be done twice":      {api.ModeSystem, []http.HandlerFunc{refuse, leave}, unnamed, false, 2},
		"failed by a service that stays":          {api.ModeSystem, []http.HandlerFunc{diskFull}, named, false, 1},
		"refused, and no unit restarts it":        {api.ModeSameUser, []http.HandlerFunc{refuse}, named, false, 1},
		"broken, and no unit restarts it":         {api.ModeSameUser, []http.HandlerFunc{leave}, named, false, 1},
		"control: nothing happens on the machine": {api.ModeSystem, nil, unnamed, true, 1},
	} {
		conn, requests, _ := kept(t, c.mode, accept, c.before...)
		d, err := conn.Runtime().Dispatch(t.Context(), c.request)
		if (err == nil) != c.ok || c.ok && d.ID != "d-one" || requests.Load() != c.requests {
			t.Errorf("%s: %+v, %v after %d requests", name, d, err, requests.Load())
		}
	}
}

// Waiting for a restart ends: after ten seconds, when the caller gives up, and when nothing
// listens any more. The error says where to look. Where nothing listens at first, nothing
// waits.
func TestWaitingForARestartEnds(t *testing.T) {
	t.Parallel()
	conn, requests, _ := kept(t, api.ModeSystem, refuse)
	begun := time.Now()
	_, err := conn.Runtime().Dispatch(t.Context(), api.DispatchRequest{})
	if !strings.Contains(hint(err), "run: sudo systemctl start bailiwick.service; systemctl status") || requests.Load() != restartTries || time.Since(begun) < (restartTries-1)*followPause {
		t.Errorf("after %v and %d requests: %v", time.Since(begun), requests.Load(), err)
	}

	conn, _, _ = kept(t, api.ModeSystem, refuse)
	ctx, cancel := context.WithTimeout(t.Context(), 3*followPause)
	defer cancel()
	if _, err := conn.Runtime().Dispatch(ctx, api.DispatchRequest{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller gave up: %v", err)
	}

	var gone func()
	conn, requests, gone = kept(t, api.ModeSystem, func(w http.ResponseWriter, r *http.Request) {
		gone()
		refuse(w, r)
	})
	_, err = conn.Runtime().Dispatch(t.Context(), api.DispatchRequest{})
	if !strings.Contains(hint(err), "run: sudo systemctl start bailiwick.service; systemctl status") || requests.Load() != 1 {
		t.Errorf("after it was gone: %v after %d requests", err, requests.Load())
	}

	// The first call may have had its effect, whatever the ones after it say.
	conn, requests, gone = kept(t, api.ModeSystem, func(w http.ResponseWriter, r *http.Request) {
		gone()
		refuse(w, r)
	}, leave)
	_, err = conn.Runtime().Dispatch(t.Context(), api.DispatchRequest{DispatchID: "d-one"})
	if err == nil || strings.Contains(err.Error(), "no effect") || requests.Load() != 2 {
		t.Errorf("broken, then refused: %v after %d requests", err, requests.Load())
	}
	begun = time.Now()
	_, err = conn.Runtime().Dispatch(t.Context(), api.DispatchRequest{})
	if !NoService(err) || !strings.Contains(hint(err), api.StartService(api.ModeSystem)) || time.Since(begun) > 5*time.Second {
		t.Errorf("nothing listens: %v after %v", err, time.Since(begun))
	}
}

func hint(err error) string {
	e, _ := errors.AsType[*api.Error](err)
	if e == nil {
		return ""
	}
	return e.Hint
}
