package broker

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// toolAnswer relays the answer of the service to one message.
type toolAnswer struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	now     func() time.Time
	message []byte

	sent int64
	tail [2]byte // the last bytes that the agent got
}

var errToolStream = errors.New("the answer is larger than a tool's may be")

// relay sends the answer to the agent. A short one is read whole, so that a connection
// that breaks becomes an error that the agent can read; an event stream ends with that
// error. Any other broken answer is an error of relay: the agent has seen a part.
func (a *toolAnswer) relay(resp *http.Response) error {
	for _, name := range sentToAgent() {
		if v := resp.Header[name]; len(v) > 0 {
			a.w.Header()[name] = v
		}
	}
	if resp.Header.Get("Content-Type") == "" {
		a.w.Header()["Content-Type"] = nil // net/http would guess one
	}
	defer a.c.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may be gone
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		return a.stream(resp)
	}
	first, err := io.ReadAll(io.LimitReader(resp.Body, maxToolWhole))
	if err != nil {
		a.deadline()
		lost(a.w, a.message, err)
		return nil
	}
	if len(first) < maxToolWhole {
		a.w.Header().Set("Content-Length", fmt.Sprint(len(first)))
	}
	a.w.WriteHeader(resp.StatusCode)
	if err := a.write(first); err != nil {
		return err
	}
	return a.copy(resp.Body)
}

// stream relays an event stream, each part at once.
func (a *toolAnswer) stream(resp *http.Response) error {
	a.w.WriteHeader(resp.StatusCode)
	a.deadline()
	if err := a.c.Flush(); err != nil {
		return err
	}
	err := a.copy(resp.Body)
	if broken, ok := errors.AsType[*brokenError](err); ok && (a.sent == 0 || a.tail == [2]byte{'\n', '\n'}) {
		return a.write(fmt.Appendf(nil, "event: message\ndata: %s\n\n", lostResponse(a.message, broken.err)))
	}
	return err
}

// brokenError says that the answer of the service broke off.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }

func (a *toolAnswer) copy(from io.Reader) error {
	buf := make([]byte, copyBuffer)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := a.write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &brokenError{err}
		}
	}
}

// write sends a part to the agent, which has toolWriteTime to take it.
func (a *toolAnswer) write(p []byte) error {
	if a.sent += int64(len(p)); a.sent > maxToolStream {
		return errToolStream
	}
	a.deadline()
	if _, err := a.w.Write(p); err != nil {
		return err
	}
	end := append(a.tail[:], p[max(0, len(p)-2):]...)
	a.tail = [2]byte(end[len(end)-2:])
	return a.c.Flush()
}

func (a *toolAnswer) deadline() { _ = a.c.SetWriteDeadline(a.now().Add(toolWriteTime)) }
