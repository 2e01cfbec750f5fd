package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// sent is the answer to a message that a worker sent with a key.
type sent struct {
	status    int
	text      string
	undecided bool
}

// sendAs sends a message as a worker does: by POST, or again by PUT.
func sendAs(v http.Handler, method, key, message string) sent {
	return sendWith(v, method, message, map[string]string{record.ToolMessage: key})
}

// sendNewest is sendAs for a request of the newest revision.
func sendNewest(v http.Handler, method, request, message string) sent {
	return sendWith(v, method, message, map[string]string{record.ToolMessage: "key", versionHeader: "2026-07-28", "Mcp-Method": request})
}

func sendWith(v http.Handler, method, message string, fields map[string]string) sent {
	req := httptest.NewRequestWithContext(context.Background(), method, "/mcp", strings.NewReader(message))
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range fields {
		req.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	v.ServeHTTP(rec, req)
	resp := rec.Result()
	body, _ := io.ReadAll(resp.Body)
	return sent{resp.StatusCode, string(body), resp.Header.Get(record.ToolUndecided) != "" || resp.Trailer.Get(record.ToolUndecided) != ""}
}

// A call that waits for people when the service stops has no entry: it is sent again,
// waits for the same request, and is made once. A message that has an entry is never
// decided again, however often it comes. The control is another message with the same
// content, which is another call.
//
// proves R-G6, R-G7
func TestAMessageIsDecidedOnce(t *testing.T) {
	for _, token := range []string{"", `,"_meta":{"progressToken":1}`} { // answered as JSON, and as a stream
		w := newWorld(t)
		p := w.withPeople()
		a := w.attempt("transform", "free", api.Irreversible)
		v := w.viewOf(a)
		change := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"warehouse_apply_change","arguments":{"sql":"alter"}` + token + `}}`
		got := make(chan sent)
		go func() { got <- sendAs(v, http.MethodPost, "one", change) }()
		<-p.asked
		v.Stop()
		if r := <-got; !r.undecided || strings.Contains(r.text, `"result"`) {
			t.Errorf("a call that waits for people: %+v", r)
		}
		if r := sendAs(v, http.MethodPut, "one", change); !r.undecided || r.status != http.StatusServiceUnavailable {
			t.Errorf("a message to the service that stops: %+v", r)
		}
		v.Close()
		if kinds := w.kinds(); len(kinds) != 0 {
			t.Errorf("entries %v", kinds)
		}

		next := w.viewOf(a) // of the next service
		go func() { got <- sendAs(next, http.MethodPut, "one", change) }()
		sendAs(next, http.MethodPost, "zero", callMessage("search_find", map[string]any{})) // others do not wait
		p.decide(api.ApprovalApproved)
		r := <-got
		if r.undecided || !strings.Contains(r.text, `"ok"`) || len(p.list) != 1 {
			t.Errorf("sent again: %+v, %d requests for approvals", r, len(p.list))
		}
		calls := len(w.calls)
		for _, method := range []string{http.MethodPut, http.MethodPut} {
			if r := sendAs(next, method, "one", change); !strings.Contains(r.text, `"ok"`) {
				t.Errorf("its answer was lost: %+v", r)
			}
		}
		if r := sendAs(next, http.MethodPost, "one", change); !strings.Contains(r.text, "decided already") && !strings.Contains(r.text, "waiting") {
			t.Errorf("a key that is used twice: %+v", r)
		}
		if len(w.calls) != calls {
			t.Errorf("%d calls reached the server", len(w.calls))
		}
		find := callMessage("search_find", map[string]any{})
		sendAs(next, http.MethodPost, "two", find)
		sendAs(next, http.MethodPost, "three", find)
		if len(w.calls) != calls+2 {
			t.Errorf("the control: %d calls reached the server", len(w.calls)-calls)
		}
		w.checkChains()
	}
}

// A call that was made is not repeated: its message gets what is known about it.
//
// proves R-G7
func TestACallIsNotRepeated(t *testing.T) {
	w := newWorld(t)
	a := w.attempt("quality", "local", api.Observe)
	query, unknown := callMessage("warehouse_query", map[string]any{}), callMessage("warehouse_drop", map[string]any{})
	began, release := make(chan struct{}), make(chan struct{})
	w.answer = func(ctx context.Context, _ toolcall.Call) (toolcall.Answer, error) {
		began <- struct{}{}
		select {
		case <-ctx.Done():
			return toolcall.Answer{}, &toolcall.Fault{Message: "cancelled"}
		case <-release:
			return text("late"), nil
		}
	}
	v := w.viewOf(a)
	got := make(chan sent)
	go func() { got <- sendAs(v, http.MethodPost, "out", query) }()
	<-began
	v.Stop()
	if r := <-got; r.undecided || !strings.Contains(r.text, "the service stopped during the call; it is not known whether") {
		t.Errorf("out when the service stops: %+v", r)
	}
	v.Close()

	v = w.viewOf(a)
	if r := sendAs(v, http.MethodPut, "out", query); !strings.Contains(r.text, "not known whether the call took effect") {
		t.Errorf("sent again: %+v", r)
	}
	go func() { got <- sendAs(v, http.MethodPost, "killed", query) }()
	<-began
	if err := w.Recover(t.Context()); err != nil { // as the next service does
		t.Fatal(err)
	}
	next := w.viewOf(a)
	if r := sendAs(next, http.MethodPut, "killed", query); !strings.Contains(r.text, "not known whether the call took effect") {
		t.Errorf("after a kill: %+v", r)
	}
	close(release)
	<-got
	first := sendAs(next, http.MethodPost, "denied", unknown)
	again := sendAs(next, http.MethodPut, "denied", unknown)
	var entry struct {
		Result struct {
			Meta struct {
				Error *api.Error `json:"io.bailiwick/error"`
			} `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(again.text), &entry); err != nil || entry.Result.Meta.Error == nil || entry.Result.Meta.Error.Code != api.CodeDenied || !strings.Contains(first.text, "unknown tool") {
		t.Errorf("a denial: %+v, again %+v", first, again)
	}
	if n := len(w.calls); n != 2 {
		t.Errorf("%d calls reached the server", n)
	}
	if want := []record.Kind{record.KindToolCalled, record.KindToolReturned, record.KindToolCalled, record.KindToolUnknown, record.KindToolDenied}; !slices.Equal(w.kinds(), want) {
		t.Errorf("entries %v", w.kinds())
	}
	// A message without a key is not sent again, and one that an older service may have
	// decided is not decided.
	w.answer = nil
	call1(t, next, "warehouse_query")
	if r := sendAs(next, http.MethodPut, "of an older service", query); !strings.Contains(r.text, "not known whether the call took effect") || len(w.calls) != 3 {
		t.Errorf("%+v, %d calls", r, len(w.calls))
	}
	if r := sendAs(next, http.MethodPut, "", query); r.status != http.StatusMethodNotAllowed {
		t.Errorf("without a key: %+v", r)
	}
	w.checkChains()
}
