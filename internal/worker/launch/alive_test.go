package launch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// hostile is a worker that was taken over: it drops every lock that it holds, and replaces all of
// its directory and every file that it may write, by its directory's path and its descriptors.
const hostile = `#!/bin/sh
cat <&4 >/dev/null
for fd in 3 4 5 6 7 8 9; do perl -e 'open(F, "<&=", '$fd') && flock(F, 8)' 2>/dev/null; done
cd "$2" && rm -rf ./* && for f in lock control.sock result manifest; do echo 1 > $f; done
perl -e 'open(F, ">", "lock"); print F "1\n"; flock(F, 8)'
exec 3<&- 4<&-
echo taken >over
while [ ! -e go ]; do sleep 0.01; done
`

// alive fails unless both launchers agree with what is: one that was restarted, and the one
// that started the worker.
func alive(t *testing.T, w *world, who Running, want bool) {
	t.Helper()
	p, err := w.launcher().Find(t.Context(), who)
	if want {
		must(t, err)
		must(t, p.Handle.Close())
	} else if !errors.Is(err, ErrNoWorker) {
		t.Errorf("%+v, %v, want none", p, err)
	}
}

// Whether a worker runs is what the kernel says of the process that its launcher recorded. A
// worker that was taken over drops locks and replaces files: it is neither thought dead nor
// started again. The control is the lock of its directory, by which it would be dead.
//
// proves R-O6, R-S2
func TestOneWorkerHoldsADirectory(t *testing.T) {
	worlds := map[string]func() *world{"same-user": func() *world { return newWorld(t) }}
	if os.Geteuid() == 0 {
		worlds["system"] = func() *world {
			w, p := newSystemWorld(t)
			p.given(w.launcher())
			return w
		}
	}
	for mode, make := range worlds {
		t.Run(mode, func(t *testing.T) {
			w := make()
			must(t, os.WriteFile(w.cfg.Worker, []byte(hostile), 0o755)) //nolint:gosec // G306: a program
			m := w.manifest("edit")
			a, who := w.attempt(m), Running{m.ID, 1}
			alive(t, w, who, false)
			p, err := w.launcher().Worker(t.Context(), a)
			must(t, err)
			awaitFile(t, filepath.Join(a.Dir.Name(), "over"))
			lock, err := durable.Lock(filepath.Join(a.Dir.Name(), "lock"))
			if err != nil {
				t.Fatalf("control: by the lock of its directory it has ended: %v", err)
			}
			alive(t, w, who, true)
			_, err = w.start(w.launcher(), a)
			refused(t, err, api.CodeConflict, "its worker runs")
			found, err := w.launcher().Find(t.Context(), who)
			must(t, err)
			if found.PID != p.PID {
				t.Errorf("process %d is found, %d was started", found.PID, p.PID)
			}
			must(t, os.WriteFile(filepath.Join(a.Dir.Name(), "go"), nil, 0o644))
			must(t, p.Wait())
			must(t, found.Wait())
			alive(t, w, who, false) // while its lock is held, and what it wrote is there
			must(t, lock.Close())
		})
	}
}

// A worker whose launcher was killed before it was recorded, or before it got its secrets, ends,
// and has read nothing. The attempt may start again.
//
// proves R-O6
func TestAWorkerWithoutSecretsIsEnded(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.cfg.Worker, []byte("#!/bin/sh\necho \"read $(cat <&4)\"\nsleep 1000\n"), 0o755)) //nolint:gosec // G306: a program
	m := w.manifest("edit")
	a, who := w.attempt(m), Running{m.ID, 1}
	p, err := w.launcher().Worker(t.Context(), a)
	must(t, err)
	alive(t, w, who, true) // control
	file := w.launcher().started.path(who)
	doc, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(strings.TrimSuffix(string(doc), ready)), 0o600))
	alive(t, w, who, false)
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	if again, err := w.launcher().Worker(t.Context(), a); err != nil {
		t.Errorf("the next start: %v", err)
	} else {
		must(t, errors.Join(again.Kill(), again.Wait()))
	}
}

// A number of a process that another process has by now, and a record of an earlier boot, are no
// worker. The control is the record as it was.
func TestARecordLeadsToItsProcessAlone(t *testing.T) {
	w := newWorld(t)
	m := w.manifest("edit")
	a, who := w.attempt(m), Running{m.ID, 1}
	end := touch(t, a, "stay")
	p, err := w.launcher().Worker(t.Context(), a)
	must(t, err)
	file := w.launcher().started.path(who)
	doc, err := os.ReadFile(file)
	must(t, err)
	alive(t, w, who, true)
	for name, change := range map[string][2]string{
		"of another boot": {`"boot":"`, `"boot":"0`}, "of another start": {`"start":`, `"start":1`}, "cut off by a power failure": {`"start":`, ""},
	} {
		must(t, os.WriteFile(file, []byte(strings.Replace(string(doc), change[0], change[1], 1)), 0o600))
		t.Log(name)
		alive(t, w, who, false)
	}
	must(t, os.WriteFile(file, doc, 0o600))
	alive(t, w, who, true)
	end()
	must(t, p.Wait())
	alive(t, w, who, false)
}

// In mode system a worker that has exited leaves nothing: what it started is ended before its
// directory counts as final. The control is the process before.
//
// proves R-S2
func TestWhatAWorkerLeavesIsEnded(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, people := newSystemWorld(t)
	must(t, os.WriteFile(w.cfg.Worker, []byte("#!/bin/sh\ncat <&4 >/dev/null\nsetsid sleep 1000 >/dev/null 2>&1 <&1 &\necho $! >\"$2/left\"\n"), 0o755)) //nolint:gosec // G306: a program
	people.given(w.launcher())
	m := w.manifest("edit")
	a := w.attempt(m)
	l := w.launcher()
	p, err := l.Worker(t.Context(), a)
	must(t, err)
	must(t, p.Wait())
	if list, err := l.sys.blocks.running(); err != nil || len(list) != 1 {
		t.Errorf("control: %v, %v: its process is left", list, err)
	}
	alive(t, w, Running{m.ID, 1}, false)
	if list, err := l.sys.blocks.running(); err != nil || len(list) != 0 {
		t.Errorf("%v, %v: nothing is to be left", list, err)
	}
}

// A service that was killed while its request for a start waited does not miss the worker.
//
// proves R-O6
func TestAFindWaitsForTheStartsBeforeIt(t *testing.T) {
	if os.Geteuid() != 0 {
		return // it takes root
	}
	w, p := newSystemWorld(t)
	l := p.given(w.launcher())
	m := w.manifest("edit")
	a, who := w.attempt(m), Running{m.ID, 1}
	touch(t, a, "stay")
	s := NewServer(l, time.Hour)
	s.starting.RLock() // of a request that was accepted before
	found := make(chan error, 1)
	go func() {
		var answer Answer
		_, err := s.do(context.Background(), nil, &Request{Kind: KindFind, Attempt: &who}, nil, &answer)
		found <- err
	}()
	select {
	case err := <-found:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	_, err := l.Worker(t.Context(), a)
	must(t, err)
	s.starting.RUnlock()
	must(t, <-found)
	must(t, l.sys.blocks.end(who))
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s does not appear", path)
}
