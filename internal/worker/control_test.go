package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/record"
)

func testControl(t *testing.T, cancel func(string)) (*control, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, record.WorkSocket)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newControl(Config{Dir: dir, Listener: l, Now: time.Now}, cancel)
	if err != nil {
		t.Fatal(err)
	}
	return c, path
}

func dialControl(t *testing.T, path string) (net.Conn, *bufio.Scanner) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, bufio.NewScanner(conn)
}

func next(t *testing.T, s *bufio.Scanner) record.WorkerMessage {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("the worker says no more: %v", s.Err())
	}
	var m record.WorkerMessage
	if err := json.Unmarshal(s.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// A service that was restarted knows as much as one that was there all along.
//
// proves R-O6
func TestLateConnectionReceivesEveryMessage(t *testing.T) {
	c, path := testControl(t, func(string) {})
	_, early := dialControl(t, path)
	c.send(record.WorkerMessage{Event: "ready", Key: "k"})
	c.logged(10)
	if m := next(t, early); m.Event != "ready" || m.Key != "k" {
		t.Errorf("first message %+v", m)
	}
	_, late := dialControl(t, path)
	if m := next(t, late); m.Event != "ready" || m.Key != "k" {
		t.Errorf("first message %+v", m)
	}
	if m := next(t, late); m.Event != "log" || m.Log != 10 {
		t.Errorf("second message %+v", m)
	}
	c.send(record.WorkerMessage{Event: "sealed"})
	c.close()
	if m := next(t, late); m.Event != "sealed" {
		t.Errorf("last message %+v", m)
	}
	if late.Scan() {
		t.Errorf("after the last word: %s", late.Bytes())
	}
}

// proves R-A2
func TestWorkerWaitsForADurableStart(t *testing.T) {
	cancelled := make(chan string, 1)
	c, path := testControl(t, func(reason string) { cancelled <- reason })
	defer c.close()
	conn, _ := dialControl(t, path)

	// The control: without the message, and after the timeout, it is refused.
	var f *failure
	if err := c.awaitProceed(t.Context(), time.Millisecond); !errors.As(err, &f) {
		t.Errorf("err = %v, want a refusal", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	if err := c.awaitProceed(ctx, time.Minute); !errors.Is(err, errCancelled) {
		t.Errorf("err = %v, want the cancel", err)
	}
	if _, err := conn.Write([]byte("{\"proceed\":true}\n{\"cancel\":\"enough\"}\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.awaitProceed(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	if got := <-cancelled; got != "enough" {
		t.Errorf("cancelled for %q", got)
	}
}

func TestInvalidMessageEndsTheConnection(t *testing.T) {
	c, path := testControl(t, func(string) { t.Error("cancelled") })
	defer c.close()
	for _, line := range []string{"{\"proceed\":true,\"proceed\":true}", "{\"Proceed\":true}", "{\"else\":1}", "nonsense"} {
		conn, said := dialControl(t, path)
		if _, err := conn.Write([]byte(line + "\n{\"cancel\":\"x\"}\n")); err != nil {
			t.Fatal(err)
		}
		if said.Scan() {
			t.Errorf("%s: answered %s", line, said.Bytes())
		}
	}
	select {
	case <-c.proceed:
		t.Error("a malformed line let the worker proceed")
	default:
	}
}
