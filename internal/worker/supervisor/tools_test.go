package supervisor

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
)

// serveTools makes a connection to a worker one for tools, and serves h on it.
func serveTools(t *testing.T, path string, h http.HandlerFunc) net.Conn {
	t.Helper()
	conn, _ := dialControl(t, path)
	if _, err := io.WriteString(conn, `{"tools":true}`+"\n"); err != nil {
		t.Fatal(err)
	}
	for line := ""; !strings.Contains(line, `"tools"`) || !strings.HasSuffix(line, "\n"); { // what follows is HTTP/2
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			t.Fatal(err)
		}
		line += string(b[:])
	}
	srv := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	srv.Protocols.SetUnencryptedHTTP2(true)
	l := &one{conn: conn, closed: make(chan struct{})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return conn
}

// one is a listener of one connection.
type one struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *one) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}
func (l *one) Close() error   { close(l.closed); return nil }
func (l *one) Addr() net.Addr { return &net.UnixAddr{} }

func ask(c *channel) (string, error) {
	r, err := http.NewRequest(http.MethodPost, "http://bailiwick/mcp", strings.NewReader("question"))
	if err != nil {
		return "", err
	}
	resp, err := c.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// A message waits for a service that restarts, is never sent twice, and is never left
// without an answer.
//
// proves R-G4, R-O6
func TestMessagesOutliveTheService(t *testing.T) {
	tools := newChannel()
	c, path := testControl(t, handlers{tools: tools.attach})
	c.send(record.WorkerMessage{Event: "ready", Key: "k"})
	type result struct {
		text string
		err  error
	}
	results := make(chan result)
	call := func() {
		text, err := ask(tools)
		results <- result{text, err}
	}
	go call() // before there is a service
	asked := make(chan struct{}, 10)
	serveTools(t, path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "first") })
	if r := <-results; r.text != "first" || r.err != nil {
		t.Fatalf("%+v", r)
	}
	tools.mu.Lock()
	fresh := tools.fresh
	tools.mu.Unlock()
	second := serveTools(t, path, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	<-fresh // else the call takes the first connection
	go call()
	<-asked
	_ = second.Close() // the service is killed
	if r := <-results; r.err == nil || errors.Is(r.err, broker.ErrAway) || errors.Is(r.err, broker.ErrAgentEnded) {
		t.Errorf("a call that was out: %+v", r)
	}
	if len(asked) != 0 {
		t.Error("it was sent twice")
	}
	go call()
	serveTools(t, path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "third") })
	if r := <-results; r.text != "third" || r.err != nil {
		t.Errorf("after the restart: %+v", r)
	}
	tools.end()
	if _, err := ask(tools); !errors.Is(err, broker.ErrAgentEnded) {
		t.Errorf("after the end: %v", err)
	}
	if conn := serveTools(t, path, func(http.ResponseWriter, *http.Request) {}); conn != nil {
		if _, err := ask(tools); !errors.Is(err, broker.ErrAgentEnded) {
			t.Errorf("a connection after the end: %v", err)
		}
	}
	c.close()
}

// A message that a stopping service did not decide waits for another connection, by which
// another service decides it: the one that stops would not.
//
// proves R-G7
func TestAStoppingServiceGetsNoMoreMessages(t *testing.T) {
	for _, place := range []string{"field", "trailer"} {
		tools := newChannel()
		c, path := testControl(t, handlers{tools: tools.attach})
		c.send(record.WorkerMessage{Event: "ready", Key: "k"})
		asked := 0
		stops := serveTools(t, path, func(w http.ResponseWriter, _ *http.Request) {
			if asked++; place == "trailer" {
				_, _ = io.WriteString(w, "progress")
				w.Header().Set(http.TrailerPrefix+record.ToolUndecided, "1")
				return
			}
			w.Header().Set(record.ToolUndecided, "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		if _, err := ask(tools); err != nil {
			t.Fatal(err)
		}
		results := make(chan string)
		go func() {
			text, _ := ask(tools)
			results <- text
		}()
		serveTools(t, path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
		if got := <-results; got != "next" || asked != 1 {
			t.Errorf("%s: %q, the stopping service was asked %d times", place, got, asked)
		}
		_ = stops.Close()
		tools.end()
		c.close()
	}
}

// The first question that an agent asks by its tool counts, and each is acknowledged, so
// that a service may repeat it.
func TestTheFirstQuestionCounts(t *testing.T) {
	a := &attempt{asked: asked{now: make(chan struct{})}}
	var err error
	dir := t.TempDir()
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	if a.control, err = newControl(Config{Dir: dir, Listener: l, Now: time.Now}, handlers{asked: a.askedByTool}); err != nil {
		t.Fatal(err)
	}
	conn, lines := dialControl(t, dir+"/s")
	for _, q := range []string{"one", "two"} {
		if _, err := io.WriteString(conn, `{"question":{"question":"`+q+`"}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if m := next(t, lines); m.Event != "asked" {
			t.Errorf("%+v", m)
		}
	}
	if got := a.asked.get(); got == nil || got.Question != "one" {
		t.Errorf("%+v", got)
	}
	_ = conn.Close()
	a.control.close()
}
