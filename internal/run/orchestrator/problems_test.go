package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// What is wrong with a plan in itself and what the service has against its
// tasks is reported at once; what could not be read is not wrong twice; and nothing
// is stored.
//
// proves R-O2
func TestAllProblemsOfAPlanAreReportedAtOnce(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		submit := func(plan string) *api.Error {
			_, err := w.o.Submit(context.Background(), as(ann), api.RunRequest{RunID: "r", Plan: json.RawMessage(plan)})
			var e *api.Error
			if !errors.As(err, &e) {
				t.Fatalf("err = %v", err)
			}
			return e
		}
		paths := func(e *api.Error) (out []string) {
			for _, p := range e.Problems {
				out = append(out, p.Path)
			}
			slices.Sort(out)
			return out
		}
		e := submit(`{"tasks":[{"id":"a","subagent":"work","depends_on":["gone"],"colour":1},{"id":"b","subagent":"secret"},{"id":"c","subagent":7}]}`)
		got := paths(e)
		if want := []string{"$.tasks[0].colour", "$.tasks[0].depends_on[0]", "$.tasks[1]", "$.tasks[2].subagent"}; !slices.Equal(got, want) {
			t.Errorf("paths %q, want %q", got, want)
		}
		if e.Code != api.CodeDenied || e.AuditEntry == nil {
			t.Errorf("%s, entry %v: a task of it is denied", e.Code, e.AuditEntry)
		}
		entries := w.entries(0)
		if last := entries[len(entries)-1].Entry; len(entries) == 0 || last.Kind != record.KindRunDenied || slices.ContainsFunc(entries, func(c audit.Committed) bool { return c.Entry.Kind == record.KindRequestInvalid }) {
			t.Errorf("the refusal is logged as %+v: want one denial", entries)
		}
		// The control: without the task that is denied it is only malformed.
		if e := submit(`{"tasks":[{"id":"a","subagent":"work","depends_on":["gone"]}]}`); e.Code != api.CodeInvalid || len(e.Problems) != 1 || !strings.Contains(e.Problems[0].Path, "depends_on") {
			t.Errorf("%s %v", e.Code, e.Problems)
		}
		if list, err := w.o.List(context.Background(), root, api.RunFilter{Limit: 10}); err != nil || len(list) != 0 {
			t.Errorf("%d runs: %v", len(list), err)
		}
	})
}
