package e2e

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

var (
	killsFlag = flag.Int("kills", 0, "minimum number of kills of TestKillsNeverChangeAnOutcome and TestKillsNeverChangeARun together; each starts with one kill at every failpoint")
	stepFlag  = flag.Int("step", 1, "kill at every step-th failpoint alone, for a short campaign")
	seedFlag  = flag.Uint64("seed", 20, "seed of the random choices of the kill harness and the soak")
)

// job is one dispatch of a round as its caller sees it.
type job struct {
	id       string
	kind     kind
	answered bool // it got a response that it was accepted
	stopped  bool // it got a response that the cancel was accepted
	err      error
}

// run acts as the caller: it repeats its request until it gets a response,
// cancels or answers if its kind says so, and waits for the end.
func (k *trial) run(j *job, pause time.Duration) {
	req := api.DispatchRequest{Subagent: api.Name(j.kind.name), Source: &api.SourceRequest{Name: "repo"}, DispatchID: api.DispatchID(j.id)}
	var d api.Dispatch
	if j.err = k.insist(http.MethodPost, runtimePath, req, &d); j.err != nil {
		return
	}
	j.answered = true
	if j.kind.cancel {
		time.Sleep(pause) // varies the moment of the cancel
		if j.err = k.insist(http.MethodPost, runtimePath+"/"+j.id+"/cancel", api.CancelRequest{}, &d); j.err != nil {
			return
		}
		j.stopped = true
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		if j.err = k.insist(http.MethodGet, runtimePath+"/"+j.id+"?wait=2s", nil, &d); j.err != nil {
			return
		}
		if d.State == api.EventNeedsInput && j.kind.answer {
			if j.err = k.insist(http.MethodPost, runtimePath+"/"+j.id+"/answer", api.AnswerRequest{Option: 1, Attempt: d.Attempt}, &d); j.err != nil {
				return
			}
			continue
		}
		if d.State.Ended() && d.State != api.EventNeedsInput {
			return
		}
		if time.Now().After(end) {
			j.err = fmt.Errorf("it does not end: %s %s", d.State, d.Message)
			return
		}
	}
}

// plan is one round: which process to kill and where, and the load meanwhile.
type plan struct {
	who    string         // service, worker, both; asleep: the service, while a worker is suspended until the next service is up
	at     failpoint.Name // empty for a random instant
	armed  []string
	blind  time.Duration   // for a random instant: time since the start of the round
	again  []time.Duration // more random instants at which to kill the service
	stop   time.Duration   // when to stop the service by a signal; 0 for never
	gc     bool            // the round includes a garbage collection
	kinds  []kind
	pauses []time.Duration
}

func (p plan) String() string {
	var names []string
	for _, k := range p.kinds {
		names = append(names, k.name)
	}
	where := string(p.at)
	if where == "" {
		where = "after " + p.blind.String()
	}
	return fmt.Sprintf("%s %s, armed %q, %s", p.who, where, p.armed, strings.Join(names, " "))
}

// needs names the kind of dispatch that passes a failpoint.
func needs(name failpoint.Name) string {
	switch name {
	case failpoint.WorkerCheck:
		return "green"
	case failpoint.CancelCommit, failpoint.CancelCommitted, failpoint.CancelDelivered:
		return "stopped"
	case failpoint.AnswerCommit, failpoint.AnswerCommitted:
		return "asks"
	case failpoint.RefuseCommit, failpoint.RefuseCommitted:
		return "calls"
	case failpoint.ToolAsk, failpoint.ToolAsked, failpoint.ToolCommit, failpoint.ToolCommitted, failpoint.ToolAnswered, failpoint.ToolReturn, failpoint.ToolReturned, failpoint.CollectCalls:
		return toolNeeds(name)
	case failpoint.ExpireCommit, failpoint.AnchorPut, failpoint.AnchorGiven, failpoint.AnchorKept: // they take a second
		return "waits"
	default:
		return "edits"
	}
}

// before lists what else to arm so that a restart passes name.
func before(name failpoint.Name) []string {
	switch name {
	case failpoint.RecoverRefire:
		return []string{string(failpoint.AcceptCommitted) + " 2 kill"}
	case failpoint.RecoverBegin, failpoint.RecoverOne, failpoint.RecoverAttached, failpoint.RecoverFound, failpoint.RecoverSweep, failpoint.RecoverEnd,
		failpoint.ServiceOpened, failpoint.ServiceListening:
		return []string{string(failpoint.StartProceed) + " 2 kill"}
	default:
		return nil
	}
}

// planAt returns a round that kills at a failpoint.
func (k *trial) planAt(name failpoint.Name, who string) plan {
	p := plan{who: who, at: name}
	count := 1
	switch name {
	case failpoint.StoreCommit, failpoint.StoreCommitted, failpoint.BlobWritten, failpoint.BlobPlaced:
		count = 1 + k.rng.IntN(5)
	case failpoint.JailGroup, failpoint.JailGrouped, failpoint.JailLaunched, failpoint.JailClose, failpoint.JailClosed, failpoint.ExecutorFile:
		count = 1 + k.rng.IntN(4)
	case failpoint.ServiceStopping, failpoint.ServiceStopped, failpoint.ServiceClosed:
		p.stop = time.Duration(1+k.rng.IntN(200)) * time.Millisecond
	default: // the first time
	}
	p.gc = strings.HasPrefix(string(name), "retain.")
	action := failpoint.Kill
	if who == "both" || who == "asleep" {
		action = failpoint.Stop // until the other process has been killed
	}
	p.armed = append(before(name), fmt.Sprintf("%s %d %s", name, count, action))
	k.load(&p, needs(name))
	return p
}

// planBlind returns a round that kills at a random instant.
func (k *trial) planBlind() plan {
	p := plan{who: []string{"service", "worker", "both"}[k.rng.IntN(3)], blind: time.Duration(k.rng.IntN(400_000)) * time.Microsecond}
	k.load(&p, "edits")
	return p
}

// load chooses the dispatches of a round.
func (k *trial) load(p *plan, must string) {
	all := kinds()
	p.kinds = append(p.kinds, all[slices.IndexFunc(all, func(o kind) bool { return o.name == must })])
	for len(p.kinds) < 3 {
		next := all[k.rng.IntN(len(all))]
		if (next.name == "late" || next.name == "waits" || next.name == "requests") && k.rng.IntN(4) > 0 {
			continue // they take a second
		}
		p.kinds = append(p.kinds, next)
	}
	for range p.kinds {
		p.pauses = append(p.pauses, time.Duration(k.rng.IntN(200))*time.Millisecond)
	}
}

// tally is the result of a campaign.
type tally struct {
	kills    map[string]int // by process and place
	restarts int
	outcomes map[string]int
	total    int // dispatches
	runs     int
	bad      []string
	reached  map[failpoint.Name]bool // where a process was killed
	files    int                     // descriptors of the first service
	seen     []entry                 // the log as read so far
	rounds   int
	next     int64 // offset in the record of the failpoints; of runs
	made     *made // likewise
}

func (s *tally) count() (n int) {
	for _, c := range s.kills {
		n += c
	}
	return n
}

func (s *tally) String() string {
	lost, doubled, untrue, left := 0, 0, 0, 0
	for _, b := range s.bad {
		switch {
		case strings.Contains(b, "LOST"):
			lost++
		case strings.Contains(b, "DOUBLED"):
			doubled++
		case strings.Contains(b, "UNTRUE"):
			untrue++
		default:
			left++
		}
	}
	by := map[string]int{}
	for what, n := range s.kills {
		who, where, _ := strings.Cut(what, " ")
		if where != "blindly" {
			where = "at a failpoint"
		}
		by[who+" "+where] += n
	}
	var lines []string
	for _, m := range []map[string]int{by, s.outcomes} {
		var parts []string
		for _, what := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, fmt.Sprintf("%s %d", what, m[what]))
		}
		lines = append(lines, strings.Join(parts, ", "))
	}
	runs := ""
	if s.runs > 0 {
		runs = fmt.Sprintf("%d runs, ", s.runs)
	}
	return fmt.Sprintf("%d kills (%s) at %d of %d failpoints and at random instants; %d restarts; %s%d dispatches (%s); %d entries; lost %d, doubled %d, untrue %d, left behind %d",
		s.count(), lines[0], len(s.reached), len(failpoint.Names()), s.restarts, runs, s.total, lines[1], len(s.seen), lost, doubled, untrue, left)
}

// round executes a plan and then runs all checks.
func (k *trial) round(n int, p plan, sum *tally) {
	k.t.Helper()
	if len(sum.bad) > 20 {
		k.t.Fatalf("too many violations:\n%s", strings.Join(sum.bad, "\n"))
	}
	_, from := k.hits(0)
	k.arm(p.armed...)
	var jobs []*job
	var callers sync.WaitGroup
	for i, kind := range p.kinds {
		j := &job{id: k.id("d", n, i), kind: kind}
		jobs = append(jobs, j)
		callers.Go(func() { k.run(j, p.pauses[i]) })
	}
	if p.gc {
		callers.Go(func() {
			var report api.GCReport
			if err := k.insist(http.MethodPost, "/v1/operator/gc", nil, &report); err != nil {
				k.t.Errorf("gc: %v", err)
			}
		})
	}
	over := make(chan struct{})
	go func() { callers.Wait(); close(over) }()
	a := &assault{k: k, p: p, sum: sum, from: from, killed: map[int]bool{}, blindly: map[int]bool{}}
	a.until(over)
	hits := k.settle(n, p, sum, from)
	log := k.log(len(sum.seen) - 1)
	sum.seen = append(sum.seen, log...)
	var bad []string
	for _, j := range jobs {
		if j.err != nil {
			bad = append(bad, fmt.Sprintf("LOST: %s (%s): its caller: %v", j.id, j.kind.name, j.err))
		}
		s := k.story(j, log, hits, a.killed, a.blindly)
		bad = append(bad, s.wrong()...)
		sum.total++
		if s.record != nil {
			sum.outcomes[end{s.record.State, s.record.Reason}.String()]++
		}
	}
	bad = append(bad, gaps(sum.seen)...)
	for _, b := range bad {
		b = fmt.Sprintf("round %d (%s): %s", n, p, b)
		k.t.Error(b)
		sum.bad = append(sum.bad, b)
	}
	sum.rounds++
}

// settle waits until the round's work has left nothing behind.
func (k *trial) settle(n int, p plan, sum *tally, from int64) []hit {
	k.t.Helper()
	k.arm()
	var hits []hit
	left := settled(func() []string {
		hits, _ = k.hits(from)
		left := k.remains(hits)
		if files := k.descriptors(); sum.files > 0 && files > sum.files+6 {
			left = append(left, fmt.Sprintf("%d descriptors of the service, at first %d", files, sum.files))
		}
		return left
	})
	if sum.files == 0 {
		sum.files = k.descriptors()
	}
	for _, l := range left {
		l = fmt.Sprintf("round %d (%s): left behind: %s", n, p, l)
		k.t.Error(l)
		sum.bad = append(sum.bad, l)
	}
	return hits
}

// assault kills processes as planned while a round runs, and restarts the
// service.
type assault struct {
	k    *trial
	p    plan
	sum  *tally
	from int64 // offset in the record
	next int64
	done bool // the planned kill has happened

	killed  map[int]bool // workers and services
	blindly map[int]bool // killed outside a failpoint

	stopping int // service that was told to shut down
}

func (a *assault) until(over <-chan struct{}) {
	a.next = a.from
	began := time.Now()
	stopped := a.p.stop == 0
	for tick := time.NewTicker(2 * time.Millisecond); ; {
		select {
		case <-over:
			a.watch() // reads the last lines
			tick.Stop()
			a.killIdle()
			return
		case <-a.k.current().ended:
			a.watch()
			a.restart()
		case <-tick.C:
			a.watch()
			if a.p.at == "" && !a.done && time.Since(began) >= a.p.blind {
				a.blind()
			}
			if len(a.p.again) > 0 && time.Since(began) >= a.p.again[0] {
				a.p.again = a.p.again[1:] // only this goroutine uses the plan's instants
				a.k.killService()
				a.noteKill("service blindly", a.k.current().pid, true)
			}
			if !stopped && time.Since(began) >= a.p.stop {
				stopped = true
				a.stopping = a.k.current().pid
				_ = syscall.Kill(a.stopping, syscall.SIGTERM)
			}
		}
	}
}

// restart replaces a service that has exited.
func (a *assault) restart() {
	a.sum.restarts += 1 + a.k.up(a.watch)
	a.watch()
}

// killIdle kills the idle service if the planned moment did not occur.
func (a *assault) killIdle() {
	// A service whose kill or stop was the last event of the round may not have
	// exited yet.
	s := a.k.current()
	if a.killed[s.pid] || a.stopping == s.pid {
		<-s.ended
	}
	select {
	case <-s.ended:
		a.restart()
	default:
	}
	if a.done {
		return
	}
	a.k.killService()
	a.noteKill("service blindly", a.k.current().pid, true)
	a.restart()
}

func (a *assault) noteKill(what string, pid int, blindly bool) {
	a.sum.kills[what]++
	a.killed[pid] = true
	if blindly {
		a.blindly[pid] = true
	}
	a.done = true
}

// watch reads new hits of failpoints. If a process has suspended itself at one,
// watch kills the other process as planned.
func (a *assault) watch() {
	a.k.noteCheckpoint()
	hits, next := a.k.hits(a.next)
	a.next = next
	for _, h := range hits {
		if h.action == "" {
			continue
		}
		who := "worker"
		if h.pid == a.k.current().pid || !a.isWorker(h.pid) {
			who = "service"
		}
		a.sum.reached[h.name] = true
		if h.action == failpoint.Kill {
			a.noteKill(who+" "+string(h.name), h.pid, false)
			continue
		}
		if a.p.who == "asleep" {
			a.asleep(h)
		} else {
			a.both(h, who)
		}
	}
}

// asleep kills the service while a worker is suspended, and wakes the worker
// when the next service has adopted it.
func (a *assault) asleep(h hit) {
	a.k.killService()
	a.noteKill("service "+string(h.name), a.k.current().pid, false)
	a.restart()
	_ = syscall.Kill(h.pid, syscall.SIGCONT) // it is suspended, so the number is still its own
}

// both kills a suspended process together with its counterpart: a service with
// all running workers, a worker with the service.
func (a *assault) both(h hit, who string) {
	if who == "service" {
		a.eachWorker(func(pid int, attempt string) {
			if a.k.killWorker(pid, attempt) {
				a.noteKill("both "+string(h.name), pid, true)
			}
		})
		_ = syscall.Kill(h.pid, syscall.SIGKILL) // it is suspended, so the number is still its own; it may be a tool host
		a.k.killService()
		a.noteKill("both "+string(h.name), h.pid, false)
		return
	}
	a.k.killService()
	a.noteKill("both "+string(h.name), a.k.current().pid, true)
	_ = syscall.Kill(h.pid, syscall.SIGKILL) // it is suspended, so the number is still its own
	a.noteKill("both "+string(h.name), h.pid, false)
}

// eachWorker calls do for every worker that started in the round.
func (a *assault) eachWorker(do func(pid int, attempt string)) {
	hits, _ := a.k.hits(a.from)
	for _, h := range hits {
		if h.name == failpoint.WorkerBegin && h.action == "" {
			do(h.pid, h.subject)
		}
	}
}

func (a *assault) isWorker(pid int) (is bool) {
	a.eachWorker(func(p int, _ string) { is = is || p == pid })
	return is
}

// blind kills at a random instant.
func (a *assault) blind() {
	if a.p.who != "service" {
		n := 0
		a.eachWorker(func(pid int, attempt string) {
			if (n == 0 || a.p.who == "both") && a.k.killWorker(pid, attempt) {
				a.noteKill(a.p.who+" blindly", pid, true)
				n++
			}
		})
		if a.p.who == "worker" {
			return // if no worker runs yet, the next tick retries
		}
	}
	a.k.killService()
	a.noteKill(a.p.who+" blindly", a.k.current().pid, true)
}

// campaign kills at every failpoint in names, a process alone or together with
// its counterpart, and then at random instants until the number of kills is
// reached.
func campaign(t *testing.T, uid int, seed uint64, names []failpoint.Name, kills int) *tally {
	t.Helper()
	k := newTrial(t, uid, seed)
	k.up(func() {})
	sum := &tally{kills: map[string]int{}, outcomes: map[string]int{}, reached: map[failpoint.Name]bool{}}
	n := 0
	for i, name := range names {
		who := "service"
		if strings.HasPrefix(string(name), "worker.") {
			who = "worker"
		}
		switch {
		case i%5 == int(seed%5):
			who = "both"
		case who == "worker" && i%2 == 0:
			who = "asleep"
		}
		// A kill may not happen if the work ends first: several failpoints are
		// armed, or the armed count is high.
		for try := 0; try < 12 && !sum.reached[name]; try++ {
			k.round(n, k.planAt(name, who), sum)
			n++
		}
	}
	for _, name := range betweenPoints() {
		k.killBetween(name, sum)
	}
	all := dispatched()
	for sum.count() < kills {
		if k.rng.IntN(20) == 0 {
			k.killBetween(betweenPoints()[k.rng.IntN(len(betweenPoints()))], sum)
			continue
		}
		p := k.planBlind()
		if k.rng.IntN(2) == 0 {
			p = k.planAt(all[k.rng.IntN(len(all))], []string{"service", "both"}[k.rng.IntN(2)])
			if strings.HasPrefix(string(p.at), "worker.") && k.rng.IntN(3) == 0 {
				p = k.planAt(p.at, "asleep")
			}
		}
		k.round(n, p, sum)
		n++
	}
	for _, b := range k.logFaults(sum.seen) {
		t.Error(b)
		sum.bad = append(sum.bad, b)
	}
	return sum
}

// campaigner is an account that has its dispatches or runs killed.
type campaigner struct {
	name string
	uid  int
	step int // every step-th failpoint
	part int // share of the kills, in fifths
}

func campaigns() []campaigner {
	if systemMode { // a person, whose service and launcher have accounts of their own
		return []campaigner{{"alice", machine.Alice, 1, 5}}
	}
	return []campaigner{{"root", 0, 1, 4}, {"user", ordinaryUID, 4, 1}}
}

// A kill of the service, of a worker or of both, at every failpoint and at
// random instants: no dispatch is lost or duplicated, every outcome is true,
// every entry is present and nothing is left behind. The final log contains
// every checkpoint that was seen.
//
// proves R-O6, R-D3, R-D4, R-A1, R-A2, R-A5
func TestKillsNeverChangeAnOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range campaigns() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var names []failpoint.Name
			for i, name := range dispatched() {
				if i%(c.step**stepFlag) == 0 {
					names = append(names, name)
				}
			}
			began := time.Now()
			t.Logf("seed %d", *seedFlag)
			sum := campaign(t, c.uid, *seedFlag, names, *killsFlag/2*c.part/5)
			t.Logf("%s, in %s", sum, time.Since(began).Round(time.Second))
			fmt.Printf("kills as %s, seed %d: %s, in %s\n", c.name, *seedFlag, sum, time.Since(began).Round(time.Second))
			for _, name := range slices.Concat(names, betweenPoints()) {
				if !sum.reached[name] {
					t.Errorf("no process was killed at %s", name)
				}
			}
		})
	}
}
