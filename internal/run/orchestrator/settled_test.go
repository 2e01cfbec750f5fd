package orchestrator_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// Every page of a run that is settled is of that run, and as its rows have it,
// whichever was looked at before and however often the service starts again.
func TestSettledRunsAreCachedSeparately(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		ids := []api.RunID{"r0", "r1"}
		for n, id := range ids {
			_, err := w.offer(as(ann), fan(id, 3+n))
			w.must(err)
		}
		look := func() {
			t.Helper()
			for range 3 {
				for n, id := range ids {
					seen, after := 0, ""
					for {
						r, err := w.o.Describe(ctx, ann, id, after, 2)
						w.must(err)
						if r.RunID != id || r.Total != 3+n {
							t.Errorf("got run %[2]s of %[3]d tasks, want %[1]s", id, r.RunID, r.Total)
						}
						for _, task := range r.Tasks {
							if task.State.Settled() != r.State.Settled() {
								t.Errorf("run %s is %s, its task %s", id, r.State, task.State)
							}
							seen++
						}
						if after = r.Next; after == "" {
							break
						}
					}
					if seen != 3+n {
						t.Errorf("run %s has %d tasks on its pages", id, seen)
					}
				}
			}
		}
		synctest.Wait()
		look()
		w.finishAll()
		look()
		w.restart()
		look()
		if _, err := w.o.Describe(ctx, ben, "r1", "", 2); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("who may not see it: %v", err)
		}
	})
}

// A request that is repeated because its answer was lost finds its own run, which
// does not exist already in the eyes of its caller; any other request does.
//
// proves R-O8
func TestARepeatedRequestFindsItsOwnRun(t *testing.T) {
	bubble(t, orchestrator.Config{}, func(w *world) {
		ctx := context.Background()
		req := api.RunRequest{Plan: w.remember(fan("r0", 2)), Key: "first"}
		for n, c := range []struct {
			by       api.Principal
			key      string
			existing bool
			code     api.Code
		}{{ann, "first", false, ""}, {ann, "first", false, ""}, {ann, "second", true, ""}, {ann, "", true, ""}, {ben, "first", false, api.CodeConflict}} {
			req.Key = c.key
			r, err := w.o.Submit(ctx, as(c.by), req)
			if r.Existing != c.existing || (c.code == "") != (err == nil) || err != nil && api.CodeOf(err) != c.code {
				t.Errorf("request %d: existing %v, %v", n, r.Existing, err)
			}
		}
		req.Key = strings.Repeat("k", api.MaxKey+1)
		if _, err := w.o.Submit(ctx, as(ann), req); api.CodeOf(err) != api.CodeTooLarge {
			t.Errorf("a long key: %v", err)
		}
		w.finishAll()
	})
}
