package e2e

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// courier carries requests from the service to the launcher, with the service's uid. It is
// what a taken-over service could put in between.
type courier struct {
	mu      sync.Mutex
	change  func(*launch.Request)     // guarded by mu; nil: nothing is changed
	call    func(*record.ToolRequest) // likewise, of what a tool host gets
	streams sync.WaitGroup
}

func (c *courier) set(change func(*launch.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change = change
}

func (c *courier) setCall(change func(*record.ToolRequest)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.call = change
}

// between puts a courier between service and launcher until the test ends.
func (s *team) between() *courier {
	s.t.Helper()
	c := &courier{}
	path := s.Path("/run/bailiwick-launch/launch.sock")
	must(s.t, errors.Join(os.Rename(path, path+".real"), os.Chown(path+".real", machine.Service, machine.Service)))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(s.t, err)
	must(s.t, errors.Join(os.Chown(path, 0, machine.Service), os.Chmod(path, 0o660)))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.AcceptUnix()
			if err != nil {
				return
			}
			all.Go(func() {
				defer near.Close()
				s.carry(c, near, path+".real")
			})
		}
	})
	s.t.Cleanup(func() {
		_ = l.Close()
		s.service.end() // and with it the streams to tool hosts
		all.Wait()
		c.streams.Wait()
	})
	return c
}

func (s *team) carry(c *courier, near *net.UnixConn, path string) {
	var r launch.Request
	files, err := unixframe.Read(near, &r, 0)
	if err != nil {
		return // the service exited
	}
	given := len(r.Records)
	c.mu.Lock()
	if c.change != nil {
		c.change(&r)
	}
	c.mu.Unlock()
	withheld := uint64(given - len(r.Records)) //nolint:gosec // G115: nothing is added
	if r.Kind == launch.KindTools && len(files) > 0 {
		files[0] = c.tapped(s, files[0])
	}
	var far *net.UnixConn
	asUser(machine.Service, func() { far, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}) })
	if err != nil {
		s.t.Error(err)
		return
	}
	defer far.Close()
	var a launch.Answer
	err = unixframe.Write(far, r, files...)
	for _, f := range files {
		_ = f.Close()
	}
	if err == nil {
		if files, err = unixframe.Read(far, &a, 0); err == nil {
			a.Records += withheld
			err = unixframe.Write(near, a, files...)
		}
		for _, f := range files {
			_ = f.Close()
		}
	}
	if err != nil {
		s.t.Logf("a %s is not carried: %v", r.Kind, err)
	}
}

// Alice submits what writes, and Bob approves it under his account with his own key: the
// attempt starts only then, and resumes without a second approval. The launcher verifies it:
// a service that leaves the approval out, presents another task's, or withholds Bob's vote
// starts nothing, in the first attempt or a later one. Control: the same request unchanged.
//
// takeover system, service account: no approve
//
// proves R-P1, R-O12, R-S2, R-P4, R-P6
func TestTheLauncherStartsWhatPeopleApproved(t *testing.T) {
	t.Parallel()
	s := newTeam(t, func(s *team) {
		s.Write("/etc/bailiwick/service.yaml", "version: 1\norchestrator: {}\n", 0, 0, 0o644)
	})
	lie := s.between()
	w, bob := s.world(machine.Alice), s.world(machine.Bob)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(
		subagent{name: "sh", script: "set -e\nmkdir -p outputs\neval \"$(cat inputs/prompt.md)\"", more: "    prompt: \"{{.do}}\"\n"},
		subagent{name: "writer", script: "set -e\nmkdir -p outputs\neval \"$(cat inputs/prompt.md)\"", more: "    prompt: \"{{.do}}\"\n    effect: write\n"},
	)
	w.replace(manifest, "principal: \""+w.me()+"\",", "principal: \""+w.me()+"\", writes: {by: [\"local:alice\", \"local:bob\"]},")
	w.publish("reversible")
	s.ok(machine.Root, "cp /home/bob/.config/bailiwick/operator.key.pub "+w.path("tmp/bob.pub")+" && chmod a+r "+w.path("tmp/bob.pub"))
	w.must("operators", "add", w.path("tmp/bob.pub"), "--principal", "local:bob")

	submit := func(id, do string) api.RunID {
		t.Helper()
		return w.submitted(id, "  - {id: build, subagent: sh, input: {do: \"echo two >> a.txt; echo built > outputs/o\"}}\n"+
			"  - {id: ship, subagent: writer, needs: {change: {from: build, patch: true}}, input: {do: '"+do+"'}}\n")
	}
	const asking = `if [ -f inputs/resume.json ]; then cp inputs/change outputs/shipped; else echo "{\"question\": \"Ship?\"}" > .bailiwick/question.json; fi`
	vote := func(id string) {
		t.Helper()
		wantIn(t, "what bob sees", bob.must("approval", "show", id), "subagent writer", "inputs/change is the patch of task build")
		w.refused(3, []string{"submitted run"}, "approval", "approve", id)
		bob.must("approval", "approve", id)
	}

	var first []byte // what bob approved first
	lie.set(func(r *launch.Request) {
		if r.Approval != nil {
			first = r.Approval
		}
	})
	run := submit("shipped", asking)
	id := w.awaitAsked(run, "ship")
	if n := w.admitted("writer"); n != 0 {
		t.Fatalf("%d writes before anybody approved", n)
	}
	vote(id)
	w.awaitTaskAsks(run, "ship")
	w.must("run", "answer", string(run), "--task", "ship", "yes")
	got := w.awaitSettled(run)
	wantStates(t, got, "done; build done; ship done")
	if d := w.show(string(task(t, got, "ship").DispatchID)); d.Attempt != 2 {
		t.Errorf("it ended in attempt %d", d.Attempt)
	}
	wantIn(t, "what was shipped", w.output(got, "ship", "shipped"), "+two")
	if n := len(w.entries("--kind", "approval.requested")); n != 1 {
		t.Errorf("people were asked %d times", n)
	}
	w.verifyEvidence(string(run))

	for _, c := range []struct {
		what, why string
		change    func(*launch.Request)
	}{
		{"without the approval", "no approval is given", func(r *launch.Request) { r.Approval = nil }},
		{"with another approval", "people approved another input", func(r *launch.Request) {
			if r.Approval != nil {
				r.Approval = first
			}
		}},
		{"without the vote", "0 of 1 people approved it", func(r *launch.Request) { r.Records = nil }},
	} {
		run := submit(strings.ReplaceAll(c.what, " ", "-"), asking+" # "+c.what)
		id := w.awaitAsked(run, "ship")
		lie.set(c.change)
		vote(id)
		got := w.awaitSettled(run)
		lie.set(nil)
		if ship := task(t, got, "ship"); got.State != api.RunFailed || !strings.Contains(ship.Message, c.why) {
			t.Errorf("%s: %+v", c.what, got.Tasks)
		}
	}
	s.restart(false) // the next service gives what this one withheld
	if left := s.attempts(""); len(left) > 0 {
		t.Errorf("workers of refused attempts: %v", left)
	}

	t.Log("a later attempt needs the approval as well")
	run = submit("resumed", asking)
	vote(w.awaitAsked(run, "ship"))
	w.awaitTaskAsks(run, "ship")
	lie.set(func(r *launch.Request) { r.Approval = nil })
	w.must("run", "answer", string(run), "--task", "ship", "yes")
	if got := w.awaitSettled(run); got.State != api.RunFailed {
		t.Errorf("attempt 2 without an approval: %+v", got.Tasks)
	}
	lie.set(nil)
	run = submit("control", "true")
	vote(w.awaitAsked(run, "ship"))
	wantStates(t, w.awaitSettled(run), "done; build done; ship done")
}

// awaitTaskAsks waits until the worker of a task has asked a question.
func (w *world) awaitTaskAsks(run api.RunID, id api.TaskID) {
	w.t.Helper()
	for late := range polling(time.Minute) {
		got := w.run(run)
		if a := task(w.t, got, id); a.Asks && a.Message != "" {
			return
		}
		if late || got.State == api.RunFailed {
			w.t.Fatalf("task %s of run %s asks nothing: %+v", id, run, got.Tasks)
		}
	}
}
