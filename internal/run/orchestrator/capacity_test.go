package orchestrator_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// However many plans somebody submits, what the service has to hold in memory is
// bounded, also when it starts again, and others are not shut out. What is
// settled or refused uses none.
//
// proves R-O6
func TestOpenRunsAreBoundedPerPrincipal(t *testing.T) {
	for name, config := range map[string]orchestrator.Config{
		"tasks": {OpenTasks: 40},
		"bytes": {OpenBytes: 40_000},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, config, func(w *world) {
				plan := func(id api.RunID) api.Plan {
					p := fan(id, 5)
					p.Tasks[0].Input = fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", 4_600))
					return p
				}
				taken := func(by api.Principal, prefix string) (n int) {
					for ; n < 20; n++ {
						_, err := w.offer(as(by), plan(api.RunID(fmt.Sprintf("%s%d", prefix, n))))
						synctest.Wait()
						if api.CodeOf(err) == api.CodeThrottled {
							return n
						}
						w.must(err)
					}
					return n
				}
				if n := taken(ann, "a"); n != 4 {
					t.Errorf("ann has %d runs", n)
				}
				if _, err := w.offer(as(ann), plan("a0")); err != nil {
					t.Errorf("a run that is there: %v", err)
				}
				w.restart()
				if n := taken(ann, "again"); n != 0 {
					t.Errorf("ann has %d runs more when the service starts again", n)
				}
				if n := taken(ben, "b"); n != 4 {
					t.Errorf("ben has %d runs", n)
				}
				_, err := w.o.Cancel(context.Background(), as(ann), "a1", api.RunCancel{})
				w.must(err)
				synctest.Wait()
				for _, j := range w.desk.sorted((*job).active) {
					if j.d.CancelBy != "" {
						w.desk.end(j, api.EventCancelled, "", true)
					}
				}
				synctest.Wait()
				if n := taken(ann, "more"); n != 1 {
					t.Errorf("ann has %d runs more when one is settled", n)
				}
				w.finishAll()
			})
		})
	}
}
