package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// smallState puts the state on a file system of this size of its own, and keeps
// what is there.
func (w *world) smallState(size string) {
	w.t.Helper()
	dir := w.path("state/bailiwick")
	must(w.t, os.MkdirAll(dir, 0o700))
	kept := w.path("kept")
	must(w.t, os.CopyFS(kept, os.DirFS(dir)))
	must(w.t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=700"))
	w.t.Cleanup(func() { must(w.t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	must(w.t, filepath.WalkDir(kept, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, kept))
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case d.Name() == "reserve": // larger than a small disk
			return nil
		}
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(to, b, 0o600))
	}))
	must(w.t, os.RemoveAll(kept))
	if w.unit != nil {
		w.unit.mu.Lock()
		w.unit.giveAll("state/bailiwick")
		w.unit.remounted()
		w.unit.mu.Unlock()
	}
}

// fillState takes all space that is left on the disk of the state.
func (w *world) fillState() {
	w.t.Helper()
	f, err := os.OpenFile(w.path("state/bailiwick/filler"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(w.t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	must(w.t, f.Close())
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatal(err)
	}
}

func (w *world) freeState() {
	w.t.Helper()
	must(w.t, os.Remove(w.path("state/bailiwick/filler")))
}

// fullDiskSteps are the points of a run at which its disk becomes full.
func fullDiskSteps() []failpoint.Name {
	return []failpoint.Name{
		failpoint.RunCommit, failpoint.RunRequest, // the engine's commit, and the request of the dispatch
		failpoint.AcceptCommit, failpoint.ExecutorDir, failpoint.StartCommit, // the admission and the start
		failpoint.WorkerProceed, failpoint.WorkerWorkspace, // the checkout, and the log
		failpoint.WorkerAgent, failpoint.WorkerCapture, failpoint.WorkerKeep, failpoint.WorkerSeal, // the agent, the capture, the result
		failpoint.CollectBegin, failpoint.CollectBlob, failpoint.EndCommit, // the blobs, and the commit of the end
		failpoint.AttestCommit,
	}
}

// proves R-A2 (nothing is admitted while the log cannot be written), R-O6 (no run
// is lost), R-D3 (a full disk is lost, never integrity): the disk of the state
// becomes full at each step of a run. When there is room again the run ends done,
// by the same process.
func TestARunSurvivesAFullDiskAtEachStep(t *testing.T) {
	t.Parallel()
	k := newTrial(t, 0, 12)
	k.write("config/bailiwick/service.yaml", "version: 1\n", 0o600)
	k.catalog(maker())
	k.smallState("36m")
	k.flags = []string{"--orchestrator"}
	k.up(func() {})
	service := k.current().pid
	for n, at := range fullDiskSteps() {
		_, from := k.hits(0)
		k.arm(string(at) + " 1 stop")
		id := api.RunID(fmt.Sprintf("full-%d", n))
		one := api.PlanTask{ID: "one", Subagent: "makes", Input: []byte(fmt.Sprintf(`{"n":%d}`, n))}
		two := api.PlanTask{ID: "two", Subagent: "makes"}
		retrying(20)(&one)
		retrying(20)(&two)
		needing("change", api.Need{From: "one", Patch: true})(&two)
		submitted := make(chan error, 1)
		go func() { // the stop may be before the answer
			submitted <- k.insist("POST", runsPath, request(t, planned(id, one, two)), nil)
		}()
		stopped := k.awaitStop(from)
		k.fillState()
		must(t, syscall.Kill(stopped, syscall.SIGCONT))
		k.keepFull(string(at))
		k.freeState()
		if err := <-submitted; err != nil {
			t.Fatalf("%s: submit: %v", at, err)
		}
		run := k.awaitDone(id)
		for _, o := range run.Tasks {
			if run.State != api.RunDone || o.State != api.TaskDone {
				t.Errorf("%s: %+v", at, run)
			}
			k.wantRetriedForTheDisk(string(at), run, o)
		}
	}
	if now := k.current().pid; now != service || syscall.Kill(service, 0) != nil {
		t.Error("the service was restarted")
	}
	must(t, k.insist("GET", "/v1/operator/status", nil, nil))
}

// awaitStop returns the process that has stopped itself at the armed point.
func (k *trial) awaitStop(from int64) int {
	k.t.Helper()
	for range polling(time.Minute) {
		hits, _ := k.hits(from)
		for _, h := range hits {
			if h.action == failpoint.Stop && strings.Contains(procState(h.pid), "T") {
				return h.pid
			}
		}
	}
	k.t.Fatal("no process stopped at the armed point")
	return 0
}

// procState is the state letter of a process.
func procState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:min(1, len(rest))]
}

// keepFull keeps the disk full, also of what the service gives up, until the
// service has reported it a few times.
func (k *trial) keepFull(at string) {
	k.t.Helper()
	for seen, looks := 0, 0; seen < 10; looks++ {
		k.fillState()
		var s api.ServiceStatus
		err := k.ask("GET", "/v1/operator/status", nil, &s)
		refused := (*errRefused)(nil)
		switch {
		case k.on != nil && errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable && strings.Contains(refused.body, "full"):
			seen++ // without its state, the service of a machine knows no operators
		case errors.As(err, &refused):
			k.t.Fatalf("%s: status: %v", at, err)
		case err == nil && !s.Ready && strings.Contains(s.NotReady, "state is on a full disk"):
			seen++
		case looks == 1000:
			k.t.Fatalf("%s: on a full disk it is %+v, %v", at, s, err)
		}
	}
}

// awaitDone waits until a run is settled. The service may open its state again
// meanwhile.
func (k *trial) awaitDone(id api.RunID) (run api.Run) {
	k.t.Helper()
	for late := range polling(90 * time.Second) {
		if err := k.insist("GET", runsPath+"/"+string(id), nil, &run); err != nil {
			k.t.Fatal(err)
		}
		if run.State.Settled() {
			return run
		}
		if late {
			k.t.Fatalf("run %s does not settle: %+v", id, run)
		}
	}
	panic("unreachable")
}

// wantRetriedForTheDisk fails the test unless each earlier attempt of a task was
// lost to the disk.
func (k *trial) wantRetriedForTheDisk(at string, run api.Run, o api.RunTask) {
	k.t.Helper()
	var page api.RunEvents
	must(k.t, k.insist("GET", runsPath+"/"+string(run.RunID)+"/events", nil, &page))
	disk := regexp.MustCompile("a fault of this machine|died without a result|starting the worker failed: .*no space left on device")
	for _, e := range page.Events {
		if e.Task == o.Task && e.Reason != "" && (e.Reason != api.ReasonLost || !disk.MatchString(e.Text)) {
			k.t.Errorf("%s: task %s: %s %s %s", at, o.Task, e.Event, e.Reason, e.Text)
		}
	}
}

// proves R-A2: a service starts on a full disk by the room of its reserve, and
// collects garbage there.
func TestTheServiceStartsAndCollectsOnAFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "big", script: "head -c 3000000 /dev/urandom > big"})
	w.must("down")
	w.smallState("64m")
	w.retention("{content: {count: 1}}")
	w.upCollected()
	for n := range 3 {
		wantEnd(t, w.dispatch("big", "--source", "repo", "--id", fmt.Sprintf("big-%d", n)), api.EventFinished, "")
	}
	w.must("down")
	w.fillState()
	if out := w.refused(1, []string{"state is on a full disk", "0 B free of 64.0 MiB"}, "doctor").stdout; strings.Contains(out, "no catalog") {
		t.Errorf("doctor prints:\n%s", out)
	}
	w.must("up")
	w.refused(1, []string{"NOT READY", "state is on a full disk", "revision 1"}, "status")
	w.refused(1, []string{"state is on a full disk", "bailiwick gc"}, "dispatch", "run", "big", "--source", "repo", "-q")
	w.must("dispatch", "show", "big-0") // the control: reading is not refused
	if out := w.must("gc"); !strings.Contains(out, "removed those of 2 dispatches") {
		t.Errorf("gc prints:\n%s", out)
	}
	w.awaitReady(true) // what gc removed is enough
	w.freeState()
	wantEnd(t, w.dispatch("big", "--source", "repo", "--id", "after"), api.EventFinished, "")
}

// A state that becomes read-only is named, and used again once it is writable.
func TestAReadOnlyStateIsNamedAndUsedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(maker())
	w.must("down")
	w.smallState("32m")
	readOnly := func(flags uintptr) {
		must(t, syscall.Mount("", w.path("state/bailiwick"), "", syscall.MS_REMOUNT|flags, ""))
	}
	readOnly(syscall.MS_RDONLY)
	want := "state is on a read-only file system (" + w.named(w.path("state/bailiwick"))
	for _, args := range [][]string{{"up"}, {"dispatch", "run", "makes", "-q"}} {
		w.refused(1, []string{want}, args...)
	}
	if d := w.exec(filepath.Join(bin, "bailiwickd"), "doctor"); d.status != 1 || !strings.Contains(d.stdout, want) {
		t.Errorf("doctor: %s", d)
	}
	readOnly(0)
	w.up()
	w.awaitReady(true)
	pid := w.status().PID
	// A file system with files that are open for writing stays writable, so another
	// mount covers it.
	mounts := func(script string) {
		t.Helper()
		argv := []string{"sh", "-ec", script, "sh", w.named(w.path("state/bailiwick"))}
		if w.on != nil {
			argv = append([]string{"nsenter", "-t", strconv.Itoa(pid), "-m", "--"}, argv...)
		}
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	mounts(`mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"`)
	w.refused(1, []string{"read-only"}, "dispatch", "run", "makes", "--source", "repo", "-q")
	w.refused(1, []string{"NOT READY", "state is on a read-only file system"}, "status")
	mounts(`umount -l "$1"`)
	w.awaitReady(true)
	wantEnd(t, w.dispatch("makes", "--source", "repo", "--id", "after"), api.EventFinished, "")
	if w.status().PID != pid {
		t.Error("the service was restarted")
	}
}
