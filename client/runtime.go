package client

import (
	"context"
	"fmt"
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
// decision is durable; the worker may not have started.
func (r Runtime) Dispatch(ctx context.Context, req api.DispatchRequest) (d api.Dispatch, err error) {
	err = r.c.request(ctx, http.MethodPost, dispatches, req, &d)
	return d, err
}

// Describe returns the record of a dispatch. With wait it returns when the
// dispatch has ended or the time is over, whichever is first.
func (r Runtime) Describe(ctx context.Context, id api.DispatchID, wait time.Duration) (d api.Dispatch, err error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait", wait.String())
	}
	err = r.c.request(ctx, http.MethodGet, dispatches+"/"+url.PathEscape(string(id))+"?"+q.Encode(), nil, &d)
	return d, err
}

// List returns the newest dispatches that the caller may see, newest first.
func (r Runtime) List(ctx context.Context, limit int) (list []api.Dispatch, err error) {
	err = r.c.request(ctx, http.MethodGet, dispatches+"?limit="+strconv.Itoa(limit), nil, &list)
	return list, err
}

// Cancel asks for the end of a dispatch and returns its record after the
// request, which is not yet its end.
func (r Runtime) Cancel(ctx context.Context, id api.DispatchID, reason string) (d api.Dispatch, err error) {
	err = r.c.request(ctx, http.MethodPost, dispatches+"/"+url.PathEscape(string(id))+"/cancel", api.CancelRequest{Reason: reason}, &d)
	return d, err
}

// Log hands over what the jail wrote, from offset on. With follow it goes on
// until the dispatch has ended.
func (r Runtime) Log(ctx context.Context, id api.DispatchID, offset int64, follow bool, each func(api.Chunk) error) error {
	path := fmt.Sprintf("%s/%s/log?offset=%d&follow=%t", dispatches, url.PathEscape(string(id)), offset, follow)
	return lines(ctx, r.c, path, each)
}

// Patch writes the patch of a dispatch to w.
func (r Runtime) Patch(ctx context.Context, id api.DispatchID, w io.Writer) error {
	return r.copy(ctx, dispatches+"/"+url.PathEscape(string(id))+"/patch", w)
}

// Output writes one declared output of a dispatch to w.
func (r Runtime) Output(ctx context.Context, id api.DispatchID, path string, w io.Writer) error {
	return r.copy(ctx, dispatches+"/"+url.PathEscape(string(id))+"/output?"+url.Values{"path": {path}}.Encode(), w)
}

func (r Runtime) copy(ctx context.Context, path string, w io.Writer) error {
	resp, err := r.c.send(ctx, http.MethodGet, path, nil)
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
	err = r.c.request(ctx, http.MethodPost, "/v1/runtime/can", req, &a)
	return a, err
}
