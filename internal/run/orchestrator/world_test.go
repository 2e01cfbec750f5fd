package orchestrator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/run/schedule"
	"github.com/bailiwick-dev/bailiwick/internal/state/approval"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

const narrow api.Name = "narrow"

// tester is a test of any kind: testing's or rapid's.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is the part of a service that runs need: real state, a real log and a real
// engine, over a desk.
type world struct {
	t      tester
	root   string // of all directories
	number int    // of the current one
	config orchestrator.Config
	desk   *desk
	log    *replay

	heard   func(record.Kind) // called with each durable entry, before its writer proceeds; may be nil
	store   *store.Store
	ledger  *audit.Ledger
	o       *orchestrator.Orchestrator
	people  *approval.Approvals // nil without asks
	ballots *ballots
	asks    bool // people are asked for approval of tasks

	calendar *calendar     // nil: there are no schedules
	outage   time.Duration // how long no service runs after the next end of this one

	mu     sync.Mutex
	heads  []uint64  // how long the log was after each commit of this life; guarded by mu
	killIn int       // the service is killed in so many transactions; 0: it is not; guarded by mu
	copied bool      // it was killed, and this is what was durable by then; guarded by mu
	died   time.Time // when it was killed; guarded by mu
}

// scratch is a directory that no test needs to sync: on a tmpfs where there is
// one.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "bailiwick-test-") //nolint:usetesting // that is not on a tmpfs
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func migrations() []store.Migration {
	return []store.Migration{audit.Migration(), operator.Migration(), dispatch.Migration(), gateway.Migration(), budget.Migration(), approval.Migration(), ballotMigration(), orchestrator.Migration(), schedule.Migration()}
}

// newWorld starts a service on new state. The caller closes it.
func newWorld(t tester, root string, config orchestrator.Config) *world {
	t.Helper()
	return newWorldWith(t, root, config, false, nil)
}

func newWorldWith(t tester, root string, config orchestrator.Config, asks bool, c *calendar) *world {
	t.Helper()
	if config.Now == nil {
		config.Now = time.Now
	}
	slots := map[api.Name]int{api.DefaultQueue: orchestrator.DefaultSlots}
	maps.Copy(slots, config.Queues)
	w := &world{t: t, asks: asks, calendar: c, root: root, config: config, desk: newDesk(config.Now), log: newReplay(slots)}
	if w.log.calendar = c; c != nil {
		c.desk, w.config.Observer = w.desk, watcher{c}
	}
	w.desk.kill = w.kill
	w.desk.locks = w.log.locks
	w.log.products = w.desk.productOf
	w.log.votes = w.votes
	w.log.affording = w.desk.mayAfford
	w.desk.held = func(t *replayTask) bool { return t.held(w.log) }
	w.desk.full = func(t *replayTask) bool {
		taken := map[api.DispatchID]bool{}
		for id, j := range w.desk.jobs {
			if r := w.log.runs[j.order.Run]; j.active() && r != nil && r.queue == t.run.queue {
				taken[id] = true
			}
		}
		for o := range w.log.each { // those that are being submitted, or whose end the engine has not heard of
			if j := w.desk.jobs[o.dispatch]; o.run.queue == t.run.queue && o.state == api.TaskRunning && (j != nil && !j.untold.IsZero() || w.desk.delayed(o)) {
				taken[o.dispatch] = true
			}
		}
		return len(taken) >= w.log.queues[t.run.queue].slots
	}
	s, err := store.Create(context.Background(), w.storeConfig())
	w.must(err)
	w.must(s.Close())
	w.start()
	return w
}

// locks are those of a task whose run was offered under its id. The desk may be
// asked before the log was read.
func (m *replay) locks(id api.RunID, task api.TaskID) []api.Lock {
	if p := m.planOf(id); p != nil {
		for _, t := range p.Tasks {
			if t.ID == task {
				return t.Locks
			}
		}
	}
	return nil
}

// planOf is the plan of a run that was offered under its id, or is that of a slot.
func (m *replay) planOf(id api.RunID) *api.Plan {
	for _, p := range m.offered {
		if p.ID == id {
			found := p // so that only this one is copied
			return &found
		}
	}
	return m.calendar.planOf(id)
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v", err)
	}
}

func (w *world) dir() string { return filepath.Join(w.root, fmt.Sprint(w.number)) }

func (w *world) storeConfig() store.Config {
	return store.Config{Dir: w.dir(), Migrations: migrations(), Observe: w.observe}
}

// start opens what is there.
func (w *world) start() {
	w.t.Helper()
	var err error
	if w.store, err = store.Open(context.Background(), w.storeConfig()); err != nil {
		w.t.Fatalf("%v", err)
	}
	w.ledger, err = audit.Open(context.Background(), audit.Config{Store: w.store, Now: w.config.Now, Observe: func(k record.Kind) {
		if w.heard != nil {
			w.heard(k)
		}
	}})
	w.must(err)
	w.log.began = w.config.Now()
	w.open()
}

func (w *world) open() {
	w.t.Helper()
	s := w.desk.sit()
	config := w.config
	config.Store, config.Ledger, config.Dispatch = w.store, w.ledger, s
	listens := func(*orchestrator.Orchestrator) {}
	if w.asks {
		listens = w.askPeople()
		config.Approvals = w.people
	}
	o, err := orchestrator.Open(context.Background(), config)
	if err != nil {
		w.t.Fatalf("open: %v", err)
	}
	w.o = o
	listens(o)
	s.listen(o.Ended)
	w.openSchedules(o)
}

// stop ends the service in good order.
func (w *world) stop() error {
	var err error
	if w.o != nil {
		w.desk.freeze()
		w.closeSchedules()
		err = w.o.Close()
		w.o = nil
	}
	if w.people != nil {
		w.people.Close()
		w.people = nil
	}
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
		w.store = nil
	}
	return err
}

// observe is told of transactions on the writer's goroutine.
func (w *world) observe(int) func() {
	w.mu.Lock()
	dies := w.killIn == 1
	if w.killIn > 0 {
		w.killIn--
	}
	w.mu.Unlock()
	if dies {
		w.desk.freeze()
	}
	return func() {
		if dies {
			w.snapshot()
		}
		if n, err := w.ledger.Len(context.Background()); err == nil {
			w.mu.Lock()
			w.heads = append(w.heads, n)
			w.mu.Unlock()
		}
	}
}

// kill ends the service now: what is durable at this instant is what the next
// one finds, and nothing comes of what this one does from here on.
func (w *world) kill() {
	w.desk.freeze()
	w.mu.Lock()
	w.killIn = 1
	w.mu.Unlock()
	// What commits together with the first is durable in the snapshot, which is there
	// when the second begins.
	var err error
	for range 2 {
		err = errors.Join(err, w.store.Update(context.Background(), func(*store.Tx) error { return nil }))
	}
	if err != nil {
		w.desk.mu.Lock()
		w.desk.object("kill: %v", err)
		w.desk.mu.Unlock()
	}
}

// snapshot copies the files as they are. It runs on the store's writer, when
// nothing is being written.
func (w *world) snapshot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.copied {
		return
	}
	w.copied, w.died = true, w.config.Now()
	to := filepath.Join(w.root, fmt.Sprint(w.number+1))
	err := os.Mkdir(to, 0o700)
	for _, name := range []string{"state.db", "state.db-wal"} {
		b, rerr := os.ReadFile(filepath.Join(w.dir(), name))
		if rerr == nil {
			rerr = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		panic(err)
	}
}

// dead reports whether the service was killed, and the next has not begun.
func (w *world) dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.copied
}

// killed reports whether the service was, and if so begins the next on what was
// durable then.
func (w *world) killed() bool {
	w.t.Helper()
	if !w.dead() {
		return false
	}
	w.must(w.stop())
	w.down(w.died)
	w.must(os.RemoveAll(w.dir()))
	w.number++
	w.mu.Lock()
	w.copied, w.killIn, w.heads = false, 0, nil
	w.mu.Unlock()
	w.start()
	return true
}

// restart ends the service in good order and begins the next.
func (w *world) restart() {
	w.t.Helper()
	w.must(w.stop())
	w.down(w.config.Now())
	w.mu.Lock()
	w.killIn, w.heads = 0, nil
	w.mu.Unlock()
	w.start()
}

// read reads the entries since the last call.
func (w *world) read() {
	w.t.Helper()
	w.mu.Lock()
	heads := slices.Clone(w.heads)
	w.mu.Unlock()
	for {
		list, err := w.ledger.List(context.Background(), audit.Query{From: w.log.next, Limit: 1000})
		w.must(err)
		for i := range list {
			w.log.apply(&list[i])
			if slices.Contains(heads, list[i].Seq+1) {
				w.log.boundary(list[i].Seq)
			}
		}
		if len(list) < 1000 {
			break
		}
	}
	w.mu.Lock()
	w.heads = w.heads[:0]
	w.mu.Unlock()
	w.log.boundary(w.log.next)
}

// boundary looks at what has to be so after each commit: nothing waits for what
// will not come.
func (m *replay) boundary(seq uint64) {
	for t := range m.each {
		if t.run.settled != nil || t.state != api.TaskPending {
			continue
		}
		for _, up := range upstream(t.plan) {
			if s := t.run.tasks[up].state; s.Settled() && !t.satisfied(t.run.tasks[up]) {
				m.object(seq, "task %s is pending in a commit in which task %s was %s", t.name(), up, s)
			}
		}
	}
	for _, r := range m.runs {
		left := 0
		for _, t := range r.tasks {
			if !t.state.Settled() {
				left++
			}
		}
		if left == 0 && r.settled == nil && len(r.tasks) > 0 && !r.allTaken() {
			m.object(seq, "every task of run %s is final in a commit that does not settle it", r.id)
		}
	}
}

func (r *replayRun) allTaken() bool {
	for _, t := range r.tasks {
		if !t.taken {
			return false
		}
	}
	return true
}

// offer hands in a plan. What comes of it is in the log.
func (w *world) offer(caller dispatch.Caller, p api.Plan) (api.Run, error) {
	w.t.Helper()
	return w.o.Submit(context.Background(), caller, api.RunRequest{Plan: w.remember(p)})
}

// remember makes the reference know a plan, and returns it as text.
func (w *world) remember(p api.Plan) json.RawMessage {
	w.t.Helper()
	raw, parsed, problems := parse(p)
	if len(problems) > 0 {
		var b strings.Builder
		for _, x := range problems {
			fmt.Fprintf(&b, "%s: %s\n", x.Path, x.Message)
		}
		w.t.Fatalf("a plan of the test is refused: %s", b.String())
	}
	w.desk.mu.Lock()
	w.log.offered[api.DigestOf(parsed.Canonical())] = p
	w.desk.mu.Unlock()
	return raw
}

func parse(p api.Plan) (json.RawMessage, *plan.Plan, []api.Problem) {
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	parsed, problems := plan.Parse(raw)
	return raw, parsed, problems
}

// digestOf is the digest of a plan that is valid.
func digestOf(p api.Plan) api.Digest {
	_, parsed, _ := parse(p)
	return api.DigestOf(parsed.Canonical())
}

func as(p api.Principal) dispatch.Caller {
	return dispatch.Caller{Principal: p, Ceiling: api.Irreversible}
}
