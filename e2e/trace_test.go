package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// jailed lists the processes and control groups of one dispatch, as seen from
// outside while it ran. All must be gone afterwards.
type jailed struct {
	workers map[int]bool    // process numbers
	groups  map[string]bool // control groups
}

// traced runs a subagent until it ends while it watches its processes and
// control groups, and fails the test unless all are gone afterwards. The log
// names the worker even if polling missed it.
func (w *world) traced(args ...string) (d api.Dispatch) {
	w.t.Helper()
	stop, seen := make(chan struct{}), make(chan jailed)
	go func() { seen <- w.watch(stop) }()
	d = w.dispatch(args...)
	close(stop)
	j := <-seen
	var started struct {
		Entry struct{ Detail struct{ PID int } }
	}
	decode(w.t, w.must("audit", "list", "--dispatch", string(d.ID), "--kind", "dispatch.started", "-o", "jsonl"), &started)
	if started.Entry.Detail.PID == 0 {
		w.t.Errorf("dispatch %s: the log names no worker, so the leftover check proves nothing", d.ID)
	}
	j.workers[started.Entry.Detail.PID] = true
	w.nothingLeft(string(d.ID), j)
	return d
}

// watch records the workers of this world and their control groups until stop
// is closed.
func (w *world) watch(stop <-chan struct{}) jailed {
	j := jailed{map[int]bool{}, map[string]bool{}}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		w.observe(&j)
		select {
		case <-tick.C:
		case <-stop:
			return j
		}
	}
}

func (w *world) observe(j *jailed) {
	for _, pid := range w.workers() {
		j.workers[pid] = true
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && strings.Contains(to, "/bailiwick-jail-") {
				j.groups[to] = true
			}
		}
	}
}

// workers lists the process IDs of this world's workers.
func (w *world) workers() (pids []int) {
	for _, f := range procFiles("cmdline") {
		b, err := os.ReadFile(f)
		pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
		state := w.path("state")
		if w.unit != nil {
			state = "/var/lib/bailiwick/"
		}
		if err == nil && bytes.Contains(b, []byte("--attempt\x00"+state)) && (w.unit == nil || w.unit.worker(pid)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func procFiles(name string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/" + name)
	return files
}

// nothingLeft fails the test if an ended dispatch left a process, a mount, a
// control group or a directory. A worker that has sealed its result may still
// be exiting, so the check is repeated for a while.
func (w *world) nothingLeft(id string, j jailed) {
	w.t.Helper()
	var left []string
	for late := range polling(time.Minute) {
		if left = w.leftOf(id, j); len(left) == 0 {
			return
		}
		if late {
			w.t.Errorf("dispatch %s left behind:\n%s", id, strings.Join(left, "\n"))
			return
		}
	}
}

func (w *world) leftOf(id string, j jailed) (left []string) {
	for _, f := range procFiles("environ") {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("BAILIWICK_DISPATCH="+id)) {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			left = append(left, fmt.Sprintf("process %s %q", f, cmd))
		}
	}
	for pid := range j.workers {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && (bytes.Contains(b, []byte(w.dir)) || w.unit != nil && w.unit.worker(pid)) {
			left = append(left, fmt.Sprintf("worker %d", pid))
		}
	}
	for g := range j.groups {
		if _, err := os.Stat(g); err == nil {
			left = append(left, "control group "+g)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return append(left, err.Error())
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, w.path("state/bailiwick/dispatches")) {
			left = append(left, "mount "+line)
		}
	}
	if temp, err := os.ReadDir(w.path("tmp")); err != nil || len(temp) > 0 {
		left = append(left, fmt.Sprintf("temporary files %v %v", temp, err))
	}
	if _, err := os.Stat(w.path("state/bailiwick/dispatches", id)); err == nil {
		left = append(left, "directory of the attempt")
	}
	return left
}

// The control of the leftover check: while a worker runs it finds the worker's
// process, its attempt and, as root, its control groups.
func TestLeftoverCheckSeesARunningWorker(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		t.Parallel()
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "waits", script: "echo begun; sleep 300"})
		w.up()
		id := w.detached("waits", "--source", "repo")
		w.awaitLog(id, "begun")
		j := jailed{map[int]bool{}, map[string]bool{}}
		w.observe(&j)
		left := strings.Join(w.leftOf(id, j), "\n")
		for _, want := range []string{"process /proc", "worker ", "directory of the attempt"} {
			if !strings.Contains(left, want) {
				t.Errorf("the check of a running worker lacks %q:\n%s", want, left)
			}
		}
		if d := w.show(id); uid == 0 && strings.Contains(strings.Join(w.isolation(), " "), "cgroup") && len(j.groups) == 0 {
			t.Errorf("no control group of dispatch %s was found", d.ID)
		}
		w.must("dispatch", "cancel", id)
		wantEnd(t, w.show(id), api.EventCancelled, "")
		w.nothingLeft(id, j)
	})
}

// isolation lists the isolation features of this machine, as the service
// reports them.
func (w *world) isolation() []string {
	w.t.Helper()
	return w.status().Isolation
}

func (w *world) status() (s api.ServiceStatus) {
	w.t.Helper()
	d := w.try("status", "-o", "json") // exits with 1 when it is not ready
	if err := json.Unmarshal([]byte(d.stdout), &s); err != nil {
		w.t.Fatalf("%v: %s", err, d)
	}
	return s
}

// detached starts a dispatch and returns its ID.
func (w *world) detached(args ...string) string {
	w.t.Helper()
	return strings.TrimSpace(w.must(append([]string{"dispatch", "run", "--detach"}, args...)...))
}

// snapshot maps every file below dir to its mode and content.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = info.Mode().String() + " " + string(api.DigestOf(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// unchanged fails the test unless two snapshots are equal.
func unchanged(t testing.TB, what string, before, after map[string]string) {
	t.Helper()
	var diff []string
	for p, v := range after {
		if before[p] != v {
			diff = append(diff, "now "+p+" "+v)
		}
	}
	for p, v := range before {
		if after[p] != v {
			diff = append(diff, "was "+p+" "+v)
		}
	}
	sort.Strings(diff)
	if len(diff) > 0 {
		t.Errorf("%s changed stored files:\n%s", what, strings.Join(diff, "\n"))
	}
}

// replace replaces text in a file.
func (w *world) replace(name, old, fresh string) {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.Count(string(b), old) != 1 {
		w.t.Fatalf("%s has %q %d times", name, old, strings.Count(string(b), old))
	}
	if err := os.WriteFile(w.path(name), []byte(strings.Replace(string(b), old, fresh, 1)), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// entries lists the sequence numbers of the entries that match the filters.
func (w *world) entries(filters ...string) []string {
	w.t.Helper()
	return strings.Fields(w.must(append([]string{"audit", "list", "-o", "name"}, filters...)...))
}

// list returns every dispatch that the world's account may see.
func (w *world) list() (list []api.Dispatch) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.must("dispatch", "list", "--last", "1000", "-o", "json")), &list); err != nil {
		w.t.Fatal(err)
	}
	return list
}
