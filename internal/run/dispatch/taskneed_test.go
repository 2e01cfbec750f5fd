package dispatch

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// What a task takes over is found in the records of the dispatch that it names,
// and pinned by digest and size in what the service signs.
//
// proves R-O2, R-D2
func TestNeedsArePinnedFromRecords(t *testing.T) {
	g := newRunGate(t)
	o := g.taskRequest(t, "d-down")
	patch := g.upstream(t, "d-patch", "patch", record.NeedPatch, "", "diff --git a/x b/x\n")
	output := g.upstream(t, "d-output", "output", record.NeedOutput, "parts/x.csv", "1,2\n")
	result := g.upstream(t, "d-result", "result", record.NeedResult, "", `{"n":1}`)
	patch.Name, output.Name, result.Name, result.Path = "p", "o", "r", ""
	o.Needs = []Need{patch, output, result}
	m := g.manifestOf(t, g.submitTask(t, o))
	if err := m.Check(time.Now()); err != nil || len(m.Needs) != 3 {
		t.Fatalf("%+v, %v", m.Needs, err)
	}
	want := map[api.Name]string{"p": "diff --git a/x b/x\n", "o": "1,2\n", "r": `{"n":1}`}
	for _, n := range m.Needs {
		if text := want[n.Name]; n.Digest != api.DigestOf([]byte(text)) || n.Size != int64(len(text)) || n.Dispatch == "" || n.Task == "" {
			t.Errorf("%+v", n)
		}
	}
	// Their order is nobody's choice.
	o.Needs = []Need{result, patch, output}
	if again := g.submitTask(t, o); again.Attempt != 1 || g.manifestOf(t, again).Nonce != m.Nonce {
		t.Errorf("%+v", again)
	}
	// To take over less under the same id is another order.
	o.Needs = o.Needs[1:]
	if _, err := g.SubmitTask(t.Context(), ann, o); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("%v", err)
	}
}

// A finished task that changed nothing has a patch that changes nothing.
//
// proves R-O2
func TestTaskWithoutChangesProvidesEmptyPatch(t *testing.T) {
	g := newRunGate(t)
	r := testRow("d-up").record
	r.State, r.Run, r.Task, r.Outcome = api.EventFinished, "r-1", "up", &api.ResultSummary{Captured: true}
	g.put(t, r)
	o := g.taskRequest(t, "d-down")
	o.Needs = []Need{{Name: "a", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch}}
	m := g.manifestOf(t, g.submitTask(t, o))
	if n := m.Needs[0]; n.Size != 0 || n.Digest != api.DigestOf(nil) {
		t.Errorf("%+v", n)
	}
	if b, err := g.cfg.Blobs.Get(t.Context(), m.Needs[0].Digest, 1); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	// The control: a dispatch that was not captured provides no patch.
	r.ID, r.Outcome = "d-blind", &api.ResultSummary{}
	g.put(t, r)
	o.Request.DispatchID, o.Needs[0].Dispatch = "d-down-2", "d-blind"
	if _, err := g.SubmitTask(t.Context(), ann, o); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("%v", err)
	}
}

// A missing product is named with its task and its name, and nothing
// is started.
//
// proves R-O2
func TestMissingProductIsNamed(t *testing.T) {
	g := newRunGate(t)
	there := g.upstream(t, "d-up", "split", record.NeedOutput, "parts/x.csv", "1,2\n")
	for name, c := range map[string]struct {
		change func(*Need)
		words  []string
	}{
		"another output": {func(n *Need) { n.Path = "parts/y.csv" }, []string{"task split", "output parts/y.csv"}},
		"no result":      {func(n *Need) { n.Kind, n.Path = record.NeedResult, "" }, []string{"task split", "structured result"}},
		"another task":   {func(n *Need) { n.Task = "other" }, []string{"task other", "d-up"}},
		"no dispatch":    {func(n *Need) { n.Dispatch = "d-none" }, []string{"task split", "d-none"}},
	} {
		o := g.taskRequest(t, "d-down")
		n := there
		c.change(&n)
		o.Needs = []Need{n}
		_, err := g.SubmitTask(t.Context(), ann, o)
		if api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in %v", name, w, err)
			}
		}
	}
	if g.started(t) {
		t.Error("a worker was started")
	}
	o := g.taskRequest(t, "d-down")
	o.Needs = []Need{there}
	g.submitTask(t, o) // the control
}

// A need reads only dispatches of the principal of the run: of
// another's dispatch it says what it says of one that is not there. The control
// is the same dispatch as one's own.
//
// proves R-O2, R-B7
func TestNeedCannotReadAnotherPrincipalsDispatch(t *testing.T) {
	g := newRunGate(t)
	mine := g.upstream(t, "d-mine", "up", record.NeedOutput, "x", "mine\n")
	other := g.upstream(t, "d-other", "up", record.NeedOutput, "x", "theirs\n")
	own := g.upstream(t, "d-plain", "up", record.NeedOutput, "x", "no run's\n")
	open := g.upstream(t, "d-open", "up", record.NeedOutput, "x", "not finished\n")
	for id, change := range map[api.DispatchID]func(*api.Dispatch){
		"d-other": func(d *api.Dispatch) { d.Principal = "local:bob" },
		"d-plain": func(d *api.Dispatch) { d.Run, d.Task = "", "" },
		"d-open":  func(d *api.Dispatch) { d.State = api.EventFailed },
	} {
		g.alter(t, id, change)
	}
	messages := map[string]bool{}
	absent := mine
	absent.Dispatch = "d-absent"
	for _, n := range []Need{other, own, open, absent} {
		o := g.taskRequest(t, "d-down")
		o.Needs = []Need{n}
		_, err := g.SubmitTask(t.Context(), ann, o)
		if api.CodeOf(err) != api.CodeNotFound || strings.Contains(err.Error(), "bob") {
			t.Fatalf("%s: %v", n.Dispatch, err)
		}
		messages[strings.ReplaceAll(messageOf(err), string(n.Dispatch), "ID")] = true
	}
	if len(messages) != 1 {
		t.Errorf("they can be told apart: %v", messages)
	}
	o := g.taskRequest(t, "d-down")
	o.Needs = []Need{mine}
	g.submitTask(t, o)
}

// alter changes a record behind the back of the service.
func (g gate) alter(t *testing.T, id api.DispatchID, change func(*api.Dispatch)) {
	t.Helper()
	if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
		r, _, err := load(tx, id)
		if err != nil {
			return err
		}
		change(&r.record)
		text, err := json.Marshal(r.record)
		if err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE dispatch SET state = ?, record = ? WHERE id = ?", r.record.State, string(text), id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Missing or changed content is not taken over, whether a rule removed it or
// something changed it on the disk.
//
// proves R-O2, R-B5
func TestNeedRefusesMissingOrChangedContent(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*testing.T, gate, api.Digest)
		code   api.Code   // of a refusal
		reason api.Reason // of the end, where it was admitted
	}{
		"untouched": {func(*testing.T, gate, api.Digest) {}, "", api.ReasonLost}, // by the worker of this test, which does nothing
		"removed by rule": {func(t *testing.T, g gate, _ api.Digest) {
			t.Helper()
			if err := g.cfg.Store.Update(t.Context(), func(tx *store.Tx) error {
				return g.MarkRemoved(tx, "d-up", api.Removal{Class: api.ClassContent, At: time.Now(), Rule: "age"})
			}); err != nil {
				t.Fatal(err)
			}
		}, api.CodeNotFound, ""},
		"deleted": {func(t *testing.T, g gate, d api.Digest) {
			t.Helper()
			if err := os.Remove(g.cfg.Blobs.Path(d)); err != nil {
				t.Fatal(err)
			}
		}, api.CodeIntegrity, ""},
		"longer":             {func(t *testing.T, g gate, d api.Digest) { g.overwrite(t, d, "content and more\n") }, api.CodeIntegrity, ""},
		"of the same length": {func(t *testing.T, g gate, d api.Digest) { g.overwrite(t, d, "CONTENT\n") }, "", api.ReasonIntegrity},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRunGate(t)
			o := g.taskRequest(t, "d-down")
			o.Needs = []Need{g.upstream(t, "d-up", "up", record.NeedOutput, "x", "content\n")}
			c.spoil(t, g, api.DigestOf([]byte("content\n")))
			_, err := g.SubmitTask(t.Context(), ann, o)
			if c.code != "" {
				if api.CodeOf(err) != c.code || g.started(t) {
					t.Errorf("%v", err)
				}
				return
			}
			if started := g.started(t); err != nil || started != (c.reason == api.ReasonLost) {
				t.Errorf("started %v, %v", started, err)
			}
			if d, _, err := g.Get(t.Context(), "d-down"); err != nil || d.State != api.EventFailed || d.Reason != c.reason {
				t.Errorf("%s %s %s, %v", d.State, d.Reason, d.Message, err)
			}
		})
	}
}

func (g gate) overwrite(t *testing.T, d api.Digest, content string) {
	t.Helper()
	path := g.cfg.Blobs.Path(d)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A task begins with the taint of what it takes over, whatever kind that is: that of
// its first tainted need, in the order of their names, or of the dispatch whose list it is
// an item of. Controls: without a tainted need,
// and with a tainted task that it depends on and takes nothing over from.
//
// proves R-G6
func TestNeedsCarryTaint(t *testing.T) {
	g := newRunGate(t)
	tainted := func(id api.DispatchID, kind, path string, by *api.Taint) Need {
		n := g.upstream(t, id, "up", kind, path, `{"of":"`+string(id)+`"}`)
		g.alter(t, id, func(d *api.Dispatch) { d.Taint = by })
		return n
	}
	first := &api.Taint{Dispatch: "d-first", Attempt: 2, Call: 7, Tool: "web/fetch"} // that d-patch had with its own need
	own := &api.Taint{Dispatch: "d-output", Attempt: 1, Call: 1, Tool: "mail/read"}
	result := &api.Taint{Dispatch: "d-result", Attempt: 1, Call: 3, Tool: "web/search"}
	patch := tainted("d-patch", record.NeedPatch, "", first)
	output := tainted("d-output", record.NeedOutput, "x", own)
	structured := tainted("d-result", record.NeedResult, "", result)
	structured.Path = ""
	clean := tainted("d-clean", record.NeedOutput, "x", nil)
	for i, c := range []struct {
		needs []Need // named in this order
		item  api.DispatchID
		want  *api.Taint
		by    []api.DispatchID // that decided
		named api.DispatchID   // of them, in the manifest
	}{
		{[]Need{patch}, "", first, nil, ""},
		{[]Need{output}, "", own, nil, ""},
		{[]Need{structured}, "", result, nil, ""},
		{[]Need{clean, structured, output, patch}, "", result, nil, ""},
		{[]Need{clean}, "", nil, nil, ""},
		{nil, "", nil, nil, ""},
		{nil, "d-patch", first, nil, ""},
		{[]Need{clean}, "d-output", own, nil, ""},
		{[]Need{structured}, "d-output", result, nil, ""},
		{nil, "d-clean", nil, nil, ""},
		{nil, "", first, []api.DispatchID{"d-clean", "d-patch", "d-output"}, "d-patch"},
		{[]Need{clean}, "d-clean", own, []api.DispatchID{"d-output"}, "d-output"},
		{[]Need{structured}, "", result, []api.DispatchID{"d-output"}, ""}, // a need comes first
		{nil, "d-output", own, []api.DispatchID{"d-patch"}, ""},
		{nil, "", nil, []api.DispatchID{"d-clean"}, ""},
	} {
		o := g.taskRequest(t, api.DispatchID(fmt.Sprintf("d-down-%d", i)))
		o.ItemFrom, o.Influences = c.item, c.by
		for j, n := range c.needs {
			n.Name = api.Name(string(rune('a' + j)))
			o.Needs = append([]Need{n}, o.Needs...) // requested in another order
		}
		d := g.submitTask(t, o)
		m := g.manifestOf(t, d)
		if err := m.Check(m.NotBefore); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if m.DecidedBy != c.named {
			t.Errorf("%d: decided by %q, want %q", i, m.DecidedBy, c.named)
		}
		if !reflect.DeepEqual(m.Taint, c.want) || !reflect.DeepEqual(d.Taint, c.want) {
			t.Errorf("%d: the manifest has the taint %+v, the record %+v, want %+v", i, m.Taint, d.Taint, c.want)
		}
	}
}
