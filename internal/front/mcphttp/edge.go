package mcphttp

import (
	"bytes"
	"context"
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
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
	"github.com/bailiwick-dev/bailiwick/internal/base/mcpwire"
	"github.com/bailiwick-dev/bailiwick/internal/front/mcpserve"
)

const (
	// Path is where MCP is served.
	Path = "/mcp"
)

// edge checks each request before the SDK sees it, in this order: Host, Origin,
// path, token, rate, then content type, size, time, strict JSON and session. A
// refusal to an unauthenticated client describes its request, never what exists
// here.
type edge struct {
	hosts    httpguard.HostList
	origins  *origins
	auth     *authenticator
	failures *failures
	throttle *throttle
	sessions *sessions
	metadata *metadata // nil: no OAuth issuer
	pool     *pool
	bodyTime time.Duration
	now      func() time.Time
	logger   *slog.Logger
	sdk      http.Handler
}

type (
	connKey   struct{}
	serverKey struct{}
)

func newSDKHandler(logger *slog.Logger) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		server, _ := r.Context().Value(serverKey{}).(*mcp.Server)
		return server
	}, &mcp.StreamableHTTPOptions{
		Stateless:                    true, // the newest revision requires it; this package keeps the sessions of older ones
		Logger:                       logger,
		DisableLocalhostProtection:   true, // HostList is stricter, and supports proxies
		MaxRequestBodyBytes:          mcpwire.MaxMessage,
		PropagateRequestCancellation: true,
	})
}

// ServeHTTP answers one request.
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// Needed even if the body is not used: net/http reads it before it reuses the
	// connection.
	if err := http.NewResponseController(w).SetReadDeadline(e.now().Add(e.bodyTime)); err != nil {
		e.refuse(w, r, http.StatusInternalServerError, "internal error")
		return
	}
	switch {
	case !e.hosts.Allows(r.Host):
		e.refuse(w, r, http.StatusForbidden, "host not allowed: use the address of this server, or start it with --allow-host")
		return
	case !e.origins.allows(r):
		e.refuse(w, r, http.StatusForbidden, "origin not allowed: start the server with --allow-origin to accept web pages of this origin")
		return
	case e.origins.cors(w, r):
		return
	case e.metadata != nil && slices.Contains(e.metadata.paths, r.URL.Path):
		e.metadata.serve(w, r)
		return
	case r.URL.EscapedPath() != Path: // an escaped spelling is another path for a proxy in front
		e.refuse(w, r, http.StatusNotFound, "not found: the only path is "+Path)
		return
	case r.URL.RawQuery != "" || r.URL.ForceQuery:
		// Proxies log queries, so a token in one is compromised: do not even try it.
		e.refuse(w, r, http.StatusBadRequest, "query not allowed: send the token in the Authorization header")
		return
	}
	id, err := e.auth.authenticate(r.Context(), bearer(r))
	if err != nil {
		e.refuseUnauthenticated(w, r, err)
		return
	}
	principal := id.owner.principal
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		e.pool.pin(c, principal)
	}
	if !e.throttle.acquire(principal) {
		h.Set("Retry-After", "1")
		e.refuse(w, r, http.StatusTooManyRequests, "too many requests of this principal: wait, then retry")
		return
	}
	defer e.throttle.release(principal)
	e.serveAuthenticated(w, r, id)
}

// refuseUnauthenticated answers a request whose caller could not be established.
// All invalid tokens get the same answer; the service has logged the reason.
func (e *edge) refuseUnauthenticated(w http.ResponseWriter, r *http.Request, err error) {
	code := api.CodeOf(err)
	switch code {
	case api.CodeUnauthenticated, api.CodeInvalid, api.CodeTooLarge, api.CodeThrottled, api.CodeDenied:
		if e.failures.tooMany(r.Context()) || code == api.CodeThrottled {
			w.Header().Set("Retry-After", "1")
			e.refuse(w, r, http.StatusTooManyRequests, "too many requests with invalid tokens: wait, then retry")
			return
		}
	default:
		e.logger.LogAttrs(r.Context(), e.failures.level(), "cannot authenticate a caller", slog.Any("err", err))
		w.Header().Set("Retry-After", "5")
		e.refuse(w, r, http.StatusServiceUnavailable, "service_unavailable: run "+client.HowToStart(err)+" (the service behind this server does not answer)")
		return
	}
	if code == api.CodeDenied {
		e.challenge(w, "insufficient_scope")
		e.refuse(w, r, http.StatusForbidden, "the token lacks the scope "+oauthScope)
		return
	}
	problem := "invalid_token"
	if r.Header.Get("Authorization") == "" {
		problem = "" // RFC 6750 §3.1: no error code if the request has no credentials
	}
	e.challenge(w, problem)
	e.refuse(w, r, http.StatusUnauthorized, "missing or invalid bearer token")
}

// challenge sets WWW-Authenticate (RFC 6750 §3, RFC 9728 §5.1).
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

// serveAuthenticated answers a request of an authenticated client.
func (e *edge) serveAuthenticated(w http.ResponseWriter, r *http.Request, id *identity) {
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		if e.checkSession(w, r, id, true) {
			e.sessions.end(id.owner, r.Header.Get("Mcp-Session-Id"))
			w.WriteHeader(http.StatusNoContent)
		}
		return
	default:
		w.Header().Set("Allow", "POST, DELETE")
		e.refuse(w, r, http.StatusMethodNotAllowed, "method not allowed: use POST, or DELETE to end a session")
		return
	}
	if kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" ||
		len(params) > 1 || len(params) == 1 && !strings.EqualFold(params["charset"], "utf-8") || r.Header.Get("Content-Encoding") != "" {
		e.refuse(w, r, http.StatusUnsupportedMediaType, "Content-Type must be application/json, in UTF-8 and uncompressed")
		return
	}
	body, ok := e.readBody(w, r)
	if !ok {
		return
	}
	m, err := mcpserve.ParseMessage(body)
	var ceiling *api.Tier
	if err == nil && m.Method == "initialize" {
		ceiling, err = m.Ceiling()
	}
	if err != nil {
		e.refuseMessage(w, r, id, body, err)
		return
	}
	version := r.Header.Get("Mcp-Protocol-Version")
	needed := m.Method != "initialize" && version < mcpwire.FirstStateless && (version == "" || slices.Contains(mcpwire.Revisions(), version))
	if !e.checkSession(w, r, id, needed) {
		return
	}
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", e.sessions.begin(id.owner, ceiling))
	}
	server := e.auth.serverFor(id, e.sessions.ceiling(id.owner))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(m.Text)), int64(len(m.Text))
	e.sdk.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), serverKey{}, server)))
}

// checkSession checks the Mcp-Session-Id of a request and refuses the request
// if it is needed and missing, or not the client's. Another client's session
// gets the same answer as an unknown one; the log has the difference.
func (e *edge) checkSession(w http.ResponseWriter, r *http.Request, id *identity, needed bool) bool {
	session := r.Header.Get("Mcp-Session-Id")
	if session == "" {
		if needed {
			e.refuse(w, r, http.StatusBadRequest, "Mcp-Session-Id is missing: send initialize first")
		}
		return !needed
	}
	switch e.sessions.use(id.owner, session) {
	case sessionOwn:
		return true
	case sessionForeign:
		e.report(r, id, "used a session that belongs to another client")
	case sessionUnknown:
	}
	e.refuse(w, r, http.StatusNotFound, "no such session: send initialize")
	return false
}

// report has the service log a refusal under the client's principal. The
// request stays refused if that fails.
func (e *edge) report(r *http.Request, id *identity, message string) {
	_, err := e.auth.runtime(id).Refused(r.Context(), api.Refused{Operation: r.Method + " " + Path, Message: cuttext.Text(message, 1000)})
	if err != nil && api.CodeOf(err) != api.CodeThrottled { // the service counts throttled ones
		e.logger.WarnContext(r.Context(), "cannot log a refusal", slog.Any("err", err))
	}
}

// readBody reads the body within its size and time limits.
func (e *edge) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mcpwire.MaxMessage))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		e.refuse(w, r, http.StatusRequestEntityTooLarge, "the message is larger than 1 MiB")
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		e.refuse(w, r, http.StatusRequestTimeout, "timed out reading the message")
	case err != nil:
		w.Header().Set("Connection", "close")
		e.refuse(w, r, http.StatusBadRequest, "cannot read the message")
	default:
		// A read deadline left on the connection would abort the answer.
		return b, http.NewResponseController(w).SetReadDeadline(time.Time{}) == nil
	}
	return nil, false
}

// refuseMessage answers a body that is not an accepted message. An unknown
// method is an ordinary answer except in the newest revision.
func (e *edge) refuseMessage(w http.ResponseWriter, r *http.Request, id *identity, body []byte, err error) {
	status := http.StatusBadRequest
	var wire *jsonrpc.Error
	if errors.As(err, &wire) && wire.Code == jsonrpc.CodeMethodNotFound {
		if status = http.StatusOK; r.Header.Get("Mcp-Protocol-Version") >= mcpwire.FirstStateless {
			status = http.StatusNotFound
		}
	}
	e.report(r, id, err.Error())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mcpwire.ErrorResponse(body, err))
}

// refuse answers with one line, as a JSON-RPC error without an id.
func (e *edge) refuse(w http.ResponseWriter, r *http.Request, status int, message string) {
	e.logger.DebugContext(r.Context(), "request refused", slog.Int("status", status), slog.String("reason", message), slog.String("from", r.RemoteAddr))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(mcpwire.ErrorResponse(nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: message}))
}
