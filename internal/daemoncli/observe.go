package daemoncli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/server"
	"github.com/bailiwick-dev/bailiwick/internal/telemetry"
)

// observe makes what is told of everything that follows.
func (s *service) observe() (err error) {
	s.telemetry, err = telemetry.New(telemetry.Config{
		Version: s.t.Version, Collector: s.set.Tracing.OTLP, Routes: api.Calls(), Listen: server.Listen, Now: s.t.Now, Logger: s.logger,
	})
	return err
}

// expose serves metrics and health, if the configuration says where. It is
// called when the state is this service's, so a second one never takes the
// place of the first.
func (s *service) expose() (err error) {
	if s.set.Metrics.Listen.IsZero() {
		return nil
	}
	if s.metrics, err = s.telemetry.Serve(s.set.Metrics.Listen); err != nil {
		return api.Errorf(api.CodeUnavailable, "%w", err).WithHint("change metrics.listen in %s", s.set.File)
	}
	return nil
}

// flushTime bounds how long the end of the service waits for a collector.
const flushTime = 2 * time.Second

func (s *service) conceal() error {
	if s.telemetry == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	return s.telemetry.Close(ctx)
}

// need is something without which the service is not ready.
type need struct {
	name string
	err  error // nil: it is well
}

// needs are what readiness and status say, from one source. A catalog that
// nobody has applied yet is none: nothing is wrong with it.
func (s *service) needs(ctx context.Context) (list []need, revision uint64) {
	revision, err := s.dispatch.Catalog(ctx)
	worker := s.t.worker()
	executable := unix.Access(worker, unix.X_OK)
	if executable != nil {
		executable = fmt.Errorf("%s: %w", worker, executable)
	}
	list = []need{{"store", s.store.Poisoned()}, {"log", s.treeNeed()}, {"catalog", err}, {"worker", executable}}
	if s.runs != nil {
		list = append(list, need{"orchestrator", s.runs.Err()})
	}
	return list, revision
}

// notReady says what is wrong, in words; empty when nothing is.
func notReady(list []need) string {
	var words []string
	for _, n := range list {
		if n.err != nil {
			words = append(words, n.name+": "+n.err.Error())
		}
	}
	return strings.Join(words, "\n")
}

// state is what metrics and health ask for.
func (s *service) state(ctx context.Context) telemetry.State {
	st := telemetry.State{Running: s.dispatch.Running(), Poisoned: s.store.Poisoned() != nil}
	list, revision := s.needs(ctx)
	st.Revision = revision
	for _, n := range list {
		st.Checks = append(st.Checks, telemetry.Check{Name: n.name, OK: n.err == nil})
	}
	st.Queues = s.queueState(ctx)
	st.Anchors = s.anchorState(ctx)
	if tree := s.treeStatus(ctx); tree != nil {
		st.LogSize, st.LogCovered, st.LogLag = tree.Size, tree.Checkpoint, tree.LagSeconds
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(s.t.Dirs.State, &disk); err == nil {
		st.Free, st.Size = disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize) //nolint:gosec // G115: the size of a block
	}
	return st
}

// worker is the program that supervises one dispatch.
func (t *tree) worker() string { return filepath.Join(filepath.Dir(t.Self), "bailiwick-worker") }

// metricsCheck is what doctor says of where metrics would be served.
func metricsCheck(s settings, err error) []check {
	if err != nil || s.Metrics.Listen.IsZero() {
		return nil
	}
	at := s.Metrics.Listen.String()
	c := check{name: "metrics", ok: true, found: at}
	if !strings.HasPrefix(at, "unix:") {
		c.ok, c.advice, c.fix = false, true, "serve them where only this account can read: unix:/absolute/path"
		c.found = at + " can be read by every account of this machine"
	}
	return []check{c}
}
