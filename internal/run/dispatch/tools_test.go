package dispatch

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// marked stores what a call changes about r, and returns the row after it.
func (g gate) marked(t *testing.T, r row, k gateway.Mark) (row, error) {
	t.Helper()
	err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error { return g.newTools(t.Context(), r, nil).Mark(tx, k) })
	now, ok, readErr := g.row(t.Context(), r.record.ID)
	if readErr != nil || !ok {
		t.Fatal(readErr)
	}
	return now, err
}

// A call is allowed only while nothing overtook it. The control of each case is the call
// before.
//
// proves R-G2, R-T10
func TestACallIsAllowedOnlyWhileItsAttemptRuns(t *testing.T) {
	allowed := gateway.Mark{Allowed: true, Tier: api.Stateful}
	for name, c := range map[string]struct {
		then func(t *testing.T, g gate, r row, ceiling func(api.Principal, api.Tier))
		want error
	}{
		"a cancel": {func(t *testing.T, g gate, r row, _ func(api.Principal, api.Tier)) { g.cancelled(t, r.record.ID) }, gateway.ErrOvertaken},
		"a stop": {func(t *testing.T, g gate, _ row, _ func(api.Principal, api.Tier)) {
			g.mustStop(t, api.StopRequest{Scope: api.StopAll})
		}, gateway.ErrOvertaken},
		"a lower ceiling": {func(_ *testing.T, _ gate, r row, ceiling func(api.Principal, api.Tier)) {
			ceiling(r.record.Principal, api.Reversible)
		}, gateway.ErrOvertaken},
		"a limit": {func(t *testing.T, g gate, r row, _ func(api.Principal, api.Tier)) {
			if _, err := g.marked(t, r, gateway.Mark{Spent: "calls: 1 of 1"}); err != nil {
				t.Fatal(err)
			}
		}, gateway.ErrEnded},
		"the end": {func(t *testing.T, g gate, r row, _ func(api.Principal, api.Tier)) {
			if err := g.end(t.Context(), r, outcome{event: api.EventFinished}, update); err != nil {
				t.Fatal(err)
			}
		}, gateway.ErrEnded},
	} {
		t.Run(name, func(t *testing.T) {
			g := newStopGate(t)
			ceiling := g.operators(t)
			ceiling("local:ann", api.Irreversible)
			r := g.running(t, "d-calls")
			if _, err := g.marked(t, r, allowed); err != nil {
				t.Fatalf("the control: %v", err)
			}
			c.then(t, g, r, ceiling)
			if _, err := g.marked(t, r, allowed); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			next := r
			next.record.Attempt = 2
			if _, err := g.marked(t, next, allowed); !errors.Is(err, gateway.ErrEnded) {
				t.Errorf("a call of another attempt: %v", err)
			}
			if now, err := g.marked(t, r, gateway.Mark{}); errors.Is(c.want, gateway.ErrOvertaken) && (err != nil || now.record.Calls.Denied != 1) {
				t.Errorf("its denial is not counted: %v", err)
			}
		})
	}
}

// What calls change is in the row of their dispatch, and the first question and taint
// stay. The end forgets why the service ended the attempt.
func TestCallsAreKeptWithTheirDispatch(t *testing.T) {
	g := newStopGate(t)
	g.operators(t)("local:ann", api.Irreversible)
	r := g.running(t, "d-calls")
	taint := func(n int64) *api.Taint {
		return &api.Taint{Dispatch: r.record.ID, Attempt: 1, Call: n, Tool: "web/get"}
	}
	question := &api.Question{Question: "Which?", Options: []string{"a"}}
	for i, k := range []gateway.Mark{
		{Allowed: true, Taint: taint(1)},
		{Allowed: true, Taint: taint(2)},
		{Allowed: true, Progress: &api.Progress{Text: "half"}},
		{},
		{Allowed: true, Question: question},
	} {
		if _, err := g.marked(t, r, k); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := g.marked(t, r, gateway.Mark{Allowed: true, Question: &api.Question{Question: "Another?"}}); !errors.Is(err, gateway.ErrAsked) {
		t.Errorf("a second question: %v", err)
	}
	now, err := g.marked(t, r, gateway.Mark{Spent: "calls"})
	d := now.record
	if err != nil || d.Calls.Allowed != 4 || d.Calls.Denied != 2 || d.Taint.Call != 1 || d.Progress.Text != "half" || now.finish.Question.Question != "Which?" || now.finish.Spent != "calls" {
		t.Errorf("%+v %+v %v", d.Calls, now, err)
	}
	if err := g.end(t.Context(), now, outcome{event: api.EventFailed, reason: api.ReasonLimit}, update); err != nil {
		t.Fatal(err)
	}
	if now, _, err = g.row(t.Context(), r.record.ID); err != nil || now.finish != (finish{}) || now.record.Calls.Allowed != 4 || now.record.Taint == nil {
		t.Errorf("after its end: %+v %v", now, err)
	}
}

// A view is served on the worker's connection until either side ends.
func TestAViewIsServedOnOneConnection(t *testing.T) {
	here, there := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serveConn(ctx, here, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		}), func() bool { return false })
	}()
	client, err := egress.Over(there, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	call := func() (string, error) {
		r, err := http.NewRequest(http.MethodPost, "http://peer/mcp", strings.NewReader("message"))
		if err != nil {
			return "", err
		}
		resp, err := client.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	for range 3 {
		if got, err := call(); got != "message" || err != nil {
			t.Fatalf("%q %v", got, err)
		}
	}
	cancel()
	<-ended
	if got, err := call(); err == nil {
		t.Errorf("after the end: %q", got)
	}
}

// What is out when the service stops is answered before its connection is closed. The
// control is the end of an attempt, which does not wait for it.
//
// proves R-G7
func TestAStoppingServiceAnswersWhatIsOut(t *testing.T) {
	for _, stopping := range []bool{true, false} {
		here, there := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		began, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			serveConn(ctx, here, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(began)
				select {
				case <-release:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "undecided")
				w.Header().Set(http.TrailerPrefix+record.ToolUndecided, "1")
			}), func() bool {
				if stopping {
					close(release)
				}
				return stopping
			})
		}()
		client, err := egress.Over(there, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-began
			cancel()
		}()
		r, err := http.NewRequest(http.MethodPost, "http://peer/mcp", strings.NewReader("message"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.RoundTrip(r)
		text, undecided := "", ""
		if err == nil {
			var b []byte
			b, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			text, undecided = string(b), resp.Trailer.Get(record.ToolUndecided)
		}
		if stopping && (err != nil || text != "undecided" || undecided != "1") || !stopping && err == nil {
			t.Errorf("stopping %t: %q %q %v", stopping, text, undecided, err)
		}
		<-ended
	}
}
