package daemoncli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Spawn or connect: when several processes start a service at once, the lock of
// the state admits one. The others wait here until it answers, or take its place
// if it exits.

// report is what a service started in the background reports to the process that
// started it: one line of JSON with one member.
type report struct {
	Listening string     `json:"listening,omitempty"` // the service's socket
	Answers   string     `json:"answers,omitempty"`   // the socket of another service, which owns the state
	Failed    *api.Error `json:"failed,omitempty"`
}

// answersError reports that another service owns the state and answers.
type answersError struct{ socket string }

func (e *answersError) Error() string {
	return "another service owns the state and answers at " + e.socket
}

// report prints r, as JSON for start and as text for people.
func (t *tree) report(r report) {
	if t.join {
		_ = json.NewEncoder(t.Stdout).Encode(r) // the reader may be gone
	} else if r.Listening != "" {
		fmt.Fprintf(t.Stdout, "listening on %s\n", r.Listening)
	}
}

// finish reports the error of serve and returns that of the command.
func (t *tree) finish(err error) error {
	if answers, ok := errors.AsType[*answersError](err); ok {
		t.report(report{Answers: answers.socket})
		return nil
	}
	if err != nil {
		e, ok := errors.AsType[*api.Error](err)
		if !ok {
			e = api.Errorf(api.CodeUnavailable, "%w", err)
		}
		t.report(report{Failed: e})
	}
	return err
}

// joinTimeout is how long another service may own the state without answering.
const joinTimeout = 30 * time.Second

// joiner opens the state for one of several processes that start a service on it.
type joiner struct {
	dirs   api.Dirs
	uid    int
	socket string        // of --socket; may be empty
	idle   time.Duration // 0: the service runs until it is stopped
	join   bool          // if another service owns the state, wait until it answers
}

func (t *tree) joiner() joiner { return joiner{t.Dirs, t.UID, t.socket, t.idle, t.join} }

// open opens or creates the state. If another service owns it and --join is set, it
// returns answersError when that one answers. A service that runs until it is stopped
// takes the place of a one-shot service: `up` replaces it, and without --join open does.
func (j joiner) open(ctx context.Context, cfg store.Config) (*store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if j.idle == 0 {
		release, err := j.succeed(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := j.openUnlessAwaited(ctx, cfg)
		_, owned := errors.AsType[*store.OwnedError](err)
		// Another process may have created it in between.
		again := owned || errors.Is(err, store.ErrExist) || errors.Is(err, errAwaited)
		if !again || !j.join && j.idle > 0 {
			return st, err
		}
		socket := j.answering(ctx)
		if socket != "" && j.join {
			return nil, &answersError{socket}
		}
		if socket != "" && !j.stopOneShot(ctx, socket) {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// errAwaited means that a service that runs until it is stopped is about to start.
var errAwaited = api.Errorf(api.CodeUnavailable, "another service is starting, which runs until it is stopped").WithHint("run the command again; see: bailiwick status")

// successorPath is a file that a service that runs until it is stopped locks together
// with others of its kind while it starts. One-shot services wait meanwhile.
func (j joiner) successorPath() string { return filepath.Join(j.dirs.State, "successor") }

// succeed keeps one-shot services from opening the state until release is called.
func (j joiner) succeed(ctx context.Context) (release func(), err error) {
	f, err := durable.OpenLock(j.successorPath())
	if err != nil {
		return nil, err
	}
	if err := durable.PollLock(ctx, func() error { return durable.TryRLock(f) }); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", j.successorPath(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// openUnlessAwaited opens or creates the state. For a one-shot service the error is
// errAwaited while another one starts that runs until it is stopped.
func (j joiner) openUnlessAwaited(ctx context.Context, cfg store.Config) (*store.Store, error) {
	if j.idle > 0 {
		f, err := durable.Lock(j.successorPath())
		if errors.Is(err, durable.ErrLocked) {
			return nil, errAwaited
		}
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only a lock
	}
	return openOrCreate(ctx, cfg)
}

// stopOneShot asks the service at socket to stop if it is a one-shot service on this
// state, and reports whether it is, or has stopped meanwhile.
func (j joiner) stopOneShot(ctx context.Context, socket string) bool {
	conn := client.New(client.Config{Socket: socket, UIDs: []int{j.uid}})
	defer conn.Close()
	s, err := conn.Operator().Status(ctx)
	if err == nil && (s.OneShot == nil || s.StateDir != j.dirs.State) {
		return false
	}
	if err == nil {
		err = conn.Operator().Stop(ctx)
	}
	return err == nil || client.NoService(err) || api.CodeOf(err) == api.CodeUnavailable
}

// answering returns the socket of a running service, or "".
func (j joiner) answering(ctx context.Context) string {
	places := j.dirs.Sockets()
	if j.socket != "" {
		places = append([]string{j.socket}, places...)
	}
	if b, err := os.ReadFile(j.dirs.Address()); err == nil && len(b) > 0 {
		places = append([]string{strings.TrimSpace(string(b))}, places...)
	}
	for _, path := range slices.Compact(places) {
		if conn, err := egress.Unix(path).DialContext(ctx, "unix", path); err == nil {
			_ = conn.Close()
			return path
		}
	}
	return ""
}

// address is the file with the socket of a state's service. It is locked from
// before the socket is created until after it is removed, so that a service cannot
// remove the socket of its successor.
type address struct{ f *os.File }

// claimAddress waits until the previous service has removed its socket, the last
// thing that a service does.
func claimAddress(ctx context.Context, path string) (*address, error) {
	f, err := durable.OpenLock(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := durable.PollLock(ctx, func() error { return durable.TryLock(f) }); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &address{f}, nil
}

// set writes the socket into the file, for processes that lose the race for the
// state. It ignores errors: a full disk must not keep the service from serving.
func (a *address) set(socket string) {
	if a.f.Truncate(0) == nil {
		_, _ = a.f.WriteAt([]byte(socket+"\n"), 0)
	}
}

// release removes the socket if it is still the same file, and unlocks the address
// for the next service.
func (a *address) release(socket string, was fs.FileInfo) error {
	_ = a.f.Truncate(0)
	var err error
	if now, statErr := os.Lstat(socket); was != nil && statErr == nil && os.SameFile(now, was) {
		err = os.Remove(socket)
	}
	return errors.Join(err, a.f.Close())
}
