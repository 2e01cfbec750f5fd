package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

// trialBin builds the programs with failpoints, once.
var trialBin = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(bin), "trial")
	if prebuilt.Dir() != "" {
		return dir, nil
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "failpoints", "-o", dir+"/", "../cmd/bailiwickd", "../cmd/bailiwick-launch", "../cmd/bailiwick-worker", "../cmd/bailiwick-fetch", "../cmd/bailiwick-toolhost", "../cmd/bailiwick-tool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

// trial is a world whose service and workers have failpoints. The test is the
// parent of the service, so it notices when the service exits.
type trial struct {
	*world
	rng    *rand.Rand // used only by the goroutine that drives the trial
	prefix string     // of its dispatch IDs
	bin    string
	flags  []string // of the service

	mu      sync.Mutex
	service *process // the current one; guarded by mu
	starts  int      // guarded by mu

	signed map[uint64][]byte // every checkpoint seen, by size; used only by the goroutine that drives the trial
	forked []string          // problems found when a checkpoint was seen

	counter *counter // that its agents call
}

// process is a running bailiwickd.
type process struct {
	pid       int
	ended     chan struct{} // closed when it has exited
	listening chan bool     // receives one value: whether it came up
}

// newTrial creates a world with the subagents of kinds and one repository.
func newTrial(t testing.TB, uid int, seed uint64) *trial {
	dir, err := trialBin()
	if err != nil {
		t.Fatal(err)
	}
	k := &trial{world: newWorld(t, uid), rng: rand.New(rand.NewPCG(seed, 1)), prefix: fmt.Sprintf("d-%08x", uint32(seed)<<22|uint32(os.Getpid())), bin: dir, signed: map[uint64][]byte{}}
	if k.unit != nil {
		k.unit.bin = dir
	}
	k.repository("repo", map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
	var subs []subagent
	for _, kind := range append(runKinds(), chatter()) {
		subs = append(subs, kind.subagent)
	}
	k.init()
	k.manifest(subs...)
	k.replace(manifest, "level: full, mode: guarded}", "level: full, mode: guarded, egress: [allowed.example:443]}")
	k.counter = newCounter(t)
	k.replace(manifest, "roles: [transform, quality]", "roles: [transform, quality]\n"+k.counter.tools())
	k.meterTrial()
	k.must("catalog", "plan", "--pin", "--connect", "-f", k.path(manifest))
	k.must("catalog", "apply", "--connect", "-f", k.path(manifest))
	// Low enough that a trial exceeds it, so that older content is removed;
	// higher than what one round produces.
	k.configure("retention:\n  content: {count: 20}\n")
	k.mkdir("state/" + failpoint.Folder)
	k.write("state/"+failpoint.Folder+"/"+failpoint.Record, "", 0o600)
	t.Cleanup(func() {
		k.stopAll()
		if t.Failed() {
			log, _ := os.ReadFile(k.path("service.out"))
			t.Logf("log of the services:\n%s", log[max(0, len(log)-20_000):])
		}
	})
	return k
}

// id names a dispatch, "d", or a run, "r", of the trial, in the form that clients generate:
// it is stored as it is.
func (k *trial) id(letter string, name ...any) string {
	h := fnv.New64a()
	fmt.Fprint(h, name...)
	return fmt.Sprintf("%s%s%016x", letter, k.prefix[1:], h.Sum64())
}

// stopAll kills the service and all workers of the trial.
func (k *trial) stopAll() {
	k.mu.Lock()
	s := k.service
	k.mu.Unlock()
	if s != nil {
		_ = syscall.Kill(s.pid, syscall.SIGKILL)
		<-s.ended
	}
	for _, pid := range k.workers() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		awaitGone(k.t, pid)
	}
}

// start starts a service and returns whether it came up: an armed failpoint may
// kill it before. It calls look repeatedly while it waits.
func (k *trial) start(look func()) bool {
	k.t.Helper()
	args := append([]string{"serve"}, k.flags...)
	cmd := k.command(filepath.Join(k.bin, "bailiwickd"), args...)
	if k.unit != nil {
		k.unit.sync()
		k.unit.handOver()
		k.unit.halt = k.halt
		cmd = k.unit.program(machine.Service, append([]string{filepath.Join(k.bin, "bailiwickd"), "serve", "--system"}, k.flags...)...)
	}
	log, err := os.OpenFile(k.path("service.out"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	s := &process{pid: cmd.Process.Pid, ended: make(chan struct{}), listening: make(chan bool, 1)}
	k.mu.Lock()
	k.service = s
	k.starts++
	k.mu.Unlock()
	go func() {
		in := bufio.NewReader(out)
		line, _ := in.ReadString('\n')
		s.listening <- strings.Contains(line, "listening")
		_, _ = io.Copy(io.Discard, in)
		_ = cmd.Wait()
		close(s.ended)
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		select {
		case up := <-s.listening:
			if !up {
				<-s.ended
			}
			return up
		case <-tick.C:
			look()
		}
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	_ = syscall.Kill(s.pid, syscall.SIGQUIT) // dumps its goroutines
	k.t.Fatalf("the service does not come up; process %d hangs: %s", s.pid, stat)
	return false
}

// up starts services until one comes up, and returns how many were killed
// before.
func (k *trial) up(look func()) (killed int) {
	k.t.Helper()
	for ; !k.start(look); killed++ {
		if killed == 5 {
			log, _ := os.ReadFile(k.path("service.out"))
			k.t.Fatalf("no service comes up:\n%s", log[max(0, len(log)-4000):])
		}
	}
	return killed
}

// halt stops the service of the trial.
func (k *trial) halt() {
	s := k.current()
	select {
	case <-s.ended:
		return
	default:
	}
	_ = syscall.Kill(s.pid, syscall.SIGTERM)
	<-s.ended
}

func (k *trial) current() *process {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.service
}

// killService kills the service and returns when it has exited.
func (k *trial) killService() {
	s := k.current()
	_ = syscall.Kill(s.pid, syscall.SIGKILL) // still our child, not yet waited for; or it has exited
	<-s.ended
}

// killWorker kills the worker that runs attempt, and reports whether it was
// running. The pidfd guarantees that it is no other process.
func (k *trial) killWorker(pid int, attempt string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd) //nolint:errcheck // only a handle
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(b, []byte(attempt)) {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// arm replaces the armed failpoints.
func (k *trial) arm(lines ...string) {
	k.t.Helper()
	name := "state/" + failpoint.Folder + "/" + failpoint.Armed
	k.write(name+".new", strings.Join(lines, "\n")+"\n", 0o600)
	if err := os.Rename(k.path(name+".new"), k.path(name)); err != nil {
		k.t.Fatal(err)
	}
}

// hit is one line of the failpoints' record.
type hit struct {
	name    failpoint.Name
	pid     int
	action  failpoint.Action // of an armed failpoint
	subject string
}

// hits reads the record from an offset on, and returns the offset of its end.
func (k *trial) hits(from int64) ([]hit, int64) {
	k.t.Helper()
	b, err := os.ReadFile(k.path("state", failpoint.Folder, failpoint.Record))
	if err != nil {
		k.t.Fatal(err)
	}
	b = b[from:]
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	var list []hit
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		var h hit
		if f[0] == "!" {
			f = strings.SplitN(strings.TrimSuffix(line, "\n")[2:], " ", 4)
			h.action = failpoint.Action(f[2])
		}
		h.name, h.subject = failpoint.Name(f[0]), f[len(f)-1]
		if h.pid, err = strconv.Atoi(f[1]); err != nil {
			k.t.Fatalf("record: %q", line)
		}
		list = append(list, h)
	}
	return list, from + int64(len(b))
}

// caller connects to the service as the world's account, from within the test
// process.
func (k *trial) caller() *http.Client {
	socket := k.path("run/bailiwick/api.sock")
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			asUser(k.uid, func() {
				var d net.Dialer
				conn, err = d.DialContext(ctx, "unix", socket)
			})
			return conn, err
		},
	}}
}

// asUser calls do on a thread that runs as another account: the service asks
// the kernel which account has connected. A connection to a unix socket is made
// on the calling thread.
func asUser(uid int, do func()) {
	if uid == 0 {
		do()
		return
	}
	runtime.LockOSThread()
	same := ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same); errno != 0 {
		panic(errno)
	}
	do()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
		panic(errno)
	}
	runtime.UnlockOSThread()
}

// errRefused is an error response of the service.
type errRefused struct {
	status int
	body   string
}

func (e *errRefused) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// ask calls the service once. Without a response the error is not an
// errRefused.
func (k *trial) ask(method, path string, body, answer any) error {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(k.t.Context(), method, "http://bailiwick"+path, payload)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := k.caller()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return &errRefused{resp.StatusCode, string(b)}
	}
	switch to := answer.(type) {
	case nil:
		return nil
	case *[]byte:
		*to = b
		return nil
	}
	return json.Unmarshal(b, answer)
}

// insist calls the service until it responds, as a client does that may repeat
// its request.
func (k *trial) insist(method, path string, body, answer any) error {
	var err error
	for range polling(2 * time.Minute) {
		err = k.ask(method, path, body, answer)
		if refused := (*errRefused)(nil); err == nil || errors.As(err, &refused) && refused.status != http.StatusServiceUnavailable {
			return err
		}
	}
	return fmt.Errorf("%s %s: no answer: %w", method, path, err)
}

const runtimePath = "/v1/runtime/dispatches"

func (k *trial) describe(id string) (d api.Dispatch, err error) {
	return d, k.insist(http.MethodGet, runtimePath+"/"+id, nil, &d)
}

// entry holds the parts of an audit entry that the checks need.
type entry struct {
	Seq      uint64                `json:"-"`
	At       time.Time             `json:"at"`
	Kind     string                `json:"kind"`
	By       string                `json:"principal"`
	Run      string                `json:"run"`
	Task     string                `json:"task"`
	Dispatch string                `json:"dispatch"`
	Attempt  int                   `json:"attempt"`
	Refs     map[string]api.Digest `json:"refs"`
	Detail   struct {
		Reason string `json:"reason"`
		By     string `json:"by"`
		Cause  string `json:"cause"`
		Queue  string `json:"queue"`
		Until  string `json:"until"`
		Fence  int64  `json:"fence"`
		Number int64  `json:"number"`
		// Of growth, approvals, reuse and schedules.
		Round    int      `json:"round"`
		Tasks    int      `json:"tasks"`
		Total    int      `json:"total"`
		Count    int      `json:"count"`
		Approval string   `json:"approval"`
		Verb     string   `json:"verb"`
		Of       string   `json:"of"`
		Schedule string   `json:"schedule"`
		Slot     string   `json:"slot"`
		Last     string   `json:"last"`
		Locks    []string `json:"locks"`
		Shared   []string `json:"shared"`
		// Of an attempt: what it reserves, or has spent.
		Budgets []struct {
			Budget   string    `json:"budget"`
			Reserved api.Spend `json:"reserved"`
			Spent    api.Spend `json:"spent"`
		} `json:"budgets"`
	} `json:"detail"`
	leaf string
}

// log reads the whole log, or the entries after the given one.
func (k *trial) log(after int) []entry {
	k.t.Helper()
	path := "/v1/operator/log"
	if after >= 0 {
		path += "?after=" + strconv.Itoa(after)
	}
	var text []byte
	if err := k.insist(http.MethodGet, path, nil, &text); err != nil {
		k.t.Fatal(err)
	}
	var list []entry
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var line api.LogLine
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			k.t.Fatal(err)
		}
		e := entry{Seq: line.Seq, leaf: string(line.Leaf)}
		if err := json.Unmarshal(line.Leaf, &e); err != nil {
			k.t.Fatal(err)
		}
		list = append(list, e)
	}
}

// descriptors counts the open files of the service.
func (k *trial) descriptors() int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", k.current().pid))
	if err != nil {
		k.t.Fatal(err)
	}
	return len(list)
}

// settled calls look until it reports no problems, and returns the remaining
// ones when time runs out.
func settled(look func() []string) (wrong []string) {
	for late := range polling(time.Minute) {
		if wrong = look(); len(wrong) == 0 || late {
			return wrong
		}
	}
	panic("unreachable")
}

// remains lists everything that a world without a running dispatch must not
// have: processes, control groups, mounts and files. The control groups are
// those that the record says were created.
func (k *trial) remains(hits []hit) (left []string) {
	left = append(left, k.remainingProcesses(hits)...)
	for _, h := range hits {
		if h.name != failpoint.JailGroup || h.action != "" {
			continue
		}
		if _, err := os.Stat(h.subject); err == nil && !slices.Contains(left, "control group "+h.subject) {
			left = append(left, "control group "+h.subject)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return append(left, err.Error())
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, k.dir) {
			left = append(left, "mount "+line)
		}
	}
	for _, dir := range []string{"tmp", "tmp-service", "state/bailiwick/dispatches", "state/bailiwick/blobs/ingest", "state/bailiwick/scratch"} {
		files, err := os.ReadDir(k.path(dir))
		if err != nil && !os.IsNotExist(err) {
			left = append(left, err.Error())
		}
		for _, f := range files {
			left = append(left, "file "+filepath.Join(dir, f.Name()))
		}
	}
	known := []string{"address", "anchor", "blobs", "checkouts", "configuration.json", "dispatches", "high-water", "launch", "log", "private", "reserve", "scratch", "secrets", "service-keys.json", "service.key", "service.key.pub", "store", "store/lock", "store/state.db", "store/state.db-shm", "store/state.db-wal", "successor", "tool", "toolservers"}
	for _, pattern := range []string{"*", "store/*", "blobs/*", "anchor/views/*"} {
		files, _ := filepath.Glob(k.path("state/bailiwick", pattern))
		for _, f := range files {
			name, _ := filepath.Rel(k.path("state/bailiwick"), f)
			if !slices.Contains(known, name) && !slices.Contains([]string{"blobs/blobs", "blobs/ingest", "blobs/index.json", "blobs/oci-layout"}, name) {
				left = append(left, "file "+name)
			}
		}
	}
	return left
}

// remainingProcesses lists processes that name the world, processes whose
// environment names a dispatch of the trial, and first processes of jails
// without an owner.
func (k *trial) remainingProcesses(hits []hit) (left []string) {
	service := k.current().pid
	ours := regexp.MustCompile("BAILIWICK_DISPATCH=" + k.prefix)
	if runs := k.dispatchesOf(hits); len(runs) > 0 {
		ours = regexp.MustCompile("BAILIWICK_DISPATCH=(" + k.prefix + "|" + strings.Join(runs, "|") + ")")
	}
	for _, f := range ownProcesses("cmdline") {
		dir := filepath.Dir(f)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		cmd, err := os.ReadFile(f)
		if err != nil || pid == service || pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		switch {
		case k.unit != nil && pid == k.unit.launcherPID():
		case k.unit != nil && k.unit.worker(pid), bytes.Contains(cmd, []byte(k.dir)), bytes.Contains(env, []byte(k.dir)), ours.Match(env):
			if parent(dir) != service || !bytes.Contains(env, []byte("GIT_DIR=")) { // the service's own git, for a request
				left = append(left, fmt.Sprintf("process %d %q", pid, cmd))
			}
		case bytes.HasPrefix(cmd, []byte("bailiwick-jail-init")):
			owner, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent(dir)))
			if err != nil || !bytes.Contains(owner, []byte("bailiwick")) && !bytes.Contains(owner, []byte(".test")) {
				left = append(left, fmt.Sprintf("jail %d without an owner", pid))
			}
		}
	}
	return left
}

// dispatchesOf lists the dispatches whose workers the record names. It includes
// those of runs, whose IDs the test cannot choose.
func (k *trial) dispatchesOf(hits []hit) (ids []string) {
	for _, h := range hits {
		if id := dispatchOf(h.subject); h.name == failpoint.WorkerBegin && id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// parent is the parent process of the process with this directory in /proc.
func parent(dir string) int {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// text is what the service returns of the log of a dispatch.
func (k *trial) text(id string) string {
	var raw []byte
	if err := k.insist(http.MethodGet, runtimePath+"/"+id+"/log?offset=0&follow=false", nil, &raw); err != nil {
		return "error: " + err.Error()
	}
	var text strings.Builder
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var c api.Chunk
		if err := dec.Decode(&c); err != nil {
			return text.String()
		}
		text.Write(c.Data)
	}
}
