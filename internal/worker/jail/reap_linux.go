package jail

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reaper reaps every process of the jail, as pid 1 must, and adds up their resource usage.
type reaper struct {
	mu      sync.Mutex
	wake    *sync.Cond
	status  map[int]syscall.WaitStatus
	idle    bool // no child is left
	cpu     time.Duration
	largest int64
}

func newReaper() *reaper {
	r := &reaper{status: map[int]syscall.WaitStatus{}, idle: true}
	r.wake = sync.NewCond(&r.mu)
	return r
}

// reset is called before a command starts, when no process runs.
func (r *reaper) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.status)
	r.cpu, r.largest = 0, 0
}

// collect reaps until no child is left.
func (r *reaper) collect() {
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, 0, &usage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		r.mu.Lock()
		if err != nil {
			r.idle = true
			r.wake.Broadcast()
			r.mu.Unlock()
			return
		}
		r.status[pid] = status
		r.cpu += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		r.largest = max(r.largest, usage.Maxrss*1024)
		r.wake.Broadcast()
		r.mu.Unlock()
	}
}

const sampleEvery = 200 * time.Millisecond

// wait returns when pid has exited and every other process of the jail has been killed and reaped.
func (r *reaper) wait(pid int, s *spawner, set *setup) *Exit {
	r.mu.Lock()
	r.idle = false
	r.mu.Unlock()
	go r.collect() // ends with the last process, below
	exit := &Exit{}
	stop := make(chan struct{})
	sampled := make(chan bool)
	go func() { sampled <- r.sample(set, stop) }()
	r.mu.Lock()
	for {
		status, ended := r.status[pid]
		if ended {
			exit.Code, exit.Signal = ending(status)
			break
		}
		r.wake.Wait()
	}
	r.mu.Unlock()
	close(stop)
	full := <-sampled
	s.do(func() { _ = unix.Kill(-1, unix.SIGKILL) })
	r.mu.Lock()
	for !r.idle {
		r.wake.Wait()
	}
	exit.CPU, exit.MaxMemory = r.cpu, r.largest
	r.mu.Unlock()
	exit.Hit = diskHits()
	if full {
		exit.Hit = append(exit.Hit, HitProcesses)
	}
	if !set.MemoryCgroup && exit.MaxMemory > set.Limits.Memory/10*9 {
		exit.Hit = append(exit.Hit, HitMemory)
	}
	return exit
}

func ending(status syscall.WaitStatus) (int, syscall.Signal) {
	if status.Signaled() {
		return 0, status.Signal()
	}
	return status.ExitStatus(), 0
}

// sample reports whether the process limit was reached if no cgroup counts refusals: the kernel then reports them only to
// the refused process. It samples at intervals and once at the end.
func (r *reaper) sample(set *setup, stop <-chan struct{}) bool {
	if set.ProcessCgroup {
		<-stop
		return false
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	full := false
	for {
		select {
		case <-tick.C:
			full = full || countTasks() >= set.Limits.Processes
		case <-stop:
			return full || countTasks() >= set.Limits.Processes
		}
	}
}

// countTasks counts the threads of all processes in the jail but pid 1.
func countTasks() int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	total := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || e.Name() == "1" {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // exited meanwhile
		}
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(fields) > 17 {
			n, _ := strconv.Atoi(fields[17])
			total += n
		}
	}
	return total
}

// diskHits returns which limits of the tmpfs are exhausted.
func diskHits() []string {
	var st unix.Statfs_t
	if err := unix.Statfs("/tmp", &st); err != nil {
		return nil
	}
	var hits []string
	if st.Blocks > 0 && st.Bfree < 1+st.Blocks/1000 {
		hits = append(hits, HitDisk)
	}
	if st.Files > 0 && st.Ffree == 0 {
		hits = append(hits, HitFiles)
	}
	return hits
}
