package executor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// mortal is a launcher that starts real programs, and is killed in the middle of requests.
type mortal struct {
	t      *testing.T
	before int // requests for a worker that end it before it acts
	after  int // and then those that end it after it acted

	mu      sync.Mutex
	asked   []string           // kinds of requests; guarded by mu
	started []*account.Process // guarded by mu
}

func (m *mortal) serve(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		if err := m.answer(conn); err != nil {
			m.t.Error(err)
		}
		_ = conn.Close()
	}
}

func (m *mortal) answer(conn *net.UnixConn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r launch.Request
	files, err := unixframe.Read(conn, &r, time.Minute)
	unixframe.CloseAll(files)
	if err != nil {
		return err
	}
	m.asked = append(m.asked, r.Kind)
	a := launch.Answer{V: launch.Version}
	switch r.Kind {
	case launch.KindWorker:
		if m.before > 0 {
			m.before--
			return nil
		}
		p, err := account.Start(account.Program{Path: "/usr/bin/sleep", Args: []string{"1000"}})
		if err != nil {
			return err
		}
		m.started = append(m.started, p)
		if m.after > 0 {
			m.after--
			return nil
		}
		a.PID = p.PID
		return unixframe.Write(conn, a, p.Handle)
	case launch.KindEnd:
		for _, p := range m.started {
			if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			_, _ = p.Wait()
		}
	}
	return unixframe.Write(conn, a)
}

func (m *mortal) running() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.started {
		if exited, err := account.AwaitExit(p.Handle, 0); err == nil && !exited {
			n++
		}
	}
	return n
}

// A launcher that is killed while it starts an attempt is asked again, after what it may have
// started has ended: the attempt runs once, whether it was killed before it acted or afterwards.
// The control is a request that names no attempt: it runs twice.
//
// proves R-O6
func TestAnAttemptRunsOnceWhenItsLauncherIsKilled(t *testing.T) {
	key, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	manifest := record.Manifest{
		V: 1, ID: api.NewDispatchID(time.Now()), Attempt: 1, Principal: "local:ann", RevisionDigest: api.DigestOf(nil), Subagent: "edit", Agent: "command", Role: "transform",
		Tier: api.Observe, Ceiling: api.Observe, Target: "local", Level: "full", Input: api.DigestOf(nil),
	}
	doc, err := canon.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	envelope, err := seal.Sign(t.Context(), seal.Manifest, doc, key)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		before, after int
		unnamed       bool
		runs          int // processes at the end
		ends          int // requests to end the attempt
		fails         bool
	}{
		"control: not killed":       {runs: 1},
		"before":                    {before: 1, runs: 1, ends: 1},
		"after":                     {after: 1, runs: 1, ends: 1},
		"before and after":          {before: 1, after: 1, runs: 1, ends: 2},
		"control: names no attempt": {after: 1, unnamed: true, runs: 2},
		"each time":                 {after: tries, ends: tries - 1, fails: true, runs: 1}, // the last is found by its record
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			m := &mortal{t: t, before: c.before, after: c.after}
			served := make(chan struct{})
			go func() { defer close(served); m.serve(l) }()
			t.Cleanup(func() {
				_ = l.Close()
				<-served
				for _, p := range m.started {
					_ = p.Kill()
					_, _ = p.Wait()
					_ = p.Close()
				}
			})
			remote := &Remote{
				Path: path, Keys: seal.NewHistory(seal.KeyOf(key, "")), Logger: slog.New(slog.DiscardHandler),
				Records:  func(context.Context, uint64) ([][]byte, error) { return nil, nil },
				Approval: func(context.Context, *record.Manifest) ([]byte, error) { return nil, nil },
			}
			if c.unnamed {
				_, handles, err := remote.call(t.Context(), nil, launch.Request{Kind: launch.KindWorker})
				if err != nil {
					t.Fatal(err)
				}
				unixframe.CloseAll(handles)
			} else {
				file, err := os.Open(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close() //nolint:errcheck // of a test
				p, err := remote.Worker(t.Context(), &launch.Attempt{Manifest: envelope, Dir: file, Control: file, Log: file})
				if (err != nil) != c.fails {
					t.Fatal(err)
				}
				if err == nil {
					_ = p.Handle.Close()
				}
			}
			if n := m.running(); n != c.runs {
				t.Errorf("%d processes run, want %d: %v", n, c.runs, m.asked)
			}
			ends := 0
			for _, kind := range m.asked {
				if kind == launch.KindEnd {
					ends++
				}
			}
			if ends != c.ends {
				t.Errorf("%d requests to end the attempt, want %d: %v", ends, c.ends, m.asked)
			}
		})
	}
}
