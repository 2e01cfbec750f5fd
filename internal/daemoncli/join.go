package daemoncli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
	"github.com/bailiwick-dev/bailiwick/internal/egress"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// Spawn or connect: of many that start a service at once, on a machine where
// there is none or where one is just ending, the lock of the state lets one
// through. The others wait here until it answers, and if it ends instead, take
// its place.

// word is what a service that was started in the background says to the
// program that started it: one line of JSON, with one member.
type word struct {
	Listening string     `json:"listening,omitempty"` // at this socket
	Answers   string     `json:"answers,omitempty"`   // another service has the state, and answers at this socket
	Failed    *api.Error `json:"failed,omitempty"`
}

// answersError ends a service that another one was faster than.
type answersError struct{ socket string }

func (e *answersError) Error() string {
	return "another service has the state and answers at " + e.socket
}

// say tells whoever started the service, in words or as JSON.
func (t *tree) say(w word) {
	if t.join {
		_ = json.NewEncoder(t.Stdout).Encode(w) // who is gone need not know
	} else if w.Listening != "" {
		fmt.Fprintf(t.Stdout, "listening on %s\n", w.Listening)
	}
}

// ending turns how a service ended into how its process ends.
func (t *tree) ending(err error) error {
	if answers, ok := errors.AsType[*answersError](err); ok {
		t.say(word{Answers: answers.socket})
		return nil
	}
	if err != nil {
		e, ok := errors.AsType[*api.Error](err)
		if !ok {
			e = api.Errorf(api.CodeUnavailable, "%w", err)
		}
		t.say(word{Failed: e})
	}
	return err
}

// joinTime is how long another service may have the state without answering.
const joinTime = 30 * time.Second

// own opens the state, or makes it. Where that is another's, and this service
// was started to be the one or to find it, it returns answersError when that
// one answers.
func (t *tree) own(ctx context.Context, cfg store.Config) (*store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := openOrCreate(ctx, cfg)
		_, owned := errors.AsType[*store.OwnedError](err)
		// Between looking and making, another may have made it.
		if again := owned || errors.Is(err, store.ErrExist); !t.join || !again {
			return st, err
		}
		if socket := t.answering(ctx); socket != "" {
			return nil, &answersError{socket}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// answering returns a socket at which a service of this account listens.
func (t *tree) answering(ctx context.Context) string {
	places := t.Dirs.Sockets()
	if t.socket != "" {
		places = append([]string{t.socket}, places...)
	}
	if b, err := os.ReadFile(t.Dirs.Address()); err == nil && len(b) > 0 {
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

// address is the file that says where the service of a state listens. It is
// locked from before the socket is made until after it is removed: so one
// service cannot remove the socket of the next.
type address struct{ f *os.File }

// claimAddress waits until the service before has removed its socket, which
// is the last thing that it does.

func claimAddress(ctx context.Context, path string) (*address, error) {
	f, err := durable.OpenLock(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := durable.PollLock(ctx, func() error { return durable.TryLock(f) }); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return &address{f}, nil
}

// set says where the service listens. It is for whoever loses the race for the
// state, so a full disk is no reason not to serve.
func (a *address) set(socket string) {
	if a.f.Truncate(0) == nil {
		_, _ = a.f.WriteAt([]byte(socket+"\n"), 0)
	}
}

// release removes the socket, if it is still the one that was listened on,
// and lets the next service make its own.
func (a *address) release(socket string, was fs.FileInfo) error {
	_ = a.f.Truncate(0)
	var err error
	if now, statErr := os.Lstat(socket); statErr == nil && os.SameFile(now, was) {
		err = os.Remove(socket)
	}
	return errors.Join(err, a.f.Close())
}
