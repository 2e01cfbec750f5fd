package broker

import (
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// The bounds of a connection to the model: a person learns within 10 seconds that it
// failed, while the agent retries.
const (
	modelDial    = 6 * time.Second // for the lookup and TCP
	modelConnect = 8 * time.Second // with TLS
)

// contact knows whether the model can be connected to.
type contact struct {
	model api.Name
	host  string                 // HOST:PORT of its endpoint
	tell  func(*api.Unreachable) // called for each change, one at a time

	mu     sync.Mutex
	failed *api.Unreachable // the tries since the last connection; nil: none failed
}

// fail notes that a request that began at since got no connection.
func (k *contact) fail(since time.Time, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := api.Unreachable{Model: k.model, Host: k.host, Since: since.UTC()}
	if k.failed != nil {
		u = *k.failed
	}
	u.Tries++
	u.Error = why
	k.failed = &u
	k.tell(&u)
}

// connected notes that a request got a connection.
func (k *contact) connected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		k.failed = nil
		k.tell(nil)
	}
}

// connecting watches how one request gets its connection.
type connecting struct {
	limit     *time.Timer
	sent      atomic.Bool // the model may have the request
	connected atomic.Bool // by the last try
}

// connecting cancels a request that gets no connection in time. The caller stops limit.
func (p *proxy) connecting(cancel context.CancelCauseFunc) *connecting {
	return &connecting{limit: time.AfterFunc(p.connect, func() {
		cancel(fmt.Errorf("no connection to %s within %s", p.contact.host, p.connect))
	})}
}

// trace adds the watch to the context of a request.
func (p *proxy) trace(ctx context.Context, t *connecting) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { // again where an idle connection was broken
			t.connected.Store(false)
			t.limit.Reset(p.connect)
		},
		GotConn: func(httptrace.GotConnInfo) {
			t.limit.Stop()
			t.sent.Store(true)
			t.connected.Store(true)
			p.contact.connected()
		},
	})
}

// dialWithin bounds the time of dial.
func dialWithin(dial egress.DialFunc, most time.Duration) egress.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return dial(ctx, network, address)
	}
}

// hostPort returns the HOST:PORT of an https URL, or of one with a port.
func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "443")
}
