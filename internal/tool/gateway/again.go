package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// stopTime is how long requests that are out may take to be answered when the service
// stops.
const stopTime = 2 * time.Second

var (
	errStopping  = errors.New("the service is stopping")
	errUndecided = errors.New("the service stops before it decided the call")
	errDecided   = errors.New("the message was decided before")
)

// Stop answers the requests that are out, before the service closes the connection: a
// call without an entry as undecided, so that the worker sends it to the next service,
// and a call that was made with what is known about it.
func (v *View) Stop() {
	v.mu.Lock()
	v.stopping = true
	for _, list := range v.open {
		for _, r := range list {
			r.cancel(errStopping)
		}
	}
	v.mu.Unlock()
	v.awaitCalls(min(stopTime, v.g.closeTime))
}

// awaitCalls waits until no request is out, at most for a time.
func (v *View) awaitCalls(most time.Duration) {
	done := make(chan struct{})
	go func() {
		v.calls.Wait()
		close(done)
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// undecided reports whether a refusal is not durable because the service is stopping.
func undecided(ctx context.Context, r *refusal) bool {
	return r.err != nil && errors.Is(context.Cause(ctx), errStopping)
}

// sendUndecided tells the worker that a message has no entry in the log.
func sendUndecided(w http.ResponseWriter, r *http.Request, m mcpwire.Message, s *stream) {
	refused := mcpwire.ErrorResponse(m.Text, mcpwire.Refuse(jsonrpc.CodeInternalError, "the service of Bailiwick is restarting: the call was not made; try it again in some seconds"))
	switch {
	case !s.started():
		w.Header().Set(record.ToolUndecided, "1")
		send(w, http.StatusServiceUnavailable, refused)
	case r.Header.Get(record.ToolMessage) == "": // of a worker that does not send it again
		s.event(refused)
	default:
		w.Header().Set(http.TrailerPrefix+record.ToolUndecided, "1")
	}
}

// before answers a message that an earlier connection brought, if it was decided there; nil
// for a message without an entry. An older service made entries without keys: where there
// are any, the message may be one of them.
func (v *View) before(ctx context.Context, key string) (json.RawMessage, error) {
	var c *row
	var older int64
	m := v.a.Manifest
	err := v.g.cfg.Store.Read(ctx, func(r *store.View) error {
		n, err := decidedAs(r, m, key)
		if err != nil {
			return err
		}
		if n == 0 {
			return r.Get("SELECT count(*) FROM gateway_call WHERE dispatch = ? AND attempt = ? AND message IS NULL", store.Args{m.ID, m.Attempt}, &older)
		}
		list, err := page(r, m.ID, m.Attempt, n-1)
		if err == nil {
			c = &list[0]
		}
		return err
	})
	switch {
	case err != nil:
		return failed(err).result()
	case older > 0:
		return errorResult("failed: the service stopped while this call was out; it is not known whether the call took effect", nil)
	case c == nil:
		return nil, nil
	}
	return v.answerOf(ctx, c)
}

// answerOf returns what the agent gets for a call that has an entry.
func (v *View) answerOf(ctx context.Context, c *row) (json.RawMessage, error) {
	l := &c.line
	switch l.State {
	case stateDenied:
		return (&refusal{code: api.CodeDenied, message: reasonsText(l.Reasons), hint: (&call{}).hint(), seq: &l.Entry}).result()
	case stateReturned:
		answer, err := v.g.content(ctx, c.answer, c.ansBlob)
		if err != nil || answer != nil {
			return answer, err
		}
		return errorResult(fmt.Sprintf("failed: call %d was made and returned, but its answer was not kept (audit entry %d)", l.Number, l.Entry), nil)
	}
	return errorResult(fmt.Sprintf("failed: the service stopped while call %d was out; it is not known whether the call took effect (audit entry %d)", l.Number, l.Entry), nil)
}

// decidedAs returns the number of the call that a message became; 0 for none.
func decidedAs(r store.Reader, m *record.Manifest, key string) (n int64, err error) {
	err = r.Get("SELECT number FROM gateway_call WHERE dispatch = ? AND attempt = ? AND message = ?", store.Args{m.ID, m.Attempt, key}, &n)
	if errors.Is(err, store.ErrNoRow) {
		return 0, nil
	}
	return n, err
}
