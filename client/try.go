package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// call is one request. One that may be repeated has the same effect twice as
// once, so that it is made again when nobody can say whether it arrived.
type call struct {
	method, path string
	body         any
	repeat       bool
}

func get(path string) call { return call{method: http.MethodGet, path: path, repeat: true} }

// why a call failed before there was an answer to it.
type why int

const (
	noService    why = iota // nobody listens: nothing was sent
	ending                  // the service said that it takes no more: nothing was done
	brokenCall              // the connection broke before the answer: nobody knows
	brokenStream            // the connection broke within the answer
)

// failure is a call that another service may answer.
type failure struct {
	why why
	err *api.Error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// refusal is an error of whoever takes the lines of a stream.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// maxTries is how many services are asked before one that never stays is an
// error. Starting one waits for the end of the one before, so this is no busy
// loop.
const maxTries = 8

// send makes a call, and where this side may start a service, makes it again
// with the next one: always when it provably had no effect, and when nobody
// knows only if it may be repeated.
func (c *Conn) send(ctx context.Context, call call) (*http.Response, error) {
	var payload []byte
	if call.body != nil {
		var b bytes.Buffer
		to := json.NewEncoder(&b)
		to.SetEscapeHTML(false) // what is near a bound must not grow on the way
		if err := to.Encode(call.body); err != nil {
			return nil, err
		}
		payload = b.Bytes()
	}
	for try := 1; ; try++ {
		resp, err := c.once(ctx, call.method, call.path, payload)
		f, failed := errors.AsType[*failure](err)
		if !failed || c.spawn == nil || try == maxTries || f.why == brokenCall && !call.repeat {
			return resp, err
		}
		if f.why == brokenCall {
			continue // whether another has to be started, the next try finds out
		}
		if err := c.next(ctx); err != nil {
			return nil, err
		}
	}
}

// next finds the service that comes after one that is not there.
func (c *Conn) next(ctx context.Context) error {
	c.http.CloseIdleConnections()
	socket, err := c.spawn(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.places, c.socket = append([]string{socket}, c.places...), socket
	return nil
}

// A follower whose stream broke tries so often to take it up again, so long
// apart. Without the means to start a service it thus waits ten seconds for
// somebody else to start the next.
const (
	followTries = 100
	followPause = 100 * time.Millisecond
)

// follow calls stream until it has ended, or failed in a way that another
// service does not mend. The stream takes up where it was; progress says
// whether it got anywhere since it was asked last.
func follow(ctx context.Context, stream func() error, progress func() (moved, ended bool)) error {
	for had, tries := false, 0; ; {
		err := stream()
		moved, ended := progress()
		if refused, ok := errors.AsType[*refusal](err); ok {
			return refused.err
		}
		f, failed := errors.AsType[*failure](err)
		if ended || err != nil && !failed {
			return err
		}
		// A service has answered; that none does at first is an error at once.
		had = had || moved || err == nil || f.why == brokenStream
		if tries++; moved {
			tries = 1
		}
		if !had || tries == followTries {
			if err == nil {
				err = api.Errorf(api.CodeUnavailable, "the stream ends before what it shows does")
			}
			return err
		}
		if err := pause(ctx, tries); err != nil {
			return err
		}
	}
}

// pause waits before all tries but the first.
func pause(ctx context.Context, tries int) error {
	if tries == 1 {
		return ctx.Err()
	}
	t := time.NewTimer(followPause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
