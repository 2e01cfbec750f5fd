package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Runtime starts, watches and ends dispatches of what humans have defined.
type Runtime struct{ c *Conn }

// Runtime returns the run-time face of c.
func (c *Conn) Runtime() Runtime { return Runtime{c} }

const dispatches = "/v1/runtime/dispatches"

// Dispatch asks for one execution of a subagent. It returns as soon as the
// decision is durable; the worker may not have started. With an id of the
// caller's choice it can be asked for again without being done twice.
func (r Runtime) Dispatch(ctx context.Context, req api.DispatchRequest) (d api.Dispatch, err error) {
	err = r.c.request(ctx, call{http.MethodPost, dispatches, req, req.DispatchID != ""}, &d)
	return d, err
}

// Describe returns the record of a dispatch. With wait it returns when the
// dispatch has ended or the time is over, whichever is first.
func (r Runtime) Describe(ctx context.Context, id api.DispatchID, wait time.Duration) (d api.Dispatch, err error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	err = r.c.request(ctx, get(dispatches+"/"+url.PathEscape(string(id))+"?"+q.Encode()), &d)
	return d, err
}

// List returns the newest dispatches that the caller may see, newest first.
func (r Runtime) List(ctx context.Context, limit int) (list []api.Dispatch, err error) {
	err = r.c.request(ctx, get(dispatches+"?limit="+strconv.Itoa(limit)), &list)
	return list, err
}

// Cancel asks for the end of a dispatch and returns its record after the
// request, which is not yet its end.
func (r Runtime) Cancel(ctx context.Context, id api.DispatchID, reason string) (d api.Dispatch, err error) {
	err = r.c.request(ctx, call{http.MethodPost, dispatches + "/" + url.PathEscape(string(id)) + "/cancel", api.CancelRequest{Reason: reason}, true}, &d)
	return d, err
}

// LogFrom is where in a log to begin.
type LogFrom struct {
	Attempt int   // 0 is the current one
	Offset  int64 // of the first byte
}

// Log hands over what the jail wrote, as far as it is there.
func (r Runtime) Log(ctx context.Context, id api.DispatchID, from LogFrom, each func(api.Chunk) error) error {
	err := lines(ctx, r.c, logPath(id, from, false), each)
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.err
	}
	return err
}

// Follow hands over what the jail writes until the attempt has ended. When the
// service ends meanwhile it goes on with the next one, and no byte is missing
// or comes twice.
func (r Runtime) Follow(ctx context.Context, id api.DispatchID, from LogFrom, each func(api.Chunk) error) error {
	if from.Attempt == 0 {
		// The one that is current now: what the next one writes has offsets of
		// its own.
		d, err := r.Describe(ctx, id, 0)
		if err != nil {
			return err
		}
		from.Attempt = d.Attempt
	}
	before, ended := from.Offset, false
	return follow(ctx, func() error {
		return lines(ctx, r.c, logPath(id, from, true), func(c api.Chunk) error {
			if had := from.Offset - c.Offset; had > 0 {
				had = min(had, int64(len(c.Data)))
				if c.Offset, c.Data = c.Offset+had, c.Data[had:]; len(c.Data) == 0 && !c.Ended {
					return nil
				}
			}
			from.Offset, ended = max(from.Offset, c.Offset+int64(len(c.Data))), c.Ended
			return each(c)
		})
	}, func() (bool, bool) {
		moved := from.Offset > before
		before = from.Offset
		return moved, ended
	})
}

func logPath(id api.DispatchID, from LogFrom, follow bool) string {
	return attemptPath(id, "/log", from.Attempt, url.Values{"offset": {strconv.FormatInt(from.Offset, 10)}, "follow": {strconv.FormatBool(follow)}})
}

// Attempt returns one attempt of a dispatch as it is or ended; 0 is the current
// one.
func (r Runtime) Attempt(ctx context.Context, id api.DispatchID, attempt int) (d api.Dispatch, err error) {
	err = r.c.request(ctx, get(attemptPath(id, "", attempt, url.Values{})), &d)
	return d, err
}

// Patch writes the patch of an attempt to w; 0 is the current one.
func (r Runtime) Patch(ctx context.Context, id api.DispatchID, attempt int, w io.Writer) error {
	return r.copy(ctx, attemptPath(id, "/patch", attempt, url.Values{}), w)
}

// Output writes one output of an attempt to w; 0 is the current one.
func (r Runtime) Output(ctx context.Context, id api.DispatchID, attempt int, path string, w io.Writer) error {
	return r.copy(ctx, attemptPath(id, "/output", attempt, url.Values{"path": {path}}), w)
}

func attemptPath(id api.DispatchID, what string, attempt int, query url.Values) string {
	if attempt != 0 { // what is none is for the service to refuse
		query.Set("attempt", strconv.Itoa(attempt))
	}
	return dispatches + "/" + url.PathEscape(string(id)) + what + "?" + query.Encode()
}

func (r Runtime) copy(ctx context.Context, path string, w io.Writer) error {
	resp, err := r.c.send(ctx, get(path))
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	n, err := io.Copy(w, resp.Body)
	if err == nil && resp.ContentLength >= 0 && n != resp.ContentLength {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Can asks what policy would say to a dispatch.
func (r Runtime) Can(ctx context.Context, req api.CanRequest) (a api.CanAnswer, err error) {
	err = r.c.request(ctx, call{http.MethodPost, "/v1/runtime/can", req, true}, &a)
	return a, err
}

// Answer answers the question of a dispatch, which goes on from there. It
// returns the record of the attempt that follows.
func (r Runtime) Answer(ctx context.Context, id api.DispatchID, req api.AnswerRequest) (d api.Dispatch, err error) {
	err = r.c.request(ctx, call{http.MethodPost, dispatches + "/" + url.PathEscape(string(id)) + "/answer", req, req.Attempt > 0}, &d)
	return d, err
}

// Pin keeps a dispatch whatever the service's rules of retention say, or with
// on false no longer.
func (r Runtime) Pin(ctx context.Context, id api.DispatchID, on bool) (d api.Dispatch, err error) {
	verb := "/unpin"
	if on {
		verb = "/pin"
	}
	err = r.c.request(ctx, call{method: http.MethodPost, path: dispatches + "/" + url.PathEscape(string(id)) + verb, repeat: true}, &d)
	return d, err
}
