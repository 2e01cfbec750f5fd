package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// call is one request to make.
type call struct {
	api.Call
	args       []string // of the wildcards in its path
	query      url.Values
	body       any  // sent as JSON; nil: none
	repeatable bool // by api.CallSpec, or because an id in the body makes it so
}

// on returns a call with the arguments of its path.
func on(c api.Call, args ...string) call {
	return call{Call: c, args: args, repeatable: c.Spec().Repeatable}
}

// with returns c with a body, which may make it repeatable.
func (c call) with(body any, repeatable bool) call {
	c.body, c.repeatable = body, c.repeatable || repeatable
	return c
}

func (c call) where(query url.Values) call {
	c.query = query
	return c
}

// address returns the path of c with its query.
func (c call) address() string {
	path := c.Path(c.args...)
	if len(c.query) > 0 {
		path += "?" + c.query.Encode()
	}
	return path
}

// why a call failed before its answer was complete.
type why int

const (
	noService    why = iota // no service listens: nothing was sent
	shuttingDown            // the service refused it while shutting down: nothing was done
	unavailable             // the service could not do it, such as on a full disk
	brokenCall              // the connection broke before the answer: the effect is unknown
	brokenStream            // the connection broke within the answer
)

// failure is a failed call that another service may answer.
type failure struct {
	why why
	err *api.Error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// consumerError is an error of the function that receives a stream's lines.
type consumerError struct{ err error }

func (e *consumerError) Error() string { return e.err.Error() }
func (e *consumerError) Unwrap() error { return e.err }

// ofConsumer returns err, or the error within it that the caller's own function returned.
func ofConsumer(err error) error {
	if consumer, ok := errors.AsType[*consumerError](err); ok {
		return consumer.err
	}
	return err
}

// maxTries bounds how many services a call is sent to. Starting one waits for
// its predecessor to exit, so this is no busy loop.
const maxTries = 8

// restartTries bounds how often a call is sent while the unit of a machine restarts the
// service, with followPause between: ten seconds. A call that the next service has not
// accepted yet waits at its socket, which the unit keeps, and is not counted.
const restartTries = 100

// send makes a call, and repeats it with the next service if the call provably had no
// effect, or if its effect is unknown and it is repeatable. A client that may start services
// starts the next one; on a machine the unit of the service does. If nothing listens, the unit is
// not restarting. The caller closes the response's body.
func (c *Conn) send(ctx context.Context, call call) (*http.Response, error) {
	var payload []byte
	if call.body != nil {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // a body near its size limit must not grow
		if err := enc.Encode(call.body); err != nil {
			return nil, err
		}
		payload = b.Bytes()
	}
	var ended *failure // of a service that its unit restarts
	for try := 1; ; try++ {
		resp, err := c.authorized(ctx, call, payload)
		f, failed := errors.AsType[*failure](err)
		if !failed || f.why == unavailable || f.why == brokenCall && !call.repeatable {
			return resp, err
		}
		switch {
		case c.spawn != nil && try < maxTries:
			err = c.successor(ctx, f)
		case c.restarts && f.why != noService && try < restartTries:
			if ended == nil || ended.why != brokenCall { // one that broke may have had its effect
				ended = f
			}
			err = pause(ctx, try+1)
		case ended != nil:
			// Not a failure: follow, which waits as long, is not to wait again.
			return nil, ended.err.WithHint("run: %s; systemctl status bailiwick.service says why it ended", api.StartService(api.ModeSystem))
		default:
			return nil, err
		}
		if err != nil {
			return nil, err
		}
	}
}

// authorized makes a call as who is logged in. A handle that the service refuses, which had
// no effect, is replaced once.
func (c *Conn) authorized(ctx context.Context, call call, payload []byte) (*http.Response, error) {
	handle, err := c.session(ctx, call.Call, "")
	if err != nil {
		return nil, err
	}
	resp, err := c.once(ctx, call, payload, handle)
	if handle == "" || api.CodeOf(err) != api.CodeUnauthenticated || ctx.Err() != nil {
		return resp, err
	}
	if handle, err = c.session(ctx, call.Call, handle); err != nil {
		return nil, err
	}
	return c.once(ctx, call, payload, handle)
}

// once makes a call and returns its response if it succeeded.
func (c *Conn) once(ctx context.Context, call call, payload []byte, handle string) (*http.Response, error) {
	base := "http://bailiwick"
	if c.remote != nil {
		base = c.remote.URL
	}
	req, err := http.NewRequestWithContext(ctx, call.Method(), base+call.address(), bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.header)
	if handle != "" {
		req.Header.Set(api.SessionHeader, handle)
	}
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.trace != "" {
		req.Header.Set(api.TraceHeader, string(c.trace))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	return nil, readError(resp)
}

// successor starts or finds the successor of a service that is gone.
func (c *Conn) successor(ctx context.Context, f *failure) error {
	if f.why == brokenCall {
		return nil // the next try finds out whether a service has to be started
	}
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

// A follower whose stream broke retries this often, with this pause between.
// Without Config.Spawn it thus waits ten seconds for another process to start
// the next service.
const (
	followTries = 100
	followPause = 100 * time.Millisecond
)

// follow calls stream until it has ended, or has failed in a way that another
// service does not cure. Each stream resumes after the one before; progress
// reports whether it delivered anything since the last call of progress, and
// whether it is complete.
func follow(ctx context.Context, stream func() error, progress func() (moved, ended bool)) error {
	for answered, tries := false, 0; ; {
		err := stream()
		moved, ended := progress()
		if consumer, ok := errors.AsType[*consumerError](err); ok {
			return consumer.err
		}
		f, failed := errors.AsType[*failure](err)
		if ended || err != nil && !failed {
			return err
		}
		// Before any service has answered, fail at once.
		answered = answered || moved || err == nil || f.why == brokenStream
		if tries++; moved {
			tries = 1
		}
		if !answered || tries == followTries {
			if err == nil {
				err = api.Errorf(api.CodeUnavailable, "the stream ended too early")
			}
			return err
		}
		if err := pause(ctx, tries); err != nil {
			return err
		}
	}
}

// pause waits before every try but the first.
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
