package jail

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A look at a jail takes about 20 µs for each process. The next follows when the jail could have taken what is left at
// takeRate on each processor, within these bounds, and never so soon that looking takes more than half of the time. A jail can
// make looks slow, by many processes and mappings: so the division of shared memory has an end.
const (
	watchMin   = 20 * time.Millisecond
	watchMax   = 500 * time.Millisecond
	divideTime = 500 * time.Millisecond
	vforkTime  = 200 * time.Millisecond
	takeRate   = 4 << 30 // bytes in a second
)

// watch ends a jail that takes more memory than its limit where no control group counts it: from outside, by what the kernel
// says of its processes, its tmpfs and its sockets. What it cannot see is refused inside, by [uncountedFilter].
type watch struct {
	limit     int64
	sockets   bool     // count sockets only: a control group counts the rest
	proc      *os.File // of the jail
	files     *os.File // on the tmpfs of the jail
	signal    func()   // kills everything in the jail but pid 1, from inside
	end       func()   // kills pid 1
	patience  time.Duration
	available func() (available, total int64)

	seen map[int]time.Duration // processes of the last look, and when each was first seen
}

// usage is what a look found, in bytes.
type usage struct {
	processes, files, descriptors, sockets int64
	socketCount                            int64
	unsure                                 bool // a process was taken for one between vfork and exec
}

func (u usage) total() int64 { return u.processes + u.files + u.descriptors + u.sockets }

// left is what the jail could still take before the next look matters.
func (u usage) left(limit, free int64) int64 {
	if u.unsure {
		return 0
	}
	return min(limit-u.total(), free)
}

// startWatch watches the jail until the returned function is called, which returns why the watchdog ended the command, or "".
func (j *Jail) startWatch() func() string {
	if j.groups.sockets {
		return func() string { return "" }
	}
	w, stop, why := j.watchdog(), make(chan struct{}), make(chan string)
	go func() { why <- w.run(stop) }()
	return func() string { close(stop); return <-why }
}

func (j *Jail) watchdog() *watch {
	return &watch{
		limit: j.spec.Limits.Memory, sockets: j.groups.has(memoryGroup), proc: j.proc, files: j.workspace, available: available,
		signal:   func() { _ = j.wire.send(&message{Kind: kindKill, Signal: int(unix.SIGKILL)}) },
		patience: cmp.Or(j.spec.reapTime, reapTime), end: func() { _ = j.process.Kill() },
	}
}

// run looks until stop is closed, and returns why it ended the jail, or "". Once a limit is exceeded, each further look kills
// what is still there.
func (w *watch) run(stop <-chan struct{}) string {
	why, ended := "", time.Duration(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return why
		case <-timer.C:
		}
		began := monotonic()
		u, err := w.look()
		free, total := w.available()
		reserve := min(total/64, 256<<20)
		switch {
		case why != "":
			if monotonic()-ended > w.patience {
				w.end()
			}
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH): // pid 1 has exited, and with it everything
		case err != nil:
			why = fmt.Sprintf("memory cannot be counted: %v", err)
		case u.total() > w.limit:
			why = u.explain(w.limit)
		case free < reserve && !w.sockets:
			why = fmt.Sprintf("the machine has %s of memory left, and no control group keeps this dispatch from taking it", mebibytes(free))
		}
		if why != "" {
			if ended == 0 {
				ended = monotonic()
			}
			w.kill()
		}
		timer.Reset(w.pause(u.left(w.limit, free-reserve), monotonic()-began))
	}
}

// monotonic is the time since the start of the machine.
func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // of this clock it cannot fail
	return time.Duration(now.Nano())
}

// pause is the time until the next look, with left bytes to go.
func (w *watch) pause(left int64, took time.Duration) time.Duration {
	until := time.Duration(float64(left) / takeRate / float64(runtime.NumCPU()) * float64(time.Second))
	return max(watchMin, min(until, watchMax), min(took, watchMax))
}

func (u usage) explain(limit int64) string {
	return fmt.Sprintf("%s in use (processes %s, files %s, open files %s, %d sockets at %d KiB), limit %s", mebibytes(u.total()), mebibytes(u.processes),
		mebibytes(u.files), mebibytes(u.descriptors), u.socketCount, socketBytes>>10, mebibytes(limit))
}

func mebibytes(n int64) string { return strconv.FormatInt((n+1<<19)>>20, 10) + " MiB" }

// look counts. If the sum over processes is too much, pages that several have are divided among them.
func (w *watch) look() (usage, error) {
	var u usage
	stat, err := w.read("1/net/sockstat", 512)
	if err != nil {
		return u, err
	}
	if _, err := fmt.Sscanf(stat, "sockets: used %d", &u.socketCount); err != nil {
		return u, fmt.Errorf("/proc/net/sockstat: %w", err)
	}
	u.sockets = u.socketCount * socketBytes
	if w.sockets {
		return u, nil
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(w.files.Fd()), &st); err != nil { //nolint:gosec // a descriptor
		return u, err
	}
	u.files = int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*inodeBytes //nolint:gosec // sizes
	list, err := w.processes()
	if err != nil {
		return u, err
	}
	for _, p := range list {
		u.processes += p.anonymous + p.kernel
		u.descriptors += p.descriptors
	}
	if u.total() > w.limit {
		u.processes, u.unsure = w.divided(list, w.limit-(u.total()-u.processes), monotonic()+divideTime)
	}
	seen := make(map[int]time.Duration, len(list))
	for pid := range list {
		first, ok := w.seen[pid]
		if !ok {
			first = monotonic()
		}
		seen[pid] = first
	}
	w.seen = seen
	return u, nil
}

// divided is the memory of processes, with what forked processes share counted once. It begins with the largest, and ends
// once the sum is known to be within enough, or beyond it, or at the deadline: the others then count whole.
func (w *watch) divided(list map[int]process, enough int64, deadline time.Duration) (sum int64, unsure bool) {
	for _, p := range list {
		sum += p.anonymous + p.kernel
	}
	bySize := slices.SortedFunc(maps.Keys(list), func(a, b int) int { return cmp.Compare(list[b].anonymous, list[a].anonymous) })
	least, copied := int64(0), map[int]bool{}
	for _, pid := range bySize {
		if sum <= enough || least > enough || monotonic() > deadline {
			break
		}
		p := list[pid]
		share := p.anonymous
		switch text, err := w.read(p.at+"/smaps_rollup", 4096); {
		case (errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT)) && !strings.Contains(p.at, "/"):
			share = 0 // exited meanwhile
		case err == nil:
			if kib := parseField(kibibytes(text), "Pss_Anon:"); strings.Contains(text, "Pss_Anon:") {
				share = kib<<10 + parseField(kibibytes(text), "SwapPss:")<<10
			}
		}
		if w.like(list, pid) && !w.like(list, p.parent) && !copied[p.parent] && share > p.anonymous-p.anonymous/16 {
			sum, unsure, copied[p.parent] = sum-p.anonymous-p.kernel, true, true
			continue
		}
		sum, least = sum-p.anonymous+share, least+share+p.kernel
	}
	if least > enough {
		sum = least
	}
	return sum, unsure
}

// like reports whether a process may be between vfork and exec: it then has the memory of its parent, not a share of it. A
// process is that for a moment only, and of each parent one is.
func (w *watch) like(list map[int]process, pid int) bool {
	p, parent := list[pid], list[list[pid].parent]
	first, seen := w.seen[pid]
	return parent.at != "" && abs(parent.anonymous-p.anonymous) < 1<<20 && (!seen || monotonic()-first < vforkTime)
}

func abs(n int64) int64 { return max(n, -n) }

// process is what one process has, in bytes.
type process struct {
	at                             string // in /proc: the process, or a thread of it
	parent                         int
	anonymous, kernel, descriptors int64
}

const (
	stackBytes      = 16 << 10 // of a thread, in the kernel
	descriptorBytes = 4 << 10  // half of the smallest pipe; other open files take less
	inodeBytes      = 1 << 10  // of a file, with its name
)

// processes reads all processes but pid 1, which is ours.
func (w *watch) processes() (map[int]process, error) {
	names, err := w.names(".")
	if err != nil {
		return nil, err
	}
	dir, list := int(w.proc.Fd()), map[int]process{} //nolint:gosec // a descriptor
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 {
			continue
		}
		at, text, err := w.status(name)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
			continue // exited meanwhile
		}
		if err != nil {
			return nil, err
		}
		p := parseProcess(text)
		p.at = at
		var st unix.Stat_t // Linux 6.2 and later say how many descriptors are open, others how many there is room for
		if unix.Fstatat(dir, at+"/fd", &st, 0) == nil && st.Size > 0 {
			p.descriptors = st.Size * descriptorBytes
		}
		list[pid] = p
	}
	return list, nil
}

// status reads the status of a process. Once its first thread has exited, only its other threads have its memory and its
// descriptors. Those may exit meanwhile too.
func (w *watch) status(name string) (at, text string, err error) {
	at = name
	text, err = w.read(at+"/status", 8192)
	for range 20 {
		if err != nil || strings.Contains(text, "\nRssAnon:") || parseField(text, "Threads:") < 2 {
			break
		}
		threads, _ := w.names(name + "/task")
		for _, thread := range threads {
			own := name + "/task/" + thread
			if found, err := w.read(own+"/status", 8192); err == nil && strings.Contains(found, "\nRssAnon:") {
				return own, found, nil
			}
		}
	}
	return at, text, err
}

func parseProcess(status string) process {
	fields := kibibytes(status)
	get := func(key string) int64 { return parseField(fields, key) }
	return process{
		parent: int(get("PPid:")), anonymous: (get("RssAnon:") + get("VmSwap:")) << 10,
		kernel: get("VmPTE:")<<10 + get("Threads:")*stackBytes, descriptors: get("FDSize:") * descriptorBytes,
	}
}

// kibibytes removes the unit, so that each line has a key and a number.
func kibibytes(text string) string { return strings.ReplaceAll(text, " kB\n", "\n") }

func (w *watch) names(dir string) ([]string, error) {
	fd, err := unix.Openat(int(w.proc.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) //nolint:gosec // a descriptor
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir) //nolint:gosec // a descriptor
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}

func (w *watch) read(name string, most int) (string, error) {
	fd, err := unix.Openat(int(w.proc.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0) //nolint:gosec // a descriptor
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	text := make([]byte, most)
	n, err := unix.Read(fd, text)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: name, Err: err}
	}
	return string(text[:n]), nil
}

// kill kills every process but pid 1, which then reports the end. Those that are made meanwhile are killed from inside, and at
// the next look.
func (w *watch) kill() {
	list, err := w.processes()
	if err == nil {
		for pid := range list {
			dir, err := unix.Openat(int(w.proc.Fd()), strconv.Itoa(pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) //nolint:gosec // a descriptor
			if err == nil {
				err = unix.PidfdSendSignal(dir, unix.SIGKILL, nil, 0)
				err = errors.Join(err, unix.Close(dir))
			}
			_ = err // exited meanwhile
		}
	}
	w.signal()
}

// available is what the machine can still give, in bytes.
func available() (free, total int64) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 1 << 62, 1 << 62
	}
	fields := kibibytes(string(text))
	return parseField(fields, "MemAvailable:") << 10, parseField(fields, "MemTotal:") << 10
}

// ended adds what the watchdog says.
func (e *Exit) ended(why string) {
	if e.Why = why; why != "" && !slices.Contains(e.Hit, HitMemory) {
		e.Hit = append(e.Hit, HitMemory)
	}
}
