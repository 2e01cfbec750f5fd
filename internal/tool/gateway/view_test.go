package gateway

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

func listed(t *testing.T, v *View) (names []string) {
	t.Helper()
	for _, tool := range post(t, v, message(1, "tools/list", map[string]any{})).Result.Tools {
		var name string
		if err := json.Unmarshal(tool["name"], &name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// An agent sees and may call the tools of its role under its ceiling, and nothing else.
//
// proves R-G2
func TestViewListsWhatMayBeCalled(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		role    api.Name
		ceiling api.Tier
		want    []string
	}{
		{"quality", api.Irreversible, []string{"ask", "report", "search_find", "warehouse_query"}},
		{"transform", api.Observe, []string{"ask", "report", "search_find", "warehouse_query"}},
		{"transform", api.Stateful, []string{"ask", "report", "search_find", "search_write", "warehouse_apply_change", "warehouse_forget", "warehouse_load", "warehouse_query"}},
		{"transform", api.Irreversible, []string{"ask", "report", "search_find", "search_write", "warehouse_apply_change", "warehouse_drop", "warehouse_forget", "warehouse_load", "warehouse_query"}},
		{"unknown", api.Irreversible, []string{"ask", "report"}},
	} {
		v := w.view(c.role, "free", c.ceiling)
		if got := listed(t, v); !slices.Equal(got, c.want) {
			t.Errorf("role %s, ceiling %s: listed %q\nwant %q", c.role, c.ceiling, got, c.want)
		}
		for _, name := range []string{"warehouse_query", "search_find", "warehouse_drop", "warehouse_load"} {
			unknown := call1(t, v, name).Error != nil
			if want := !slices.Contains(c.want, name); unknown != want {
				t.Errorf("role %s, ceiling %s: %s unknown: %v, but in the list: %v", c.role, c.ceiling, name, unknown, !want)
			}
		}
	}
}

func TestListIsThePinnedDefinition(t *testing.T) {
	w := newWorld(t)
	v := w.view("transform", "local", api.Stateful)
	first, second := post(t, v, message(1, "tools/list", nil)), post(t, w.view("transform", "local", api.Stateful), message(1, "tools/list", nil))
	if first.raw != second.raw {
		t.Error("two lists of one role differ")
	}
	for _, tool := range first.Result.Tools {
		name := string(tool["name"])
		if !strings.HasPrefix(name, `"warehouse_`) {
			continue
		}
		if got := string(tool["annotations"]); got != `{"readOnlyHint":true}` {
			t.Errorf("%s: annotations %s", name, got)
		}
		approval := strings.Contains(string(tool["description"]), "A human approves")
		if want := name == `"warehouse_apply_change"`; approval != want {
			t.Errorf("%s: description %s", name, tool["description"])
		}
		if want := map[bool]string{true: `{"io.bailiwick/tier":"observe"}`, false: ""}[name == `"warehouse_query"`]; want != "" && string(tool["_meta"]) != want {
			t.Errorf("%s: _meta %s", name, tool["_meta"])
		}
	}
}

// What is not in the view is refused in the same words, by the same path, whether it
// exists for another role, above the ceiling, nowhere, or only looks alike.
//
// proves R-G2
func TestNamesThatAreNotInTheViewAreAlike(t *testing.T) {
	w := newWorld(t)
	v := w.view("quality", "local", api.Stateful)
	names := []string{
		"warehouse_apply_change", "warehouse_drop", "nothing", "", "WAREHOUSE_QUERY", "Warehouse_query", "warehouse_query ", " warehouse_query", "warehouse_query\x00", "warehouse_query\n",
		"warehouse/query", "warehouse.query", "ｗarehouse_query", "wаrehouse_query", "warehouse_query\u200b", "warehouse_que\u0301ry", "search_ﬁnd", "../warehouse_query", "ask\u0000", "Ask",
		strings.Repeat("w", 100_000), "\u202eyreuq_esuoheraw",
	}
	shape := func(name string, r *reply, seq uint64) string {
		s := strings.ReplaceAll(r.raw, fmt.Sprintf(`"auditEntry":%d`, seq), "SEQ")
		shown := name
		if len(shown) > 128 {
			shown = shown[:125] + "..."
		}
		quoted, err := json.Marshal(fmt.Sprintf("%q", shown))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(s, string(quoted[1:len(quoted)-1]), "NAME")
	}
	var want string
	for _, name := range names {
		r := call1(t, v, name)
		list := w.entries()
		last := list[len(list)-1]
		if last.Entry.Kind != record.KindToolDenied || r.Error == nil || r.Error.Data == nil || r.Error.Data.AuditEntry == nil || *r.Error.Data.AuditEntry != last.Seq {
			t.Errorf("%.40q: %s\nentry %v", name, r.raw, last.Entry.Kind)
			continue
		}
		if got := shape(name, r, last.Seq); want == "" {
			want = got
		} else if got != want {
			t.Errorf("%.40q: %s\nothers: %s", name, got, want)
		}
	}
	if len(w.calls) > 0 {
		t.Errorf("the servers were called: %v", w.calls)
	}
	// The check is worth something: a name of the view passes.
	if r := call1(t, v, "warehouse_query"); r.Error != nil || r.Result.IsError {
		t.Errorf("a tool of the view: %s", r.raw)
	}
	w.checkChains()
}

// 1,000 views at once take less than 64 MB.
func TestManyViewsAreSmall(t *testing.T) {
	w := newWorld(t)
	attempts := make([]Attempt, 1000)
	for i := range attempts {
		attempts[i] = w.attempt("transform", "local", api.Stateful)
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	views := make([]*View, len(attempts))
	for i, a := range attempts {
		var err error
		if views[i], err = w.Open(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	used := int64(heap()) - int64(before) //nolint:gosec // G115: heaps are small
	t.Logf("%d views: %d KiB", len(views), used>>10)
	if used > 64<<20 {
		t.Errorf("%d views take %d MiB, more than 64", len(views), used>>20)
	}
	if len(w.sets) != 1 {
		t.Errorf("%d sets of tools for one role of one revision", len(w.sets))
	}
	for _, v := range views {
		v.Close()
	}
	if len(w.sets) != 0 {
		t.Error("a set of tools outlives its views")
	}
}
