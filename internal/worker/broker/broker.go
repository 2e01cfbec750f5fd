// Package broker is the only way out of a jail. It accepts on the listener that pid 1
// opened in the jail's network namespace, so a connection says which attempt calls.
//
//   - /mcp passes the agent's messages to its tools to the service, which decides.
//   - /model/NAME/… is a reverse proxy to the attempt's model.
//   - CONNECT and absolute-form requests reach the hosts of the egress list, tunnelled
//     blind; TLS is ended only for hosts that a brokered secret names.
//
// The broker resolves, checks and dials through internal/base/egress, puts the values of
// brokered secrets in, records every request, and counts what the model used. It
// holds the values in memory only.
//
// Carries R-S3 (egress), R-C3 and R-D8 (brokered secrets).
package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Config configures the broker of one attempt.
type Config struct {
	Egress  []string                   // HOST:PORT or *.HOST:PORT
	Model   *Model                     // nil: none
	Secrets []Secret                   // brokered ones, of envs
	Limits  api.Limits                 // Tokens, Cost and Turns
	Record  io.Writer                  // gets one api.NetworkLine a line, for each request
	Refused func(record.EgressRefusal) // called for each refused request, before it is answered
	Spent   func(limit string)         // called once, when a limit ends the agent: what it has spent
	// Unreachable is called when the model cannot be connected to, for each try, and with nil
	// when it can again. It must not block. nil: none.
	Unreachable func(*api.Unreachable)
	Clean       func(string) string // redacts text that goes into records; nil: none
	Dial        egress.DialFunc     // of hosts and remote models; nil: egress.Public
	Roots       *x509.CertPool      // that upstream servers must chain to; nil: the system's
	Now         func() time.Time    // nil: time.Now
	// Tools carries the agent's MCP messages to the service; nil: there are no tools. Its
	// errors are ErrAway, ErrAgentEnded, or any other for a message that may have arrived.
	Tools http.RoundTripper

	bounds bounds // zero: the default
}

// Model is the model endpoint of an attempt.
type Model struct {
	api.Model

	ID          string         // the only model that a request may name
	Placeholder string         // what the agent holds as its key
	Value       string         // of the credential
	Loopback    netip.AddrPort // of an http:// endpoint; else zero
}

// Secret is a brokered secret.
type Secret struct {
	api.Brokered

	Placeholder string // what the agent holds
	Value       string
}

// Broker serves the connections of one attempt. Create one with New.
type Broker struct {
	cfg    Config
	ledger ledger
	proxy  *proxy
	rules  []egress.Rule
	quota  quota
	vault  *vault
	outer  *http.Server // of connections from the jail
	inner  *http.Server // of tunnels whose requests the broker serves itself
	inside *inside      // its listener
	out    relayTransport

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	paid   context.Context // of requests for answers of the model; Close ends it when they are drained
	stop   context.CancelFunc
	slots  chan struct{} // one for each connection from the jail
	active chan struct{} // one for each request
	fields chan struct{} // one for each request to a host with a secret in a field
	tools  chan struct{} // one for each message to a tool

	mu     sync.Mutex
	closed bool
	conns  map[*agentConn]struct{} // open ones from the jail
	busy   sync.WaitGroup          // connections and handlers
}

// New returns a broker that has no connection yet. The caller must Close it.
func New(cfg Config) (*Broker, error) {
	if cfg.Record == nil || cfg.Refused == nil || cfg.Spent == nil {
		return nil, errors.New("broker: no record, or no function for refusals or spent limits")
	}
	if cfg.Clean == nil {
		cfg.Clean = func(s string) string { return s }
	}
	if cfg.Unreachable == nil {
		cfg.Unreachable = func(*api.Unreachable) {}
	}
	if cfg.Dial == nil {
		cfg.Dial = egress.Public(egress.Config{}).DialContext
	}
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default clock
	}
	if cfg.bounds == (bounds{}) {
		cfg.bounds = defaultBounds()
	}
	b := &Broker{
		cfg: cfg, ledger: ledger{cfg: cfg}, quota: quota{bounds: cfg.bounds, hosts: map[target]*use{}}, conns: map[*agentConn]struct{}{},
		slots: make(chan struct{}, cfg.bounds.conns), active: make(chan struct{}, cfg.bounds.active), fields: make(chan struct{}, maxFields), tools: make(chan struct{}, maxToolCalls), out: egress.Relay(cfg.Dial, cfg.Roots),
	}
	var err error
	if b.rules, err = parseRules(cfg.Egress); err != nil {
		return nil, err
	}
	if b.vault, err = newVault(cfg.Secrets, cfg.Now()); err != nil {
		return nil, err
	}
	if b.proxy, err = newProxy(cfg); err != nil {
		return nil, err
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.paid, b.stop = context.WithCancel(context.Background())
	b.inside = &inside{ctx: b.ctx, conns: make(chan net.Conn)}
	b.outer, b.inner = b.server(b.route), b.server(b.routeInside)
	return b, nil
}

// relayTransport sends requests to hosts.
type relayTransport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// Serve answers the connections of l until Close, which closes l. It returns nil then.
func (b *Broker) Serve(l net.Listener) error {
	if !b.enter() {
		return l.Close()
	}
	go func() {
		defer b.busy.Done()
		_ = b.inner.Serve(b.inside) // until Close
	}()
	if err := b.outer.Serve(&agentListener{l, b}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// CA returns the certificate that the agent must trust, as PEM, or nil if no
// brokered secret makes the broker end TLS.
func (b *Broker) CA() []byte { return b.vault.ca() }

// Usage returns what the attempt has used of its model so far.
func (b *Broker) Usage() api.ModelUsage { return b.proxy.meter.usage() }

// Close ends all connections and returns once each has its line in the record. For the
// time that is bounded by drain, it reads the answers of the model that are outstanding to
// their end: they cost the same whether the agent reads them or not. What is outstanding
// then is uncounted. Its error is that of the record.
func (b *Broker) Close() error { return b.CloseWithin(b.cfg.bounds.drain) }

// Drain waits until the model has ended its answers, for at most so long, and for no
// longer than Close. Further requests still pass.
func (b *Broker) Drain(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), min(most, b.cfg.bounds.drain))
	defer cancel()
	b.proxy.meter.drain(ctx)
}

// CloseWithin is Close with a bound of its own for outstanding answers, in place of a
// longer one.
func (b *Broker) CloseWithin(most time.Duration) error {
	b.mu.Lock()
	b.closed = true
	for c := range b.conns {
		_ = c.Conn.Close()
	}
	b.mu.Unlock()
	b.cancel()
	_, _ = b.outer.Close(), b.inner.Close()
	b.proxy.meter.close()
	b.Drain(most)
	b.stop()
	b.busy.Wait()
	b.out.CloseIdleConnections()
	b.proxy.close()
	return b.ledger.failure()
}

// enter counts a handler or connection that Close waits for. It is false after Close.
func (b *Broker) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.busy.Add(1)
	}
	return !b.closed
}
