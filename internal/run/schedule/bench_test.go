package schedule

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// idle is a dispatcher whose dispatches do not end, and the rules of a bench. It counts
// the runs that were accepted, and the dispatches.
type idle struct {
	*orchestrator.Orchestrator
	snap               *Snapshot
	engine             *policy.Engine
	accepted, started  atomic.Int64
	want               int64
	allAccepted, begun chan time.Time
}

// SubmitSlot implements Runs.
func (x *idle) SubmitSlot(ctx context.Context, c dispatch.Caller, req api.RunRequest, slot orchestrator.Slot) (api.Run, error) {
	r, err := x.Orchestrator.SubmitSlot(ctx, c, req, slot)
	if err == nil {
		x.accept()
	}
	return r, err
}

// dispatcher is what the engine has of an idle.
type dispatcher struct{ *idle }

func (x *idle) accept() {
	if x.accepted.Add(1) == x.want {
		x.allAccepted <- time.Now()
	}
}

func (x *idle) Schedules(context.Context) (*Snapshot, error)   { return x.snap, nil }
func (x *idle) Engine(context.Context) (*policy.Engine, error) { return x.engine, nil }
func (x dispatcher) ValidateAnswer(context.Context, api.DispatchID, api.AnswerRequest) (int, error) {
	return 0, nil
}

func (x dispatcher) Validate(_ context.Context, _ dispatch.Caller, reqs []api.DispatchRequest) (dispatch.Validation, error) {
	n := len(reqs)
	return dispatch.Validation{Revision: x.snap.Digest, Number: 7, Commits: make([]string, n), HasResult: make([]bool, n), HasPatch: make([]bool, n), HasVerify: make([]bool, n), Allowed: make([]bool, n)}, nil
}

func (x dispatcher) SubmitTask(_ context.Context, c dispatch.Caller, o dispatch.TaskRequest) (api.Dispatch, error) {
	if x.started.Add(1) == x.want {
		x.begun <- time.Now()
	}
	return api.Dispatch{ID: o.Request.DispatchID, State: api.EventStarted, Attempt: 1, Principal: c.Principal, Run: o.Run, Task: o.Task, Subagent: o.Request.Subagent}, nil
}

func (x dispatcher) ResumeTask(context.Context, dispatch.Caller, api.DispatchID, api.AnswerRequest, api.Principal, uint64, []string) (api.Dispatch, error) {
	return api.Dispatch{}, nil
}

func (x dispatcher) Cancel(context.Context, api.Principal, api.DispatchID, string) (api.Dispatch, error) {
	return api.Dispatch{}, nil
}

func (x dispatcher) Abort(context.Context, api.DispatchID, string) (api.Dispatch, error) {
	return api.Dispatch{}, nil
}

func (x dispatcher) Get(context.Context, api.DispatchID) (api.Dispatch, bool, error) {
	return api.Dispatch{}, false, nil
}

// bench is an engine, and a keeper of n schedules with a cron expression, on a disk of
// their own. Now is the time of the keeper.
func newBench(b *testing.B, n int, expression string, now func() time.Time) (*idle, *Keeper) {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx := context.Background()
	engine, err := policy.New(policy.Rules{Operator: "local:op"})
	must(err)
	x := &idle{
		engine: engine, want: int64(n), allAccepted: make(chan time.Time, 1), begun: make(chan time.Time, 1),
		snap: &Snapshot{Number: 7, Digest: api.DigestOf([]byte("rev")), CreatedAt: now(), Schedules: map[api.Name]api.Schedule{}, Artifact: func(n api.Name) api.Digest { return api.DigestOf([]byte(n)) }},
	}
	for i := range n {
		d := api.Schedule{Name: api.Name(fmt.Sprintf("s%04d", i)), Cron: expression, Zone: "Europe/Rome", Plan: onePlan, Principal: api.Principal(fmt.Sprintf("ci:p%d", i%10))}
		x.snap.Schedules[d.Name] = d
	}
	st, err := store.Create(ctx, store.Config{Dir: filepath.Join(b.TempDir(), "state"), Migrations: []store.Migration{
		audit.Migration(), operator.Migration(), dispatch.Migration(), gateway.Migration(), budget.Migration(), orchestrator.Migration(), Migration(),
	}})
	must(err)
	ledger, err := audit.Open(ctx, audit.Config{Store: st, Now: time.Now})
	must(err)
	x.Orchestrator, err = orchestrator.Open(ctx, orchestrator.Config{Store: st, Ledger: ledger, Dispatch: dispatcher{x}, Queues: map[api.Name]int{api.DefaultQueue: 10_000}, Now: time.Now})
	must(err)
	k, err := Open(ctx, Config{
		Store: st, Ledger: ledger, Rules: x, Runs: x, Now: now,
		Stops:    func(api.StopSubject) []string { return nil },
		RunState: func(context.Context, api.RunID) (api.RunState, bool, error) { return api.RunRunning, true, nil },
	})
	must(err)
	b.Cleanup(func() {
		k.Close()
		_ = x.Close()
		_ = st.Close()
	})
	return x, k
}

// A thousand schedules are due in the same second; beside a thousand runs of the same
// plan that 64 callers submit, in turn; medians. Each is on an engine of its own.
//
//   - accepted-ms: from the time of the slots until all runs are accepted, durably.
//   - started-ms: until the last dispatch starts.
func BenchmarkDue(b *testing.B) {
	const n = 1000
	var due, begun, peer []float64
	round := func() {
		next := time.Now().Truncate(time.Minute).Add(time.Minute)
		offset := time.Until(next) - 1500*time.Millisecond
		x, k := newBench(b, n, "* * * * *", func() time.Time { return time.Now().Add(offset) })
		k.Start(context.Background())
		at := next.Add(-offset)
		due = append(due, (<-x.allAccepted).Sub(at).Seconds())
		begun = append(begun, (<-x.begun).Sub(at).Seconds())
		k.Close()

		x, _ = newBench(b, n, "0 0 1 1 *", time.Now)
		text, _ := plan.ReadText([]byte(onePlan))
		var left atomic.Int64
		left.Store(n)
		from := time.Now()
		for range submitters {
			go func() {
				for i := left.Add(-1); i >= 0; i = left.Add(-1) {
					if _, err := x.Submit(context.Background(), dispatch.Caller{Principal: api.Principal(fmt.Sprintf("ci:p%d", i%10)), Ceiling: api.Irreversible}, api.RunRequest{RunID: api.RunID(fmt.Sprintf("r-%d", i)), Plan: text.JSON}); err != nil {
						b.Error(err)
					}
					x.accept()
				}
			}()
		}
		peer = append(peer, (<-x.allAccepted).Sub(from).Seconds())
		<-x.begun
	}
	for b.Loop() {
		round()
	}
	for len(due) < 3 {
		round()
	}
	b.ReportMetric(median(due)*1000, "accepted-ms")
	b.ReportMetric(median(begun)*1000, "started-ms")
	b.ReportMetric(median(peer)*1000, "submitted-ms")
	b.ReportMetric(median(due)/median(peer), "x-submitted")
	b.ReportMetric(0, "ns/op")
}

// A list of 3,000 schedules, and the processor time of this process.
func BenchmarkList(b *testing.B) {
	_, k := newBench(b, 3000, "0 0 1 1 *", time.Now)
	if _, err := k.tick(context.Background()); err != nil { // their rows are stored
		b.Fatal(err)
	}
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if list, err := k.List(context.Background()); err != nil || len(list) != 3000 {
			b.Fatal(len(list), err)
		}
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/1e6/float64(b.N), "cpu-ms/op")
}

// An engine with a thousand schedules that are not due, beside one without schedules, each
// for some seconds: the processor time of this process, and how often its threads slept.
func BenchmarkSleep(b *testing.B) {
	const seconds = 20
	measure := func(name string) {
		var before, after syscall.Rusage
		runtime.GC()
		time.Sleep(time.Second) // what starts has settled
		must := func(err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		must(syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		time.Sleep(seconds * time.Second)
		must(syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		b.ReportMetric(float64(cpu.Microseconds())/seconds, name+"-cpu-µs/s")
		b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/seconds, name+"-wakeups/s")
	}
	for b.Loop() {
		time.Sleep(5 * time.Second) // the runtime has returned earlier memory
		for _, n := range []int{0, 1000} {
			_, k := newBench(b, n, "0 0 1 1 *", time.Now)
			k.Start(context.Background())
			measure(fmt.Sprint(n))
			k.Close()
		}
	}
	b.ReportMetric(0, "ns/op")
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
