package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// orchestrated creates a world whose service has an orchestrator. In addition
// to more it has subagents that run their input in shell: "sh"; "typed", which
// must leave a result; "brief", whose questions expire after a second;
// "checked", whose patch must contain the file good. In these scripts GATE is a
// directory of the world that jails can only read.
func orchestrated(t testing.TB, uid int, more ...subagent) *world {
	t.Helper()
	w := prepared(t, uid, more...)
	w.upRuns()
	w.downAtEnd()
	return w
}

// prepared is orchestrated without a service.
func prepared(t testing.TB, uid int, more ...subagent) *world {
	t.Helper()
	w := newWorld(t, uid)
	must(t, os.Chmod(w.dir, 0o755)) // so that the jail's account reaches the gate
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "dir/c.txt": "three\n"})
	w.mkdir("gate")
	w.init()
	w.runManifest(more...)
	w.must("catalog", "apply", "-f", w.path(manifest))
	return w
}

// runManifest writes the manifest of orchestrated.
func (w *world) runManifest(more ...subagent) {
	w.t.Helper()
	const says = "    prompt: \"{{.do}}\"\n"
	obeys := "set -e\nGATE=" + w.path("gate") + "\nmkdir -p outputs\neval \"$(cat inputs/prompt.md)\""
	w.manifest(append([]subagent{
		{name: "sh", script: obeys, more: says},
		{name: "typed", script: obeys, more: says + "    output: {type: object, required: [n], properties: {n: {type: integer}}}\n"},
		{name: "brief", script: obeys, more: says + "    limits: {answer: 1s}\n"},
		{name: "checked", script: obeys, more: says + "    verify: {command: [test, -e, good]}\n"},
	}, more...)...)
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: guarded}", "{name: local, executor: jail, level: full, mode: guarded, readOnly: ["+w.path("gate")+"]}")
}

// upRuns starts a service with an orchestrator unless one is running.
func (w *world) upRuns() {
	w.t.Helper()
	w.must("up", "--orchestrator")
}

// open opens a gate: agents that wait for the file of that name continue.
func (w *world) open(gate string) { w.t.Helper(); w.write("gate/"+gate, "", 0o644) }

// awaitGate is the script of an agent that waits for a gate. It lists the directory: a
// jail may remember that a name was absent.
func awaitGate(gate string) string {
	return "echo begun; until ls $GATE | grep -qx " + gate + "; do sleep 0.05; done\n"
}

// conn connects to the service as the world's account.
func (w *world) conn() *client.Conn {
	w.t.Helper()
	socket := w.path("run/bailiwick/api.sock")
	if w.on != nil && w.unit == nil {
		socket = w.on.Path("/run/bailiwick/api.sock")
	}
	if w.uid != 0 {
		socket = w.forwarded(socket)
	}
	c := client.New(client.Config{Socket: socket, UIDs: []int{0}})
	w.t.Cleanup(func() { c.Close() })
	return c
}

// forwarded returns a socket of the test's own account that forwards every
// connection to socket as the world's account.
func (w *world) forwarded(socket string) string {
	w.t.Helper()
	at := filepath.Join(w.t.TempDir(), "s")
	listener, err := net.Listen("unix", at)
	must(w.t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer near.Close()
				var far net.Conn
				asUser(w.uid, func() { far, err = net.Dial("unix", socket) })
				if err != nil {
					return // no service: the connection ends
				}
				all.Go(func() { // an answer may come before the whole request is read
					_, _ = io.Copy(near, far)
					_ = near.(*net.UnixConn).CloseWrite()
				})
				_, _ = io.Copy(far, near)
				_, _ = io.Copy(io.Discard, near)
				_ = far.Close()
			})
		}
	})
	w.t.Cleanup(func() {
		must(w.t, listener.Close())
		all.Wait()
	})
	return at
}

// shellTask returns a task that runs a shell script on the repository.
func shellTask(id api.TaskID, do string, more ...func(*api.PlanTask)) api.PlanTask {
	t := api.PlanTask{ID: id, Subagent: "sh"}
	t.Input, _ = json.Marshal(map[string]string{"do": do}) // a map of strings always encodes
	for _, m := range more {
		m(&t)
	}
	return t
}

// Options of a task.

func as(name api.Name) func(*api.PlanTask) { return func(t *api.PlanTask) { t.Subagent = name } }

func after(ids ...api.TaskID) func(*api.PlanTask) {
	return func(t *api.PlanTask) { t.DependsOn = ids }
}

func locking(keys ...string) func(*api.PlanTask) {
	return func(t *api.PlanTask) {
		for _, k := range keys {
			key, shared := strings.CutPrefix(k, "shared ")
			t.Locks = append(t.Locks, api.Lock{Key: key, Shared: shared})
		}
	}
}

func retrying(attempts int, on ...api.Reason) func(*api.PlanTask) {
	return func(t *api.PlanTask) {
		t.Retry = api.Retry{Attempts: attempts, Backoff: api.Backoff{Min: api.Duration(10 * time.Millisecond), Max: api.Duration(50 * time.Millisecond)}, On: on}
	}
}

func within(d time.Duration) func(*api.PlanTask) {
	return func(t *api.PlanTask) { t.Timeout = api.Duration(d) }
}

func needing(name api.Name, n api.Need) func(*api.PlanTask) {
	return func(t *api.PlanTask) {
		if t.Needs == nil {
			t.Needs = map[api.Name]api.Need{}
		}
		t.Needs[name] = n
	}
}

// planned returns a plan of tasks on the repository.
func planned(id api.RunID, tasks ...api.PlanTask) api.Plan {
	return api.Plan{ID: id, Source: &api.SourceRequest{Name: "repo"}, Tasks: tasks}
}

// request returns the request that submits a plan.
func request(t testing.TB, p api.Plan) api.RunRequest {
	t.Helper()
	raw, err := json.Marshal(p)
	must(t, err)
	return api.RunRequest{Plan: raw}
}

// submit submits a plan.
func (w *world) submit(p api.Plan) api.RunID {
	w.t.Helper()
	run, err := w.conn().Runtime().Submit(w.t.Context(), request(w.t, p))
	if err != nil {
		w.t.Fatalf("submit: %v %+v", err, problems(err))
	}
	return run.RunID
}

// problems lists the problems of an error, as PATH (task TASK): MESSAGE.
func problems(err error) (list []string) {
	if e, ok := errors.AsType[*api.Error](err); ok {
		for _, p := range e.Problems {
			list = append(list, p.String())
		}
	}
	return list
}

// wantCode fails the test unless err has the code and its text contains every
// one of words.
func wantCode(t testing.TB, what string, err error, code api.Code, words ...string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%s: %v, want an error with the code %s", what, err, code)
		return
	}
	text := e.Message + "\n" + e.Hint + "\n" + strings.Join(problems(err), "\n")
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%s: the error lacks %q: %s", what, word, text)
		}
	}
}

// run fetches a run with all its tasks.
func (w *world) run(id api.RunID) api.Run {
	w.t.Helper()
	face := w.conn().Runtime()
	run, err := face.Run(w.t.Context(), id, "", 0)
	must(w.t, err)
	for next := run.Next; next != ""; {
		page, err := face.Run(w.t.Context(), id, next, 0)
		must(w.t, err)
		run.Tasks, next = append(run.Tasks, page.Tasks...), page.Next
	}
	return run
}

// awaitSettled waits until a run has settled.
func (w *world) awaitSettled(id api.RunID) api.Run {
	w.t.Helper()
	w.awaitEvent(id, func(e api.RunEvent) bool { return e.Event == "run.settled" })
	return w.run(id)
}

// awaitEvent follows a run until want accepts an event, and returns it. It
// fails the test if the run settles before.
func (w *world) awaitEvent(id api.RunID, want func(api.RunEvent) bool) api.RunEvent {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	face := w.conn().Runtime()
	for after := ""; ; {
		page, err := face.RunEvents(ctx, id, after, 20*time.Second)
		if err != nil {
			w.t.Fatalf("run %s: %v", id, err)
		}
		for _, e := range page.Events {
			if want(e) {
				return e
			}
		}
		if page.Done {
			w.t.Fatalf("run %s settled without the event: %+v", id, w.run(id))
		}
		after = page.Next
	}
}

// event matches an event of a task.
func event(kind string, task api.TaskID) func(api.RunEvent) bool {
	return func(e api.RunEvent) bool { return e.Event == kind && e.Task == task }
}

// history fetches every event of a run so far.
func (w *world) history(id api.RunID) (all []api.RunEvent) {
	w.t.Helper()
	face := w.conn().Runtime()
	for after := ""; ; {
		page, err := face.RunEvents(w.t.Context(), id, after, 0)
		must(w.t, err)
		all = append(all, page.Events...)
		if page.Done || len(page.Events) == 0 {
			return all
		}
		after = page.Next
	}
}

// task finds a task of a run.
func task(t testing.TB, run api.Run, id api.TaskID) api.RunTask {
	t.Helper()
	i := slices.IndexFunc(run.Tasks, func(o api.RunTask) bool { return o.Task == id })
	if i < 0 {
		t.Fatalf("run %s has no task %s: %+v", run.RunID, id, run.Tasks)
	}
	return run.Tasks[i]
}

// wantStates fails the test unless a run and its tasks are in the wanted states,
// written as "STATE; TASK STATE [REASON]; …" with all tasks.
func wantStates(t testing.TB, run api.Run, want string) {
	t.Helper()
	got := string(run.State)
	for _, o := range run.Tasks {
		got += "; " + strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Task, o.State, o.Reason))
	}
	if got != want {
		t.Errorf("run %s is %q, want %q: %+v", run.RunID, got, want, run.Tasks)
	}
}

// begunTask waits until the agent of a task has begun, and returns its
// dispatch.
func (w *world) begunTask(id api.RunID, task api.TaskID) string {
	w.t.Helper()
	e := w.awaitEvent(id, event("dispatch.started", task))
	w.awaitLog(string(e.DispatchID), "begun")
	return string(e.DispatchID)
}

// output fetches an output file of a task.
func (w *world) output(run api.Run, id api.TaskID, path string) string {
	w.t.Helper()
	return w.must("dispatch", "outputs", string(task(w.t, run, id).DispatchID), path)
}
