package toolclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"sync/atomic"
)

// events gives the session the messages of a stream of server-sent events, until the
// answer to request id, or for 0 until the end.
func (h *httpLink) events(ctx context.Context, body io.Reader, id int64) error {
	in := bufio.NewScanner(body)
	in.Buffer(make([]byte, 0, 4<<10), maxMessage)
	var data []byte
	for in.Scan() {
		line := in.Bytes()
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0 && len(data) > 0:
			if !h.session.receive(data, id) {
				return h.session.Err()
			}
			if id != 0 && !h.session.awaits(id) {
				return nil
			}
			data = data[:0]
		case string(field) == "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
			if len(data) > maxMessage {
				return &InvalidError{errLong}
			}
		default: // a comment, or a field that says nothing to this client
			if !h.session.take(len(line)) {
				return h.session.Err()
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return &InvalidError{errLong}
	} else if err != nil {
		return err
	}
	return nil
}

// withConnected notes in connected whether a request had a connection: before that, it
// cannot have had an effect.
func withConnected(ctx context.Context, connected *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
}
