package launch

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// A worker is started while its claim becomes durable, and gets its secrets afterwards: a loss of
// power before that loses a process that had no effect. A claim that cannot become durable ends
// its worker, and the attempt may start again, once. The control is a claim that became durable.
//
// proves R-O6
func TestNoSecretsBeforeTheClaimIsDurable(t *testing.T) {
	for name, fault := range map[string]error{"durable": nil, "fails": errors.New("the disk is gone")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			l, a := w.launcher(), w.attempt(w.manifest("edit"))
			release, syncing := make(chan struct{}), make(chan struct{})
			l.started.sync = func(string) error {
				close(syncing)
				<-release
				return fault
			}
			said := func() string {
				b, err := os.ReadFile(a.Log.Name())
				must(t, err)
				return string(b)
			}
			ended := make(chan error)
			go func() {
				p, err := l.Worker(t.Context(), a)
				if err == nil {
					err = p.Wait()
				}
				ended <- err
			}()
			<-syncing
			for !strings.Contains(said(), "--attempt") { // the worker runs, and reads its secrets
				time.Sleep(time.Millisecond)
			}
			if strings.Contains(said(), "{}") {
				t.Error("the worker has its secrets before its claim is durable")
			}
			close(release)
			if err := <-ended; !errors.Is(err, fault) {
				t.Fatalf("%v, want %v", err, fault)
			}
			if got := strings.Contains(said(), "{}"); got != (fault == nil) {
				t.Errorf("secrets given: %t: %s", got, said())
			}
			l.started.sync = durable.Sync
			touch(t, a, "proceed")
			_, err := w.start(l, a)
			must(t, err)
			_, err = w.start(l, a)
			refused(t, err, "integrity", "an attempt runs once")
		})
	}
}
