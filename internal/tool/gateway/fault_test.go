package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// A log that cannot be written refuses the call, and one that fails while the call is out
// keeps the answer from the agent.
//
// proves R-G7
func TestNothingIsCalledOrAnsweredWithoutTheLog(t *testing.T) {
	w := newWorld(t)
	v := w.view("quality", "local", api.Observe)
	w.answer = func(context.Context, toolcall.Call) (toolcall.Answer, error) {
		return text("secret rows"), w.cfg.Store.Close()
	}
	r := call1(t, v, "warehouse_query")
	if !r.Result.IsError || strings.Contains(r.raw, "secret rows") || !strings.Contains(r.text(), "cannot be logged") {
		t.Errorf("the log failed during the call: %s", r.raw)
	}
	n := len(w.calls)
	r = call1(t, v, "warehouse_query")
	if !r.Result.IsError || len(w.calls) != n || !strings.Contains(r.text(), "audit_unavailable") {
		t.Errorf("without a log: %s, %d calls", r.raw, len(w.calls)-n)
	}
	if r := call1(t, v, "nothing"); r.Error == nil || strings.Contains(r.raw, `"auditEntry"`) {
		t.Errorf("an unknown name without a log: %s", r.raw)
	}
}

// Whatever a server does, the agent gets an error that says what is known.
//
// proves R-G7
func TestFaultsOfServersAreClearErrors(t *testing.T) {
	for name, c := range map[string]struct {
		tool   string
		answer func(context.Context, toolcall.Call) (toolcall.Answer, error)
		want   string
	}{
		"it is not there": {"warehouse_query", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return toolcall.Answer{}, &toolcall.Fault{Message: "warehouse does not start", Unsent: true}
		}, "warehouse does not start; the call had no effect"},
		"it breaks off": {"warehouse_query", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return toolcall.Answer{}, &toolcall.Fault{Message: "warehouse broke off"}
		}, "it is not known whether the call took effect"},
		"something else": {"warehouse_query", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return toolcall.Answer{}, errors.New("/secret/path")
		}, "the call failed"},
		"it floods": {"warehouse_query", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return text(strings.Repeat("x", api.MaxToolAnswer)), nil
		}, "at most"},
		"another shape": {"search_find", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return toolcall.Answer{Result: json.RawMessage(`{"content":[],"structuredContent":{"hits":"many"}}`)}, nil
		}, "something else than its definition says"},
		"no structured part": {"search_find", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return toolcall.Answer{Result: json.RawMessage(`{"content":[]}`)}, nil
		}, "something else than its definition says"},
		"an error of its own": {"search_find", func(context.Context, toolcall.Call) (toolcall.Answer, error) {
			return toolcall.Answer{Result: json.RawMessage(`{"content":[{"text":"no such table","type":"text"}],"isError":true}`), IsError: true}, nil
		}, "no such table"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.answer = c.answer
			r := call1(t, w.view("quality", "local", api.Observe), c.tool)
			if !r.Result.IsError || !strings.Contains(r.text(), c.want) || strings.Contains(r.raw, "/secret") || strings.Contains(r.raw, "io.bailiwick/error") {
				t.Errorf("the agent reads %.300s\nwant %q", r.raw, c.want)
			}
			list := w.entries()
			if len(list) != 2 || list[1].Entry.Detail.(record.ToolReturn).Error == "" {
				t.Errorf("entries %v", w.kinds())
			}
			w.checkChains()
		})
	}
}

// hang is a server that answers when its call is cancelled.
func hang(began chan<- struct{}) func(context.Context, toolcall.Call) (toolcall.Answer, error) {
	return func(ctx context.Context, _ toolcall.Call) (toolcall.Answer, error) {
		began <- struct{}{}
		<-ctx.Done()
		return toolcall.Answer{}, &toolcall.Fault{Message: "cancelled"}
	}
}

func TestCancelledCallsAreInTheLog(t *testing.T) {
	w := newWorld(t)
	began := make(chan struct{})
	w.answer = hang(began)
	v := w.view("quality", "local", api.Observe)
	wait := func(do func()) *reply {
		t.Helper()
		got := make(chan *reply)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { got <- postIn(ctx, t, v, callMessage("warehouse_query", nil)) }()
		<-began
		if do != nil {
			do()
		} else {
			cancel()
		}
		return <-got
	}
	if r := wait(nil); !strings.Contains(r.text(), "the agent cancelled") {
		t.Errorf("a closed request: %s", r.raw)
	}
	if r := wait(func() {
		post(t, v, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`) // another request
		post(t, v, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	}); !strings.Contains(r.text(), "the agent cancelled") {
		t.Errorf("a notification: %s", r.raw)
	}
	if r := wait(v.Close); !strings.Contains(r.text(), "the attempt ended during the call") {
		t.Errorf("a closed view: %s", r.raw)
	}
	for i, c := range w.entries() {
		if i%2 == 1 && !strings.Contains(c.Entry.Detail.(record.ToolReturn).Error, "not known whether") {
			t.Errorf("entry %d: %+v", c.Seq, c.Entry.Detail)
		}
	}
	if r := call1(t, v, "warehouse_query"); r.Error == nil || len(w.entries()) != 6 {
		t.Errorf("after the view was closed: %s", r.raw)
	}
	if !slices.Contains(w.ended, v.a.Manifest.ID) {
		t.Error("the sessions of the dispatch were not ended")
	}
	w.checkChains()
}

// A call that is out when the service dies is unknown, once, and a server that does not
// return does not keep an attempt from its end.
func TestCallsThatAreOutBecomeUnknown(t *testing.T) {
	w := newWorld(t)
	began, release := make(chan struct{}), make(chan struct{})
	w.answer = func(context.Context, toolcall.Call) (toolcall.Answer, error) {
		began <- struct{}{}
		<-release
		return text("late"), nil
	}
	v := w.view("quality", "local", api.Observe)
	got := make(chan *reply)
	go func() { got <- call1(t, v, "warehouse_query") }()
	<-began
	if err := w.Recover(t.Context()); err != nil { // as the next service does
		t.Fatal(err)
	}
	if err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(release)
	if r := <-got; strings.Contains(r.raw, "late") || !r.Result.IsError {
		t.Errorf("the agent got what the log does not have: %s", r.raw)
	}
	if want := []record.Kind{record.KindToolCalled, record.KindToolUnknown}; !slices.Equal(w.kinds(), want) {
		t.Errorf("entries %v, want %v", w.kinds(), want)
	}
	// The next view continues the numbers.
	w.answer = nil
	call1(t, w.viewOf(v.a), "warehouse_query")
	if d := w.entries()[2].Entry.Detail.(record.ToolCall); d.Number != 2 {
		t.Errorf("number %d after a restart, want 2", d.Number)
	}
	w.checkChains()
}

func TestAServerThatDoesNotReturnDoesNotKeepAnAttempt(t *testing.T) {
	w := newWorld(t)
	w.closeTime = 50 * time.Millisecond
	began, release := make(chan struct{}), make(chan struct{})
	w.answer = func(context.Context, toolcall.Call) (toolcall.Answer, error) {
		began <- struct{}{}
		<-release
		return text("late"), nil
	}
	v := w.view("quality", "local", api.Observe)
	got := make(chan *reply)
	go func() { got <- call1(t, v, "warehouse_query") }()
	<-began
	v.Close()
	if want := []record.Kind{record.KindToolCalled, record.KindToolUnknown}; !slices.Equal(w.kinds(), want) {
		t.Errorf("entries when the view is closed: %v, want %v", w.kinds(), want)
	}
	close(release)
	if r := <-got; strings.Contains(r.raw, "late") {
		t.Errorf("the agent got what the log does not have: %s", r.raw)
	}
	w.checkChains()
}

// slowMark is an attempt whose one call begins, and is durable once it is released.
type slowMark struct {
	*running
	began   chan<- struct{}
	release <-chan struct{}
}

func (s slowMark) Mark(*store.Tx, Mark) error {
	close(s.began)
	<-s.release
	return nil
}

// A message that cannot be read is denied before the view is closed, or not at all: the
// record of the attempt's calls, which is made then, has it.
func TestClosingWaitsForDenials(t *testing.T) {
	w := newWorld(t)
	a := w.attempt("quality", "local", api.Observe)
	began, release := make(chan struct{}), make(chan struct{})
	a.Running = slowMark{(*running)(w), began, release}
	v := w.viewOf(a)
	answered, closed := make(chan struct{}), make(chan struct{})
	go func() { post(t, v, "{}"); close(answered) }()
	<-began
	go func() { v.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("the view is closed while a denial is being logged")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	<-answered
	<-closed
	post(t, v, "{}") // a second one would close began twice
	if want := []record.Kind{record.KindToolDenied}; !slices.Equal(w.kinds(), want) {
		t.Errorf("entries %v, want %v", w.kinds(), want)
	}
}
