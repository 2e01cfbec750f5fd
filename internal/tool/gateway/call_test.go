package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
)

// A server is called once the entry of the call is durable, and the agent has the answer
// once its entry is.
//
// proves R-G4
func TestCallsAreInTheLogBeforeTheirEffect(t *testing.T) {
	w := newWorld(t)
	v := w.view("transform", "local", api.Stateful)
	var before []record.Kind
	w.answer = func(context.Context, toolcall.Call) (toolcall.Answer, error) {
		before = w.kinds()
		return text("rows"), nil
	}
	r := post(t, v, callMessage("warehouse_query", map[string]any{"sql": "select 1", "n": 2}))
	if r.Result.IsError || r.text() != "rows" {
		t.Fatalf("answer: %s", r.raw)
	}
	if want := []record.Kind{record.KindToolCalled}; !slices.Equal(before, want) {
		t.Errorf("when the server was called the log had %v, want %v", before, want)
	}
	list := w.entries()
	if len(list) != 2 || list[1].Entry.Kind != record.KindToolReturned {
		t.Fatalf("entries: %v", w.kinds())
	}
	e := list[0].Entry
	d := e.Detail.(record.ToolCall)
	m := v.a.Manifest
	if e.Principal != m.Principal || e.Role != m.Role || e.Tool != "warehouse/query" || *e.Tier != api.Observe || e.Dispatch != m.ID || e.Attempt != 1 || d.Number != 1 || d.Subagent != "changer" || !d.Taints || d.Tainted {
		t.Errorf("entry: %+v", e)
	}
	if got, want := e.Refs[record.RefArguments], api.DigestOf([]byte(`{"n":2,"sql":"select 1"}`)); got != want {
		t.Errorf("digest of the arguments %s, want %s", got, want)
	}
	if got := string(w.calls[0].Arguments); got != `{"n":2,"sql":"select 1"}` {
		t.Errorf("the server got %s", got)
	}
	if got, want := list[1].Entry.Refs[record.RefReturned], api.DigestOf(text("rows").Result); got != want {
		t.Errorf("digest of the answer %s, want %s", got, want)
	}
	w.checkChains()
}

// Every refusal is an entry, and calls no server.
//
// proves R-G4, R-G6
func TestRefusedCallsAreInTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		set     func(*world)
		role    api.Name
		target  api.Name
		ceiling api.Tier
		reason  string
		answer  string
		tool    string
	}{
		"no JSON":                 {message: `{"jsonrpc":`, reason: "not strict JSON", answer: "not strict JSON"},
		"two names":               {message: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"warehouse_query","name":"warehouse_load","arguments":{}}}`, reason: "not strict JSON", answer: "not strict JSON"},
		"another case":            {message: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"NAME":"warehouse_query"}}`, reason: "needs the name", answer: "needs the name"},
		"a batch":                 {message: `[` + callMessage("warehouse_query", nil) + `]`, reason: "batches", answer: "batches"},
		"a response":              {message: `{"jsonrpc":"2.0","id":1,"result":{}}`, reason: "takes no responses", answer: "takes no responses"},
		"no object":               {message: message(1, "tools/call", map[string]any{"name": "warehouse_query", "arguments": []int{1}}), reason: "want a JSON object", answer: "invalid: arguments: want a JSON object", tool: "warehouse/query"},
		"an unknown argument":     {message: callMessage("warehouse_query", map[string]any{"SQL": "x"}), reason: "unknown fields", answer: "fix the arguments", tool: "warehouse/query"},
		"large arguments":         {message: callMessage("warehouse_query", map[string]any{"sql": strings.Repeat("x", api.MaxToolArguments)}), reason: "at most", answer: "fix the arguments", tool: "warehouse/query"},
		"a stop":                  {message: callMessage("warehouse_query", nil), set: func(w *world) { w.stops = []string{"s-1"} }, reason: "emergency stop s-1", answer: "do not retry", tool: "warehouse/query"},
		"lower consent":           {message: callMessage("search_write", nil), role: "transform", set: func(w *world) { w.consent = api.Observe }, reason: "the ceiling of local:ann is observe", answer: "do not retry", tool: "search/write"},
		"above the target's mode": {message: callMessage("search_write", nil), role: "transform", target: "look", reason: `target "look" admits up to observe`, answer: "do not retry", tool: "search/write"},
		"above the ceiling":       {message: callMessage("search_write", nil), role: "transform", ceiling: api.Reversible, reason: "the ceiling of the dispatch is reversible", answer: "unknown tool", tool: "search/write"},
		"without people":          {message: callMessage("warehouse_apply_change", nil), role: "transform", reason: "nobody can be asked", answer: "when people have decided", tool: "warehouse/apply_change"},
		"another role's tool":     {message: callMessage("warehouse_load", nil), reason: `role "quality" has no tool`, answer: "unknown tool", tool: "warehouse_load"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if c.set != nil {
				c.set(w)
			}
			if c.role == "" {
				c.role = "quality"
			}
			if c.target == "" {
				c.target = "local"
			}
			if c.ceiling == 0 {
				c.ceiling = api.Irreversible
			}
			r := post(t, w.view(c.role, c.target, c.ceiling), c.message)
			list := w.entries()
			if len(list) != 1 || list[0].Entry.Kind != record.KindToolDenied {
				t.Fatalf("entries %v, answer %s", w.kinds(), r.raw)
			}
			d := list[0].Entry.Detail.(record.ToolCall)
			if got := strings.Join(d.Reasons, "; "); !strings.Contains(got, c.reason) || d.Number != 1 || list[0].Entry.Tool != c.tool {
				t.Errorf("denied %q for %q, number %d; want %q for %q", list[0].Entry.Tool, got, d.Number, c.tool, c.reason)
			}
			if !strings.Contains(r.text(), c.answer) {
				t.Errorf("the agent reads %s\nwant %q", r.raw, c.answer)
			}
			if len(w.calls) > 0 {
				t.Errorf("a server was called: %v", w.calls)
			}
			w.checkChains()
		})
	}
}

// One text from outside taints the dispatch: what policy then asks or forbids is decided
// by the entries before it, also between calls at the same time.
func TestTaintFollowsTheLog(t *testing.T) {
	w := newWorld(t)
	v := w.view("transform", "local", api.Stateful)
	if r := call1(t, v, "warehouse_forget"); r.Result.IsError {
		t.Fatalf("before it is tainted: %s", r.raw)
	}
	// That call itself gave it text from outside.
	if r := call1(t, v, "warehouse_forget"); !strings.Contains(r.text(), "closed to a dispatch that has read text from outside") {
		t.Errorf("after it is tainted: %s", r.raw)
	}
	if r := call1(t, v, "search_write"); !strings.Contains(r.text(), "nobody can be asked") {
		t.Errorf("a stateful call of a tainted dispatch: %s", r.raw)
	}
	if got := w.marks[0].Taint; got == nil || got.Tool != "warehouse/forget" || got.Call != 1 {
		t.Errorf("the dispatch's row: %+v", got)
	}
	// A view that is opened again, as after a restart, knows.
	again := w.viewOf(v.a)
	if r := call1(t, again, "search_write"); !r.Result.IsError {
		t.Errorf("after a restart: %s", r.raw)
	}
	// Many at once: each allowed one was decided with the taint that the log says.
	v = w.view("transform", "local", api.Stateful)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			call1(t, v, []string{"warehouse_load", "search_write", "search_find", "warehouse_forget"}[i%4])
		})
	}
	all.Wait()
	tainted := false
	for _, c := range w.entries() {
		d, ok := c.Entry.Detail.(record.ToolCall)
		if !ok || c.Entry.Dispatch != v.a.Manifest.ID {
			continue
		}
		if c.Entry.Kind == record.KindToolCalled && d.Tainted != tainted {
			t.Errorf("call %d of %s was decided with taint %v, the log says %v", d.Number, c.Entry.Tool, d.Tainted, tainted)
		}
		if c.Entry.Kind == record.KindToolCalled && tainted && *c.Entry.Tier >= api.Stateful {
			t.Errorf("call %d of %s was allowed in a tainted dispatch", d.Number, c.Entry.Tool)
		}
		tainted = tainted || d.Taints
	}
	w.checkChains()
}

func TestOneCallMoreThanTheLimitEndsTheAttempt(t *testing.T) {
	w := newWorld(t)
	a := w.attempt("quality", "local", api.Observe)
	a.Manifest.Limits.Calls = 3
	v := w.viewOf(a)
	call1(t, v, "search_find")
	call1(t, v, "nothing")
	post(t, v, "{")
	if len(w.spent) != 0 {
		t.Fatalf("spent after 3 calls: %q", w.spent)
	}
	for range 3 {
		if r := call1(t, v, "search_find"); !strings.Contains(r.text(), "the limit of 3 calls is reached") {
			t.Errorf("the agent reads %s", r.raw)
		}
	}
	if want := []string{"the limit of 3 calls is reached"}; !slices.Equal(w.spent, want) {
		t.Errorf("spent %q, want %q", w.spent, want)
	}
	if last := w.marks[len(w.marks)-1]; last.Spent == "" || last.Allowed {
		t.Errorf("the dispatch's row: %+v", last)
	}
	if n := len(w.entries()); n != 5 { // called, returned, three denials
		t.Errorf("%d entries: %v", n, w.kinds())
	}
	w.checkChains()
}

func TestAskAndReport(t *testing.T) {
	w := newWorld(t)
	v := w.view("quality", "local", api.Observe)
	if r := post(t, v, callMessage("report", map[string]any{"text": "halfway"})); r.Result.IsError {
		t.Fatal(r.raw)
	}
	if r := post(t, v, callMessage("ask", map[string]any{"question": "Which?", "options": []string{"a", "b"}})); r.Result.IsError || !strings.Contains(r.text(), "was passed on") {
		t.Fatal(r.raw)
	}
	if len(w.asked) != 1 || w.asked[0].Question != "Which?" || len(w.asked[0].Options) != 2 {
		t.Errorf("asked %+v", w.asked)
	}
	if w.marks[0].Progress == nil || w.marks[0].Progress.Text != "halfway" || w.marks[1].Question == nil {
		t.Errorf("marks %+v", w.marks)
	}
	w.markErr = ErrAsked
	if r := post(t, v, callMessage("ask", map[string]any{"question": "Again?"})); !strings.Contains(r.text(), "passed on already") {
		t.Error(r.raw)
	}
	w.markErr = ErrEnded
	if r := call1(t, v, "search_find"); !strings.Contains(r.text(), "the attempt has ended") {
		t.Error(r.raw)
	}
	w.markErr = ErrOvertaken
	n := len(w.calls)
	if r := call1(t, v, "search_find"); !r.Result.IsError || len(w.calls) != n {
		t.Error(r.raw)
	}
	w.markErr = nil
	w.checkChains()
}

// Numbers are without gaps, in the order of the log, whatever happens at the same time.
func TestCallsAtOnceAreNumberedInTheOrderOfTheLog(t *testing.T) {
	w := newWorld(t)
	v := w.view("quality", "local", api.Observe)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			r := call1(t, v, []string{"search_find", "warehouse_query", "nothing", "warehouse_drop"}[i%4])
			if failed := r.Error != nil || r.Result.IsError; failed != (i%4 > 1) {
				t.Errorf("%s", r.raw)
			}
		})
	}
	all.Wait()
	next := int64(1)
	for _, c := range w.entries() {
		if d, ok := c.Entry.Detail.(record.ToolCall); ok {
			if d.Number != next {
				t.Errorf("entry %d has number %d, want %d", c.Seq, d.Number, next)
			}
			next++
		}
	}
	if next != 101 {
		t.Errorf("%d calls", next-1)
	}
	w.checkChains()
}

// What is kept of the calls has each once, with its content, and is one blob in the end.
func TestCallsAreKeptAndSealed(t *testing.T) {
	w := newWorld(t)
	v := w.view("quality", "local", api.Observe)
	large := strings.Repeat("x", 100_000)
	w.answer = func(_ context.Context, c toolcall.Call) (toolcall.Answer, error) {
		if strings.Contains(string(c.Arguments), "large") {
			return text(large), nil
		}
		return text("small"), nil
	}
	post(t, v, callMessage("warehouse_query", map[string]any{"sql": "small"}))
	post(t, v, callMessage("warehouse_query", map[string]any{"sql": "large " + large}))
	post(t, v, callMessage("nothing", map[string]any{"x": 1}))
	post(t, v, "{]")
	v.Close()
	id := v.a.Manifest.ID
	read := func(sealed *api.Artifact) (list []api.ToolCallLine) {
		t.Helper()
		if err := w.Calls(t.Context(), id, 1, sealed, func(l *api.ToolCallLine) error {
			list = append(list, *l)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := read(nil)
	if len(before) != 4 || before[1].State != stateReturned || before[2].State != stateDenied || !json.Valid(before[3].Arguments) || before[0].Entry == 0 {
		t.Fatalf("kept: %+v", before)
	}
	if !strings.Contains(string(before[1].Arguments), large) || !strings.Contains(string(before[1].Answer), large) {
		t.Error("large content is not kept")
	}
	protected, release := w.cfg.Blobs.Protect(t.Context())
	defer release()
	one, err := w.Seal(protected, id, 1)
	if err != nil || one == nil {
		t.Fatal(one, err)
	}
	two, err := w.Seal(protected, id, 1)
	if err != nil || *two != *one {
		t.Errorf("sealed twice: %v and %v, %v", one, two, err)
	}
	if _, err := w.cfg.Ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchFinished, Dispatch: id, Attempt: 1, Detail: record.DispatchEnd{}}, func(tx *store.Tx) error { return Drop(tx, id, 1) }); err != nil {
		t.Fatal(err)
	}
	if rest := read(nil); len(rest) > 0 {
		t.Errorf("the table has %d calls of an ended attempt", len(rest))
	}
	if after := read(one); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("sealed %v\nbefore %v", after, before)
	}
	if none, err := w.Seal(protected, "d-none", 1); none != nil || err != nil {
		t.Error(none, err)
	}
	w.checkChains()
}

// The taint of a dispatch counts whatever the rows of its calls say. Control: without it
// the call needs nobody.
//
// proves R-G6
func TestTheTaintOfTheDispatchCounts(t *testing.T) {
	w := newWorld(t)
	for _, taint := range []*api.Taint{nil, {Dispatch: "d-one", Attempt: 1, Call: 1, Tool: "warehouse/query"}} {
		a := w.attempt("transform", "free", api.Irreversible)
		a.Taint = taint
		if r := call1(t, w.viewOf(a), "search_write"); r.Result.IsError != (taint != nil) {
			t.Errorf("taint %v: %s", taint, r.raw)
		}
	}
}
