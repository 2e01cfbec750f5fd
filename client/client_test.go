package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// stage serves one handler after the other on a unix socket, each as a service of
// its own, and starts the next one on demand.
type stage struct {
	t        *testing.T
	socket   string
	services []http.HandlerFunc
	started  int
	stop     func()
}

func (s *stage) spawn(context.Context) (string, error) {
	s.t.Helper()
	s.end()
	if s.started == len(s.services) {
		return "", errors.New("there is no further service")
	}
	l, err := net.Listen("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	srv := &http.Server{Handler: s.services[s.started]} //nolint:gosec // G112: only this test calls
	go srv.Serve(l)                                     //nolint:errcheck // ends with the test
	s.stop = func() { _ = srv.Close() }
	s.started++
	return s.socket, nil
}

func (s *stage) end() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	_ = os.Remove(s.socket)
}

func newStage(t *testing.T, services ...http.HandlerFunc) (*stage, *Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, socket: filepath.Join(dir, "s"), services: services}
	c := New(Config{Socket: s.socket, UIDs: []int{os.Getuid()}, Spawn: s.spawn})
	t.Cleanup(func() {
		c.Close()
		s.end()
		_ = os.RemoveAll(dir)
	})
	return s, c
}

func leave(http.ResponseWriter, *http.Request) {
	panic(http.ErrAbortHandler) // the connection breaks without an answer
}

func refuse(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	diskFull(w, nil)
}

// diskFull fails as a service that stays, and that may have done something.
func diskFull(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Connection", "close")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(api.Errorf(api.CodeUnavailable, "ending"))
}

func accept(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, `{"dispatchId":"d-one","state":"accepted","attempt":1}`)
}

// proves R-D1
func TestACallIsRetriedOnlyIfThatIsSafe(t *testing.T) {
	named, unnamed := api.DispatchRequest{DispatchID: "d-one"}, api.DispatchRequest{}
	for name, c := range map[string]struct {
		services []http.HandlerFunc
		request  api.DispatchRequest
		ok       bool
		started  int
	}{
		"nobody listens":                           {[]http.HandlerFunc{accept}, unnamed, true, 1},
		"one refuses, the next takes it":           {[]http.HandlerFunc{refuse, accept}, unnamed, true, 2},
		"one breaks, and the id makes it the same": {[]http.HandlerFunc{once(leave, accept)}, named, true, 1},
		"one breaks, and it might be done twice":   {[]http.HandlerFunc{once(leave, accept)}, unnamed, false, 1},
		"none ever stays":                          {slices.Repeat([]http.HandlerFunc{refuse}, maxTries), unnamed, false, maxTries - 1},
		"none can be started":                      {[]http.HandlerFunc{refuse}, unnamed, false, 1},
		"one fails, and stays":                     {[]http.HandlerFunc{diskFull, accept}, named, false, 1},
	} {
		s, conn := newStage(t, c.services...)
		d, err := conn.Runtime().Dispatch(t.Context(), c.request)
		if (err == nil) != c.ok || c.ok && d.ID != "d-one" || s.started != c.started {
			t.Errorf("%s: %+v, %v after %d services", name, d, err, s.started)
		}
	}
}

// once returns first for the first request and rest for all others.
func once(first, rest http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			first(w, r)
		}
		rest(w, r)
	}
}

// A log that breaks anywhere, even within a chunk, is followed without lost or
// repeated bytes, whatever offset the next service starts with.
//
// proves R-D7
func TestFollowLosesNothingWhereverTheStreamBreaks(t *testing.T) {
	const text = "0123456789abcdefghij"
	var stream strings.Builder
	for i := 0; i < len(text); i += 4 {
		b, _ := json.Marshal(api.Chunk{Offset: int64(i), Data: []byte(text[i : i+4])})
		stream.Write(append(b, '\n'))
	}
	for cut := range stream.Len() {
		breaks := func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("attempt") == "" { // it asks which attempt is current
				accept(w, r)
				return
			}
			_, _ = io.WriteString(w, stream.String()[:cut])
			_ = http.NewResponseController(w).Flush()
			leave(w, r)
		}
		// The next service repeats the whole log, which ours never does.
		goesOn := func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, stream.String()+`{"offset":20,"ended":true}`+"\n")
		}
		var got strings.Builder
		var n atomic.Int32
		_, conn := newStage(t, func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) > 2 {
				goesOn(w, r)
				return
			}
			breaks(w, r)
		})
		err := conn.Runtime().Follow(t.Context(), "d-one", LogFrom{}, func(c api.Chunk) error {
			if int(c.Offset) != got.Len() {
				t.Errorf("cut at %d: a chunk at %d after %d bytes", cut, c.Offset, got.Len())
			}
			got.Write(c.Data)
			return nil
		})
		if err != nil || got.String() != text {
			t.Fatalf("cut at %d: %v, %q", cut, err, got.String())
		}
	}
}

func TestFollowReturnsTheConsumersError(t *testing.T) {
	_, conn := newStage(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"offset":0,"data":"eA=="}`+"\n")
	})
	full := errors.New("the disk is full")
	if err := conn.Runtime().Follow(t.Context(), "d-one", LogFrom{Attempt: 1}, func(api.Chunk) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}
