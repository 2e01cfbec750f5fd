package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// handlers are called for the messages of the service.
type handlers struct {
	cancel func(reason string)
	asked  func(api.Question)
	spent  func(limit string)
	tools  func(net.Conn) // takes a connection for tools
}

// control is the worker's side of its socket. Each connection receives every
// message from the first on, so a restarted service misses none.
type control struct {
	listener net.Listener
	now      func() time.Time
	on       handlers
	proceed  chan struct{}
	once     sync.Once
	conns    sync.WaitGroup

	mu     sync.Mutex
	events *os.File               // guarded by mu
	failed error                  // of the first write to events that failed; guarded by mu
	sent   []record.WorkerMessage // guarded by mu
	log    int64                  // bytes of the log; guarded by mu
	model  *api.Unreachable       // guarded by mu
	models int                    // changes of model so far; guarded by mu
	beats  int                    // heartbeats due so far; guarded by mu
	closed bool                   // guarded by mu
	open   map[net.Conn]use       // guarded by mu
	change *sync.Cond             // of sent, log, models, beats and closed
	stop   chan struct{}          // closed by close
}

// use is what the service uses an open connection for.
type use int

const (
	forNothing  use = iota // it is not open
	forMessages            // of both sides
	forTools               // once forward has written the last line
)

func newControl(cfg Config, on handlers) (*control, error) {
	events, err := os.OpenFile(filepath.Join(cfg.Dir, record.WorkEvents), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	c := &control{listener: cfg.Listener, now: cfg.Now, on: on, proceed: make(chan struct{}), events: events, open: map[net.Conn]use{}, stop: make(chan struct{})}
	c.change = sync.NewCond(&c.mu)
	c.conns.Go(c.accept)
	c.conns.Go(c.beat)
	return c, nil
}

// beat lets every connection send a heartbeat at intervals.
func (c *control) beat() {
	t := time.NewTicker(record.Heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.mu.Lock()
			c.beats++
			c.mu.Unlock()
			c.change.Broadcast()
		case <-c.stop:
			return
		}
	}
}

func (c *control) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.open[conn] = forMessages
		c.mu.Unlock()
		c.conns.Go(func() { c.receive(conn) })
		c.conns.Go(func() { c.forward(conn) })
	}
}

// receive handles the messages of the service until the connection ends.
func (c *control) receive(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, record.MaxWorkLine)
	for lines.Scan() {
		var m record.ServiceMessage
		if err := canon.Decode(lines.Bytes(), &m); err != nil {
			break
		}
		if m.Proceed {
			c.once.Do(func() { close(c.proceed) })
		}
		if m.Cancel != "" {
			c.on.cancel(m.Cancel)
		}
		if m.Question != nil {
			c.on.asked(*m.Question)
		}
		if m.Spent != "" {
			c.on.spent(m.Spent)
		}
		if m.Tools { // the service waits for forward before it sends more
			c.mu.Lock()
			c.open[conn] = forTools
			c.mu.Unlock()
			c.change.Broadcast()
			return
		}
	}
	c.mu.Lock()
	delete(c.open, conn)
	c.mu.Unlock()
	c.change.Broadcast()
	_ = conn.Close()
}

// writeTimeout is how long a peer may take to read one message.
const writeTimeout = 10 * time.Second

// forward sends all messages, past and future, until the connection ends.
func (c *control) forward(conn net.Conn) {
	enc := json.NewEncoder(conn)
	var next, models, beats int
	var log int64
	for {
		c.mu.Lock()
		for c.open[conn] == forMessages && !c.closed && next == len(c.sent) && log == c.log && models == c.models && beats == c.beats {
			c.change.Wait()
		}
		messages := c.sent[next:]
		if c.log != log {
			messages = append(slices.Clip(messages), record.WorkerMessage{At: c.now().UTC(), Event: "log", Log: c.log})
		}
		if c.models != models {
			messages = append(slices.Clip(messages), record.WorkerMessage{At: c.now().UTC(), Event: "model", Unreachable: c.model})
		}
		if len(messages) == 0 && beats != c.beats { // any message is a sign of life
			messages = []record.WorkerMessage{{At: c.now().UTC(), Event: "alive"}}
		}
		next, log, models, beats = len(c.sent), c.log, c.models, c.beats
		use := c.open[conn]
		done := use == forNothing || c.closed && len(messages) == 0
		c.mu.Unlock()
		if use == forTools {
			messages = append(slices.Clip(messages), record.WorkerMessage{At: c.now().UTC(), Event: "tools"})
		}
		for _, m := range messages {
			// A service that does not read must not keep the worker alive.
			if conn.SetWriteDeadline(c.now().Add(writeTimeout)) != nil || enc.Encode(m) != nil {
				done = true
			}
		}
		if done {
			_ = conn.Close()
			return
		}
		if use == forTools {
			c.handOver(conn)
			return
		}
	}
}

// handOver gives up a connection for tools.
func (c *control) handOver(conn net.Conn) {
	c.mu.Lock()
	delete(c.open, conn)
	c.mu.Unlock()
	if conn.SetWriteDeadline(time.Time{}) != nil {
		_ = conn.Close()
		return
	}
	c.on.tools(conn)
}

// send sends m to every connection, and appends it to a file in the worker's
// directory.
func (c *control) send(m record.WorkerMessage) {
	m.At = c.now().UTC()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, m)
	if c.failed == nil {
		c.failed = json.NewEncoder(c.events).Encode(m)
	}
	c.change.Broadcast()
}

// keep makes every message so far durable, also those that did not fit on a full disk:
// from the file the service completes what the log must have of a signed result.
func (c *control) keep() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		c.failed = c.events.Truncate(0)
		enc := json.NewEncoder(c.events)
		for i := range c.sent {
			c.failed = errors.Join(c.failed, enc.Encode(c.sent[i]))
		}
	}
	return errors.Join(c.failed, c.events.Sync())
}

// logged sends the length of the log to every connection.
func (c *control) logged(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = size
	c.change.Broadcast()
}

// unreachable tells every connection that the model cannot be connected to, or with nil
// that it can again.
func (c *control) unreachable(u *api.Unreachable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u != nil || c.model != nil {
		c.model = u
		c.models++
		c.change.Broadcast()
	}
}

// awaitProceed waits until the service confirms that the start is durable.
func (c *control) awaitProceed(ctx context.Context, most time.Duration) error {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-c.proceed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return fail(api.ReasonIntegrity, "the manifest expired before the service confirmed the start")
	}
}

// close sends the last messages and closes every connection.
func (c *control) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.change.Broadcast()
	close(c.stop)
	_ = errors.Join(c.listener.Close(), c.events.Close())
	c.conns.Wait()
}
