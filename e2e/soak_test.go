package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

var soakFlag = flag.Duration("soak", 20*time.Second, "duration of the mixed load of TestMixedLoadLeavesNoTrace")

// figures are the values of one sample.
type figures map[string]float64

// bound limits how far the median of the late samples may exceed that of the
// early ones: by a fraction, and by an amount.
type bound struct{ share, amount float64 }

// bounds returns the limit of each figure. Some dispatches run at every
// instant, so each figure may vary by what a few of them need.
func bounds() map[string]bound {
	return map[string]bound{
		"service memory MiB":     {0.25, 16},
		"service descriptors":    {0.25, 12},
		"service threads":        {0.25, 8},
		"processes":              {0.25, 12},
		"zombies of the service": {0, 2},
		"mounts":                 {0, 0},
		"control groups":         {0.25, 12},
		"files of running work":  {0.25, 400},
		"MiB of running work":    {0.25, 16},
	}
}

// beyond compares the two windows.
func beyond(early, late []figures) (bad, lines []string) {
	all := bounds()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b, from, to := all[name], median(early, name), median(late, name)
		lines = append(lines, fmt.Sprintf("%s %.4g -> %.4g", name, from, to))
		if most := from*(1+b.share) + b.amount; to > most {
			bad = append(bad, fmt.Sprintf("%s grew from %.4g to %.4g, more than to %.4g", name, from, to, most))
		}
	}
	return bad, lines
}

func median(samples []figures, name string) float64 {
	var v []float64
	for _, s := range samples {
		v = append(v, s[name])
	}
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// sample measures the service and the machine.
func (k *trial) sample() figures {
	pid := k.current().pid
	f := figures{}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			kib, _ := strconv.ParseFloat(fields[1], 64)
			f["service memory MiB"] = kib / 1024
		case "Threads:":
			f["service threads"], _ = strconv.ParseFloat(fields[1], 64)
		}
	}
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	f["service descriptors"] = float64(len(files))
	for _, stat := range procFiles("stat") {
		dir := filepath.Dir(stat)
		text, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		if strings.Contains(string(text), ") Z ") && parent(dir) == pid {
			f["zombies of the service"]++
		}
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(env), k.dir) || strings.Contains(string(env), "BAILIWICK_DISPATCH="+k.prefix) {
			f["processes"]++
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	f["mounts"] = float64(strings.Count(string(mounts), k.dir))
	f["control groups"] = float64(len(ownGroups()))
	for _, dir := range []string{"tmp", "state/bailiwick/dispatches", "state/bailiwick/scratch", "state/bailiwick/blobs/ingest", "state/bailiwick/checkouts"} {
		n, size := usage(k.path(dir))
		f["files of running work"] += n
		f["MiB of running work"] += size / (1 << 20)
	}
	return f
}

// usage counts the files below dir and their size.
func usage(dir string) (n, size float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has been removed
		}
		n++
		if info, err := d.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				size += float64(st.Blocks) * 512
			}
		}
		return nil
	})
	return n, size
}

// load is the mixed load of a soak.
type load struct {
	k    *trial
	stop chan struct{}
	n    atomic.Int64

	mu       sync.Mutex
	outcomes map[string]int // guarded by mu
	bad      []string       // guarded by mu
}

// chatter is a kind whose output exceeds its log limit.
func chatter() kind {
	return kind{
		subagent: subagent{name: "chatters", script: "echo begun; head -c 20M /dev/zero | tr '\\0' x; echo half > half.txt", more: "    limits: {log: 1MiB}\n"},
		want:     endsWith(api.EventFinished, ""),
	}
}

// caller requests one dispatch after another, each with a follower of its log,
// and reads lists and records in between. Now and then it starts a collection.
func (l *load) caller(seed uint64) {
	rng := rand.New(rand.NewPCG(*seedFlag, seed))
	all := append(kinds(), chatter())
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(time.Duration(rng.IntN(600)) * time.Millisecond):
		}
		kind := all[rng.IntN(len(all))]
		j := &job{id: l.k.id("d", l.n.Add(1)), kind: kind}
		var follower sync.WaitGroup
		follower.Go(func() {
			var raw []byte
			_ = l.k.insist(http.MethodGet, runtimePath+"/"+j.id+"/log?offset=0&follow=true", nil, &raw) // the connection breaks when the service exits
		})
		l.k.run(j, time.Duration(rng.IntN(300))*time.Millisecond)
		follower.Wait()
		for _, path := range []string{runtimePath + "?limit=50", "/v1/operator/status", "/v1/operator/log?last=20"} {
			var raw []byte
			if err := l.k.insist(http.MethodGet, path, nil, &raw); err != nil {
				l.note("", "LOST: "+path+": "+err.Error())
			}
		}
		l.look(j)
		if rng.IntN(20) == 0 {
			var report api.GCReport
			if err := l.k.insist(http.MethodPost, "/v1/operator/gc", nil, &report); err != nil {
				l.note("", "LOST: gc: "+err.Error())
			}
		}
	}
}

// look compares the end of a dispatch with the expected end of its kind. No
// worker is killed here.
func (l *load) look(j *job) {
	d, err := l.k.describe(j.id)
	if err = cmp.Or(j.err, err); err != nil {
		l.note("", fmt.Sprintf("LOST: %s (%s): %v", j.id, j.kind.name, err))
		return
	}
	got, want := end{d.State, d.Reason}, j.kind.want[len(j.kind.want)-1]
	if want.state == api.EventNeedsInput {
		want = end{api.EventFailed, api.ReasonTimeout} // not answered
	}
	if got != want {
		l.note("", fmt.Sprintf("UNTRUE: %s (%s) is %s, want %s: %s", j.id, j.kind.name, got, want, d.Message))
	}
	l.note(got.String(), "")
}

func (l *load) note(outcome, bad string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if outcome != "" {
		l.outcomes[outcome]++
	}
	if bad != "" {
		l.bad = append(l.bad, bad)
	}
}

// A mixed load of every kind of dispatch, with followers of logs and services
// that are stopped and killed, leaves memory, descriptors, processes, mounts,
// control groups and disk as they were.
//
// proves R-O6, R-D7
//
// It does not run beside other tests: it counts the control groups of this suite.
func TestMixedLoadLeavesNoTrace(t *testing.T) {
	k := newTrial(t, 0, *seedFlag+1)
	k.bin = bin // as shipped
	k.up(func() {})
	l := &load{k: k, stop: make(chan struct{}), outcomes: map[string]int{}}
	var callers sync.WaitGroup
	for i := range uint64(4) {
		callers.Go(func() { l.caller(100 + i) })
	}
	total := *soakFlag
	began := time.Now()
	// The service is stopped and killed during the first fifth only, so growth
	// is measured on one service.
	ends := []struct {
		at  time.Duration
		how syscall.Signal
	}{{total / 20, syscall.SIGTERM}, {total / 10, syscall.SIGKILL}, {total * 3 / 20, syscall.SIGKILL}, {total / 5, syscall.SIGTERM}}
	var early, late []figures
	for tick := time.NewTicker(min(time.Second, total/40)); time.Since(began) < total; <-tick.C {
		at := time.Since(began)
		if len(ends) > 0 && at >= ends[0].at {
			must(t, syscall.Kill(k.current().pid, ends[0].how))
			<-k.current().ended
			k.up(func() {})
			ends = ends[1:]
		}
		switch f := k.sample(); {
		case at > total*3/10 && at < total/2:
			early = append(early, f)
		case at > total*8/10:
			late = append(late, f)
		}
	}
	close(l.stop)
	callers.Wait()
	bad, lines := beyond(early, late)
	left := settled(func() []string { return k.remains(nil) })
	_, blobs := usage(k.path("state/bailiwick/blobs"))
	_, store := usage(k.path("state/bailiwick/store"))
	var outcomes []string
	for _, what := range slices.Sorted(maps.Keys(l.outcomes)) {
		outcomes = append(outcomes, fmt.Sprintf("%s %d", what, l.outcomes[what]))
	}
	n := float64(max(1, l.n.Load()))
	fmt.Printf("mixed load, seed %d, %s: %d dispatches (%s); medians of %d early and %d late samples: %s; kept for each dispatch: %.3g KiB of content, %.3g KiB of records; left behind %d; wrong %d\n",
		*seedFlag, total, l.n.Load(), strings.Join(outcomes, ", "), len(early), len(late), strings.Join(lines, ", "), blobs/n/1024, store/n/1024, len(left), len(l.bad))
	for _, b := range slices.Concat(bad, left, l.bad, gaps(k.log(-1))) {
		t.Error(b)
	}
	if len(early) == 0 || len(late) == 0 || l.n.Load() == 0 {
		t.Errorf("%d early and %d late samples of %d dispatches prove nothing", len(early), len(late), l.n.Load())
	}
}

// The positive control: growth beyond a bound is reported, growth within it is
// not.
func TestGrowthBeyondItsBoundIsReported(t *testing.T) {
	t.Parallel()
	at := func(v float64) []figures {
		f := figures{}
		for name := range bounds() {
			f[name] = v
		}
		return []figures{f, f, f}
	}
	if bad, _ := beyond(at(100), at(100)); len(bad) > 0 {
		t.Errorf("constant figures are reported as growing: %q", bad)
	}
	if bad, _ := beyond(at(100), at(1000)); len(bad) != len(bounds()) {
		t.Errorf("of %d figures that grew tenfold %d are reported: %q", len(bounds()), len(bad), bad)
	}
}
