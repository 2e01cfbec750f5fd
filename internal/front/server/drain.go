package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// drain serves connections and ends without breaking one off: [http.Server.Shutdown] closes a connection whose first request
// has arrived without an answer, so it comes last, when nobody waits for one.
type drain struct {
	http *http.Server

	mu       sync.Mutex
	waiting  map[net.Conn]bool // for a request, or for its answer; guarded by mu
	listener net.Listener      // guarded by mu
	served   chan struct{}     // closed when the listener has given its last connection; guarded by mu
	ending   bool              // guarded by mu
}

func newDrain(s *http.Server) *drain {
	d := &drain{http: s, waiting: map[net.Conn]bool{}}
	s.ConnState = d.note
	return d
}

func (d *drain) note(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if state == http.StateNew || state == http.StateActive {
		d.waiting[c] = true
	} else {
		delete(d.waiting, c)
	}
}

// serve answers on l until end.
func (d *drain) serve(l net.Listener) error {
	d.mu.Lock()
	d.listener, d.served = l, make(chan struct{})
	defer close(d.served)
	ending := d.ending
	d.mu.Unlock()
	if ending {
		return l.Close()
	}
	err := d.http.Serve(l)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending && (errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed)) {
		return nil
	}
	return err
}

// end accepts no more connections, waits for open requests until ctx is done, then breaks them off.
func (d *drain) end(ctx context.Context) error {
	d.mu.Lock()
	d.ending = true
	l, served := d.listener, d.served
	d.mu.Unlock()
	d.http.SetKeepAlivesEnabled(false)
	if l != nil {
		_ = l.Close() // Serve says so
		<-served
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for d.busy() && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if d.http.Shutdown(ctx) != nil {
		return d.http.Close()
	}
	return nil
}

func (d *drain) busy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting) > 0
}
