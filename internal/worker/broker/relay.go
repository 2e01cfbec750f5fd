package broker

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// forward answers an absolute-form request, which is for a host without TLS.
func (b *Broker) forward(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close") // so that the next request's header is seen, too
	t, err := parseTarget(r.URL.Host, r.URL.Scheme)
	if err != nil {
		b.refuse(w, b.begin(formHTTP, r.URL.Host, r.Method, r.URL.EscapedPath()), err.Error())
		return
	}
	x := b.begin(formHTTP, t.String(), r.Method, r.URL.EscapedPath())
	head := headOf(r.Context())
	switch host, err := parseTarget(head.host, r.URL.Scheme); {
	case head.problem != "":
		b.refuse(w, x, head.problem)
	case r.URL.Scheme != "http":
		b.refuse(w, x, "a request for "+r.URL.Scheme+" wants a tunnel: CONNECT")
	case err != nil || host != t:
		b.refuse(w, x, fmt.Sprintf("the field Host names another host, %.260q", head.host))
	case b.vault.ends(t):
		b.refuse(w, x, "a brokered secret is for this host, which is therefore reached by TLS only")
	default:
		b.relay(w, r, x, t, "http")
	}
}

// routeInside answers a request in a tunnel.
func (b *Broker) routeInside(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*tunnelConn)
	form := map[string]string{"http": formHTTP, "https": formTLS}[c.scheme]
	x := b.begin(form, c.to.String(), r.Method, r.URL.EscapedPath())
	named := []string{r.Host}
	if r.URL.Host != "" {
		named = append(named, r.URL.Host)
	}
	for _, name := range append(named, r.Header["Host"]...) { // HTTP/2 may have one beside :authority
		if host, err := parseTarget(name, c.scheme); err != nil || host != c.to {
			b.refuse(w, x, fmt.Sprintf("the request names another host than its tunnel, %.260q", name))
			return
		}
	}
	b.relay(w, r, x, c.to, c.scheme)
}

// relay passes a request on to t and answers with its answer.
func (b *Broker) relay(w http.ResponseWriter, r *http.Request, x *exchange, t target, scheme string) {
	why := b.mayReach(x, t)
	switch {
	case why != "":
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace:
		why = "the method " + r.Method + " is not relayed"
	case r.URL.User != nil:
		why = "its URL has a user"
	}
	if why != "" {
		b.refuse(w, x, why)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	l := &leg{b: b, x: x, t: t, idle: time.AfterFunc(b.cfg.bounds.idle, func() { cancel(errIdle) })}
	defer l.idle.Stop()
	q := &request{v: b.vault, t: t, own: b.vault.of(t)}
	if slices.ContainsFunc(q.own, func(h held) bool { return h.Field != "" }) { // its body is held in memory
		select {
		case b.fields <- struct{}{}:
			defer func() { <-b.fields }()
		case <-ctx.Done():
			b.fail(w, x, context.Cause(ctx))
			return
		}
	}
	agent := http.NewResponseController(w)
	l.patience = func() { _ = agent.SetReadDeadline(b.cfg.Now().Add(b.cfg.bounds.idle)) }
	defer l.patience() // net/http reads what is left of the body
	out, g, err := l.request(ctx, r, q, scheme)
	if err != nil {
		b.refuse(w, x, err.Error())
		return
	}
	resp, err := b.out.RoundTrip(out)
	if err == nil {
		defer resp.Body.Close() //nolint:errcheck // read to its end, or given up
	}
	body, err := l.open(resp, err)
	x.line.Sent = l.sent.Load()
	switch cause := context.Cause(ctx); {
	case g.refused() != nil:
		b.refuse(w, x, g.refused().Error())
		return
	case err != nil && cause != nil && r.Context().Err() == nil:
		b.fail(w, x, cause)
		return
	case err != nil:
		b.fail(w, x, err)
		return
	}
	x.line.Status = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols {
		err = l.upgrade(w, resp, q)
	} else {
		err = l.answer(w, resp, body)
	}
	x.line.Sent, x.line.Received = l.sent.Load(), l.received.Load()
	if g.refused() != nil { // behind the start of the answer
		x.refused(resp.StatusCode, g.refused().Error())
	} else if late, ok := errors.AsType[*refusal](err); ok {
		x.refused(resp.StatusCode, late.Error())
	}
	x.end(err)
	if err != nil || g.refused() != nil {
		panic(http.ErrAbortHandler) // the agent must not take a part for the whole
	}
}

// leg is one proxied request to t and its answer.
type leg struct {
	b              *Broker
	x              *exchange
	t              target
	own            bool // t is the host of a secret
	idle           *time.Timer
	patience       func() // bounds the next read from the agent
	sent, received atomic.Int64
}

func (l *leg) count(total *atomic.Int64, n int) error {
	l.idle.Reset(l.b.cfg.bounds.idle)
	total.Add(int64(n))
	return l.b.quota.bytes(l.t, int64(n))
}

func (l *leg) countSent(n int) error     { return l.count(&l.sent, n) }
func (l *leg) countReceived(n int) error { return l.count(&l.received, n) }

// request returns what is sent to t, and the guard of its body, which may be nil. Its
// error says why it is refused.
func (l *leg) request(ctx context.Context, r *http.Request, q *request, scheme string) (*http.Request, *guard, error) {
	l.own = len(q.own) > 0
	if err := q.check(r.URL.EscapedPath(), "path", nil); err != nil {
		return nil, nil, err
	}
	query, err := q.query(r.URL.RawQuery)
	if err != nil {
		return nil, nil, err
	}
	header, err := q.header(r.Header)
	if err != nil {
		return nil, nil, err
	}
	if l.own { // compressed answers, and parts of one, could not be searched for its value
		header.Set("Accept-Encoding", "identity")
		header.Del("Range")
	}
	if upgrade := r.Header.Get("Upgrade"); hasToken(r.Header, "Connection", "upgrade") && upgrade != "" {
		if !strings.EqualFold(upgrade, "websocket") || r.ProtoMajor != 1 {
			return nil, nil, fmt.Errorf("an upgrade to %.40q is not relayed", upgrade)
		}
		header.Set("Connection", "Upgrade")
		header.Set("Upgrade", "websocket")
		header.Del("Sec-Websocket-Extensions") // compressed messages could not be searched
	}
	out := (&http.Request{
		Method: r.Method, Header: header, Host: l.t.authority(scheme), ContentLength: r.ContentLength,
		URL: &url.URL{Scheme: scheme, Host: l.t.String(), Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query, ForceQuery: r.URL.ForceQuery},
	}).WithContext(ctx)
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = nil // net/http would add its own
	}
	g, err := l.body(out, r, q)
	return out, g, err
}

// body sets the body of out. A small one is checked whole before the first byte is
// sent.
func (l *leg) body(out, r *http.Request, q *request) (*guard, error) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil, nil
	}
	isJSON, isForm := q.fields(r.Header.Get("Content-Type"))
	limit := int64(maxWhole)
	if isJSON || isForm {
		limit = maxField
	}
	if !isJSON && !isForm && (r.ContentLength < 0 || r.ContentLength > limit) {
		g := &guard{ReadCloser: r.Body, q: q, count: l.countSent, before: l.patience}
		out.Body = g
		return g, nil
	}
	l.patience()
	whole, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its body breaks off: %w", err)
	case int64(len(whole)) > limit:
		return nil, fmt.Errorf("its body is larger than %d bytes, and a secret may be in a field of it", limit)
	}
	if err := l.countSent(len(whole)); err != nil {
		return nil, err
	}
	if whole, err = q.body(whole, isJSON, isForm); err != nil {
		return nil, err
	}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(whole)), int64(len(whole))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
	return nil, nil
}

// open returns the body of an answer. That of the host of a secret is plain, so that
// it can be searched.
func (l *leg) open(resp *http.Response, err error) (io.Reader, error) {
	if err != nil {
		return nil, err
	}
	coding := resp.Header.Get("Content-Encoding")
	switch {
	case !l.own, coding == "", strings.EqualFold(coding, "identity"), resp.Body == http.NoBody:
		return resp.Body, nil
	case !strings.EqualFold(coding, "gzip"):
		return nil, fmt.Errorf("the answer is compressed with %.20q although the request wants it plain", coding)
	}
	plain, err := gzip.NewReader(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer is not gzip as it says: %w", err)
	}
	resp.Header.Del("Content-Encoding")
	resp.Header.Del("Content-Length")
	return plain, nil
}

// answer copies an answer to the agent, each part at once.
func (l *leg) answer(w http.ResponseWriter, resp *http.Response, body io.Reader) error {
	l.copyHeader(w.Header(), resp.Header)
	if _, ok := w.Header()["Content-Type"]; !ok {
		w.Header()["Content-Type"] = nil // net/http would guess one
	}
	for name := range resp.Trailer {
		w.Header().Add("Trailer", name)
	}
	w.WriteHeader(resp.StatusCode)
	out := &agentWriter{l: l, w: w, c: http.NewResponseController(w)}
	if resp.ContentLength < 0 {
		_ = out.c.Flush() // the first part may be long in coming
	}
	if err := l.copyBody(out, body); err != nil {
		return err
	}
	l.copyHeader(w.Header(), resp.Trailer)
	return nil
}

// copyBody copies an answer without the values of secrets.
func (l *leg) copyBody(w io.Writer, body io.Reader) error {
	buf := make([]byte, 64<<10)
	if !l.own {
		_, err := io.CopyBuffer(w, onlyReader{body}, buf)
		return err
	}
	clean := &redactor{w: w, s: l.b.vault.values}
	_, err := io.CopyBuffer(clean, onlyReader{body}, buf)
	return errors.Join(err, clean.Close())
}

type onlyReader struct{ io.Reader }

// copyHeader copies the header of an answer without hop-by-hop fields and values of
// secrets.
func (l *leg) copyHeader(out, in http.Header) {
	in = in.Clone()
	dropHops(in)
	for name, values := range in {
		for _, v := range values {
			if l.own {
				v = l.b.vault.clean(v)
			}
			out.Add(name, v)
		}
	}
}

// agentWriter writes to the agent at once, and bounds the time to read it.
type agentWriter struct {
	l *leg
	w io.Writer
	c *http.ResponseController
}

func (a *agentWriter) Write(p []byte) (int, error) {
	if err := a.l.countReceived(len(p)); err != nil {
		return 0, err
	}
	_ = a.c.SetWriteDeadline(a.l.b.cfg.Now().Add(a.l.b.cfg.bounds.write))
	n, err := a.w.Write(p)
	if err == nil {
		err = a.c.Flush()
	}
	return n, err
}

// dropHops removes the fields that are for one connection only (RFC 9110 §7.6.1).
func dropHops(h http.Header) {
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Expect", "Host", "Http2-Settings", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authentication-Info", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	} {
		h.Del(name)
	}
}

// hasToken reports whether a list in a header field has a token.
func hasToken(h http.Header, name, token string) bool {
	for _, list := range h[name] {
		for t := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}
