package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	mcpPath = "/mcp"
	// firstStateless is the first revision without sessions.
	firstStateless = "2026-07-28"
)

// edge is what stands between a request and the tools. Its order is: does it
// come to us (Host), from where it may (Origin), whose is it (token), how much
// of that (rate), what is it (type, size, time, strict JSON), in which session.
// An answer to somebody who is not known says what is wrong with the request,
// never what is here.
type edge struct {
	hosts    hostNames
	origins  *origins
	holders  *holders
	failures *failures
	rates    *rates
	sessions *sessions
	metadata *metadata // nil: no other issuer
	floor    *floor
	bodyTime time.Duration
	now      func() time.Time
	logger   *slog.Logger
	sdk      http.Handler
}

type (
	guardKey  struct{}
	serverKey struct{}
)

func newSDKHandler(logger *slog.Logger) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		server, _ := r.Context().Value(serverKey{}).(*mcp.Server)
		return server
	}, &mcp.StreamableHTTPOptions{
		Stateless:                    true, // the newest revision wants it; sessions of the others are ours
		Logger:                       logger,
		DisableLocalhostProtection:   true, // hostNames is stricter, and knows proxies
		MaxRequestBodyBytes:          maxMessage,
		PropagateRequestCancellation: true,
	})
}

// ServeHTTP answers one request.
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// Also for a body that nobody will look at: net/http reads it before it
	// lets go of the connection.
	if err := http.NewResponseController(w).SetReadDeadline(e.now().Add(e.bodyTime)); err != nil {
		e.refuse(w, r, http.StatusInternalServerError, "internal error")
		return
	}
	switch {
	case !e.hosts.allowed(r.Host):
		e.refuse(w, r, http.StatusForbidden, "this server does not answer for that host")
		return
	case !e.origins.allows(r):
		e.refuse(w, r, http.StatusForbidden, "pages of that origin may not call this server")
		return
	case e.origins.share(w, r):
		return
	case e.metadata != nil && slices.Contains(e.metadata.paths, r.URL.Path):
		e.metadata.serve(w, r)
		return
	case r.URL.Path != mcpPath:
		e.refuse(w, r, http.StatusNotFound, "there is nothing here but "+mcpPath)
		return
	case r.URL.RawQuery != "" || r.URL.ForceQuery:
		// Whatever is in it is in logs already, so it is not even tried.
		e.refuse(w, r, http.StatusBadRequest, "there must be no query; a token belongs into the Authorization header")
		return
	}
	who, err := e.holders.authenticate(r.Context(), bearer(r))
	if err != nil {
		e.unknown(w, r, err)
		return
	}
	if g, ok := r.Context().Value(guardKey{}).(*guard); ok {
		e.floor.knows(g, who.owner.principal)
	}
	if !e.rates.enter(who.owner.principal) {
		h.Set("Retry-After", "1")
		e.refuse(w, r, http.StatusTooManyRequests, "too many requests of this principal: wait")
		return
	}
	defer e.rates.leave(who.owner.principal)
	e.known(w, r, who)
}

// unknown answers a request whose caller could not be established. The service
// has it in the log. All bad tokens have one answer.
func (e *edge) unknown(w http.ResponseWriter, r *http.Request, err error) {
	code := api.CodeOf(err)
	switch code {
	case api.CodeUnauthenticated, api.CodeInvalid, api.CodeTooLarge, api.CodeThrottled, api.CodeDenied:
		if e.failures.tooMany(r.Context()) || code == api.CodeThrottled {
			w.Header().Set("Retry-After", "1")
			e.refuse(w, r, http.StatusTooManyRequests, "too many requests with bad tokens: wait")
			return
		}
	default:
		e.logger.LogAttrs(r.Context(), e.failures.level(), "a caller could not be established", slog.Any("err", err))
		w.Header().Set("Retry-After", "5")
		e.refuse(w, r, http.StatusServiceUnavailable, "service_unavailable: run bailiwick up (the service behind this server does not answer)")
		return
	}
	if code == api.CodeDenied {
		e.challenge(w, "insufficient_scope")
		e.refuse(w, r, http.StatusForbidden, "the token has not the scope for this server")
		return
	}
	problem := "invalid_token"
	if r.Header.Get("Authorization") == "" {
		problem = "" // RFC 6750 §3.1: who presents nothing is told nothing
	}
	e.challenge(w, problem)
	e.refuse(w, r, http.StatusUnauthorized, "a valid bearer token is needed")
}

// challenge says how to get a token (RFC 6750 §3, RFC 9728 §5.1).
func (e *edge) challenge(w http.ResponseWriter, problem string) {
	fields := []string{`realm="bailiwick"`}
	if problem != "" {
		fields = append(fields, `error="`+problem+`"`)
	}
	if e.metadata != nil {
		fields = append(fields, `scope="`+oauthScope+`"`, `resource_metadata="`+e.metadata.url+`"`)
	}
	w.Header().Set("WWW-Authenticate", "Bearer "+strings.Join(fields, ", "))
}

// known answers a request of an established caller.
func (e *edge) known(w http.ResponseWriter, r *http.Request, who *holder) {
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		if e.session(w, r, who, true) {
			e.sessions.end(who.owner, r.Header.Get("Mcp-Session-Id"))
			w.WriteHeader(http.StatusNoContent)
		}
		return
	default:
		w.Header().Set("Allow", "POST, DELETE")
		e.refuse(w, r, http.StatusMethodNotAllowed, "only POST, and DELETE to end a session")
		return
	}
	if kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" ||
		len(params) > 1 || len(params) == 1 && !strings.EqualFold(params["charset"], "utf-8") || r.Header.Get("Content-Encoding") != "" {
		e.refuse(w, r, http.StatusUnsupportedMediaType, "Content-Type must be application/json, in UTF-8 and not compressed")
		return
	}
	body, ok := e.readBody(w, r)
	if !ok {
		return
	}
	text, err := readMessage(body)
	if err != nil {
		e.refuseMessage(w, r, who, body, err)
		return
	}
	m, err := peek(text)
	if err != nil {
		e.refuseMessage(w, r, who, body, err)
		return
	}
	version := r.Header.Get("Mcp-Protocol-Version")
	needed := m.method != "initialize" && version < firstStateless && (version == "" || slices.Contains(revisions(), version))
	if !e.session(w, r, who, needed) {
		return
	}
	if m.method == "initialize" {
		w.Header().Set("Mcp-Session-Id", e.sessions.begin(who.owner, m.declared))
	}
	server := e.holders.serverOf(who, e.sessions.ceiling(who.owner))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	e.sdk.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, server)))
}

// session judges the Mcp-Session-Id of a request, and answers it where that is
// missing or not the caller's. A session that is another's looks as if there
// were none; the log says what it was.
func (e *edge) session(w http.ResponseWriter, r *http.Request, who *holder, needed bool) bool {
	id := r.Header.Get("Mcp-Session-Id")
	if id == "" {
		if needed {
			e.refuse(w, r, http.StatusBadRequest, "Mcp-Session-Id is missing: send initialize first")
		}
		return !needed
	}
	switch e.sessions.use(who.owner, id) {
	case sessionOwn:
		return true
	case sessionForeign:
		e.report(r, who, "a session that belongs to another client was used")
	case sessionUnknown:
	}
	e.refuse(w, r, http.StatusNotFound, "there is no such session: send initialize")
	return false
}

// report has a refusal logged as one of the caller's. That it cannot be does
// not make it less of one.
func (e *edge) report(r *http.Request, who *holder, message string) {
	_, err := e.holders.runtime(who).Refused(r.Context(), api.Refused{Operation: r.Method + " " + mcpPath, Message: cut(message, 1000)})
	if err != nil && api.CodeOf(err) != api.CodeThrottled { // of those the service has the sum
		e.logger.WarnContext(r.Context(), "a refusal could not be logged", slog.Any("err", err))
	}
}

// readBody reads the whole body within its size and time.
func (e *edge) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		e.refuse(w, r, http.StatusRequestEntityTooLarge, "the message is larger than 1 MiB")
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		e.refuse(w, r, http.StatusRequestTimeout, "the message took too long to arrive")
	case err != nil:
		w.Header().Set("Connection", "close")
		e.refuse(w, r, http.StatusBadRequest, "the message could not be read")
	default:
		// A deadline that is left on the connection would end the answer.
		return b, http.NewResponseController(w).SetReadDeadline(time.Time{}) == nil
	}
	return nil, false
}

// refuseMessage answers a body that is no message for us. A method that there
// is not is an answer like any other, but for the newest revision.
func (e *edge) refuseMessage(w http.ResponseWriter, r *http.Request, who *holder, body []byte, err error) {
	status := http.StatusBadRequest
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code == jsonrpc.CodeMethodNotFound {
		if status = http.StatusOK; r.Header.Get("Mcp-Protocol-Version") >= firstStateless {
			status = http.StatusNotFound
		}
	}
	e.report(r, who, err.Error())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(refusalOf(body, err))
}

// refuse answers with one line, as a JSON-RPC error of no request.
func (e *edge) refuse(w http.ResponseWriter, r *http.Request, status int, message string) {
	e.logger.DebugContext(r.Context(), "refused", slog.Int("status", status), slog.String("why", message), slog.String("from", r.RemoteAddr))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(refusalOf(nil, refuse(jsonrpc.CodeInvalidRequest, message)))
}

// message is what the edge has to know of one that is strict.
type message struct {
	method   string
	declared *api.Tier // by initialize
}

// peek reads a message that readMessage let through. Names are compared as
// they stand: encoding/json would take METHOD for method, and the SDK does not.
func peek(text []byte) (message, error) {
	var e map[string]json.RawMessage
	var m message
	err := json.Unmarshal(text, &e)
	if method := e["method"]; err == nil && method != nil {
		err = json.Unmarshal(method, &m.method)
	}
	if err != nil {
		return m, refuse(jsonrpc.CodeInvalidRequest, "not a JSON-RPC message")
	}
	if m.method != "initialize" {
		return m, nil
	}
	if m.declared, err = ceilingOfInitialize(e["params"]); err != nil {
		return m, refuse(jsonrpc.CodeInvalidParams, "the parameters of initialize are malformed")
	}
	return m, nil
}
