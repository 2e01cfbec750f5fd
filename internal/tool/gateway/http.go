package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// ServeHTTP answers one message of MCP over streamable HTTP, without sessions. The
// worker's broker has checked who sent it.
func (v *View) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost && (r.Method != http.MethodPut || r.Header.Get(record.ToolMessage) == "") {
		w.Header().Set("Allow", http.MethodPost)
		send(w, http.StatusMethodNotAllowed, mcpwire.ErrorResponse(nil, mcpwire.Refuse(jsonrpc.CodeInvalidRequest, "method not allowed: use POST")))
		return
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, mcpwire.MaxMessage+1))
	if err != nil {
		return // the agent, or its worker, is gone
	}
	m, err := mcpwire.Parse(raw)
	if err == nil && m.Method == "" {
		err = mcpwire.Refuse(jsonrpc.CodeInvalidRequest, "this server sends no requests, so it takes no responses")
	}
	if err != nil {
		v.refuseMessage(w, r, raw, err)
		return
	}
	if m.ID == nil {
		v.notified(m)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(v.life, func() { cancel(errClosed) })()
	req := &request{string(m.ID), cancel}
	s := &stream{w: w, accepts: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	defer s.close()
	switch err := v.begin(req); {
	case errors.Is(err, errStopping):
		sendUndecided(w, r, m, s)
		return
	case err != nil:
		send(w, http.StatusOK, mcpwire.ErrorResponse(m.Text, mcpwire.Refuse(jsonrpc.CodeInternalError, "the attempt has ended: no tool can be called any more")))
		return
	}
	defer v.finish(req)
	result, err := v.answer(ctx, r, m, s)
	switch {
	case errors.Is(err, errUndecided):
		sendUndecided(w, r, m, s)
	case err != nil && s.started():
		s.event(mcpwire.ErrorResponse(m.Text, err))
	case err != nil:
		v.refuseMessage(w, r, m.Text, err)
	case s.started():
		s.event(response(m.ID, result))
	default:
		send(w, http.StatusOK, response(m.ID, result))
	}
}

func send(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) //nolint:gosec // G705: JSON for a program
}

// response returns the response to a request. Both parts are JSON already.
func response(id, result json.RawMessage) []byte {
	b := make([]byte, 0, len(id)+len(result)+40)
	b = append(append(b, `{"jsonrpc":"2.0","id":`...), id...)
	b = append(append(b, `,"result":`...), result...)
	return append(b, '}')
}

// refuseMessage answers a message that is not answered with a result. Clients probe for
// methods; any other refused message is in the log before the answer.
func (v *View) refuseMessage(w http.ResponseWriter, r *http.Request, raw []byte, err error) {
	status := http.StatusBadRequest
	var logged *loggedError
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	newest := r.Header.Get(versionHeader) >= mcpwire.FirstStateless
	switch {
	case ok && wire.Code == jsonrpc.CodeMethodNotFound:
		if status = http.StatusOK; newest {
			status = http.StatusNotFound
		}
	case errors.As(err, &logged):
		if status, err = http.StatusOK, logged.error; newest && wire.Code == jsonrpc.CodeInvalidParams {
			status = http.StatusBadRequest
		}
	default:
		v.refuseUnread(r.Context(), r.Header.Get(record.ToolMessage), raw, err)
	}
	send(w, status, mcpwire.ErrorResponse(raw, err))
}

// refuseUnread denies a message that is no call. Close waits for it: an entry after the
// record of the attempt's calls is made would be missing there.
func (v *View) refuseUnread(ctx context.Context, key string, raw []byte, err error) {
	r := &request{cancel: func(error) {}}
	if v.begin(r) == nil {
		defer v.finish(r)
		v.refuse(ctx, &call{key: key, raw: raw, malformed: true}, err.Error())
	}
}

// loggedError is an error whose refusal is in the log.
type loggedError struct{ error }

func (e *loggedError) Unwrap() error { return e.error }

// notified handles a notification. None has an effect but cancelled.
func (v *View) notified(m mcpwire.Message) {
	if m.Method != "notifications/cancelled" {
		return
	}
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(m.Params, &p) == nil && len(p.ID) > 0 {
		v.cancelled(string(p.ID))
	}
}

// stream sends notifications to a client, such as progress that it requested. The first notification makes the
// answer an event stream.
type stream struct {
	accepts bool
	token   json.RawMessage // nil: the client requested no progress

	mu   sync.Mutex
	w    http.ResponseWriter // nil once the answer is complete; guarded by mu
	sent int                 // notifications; guarded by mu
}

// maxProgress bounds the notifications of one call.
const maxProgress = 1000

func (s *stream) progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != nil {
		s.notifyLocked("notifications/progress", map[string]any{"progressToken": s.token, "progress": s.sent + 1, "message": cuttext.Text(text, maxProgressText)})
	}
}

// notify sends a notification, if the client accepts any.
func (s *stream) notify(method string, params any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notifyLocked(method, params)
}

// notifyLocked is called with mu held.
func (s *stream) notifyLocked(method string, params any) {
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
	if err != nil || s.w == nil || !s.accepts || s.sent >= maxProgress {
		return
	}
	if s.sent++; s.sent == 1 {
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.WriteHeader(http.StatusOK)
	}
	s.write(b)
}

// room reports whether another notification can be sent.
func (s *stream) room() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w != nil && s.accepts && s.sent < maxProgress
}

const maxProgressText = 1 << 10

func (s *stream) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent > 0
}

func (s *stream) event(text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(text)
}

// write is called with mu held. JSON has no line breaks.
func (s *stream) write(text []byte) {
	_, _ = io.WriteString(s.w, "event: message\ndata: "+string(text)+"\n\n") //nolint:gosec // G705: likewise
	_ = http.NewResponseController(s.w).Flush()
}

func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = nil
}
