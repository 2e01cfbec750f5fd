package mcpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// httpLink exchanges messages with a server over streamable HTTP.
type httpLink struct {
	url       string
	transport transport
	cred      credential
	session   *Session

	ctx  context.Context // ends with close
	stop context.CancelFunc
	busy sync.WaitGroup

	mu       sync.Mutex
	id       string // of the session with the server; guarded by mu
	revision string // guarded by mu
}

// transport sends requests. It follows no redirect and keeps no cookie.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

func openHTTP(ctx context.Context, cfg Config, s Server, changed func()) (*Session, error) {
	h := &httpLink{url: s.HTTP.URL}
	dial, err := dialerOf(cfg, s)
	if err != nil {
		return nil, err
	}
	h.transport = egress.Relay(dial, cfg.Roots)
	h.cred = credential{cfg: cfg, server: s}
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	h.session = newSession(cfg, h, changed)
	if err := h.session.open(ctx, true); err != nil {
		_ = h.session.Close()
		return nil, err
	}
	return h.session, nil
}

// dialerOf returns what connects to a server: to public addresses of its host, to the
// one address that a human signed, or to a port of this machine for http.
func dialerOf(cfg Config, s Server) (egress.DialFunc, error) {
	u, err := url.Parse(s.HTTP.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	address := s.HTTP.Address
	if address == "" && u.Scheme == "http" {
		at, err := netip.ParseAddrPort(u.Host)
		if err != nil {
			return nil, fmt.Errorf("url: %w", err)
		}
		d, err := egress.Only(at)
		if err != nil {
			return nil, err
		}
		return d.DialContext, nil
	}
	if address == "" {
		return cfg.Dial, nil
	}
	d, err := egress.Signed(address)
	if err != nil {
		return nil, err
	}
	return d.DialContext, nil
}

// Tokens lists credentials that the session got by itself, for redaction.
func (s *Session) Tokens() []string {
	if h, ok := s.link.(*httpLink); ok {
		return h.cred.tokens()
	}
	return nil
}

func (h *httpLink) agreed(revision string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revision = revision
}

// StatusError is an answer of HTTP that is no answer to a request.
type StatusError struct{ Code int }

func (e *StatusError) Error() string {
	if e.Code >= 300 && e.Code < 400 {
		return fmt.Sprintf("the server answers HTTP %d, a redirect, which is not followed", e.Code)
	}
	return fmt.Sprintf("the server answers HTTP %d", e.Code)
}

// send posts a message, and reads what comes back until the answer to it.
func (h *httpLink) send(ctx context.Context, m outgoing) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	resp, err := h.post(ctx, m, false)
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusUnauthorized && h.cred.server.HTTP.OAuth != nil {
		resp, err = h.post(ctx, m, true)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only the needed part is read
	if m.method == "initialize" {
		h.mu.Lock()
		h.id = resp.Header.Get("Mcp-Session-Id")
		h.mu.Unlock()
	}
	if m.id == 0 {
		return nil
	}
	return h.read(ctx, resp, m.id)
}

// post sends one request. Its error is an *UnsentError if the server did not serve it.
func (h *httpLink) post(ctx context.Context, m outgoing, renew bool) (*http.Response, error) {
	req, err := h.request(ctx, http.MethodPost, bytes.NewReader(m.text))
	if err != nil {
		return nil, &UnsentError{err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	setMethod(req.Header, m)
	if err := h.cred.put(ctx, req.Header, renew); err != nil {
		return nil, &UnsentError{fmt.Errorf("credential: %w", err)}
	}
	var connected atomic.Bool
	req = req.WithContext(withConnected(ctx, &connected))
	resp, err := h.transport.RoundTrip(req)
	switch {
	case err != nil && !connected.Load():
		return nil, &UnsentError{fmt.Errorf("the server cannot be reached: %w", err)}
	case err != nil:
		return nil, h.cause(ctx, err)
	case resp.StatusCode/100 == 2:
		return resp, nil
	}
	return nil, h.fault(resp, m)
}

// fault explains a status that is no success. Some have a JSON-RPC error as their body.
func (h *httpLink) fault(resp *http.Response, m outgoing) error {
	defer resp.Body.Close() //nolint:errcheck // only read
	status := &StatusError{resp.StatusCode}
	if isJSON(resp) && m.id != 0 {
		if body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage)); err == nil {
			if answer, err := parse(body); err == nil && answer.failure != nil {
				return answer.failure
			}
		}
	}
	h.mu.Lock()
	sessions := h.id != ""
	h.mu.Unlock()
	if sessions && (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest) {
		go h.session.finish("the server has forgotten its session", false) //nolint:errcheck // the request has the error
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return &UnsentError{status}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusTooManyRequests, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return &UnsentError{status} // they say that the request was not served
	}
	return status
}

func isJSON(resp *http.Response) bool { return mediaType(resp) == "application/json" }

func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// request returns a request with the headers that every one has.
func (h *httpLink) request(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "bailiwick")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revision != "" {
		req.Header.Set("Mcp-Protocol-Version", h.revision)
	}
	if h.id != "" {
		req.Header.Set("Mcp-Session-Id", h.id)
	}
	return req, nil
}

// read gives the session what a response has, until the answer to request id.
func (h *httpLink) read(ctx context.Context, resp *http.Response, id int64) error {
	switch mediaType(resp) {
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxMessage+1))
		if err != nil {
			return h.cause(ctx, err)
		}
		h.session.receive(body, id)
	case "text/event-stream":
		if err := h.events(ctx, resp.Body, id); err != nil {
			return h.cause(ctx, err)
		}
	default:
		return fmt.Errorf("the server answers with content type %.60q", mediaType(resp))
	}
	if err := h.session.Err(); err != nil {
		return err
	}
	if h.session.requests.get(id) != nil {
		return h.cause(ctx, errors.New("the connection ended before the answer"))
	}
	return nil
}

// cause prefers why the session or a context has ended, which ends each exchange.
func (h *httpLink) cause(ctx context.Context, err error) error {
	if end := h.session.Err(); end != nil {
		return end
	}
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}

// listen reads what a server with sessions says by itself, as long as it does. A server
// need not offer that.
func (h *httpLink) listen() {
	h.busy.Go(func() {
		for range maxListens {
			req, err := h.request(h.ctx, http.MethodGet, nil)
			if err != nil {
				return
			}
			req.Header.Set("Accept", "text/event-stream")
			if err := h.cred.put(h.ctx, req.Header, false); err != nil {
				return
			}
			resp, err := h.transport.RoundTrip(req)
			if err != nil {
				return
			}
			if resp.StatusCode == http.StatusOK && mediaType(resp) == "text/event-stream" {
				err = h.events(h.ctx, resp.Body, 0)
			} else {
				err = errors.New("no stream")
			}
			_ = resp.Body.Close()
			if err != nil || background.Pause(h.ctx, listenPause) != nil {
				return
			}
		}
	})
}

const (
	maxListens  = 1000
	listenPause = 5 * time.Second
)

// close ends the session with the server, which may ignore that.
func (h *httpLink) close() (string, error) {
	h.mu.Lock()
	id := h.id
	h.mu.Unlock()
	if id != "" && h.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(h.ctx, time.Second)
		if req, err := h.request(ctx, http.MethodDelete, nil); err == nil && h.cred.put(ctx, req.Header, false) == nil {
			if resp, err := h.transport.RoundTrip(req); err == nil {
				_ = resp.Body.Close()
			}
		}
		cancel()
	}
	h.stop()
	h.transport.CloseIdleConnections()
	return "", nil
}
