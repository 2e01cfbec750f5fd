package mcpclient

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/internal/base/eventstream"
)

// errAnswered ends a stream that has the answer that was waited for.
var errAnswered = errors.New("answered")

// events gives the session the messages of a stream of server-sent events, until the
// answer to request id, or for 0 until the end.
func (h *httpLink) events(ctx context.Context, body io.Reader, id int64) error {
	other := func(size int) error { // a comment, or a field that says nothing to this client
		if !h.session.take(size) {
			return h.session.Err()
		}
		return context.Cause(ctx)
	}
	stream := &eventstream.Splitter{Most: maxMessage, Other: other, Event: func(data []byte) error {
		switch {
		case len(data) == 0:
			return other(0)
		case !h.session.receive(data, id):
			return h.session.Err()
		case id != 0 && h.session.requests.get(id) == nil:
			return errAnswered
		}
		return context.Cause(ctx)
	}}
	_, err := io.Copy(stream, body)
	switch {
	case errors.Is(err, errAnswered):
		return nil
	case errors.Is(err, eventstream.ErrTooLarge):
		return &InvalidError{errLong}
	}
	return err
}

// withConnected notes in connected whether a request had a connection: before that, it
// cannot have had an effect.
func withConnected(ctx context.Context, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
}
