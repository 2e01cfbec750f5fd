package orchestrator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// echo is an executor within this process whose dispatches have ended, well,
// before anybody could have waited for them.
type echo struct {
	engine *policy.Engine
	tell   atomic.Pointer[func(api.Dispatch)]
	fired  atomic.Int64
	fail   atomic.Bool        // they fail
	hold   atomic.Bool        // they do not end, except list
	gives  *api.ResultSummary // of list
	seen   func(api.TaskID)   // is called for each
}

func (x *echo) Validate(_ context.Context, _ dispatch.Caller, reqs []api.DispatchRequest) (dispatch.Validation, error) {
	return dispatch.Validation{Revision: revision, Number: 7, Commits: make([]string, len(reqs)), HasResult: make([]bool, len(reqs)), HasPatch: make([]bool, len(reqs)), HasVerify: make([]bool, len(reqs)), Allowed: make([]bool, len(reqs))}, nil
}

func (x *echo) Engine(context.Context) (*policy.Engine, error) { return x.engine, nil }

func (x *echo) SubmitTask(_ context.Context, caller dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, error) {
	x.fired.Add(1)
	if x.seen != nil {
		x.seen(o.Task)
	}
	d := api.Dispatch{ID: o.Request.DispatchID, State: api.EventStarted, Attempt: 1, Principal: caller.Principal, Run: o.Run, Task: o.Task, Subagent: o.Request.Subagent}
	ended := d
	if ended.State = api.EventFinished; x.fail.Load() {
		ended.State, ended.Reason = api.EventFailed, api.ReasonOutput
	}
	if !x.hold.Load() || o.Task == list {
		(*x.tell.Load())(ended)
	}
	return d, nil
}

func (x *echo) ResumeTask(context.Context, dispatch.Caller, api.DispatchID, api.AnswerRequest, api.Principal, uint64, []string) (api.Dispatch, error) {
	return api.Dispatch{}, api.Errorf(api.CodeConflict, "no open question")
}

func (x *echo) Cancel(context.Context, api.Principal, api.DispatchID, string) (api.Dispatch, error) {
	return api.Dispatch{}, nil
}

func (x *echo) Abort(context.Context, api.DispatchID, string) (api.Dispatch, error) {
	return api.Dispatch{}, nil
}

func (x *echo) Get(_ context.Context, id api.DispatchID) (api.Dispatch, bool, error) {
	return api.Dispatch{ID: id, State: api.EventFinished, Outcome: x.gives}, x.gives != nil, nil
}

func (x *echo) ValidateAnswer(context.Context, api.DispatchID, api.AnswerRequest) (int, error) {
	return 0, nil
}

// finish line of runs.
type line struct{ settled chan api.RunState }

func (l line) TaskSettled(api.TaskState, api.Reason) {}
func (l line) RunSettled(s api.RunState)             { l.settled <- s }
func (l line) Committed(int)                         {}
func (l line) Swept(int)                             {}

// bench is an engine on a disk of its own.
type bench struct {
	o       *orchestrator.Orchestrator
	store   *store.Store
	ledger  *audit.Ledger
	echo    *echo
	line    line
	commits atomic.Int64
}

func newBench(tb testing.TB, dir string, slots int) *bench {
	tb.Helper()
	return openBench(tb, dir, slots, &echo{engine: newDesk(time.Now).engine})
}

// openBench opens an engine whose dispatches are those of x.
func openBench(tb testing.TB, dir string, slots int, of *echo) *bench {
	tb.Helper()
	x := &bench{echo: of, line: line{make(chan api.RunState, 10_000)}}
	open := store.Open
	if _, err := os.Stat(dir); err != nil {
		open = store.Create
	}
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	var err error
	x.store, err = open(context.Background(), store.Config{Dir: dir, Migrations: migrations(), Observe: func(int) func() { x.commits.Add(1); return func() {} }})
	must(err)
	x.ledger, err = audit.Open(context.Background(), audit.Config{Store: x.store, Now: time.Now})
	must(err)
	x.o, err = orchestrator.Open(context.Background(), orchestrator.Config{
		Store: x.store, Ledger: x.ledger, Dispatch: x.echo, Queues: map[api.Name]int{api.DefaultQueue: slots}, Now: time.Now, Observer: x.line,
	})
	must(err)
	tell := x.o.Ended
	x.echo.tell.Store(&tell)
	return x
}

func (x *bench) close() {
	_ = x.o.Close()
	_ = x.store.Close()
}

// run submits plans from so many callers and returns how long it takes until
// every run is settled.
func (x *bench) run(tb testing.TB, plans []json.RawMessage, callers int) time.Duration {
	tb.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(plans); i = next.Add(1) - 1 {
				if _, err := x.o.Submit(context.Background(), as(ann), api.RunRequest{Plan: plans[i]}); err != nil {
					tb.Error(err)
					x.line.settled <- ""
				}
			}
		})
	}
	for range plans {
		<-x.line.settled
	}
	took := time.Since(start)
	wg.Wait()
	return took
}

// underWay submits a plan whose tasks do not end, and waits for so many dispatches.
func (x *bench) underWay(tb testing.TB, p api.Plan, dispatches int64) {
	tb.Helper()
	x.echo.hold.Store(true)
	x.echo.gives = listed(api.MaxForEach)
	before := x.echo.fired.Load()
	if _, err := x.o.Submit(context.Background(), as(ann), api.RunRequest{Plan: raw(tb, p)[0]}); err != nil {
		tb.Fatal(err)
	}
	for x.echo.fired.Load()-before < dispatches {
		time.Sleep(time.Millisecond)
	}
}

// dag is a random plan of n tasks with locks.
func dag(id api.RunID, n int) api.Plan {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	p := fan(id, n)
	for i := range p.Tasks {
		t := &p.Tasks[i]
		for range r.IntN(4) {
			if i == 0 {
				break
			}
			if up := p.Tasks[i-1-r.IntN(min(i, 200))].ID; !slices.Contains(t.DependsOn, up) {
				t.DependsOn = append(t.DependsOn, up)
			}
		}
		for range r.IntN(3) {
			key := fmt.Sprintf("repo/%d", r.IntN(500))
			if !slices.ContainsFunc(t.Locks, func(k api.Lock) bool { return k.Key == key }) {
				t.Locks = append(t.Locks, api.Lock{Key: key, Shared: r.IntN(2) == 0})
			}
		}
	}
	return p
}

func raw(tb testing.TB, plans ...api.Plan) (list []json.RawMessage) {
	tb.Helper()
	for _, p := range plans {
		b, err := json.Marshal(p)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

// shape is one thing that is measured.
type shape struct {
	name    string
	steps   int
	slots   int
	callers int
	plans   func(round int) []api.Plan
	bare    func(*bareLoop)
	old     int // settled tasks in the database
}

func shapes() []shape {
	one := func(p func(api.RunID, int) api.Plan, n int) func(int) []api.Plan {
		return func(round int) []api.Plan { return []api.Plan{p(api.RunID(fmt.Sprintf("r-%d", round)), n)} }
	}
	many := func(n int) func(int) []api.Plan {
		return func(round int) (list []api.Plan) {
			for i := range n {
				list = append(list, fan(api.RunID(fmt.Sprintf("r-%d-%d", round, i)), 1))
			}
			return list
		}
	}
	const wide = 64
	return []shape{
		{"fan-1000", 1000, 1000, 1, one(fan, 1000), func(l *bareLoop) { l.wide(1000, 1000) }, 0},
		{"chain-100", 100, 1, 1, one(chain, 100), func(l *bareLoop) { l.chain(100) }, 0},
		{"one-task-runs-2000", 2000, 2000, wide, many(2000), func(l *bareLoop) { l.wide(2000, wide) }, 0},
		{"dag-100", 100, wide, 1, one(dag, 100), func(l *bareLoop) { l.wide(100, wide) }, 0},
		{"dag-10000", 10_000, wide, 1, one(dag, 10_000), func(l *bareLoop) { l.wide(10_000, wide) }, 0},
		{"dag-10000-beside-100000-settled", 10_000, wide, 1, one(dag, 10_000), func(l *bareLoop) { l.wide(10_000, wide) }, 100_000},
	}
}

// Each round is of the engine, of a bare loop that stores the same steps with
// nothing around them, and of one that makes as many commits as the engine made,
// in turn; what is reported are the medians. The disk must not be a tmpfs for
// the numbers to mean anything.
//
//   - tasks/s, ms/task: of the engine, from the request to the end of the last run.
//   - cpu-us/task: of the process meanwhile, whatever else runs on the machine.
//   - bare-tasks/s: each step is stored when it starts and when it ends, one row
//     each time, and waits for both; what arrives together shares a commit; a
//     step of a chain starts in the commit that ends the one before it.
//   - x-bare: how many times as long as that the engine takes.
//   - x-same-commits: likewise, of a loop that makes as many commits as the engine
//     did and writes one row for each step.
func BenchmarkRuns(b *testing.B) {
	for _, s := range shapes() {
		b.Run(s.name, func(b *testing.B) { benchShape(b, s) })
	}
}

func benchShape(b *testing.B, s shape) {
	dir := filepath.Join(b.TempDir(), "state")
	if s.old > 0 {
		settleMany(b, dir, s.old)
	}
	x := newBench(b, dir, s.slots)
	defer x.close()
	l := newBareLoop(b)
	defer l.close()
	var engine, work, bare, same, commits []float64
	round := func() {
		plans := raw(b, s.plans(len(engine))...)
		before := x.commits.Load()
		runtime.GC()
		used := cpu(b)
		engine = append(engine, x.run(b, plans, s.callers).Seconds())
		work = append(work, cpu(b)-used)
		n := x.commits.Load() - before
		commits = append(commits, float64(n))
		bare = append(bare, l.time(func() { s.bare(l) }))
		same = append(same, l.time(func() { l.same(int(n), s.steps) }))
	}
	for b.Loop() {
		round()
	}
	for len(engine) < 3 {
		round()
	}
	e := median(engine)
	if s.slots == 1 {
		b.ReportMetric(e*1000/float64(s.steps), "ms/task")
		b.ReportMetric(median(bare)*1000/float64(s.steps), "bare-ms/task")
	} else {
		b.ReportMetric(float64(s.steps)/e, "tasks/s")
		b.ReportMetric(float64(s.steps)/median(bare), "bare-tasks/s")
	}
	b.ReportMetric(e/median(bare), "x-bare")
	b.ReportMetric(e/median(same), "x-same-commits")
	b.ReportMetric(median(work)*1e6/float64(s.steps), "cpu-us/task")
	b.ReportMetric(median(commits), "commits")
	b.ReportMetric(float64(len(engine)), "rounds")
	b.ReportMetric(0, "ns/op")
}

// cpu is what this process has used, in seconds.
func cpu(b *testing.B) float64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// settleMany fills a database with runs that are settled: their first tasks have
// failed.
func settleMany(b *testing.B, dir string, tasks int) {
	b.Helper()
	x := newBench(b, dir, 1)
	defer x.close()
	x.echo.fail.Store(true)
	for i := range tasks / api.MaxPlanTasks {
		x.run(b, raw(b, star(api.RunID(fmt.Sprintf("old-%d", i)), api.MaxPlanTasks)), 1)
	}
}

// What a process with an engine has in memory: idle, and with a plan of 10,000
// tasks under way; beside one that only has SQLite open.
func BenchmarkMemory(b *testing.B) {
	for _, what := range []string{"sqlite-only", "idle", "10000-tasks", "10000-fixed", "10000-grown"} {
		b.Run(what, func(b *testing.B) {
			var rss, heap []float64
			measure := func() {
				cmd := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
				cmd.Env = append(os.Environ(), "ORCHESTRATOR_TEST_HELPER="+strings.Join([]string{"memory", b.TempDir(), what}, "\n"))
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				var r, h float64
				if _, err := fmt.Sscan(string(out), &r, &h); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
				rss, heap = append(rss, r), append(heap, h)
			}
			for range 3 {
				measure()
			}
			for b.Loop() {
				runtime.Gosched()
			}
			b.ReportMetric(median(rss), "rss-MB")
			b.ReportMetric(median(heap), "heap-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// helpMemory prints what this process has resident and on its heap, in MB.
func helpMemory(t *testing.T, dir, what string) {
	if what == "sqlite-only" {
		l := newBareLoop(t)
		defer l.close()
		l.chain(10)
	} else {
		x := newBench(t, filepath.Join(dir, "state"), 64)
		defer x.close()
		switch what {
		case "10000-tasks":
			x.underWay(t, dag("r", api.MaxPlanTasks), 64)
		case "10000-fixed":
			x.underWay(t, mapped("r", api.MaxPlanTasks-1, false), 65)
		case "10000-grown":
			x.underWay(t, mapped("r", api.MaxForEach, true), 65)
		}
	}
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Println(float64(kib)/1024, float64(m.HeapAlloc)/(1<<20))
	os.Exit(0)
}
