package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

func testControl(t *testing.T, on handlers) (*control, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, record.WorkSocket)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newControl(Config{Dir: dir, Listener: l, Now: time.Now}, on)
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
	c, path := testControl(t, handlers{})
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
	c, path := testControl(t, handlers{cancel: func(reason string) { cancelled <- reason }})
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
	c, path := testControl(t, handlers{cancel: func(string) { t.Error("cancelled") }})
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

// What a full disk did not take is written again before a result is signed. Control:
// before that the file lacks it.
//
// proves R-S3
func TestMessagesThatAFullDiskRefusedAreKept(t *testing.T) {
	c, path := testControl(t, handlers{})
	defer c.close()
	events := filepath.Join(filepath.Dir(path), record.WorkEvents)
	written := func() string {
		b, err := os.ReadFile(events)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(regexp.MustCompile(`"number":\d`).FindAllString(string(b), -1), " ")
	}
	refuse := func(n int64) {
		c.send(record.WorkerMessage{Event: "refused", Refused: &record.EgressRefusal{Form: "connect", Host: "a:1", Number: n, Reason: "no"}})
	}
	refuse(1)
	room := c.events
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.events = full
	refuse(2)
	if err := c.keep(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	_, err = room.WriteString(`{"at":"20`) // all that fits
	c.events = room
	if err = errors.Join(err, full.Close()); err != nil {
		t.Fatal(err)
	}
	refuse(3)
	if got := written(); got != `"number":1` {
		t.Errorf("the control: the file has %s", got)
	}
	if err := c.keep(); err != nil {
		t.Fatal(err)
	}
	refuse(4)
	if got := written(); got != `"number":1 "number":2 "number":3 "number":4` {
		t.Errorf("the file has %s", got)
	}
}

// Every connection learns the newest state of the model, also one that comes late.
func TestAnUnreachableModelIsSentToTheService(t *testing.T) {
	c, path := testControl(t, handlers{})
	_, early := dialControl(t, path)
	c.unreachable(nil) // nothing changed
	c.unreachable(&api.Unreachable{Model: "local", Host: "api.example:443", Tries: 1})
	if m := next(t, early); m.Event != "model" || m.Unreachable == nil || m.Unreachable.Tries != 1 {
		t.Errorf("first message %+v", m)
	}
	c.unreachable(&api.Unreachable{Model: "local", Host: "api.example:443", Tries: 2})
	_, late := dialControl(t, path)
	if m := next(t, late); m.Event != "model" || m.Unreachable == nil || m.Unreachable.Host != "api.example:443" || m.Unreachable.Tries != 2 {
		t.Errorf("late message %+v", m)
	}
	c.unreachable(nil)
	if m := next(t, late); m.Event != "model" || m.Unreachable != nil {
		t.Errorf("last message %+v", m)
	}
	c.close()
}
