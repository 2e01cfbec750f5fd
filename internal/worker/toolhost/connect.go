package toolhost

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// maxConns is how many connections of a server through its ports are open at once.
const maxConns = 128

// connect serves what the jail may reach. stop ends that.
func (h *host) connect(ctx context.Context, j *jail.Jail) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	stops := []func(){cancel}
	stop = func() {
		for _, f := range stops {
			f()
		}
		serving.Wait()
	}
	slots := make(chan struct{}, maxConns)
	for port, l := range j.Ports() {
		d, err := egress.Signed(h.start.Server.Host().Connect[port])
		if err != nil {
			stop()
			return nil, fmt.Errorf("connect %d: %w", port, err)
		}
		stops = append(stops, func() { _ = l.Close() })
		serving.Go(func() { h.forward(ctx, port, l, d.DialContext, slots) })
	}
	if j.Listener() == nil {
		return stop, nil
	}
	b, err := broker.New(broker.Config{
		Egress: h.start.Server.Host().Egress, Record: io.Discard, Now: h.cfg.Now, Spent: func(string) {},
		Refused: func(r record.EgressRefusal) { h.says.own("refused " + r.Form + " of " + r.Host + ": " + r.Reason) },
	})
	if err != nil {
		stop()
		return nil, err
	}
	stops = append(stops, func() { _ = b.Close() }) // its record is discarded
	serving.Go(func() {
		if err := b.Serve(j.Listener()); err != nil {
			h.says.own("the broker accepts no requests any more: " + err.Error())
		}
	})
	return stop, nil
}

// forward connects each connection to a port to the one place that it leads to.
func (h *host) forward(ctx context.Context, port int, l net.Listener, dial egress.DialFunc, slots chan struct{}) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		slots <- struct{}{}
		near, err := l.Accept()
		if err != nil {
			<-slots
			return
		}
		open.Go(func() {
			defer func() { <-slots }()
			defer near.Close() //nolint:errcheck // the copies are over
			far, err := dial(ctx, "", "")
			if err != nil {
				h.says.own("connect " + strconv.Itoa(port) + ": " + err.Error())
				return
			}
			defer far.Close() //nolint:errcheck // likewise
			defer context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })()
			join(near, far)
		})
	}
}

// join copies both ways until both have ended.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0]) // the other side sees the end
			if w, ok := way[1].(interface{ CloseWrite() error }); ok {
				_ = w.CloseWrite()
			}
		})
	}
	both.Wait()
}
