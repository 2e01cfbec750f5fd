package broker

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// toolAnswer relays the answer of the service to one message.
type toolAnswer struct {
	w       http.ResponseWriter
	c       *http.ResponseController
	now     func() time.Time
	message []byte

	streams bool // the agent has the head of an event stream
	sent    int64
	tail    [2]byte // the last bytes that the agent got
}

var errToolStream = errors.New("the answer is larger than a tool's may be")

// relay sends the answer to the agent. A short one is read whole, so that a connection
// that breaks is a *brokenError, after which another answer may follow; so is the end of
// an event stream between two events. After any other error the agent has seen a part.
func (a *toolAnswer) relay(resp *http.Response) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if a.streams {
		return a.follow(resp, kind)
	}
	for _, name := range sentToAgent() {
		if v := resp.Header[name]; len(v) > 0 {
			a.w.Header()[name] = v
		}
	}
	if resp.Header.Get("Content-Type") == "" {
		a.w.Header()["Content-Type"] = nil // net/http would guess one
	}
	defer a.c.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may be gone
	if kind == "text/event-stream" {
		a.streams = true
		a.w.WriteHeader(resp.StatusCode)
		a.deadline()
		if err := a.c.Flush(); err != nil {
			return errToolPart
		}
		return a.stream(resp)
	}
	first, err := io.ReadAll(io.LimitReader(resp.Body, maxToolWhole))
	if err != nil {
		return &brokenError{err: err}
	}
	if len(first) < maxToolWhole {
		a.w.Header().Set("Content-Length", fmt.Sprint(len(first)))
	}
	a.w.WriteHeader(resp.StatusCode)
	if err := a.write(first); err != nil {
		return errToolPart
	}
	if a.copy(resp.Body) != nil {
		return errToolPart
	}
	return nil
}

// follow adds the answer to a message that was sent again to the event stream of the first
// one.
func (a *toolAnswer) follow(resp *http.Response, kind string) error {
	defer a.c.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may be gone
	if kind == "text/event-stream" {
		return a.stream(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxToolStream))
	if err != nil {
		return &brokenError{err: err}
	}
	return a.event(text)
}

// stream relays an event stream, each part at once.
func (a *toolAnswer) stream(resp *http.Response) error {
	err := a.copy(resp.Body)
	broken, ok := errors.AsType[*brokenError](err)
	switch undecided := resp.Trailer.Get(record.ToolUndecided) != ""; {
	case err == nil && undecided:
		return &brokenError{err: ErrAway, undecided: true}
	case err == nil:
		return nil
	case ok && (a.sent == 0 || a.tail == [2]byte{'\n', '\n'}):
		return broken
	}
	return errToolPart
}

func (a *toolAnswer) event(text []byte) error {
	if a.write(fmt.Appendf(nil, "event: message\ndata: %s\n\n", text)) != nil {
		return errToolPart
	}
	return nil
}

// lost answers a message that the service did not answer. The status is one that makes
// clients read the error.
func (a *toolAnswer) lost(err error) error {
	text := lostResponse(a.message, err)
	if a.streams {
		return a.event(text)
	}
	status := http.StatusOK
	if m, err := mcpwire.Parse(a.message); err != nil || m.ID == nil {
		status = http.StatusServiceUnavailable // a notification, or what the service would refuse
	}
	a.deadline()
	defer a.c.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may be gone
	answerTools(a.w, status, text)
	return nil
}

// brokenError says that the connection to the service broke before the answer was whole,
// or that the service stops.
type brokenError struct {
	err       error
	undecided bool // the service says that the message has no entry
}

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
			return &brokenError{err: err}
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
