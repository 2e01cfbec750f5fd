package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// copyBuffer is the largest piece of an answer that is passed on at once, in bytes.
const copyBuffer = 32 << 10

var errSilent = errors.New("the model sent nothing for too long")

// forward sends c to the model, relays the answer and ends c.
//
// The request outlives the agent's connection: an agent that hangs up before the usage
// is there has used as much as another one.
func (c *call) forward() {
	life, known := c.b.ctx, true
	if c.to.answers {
		life = c.b.paid
		defer func() { c.p.meter.end(c.bill, known) }()
	}
	ctx, cancel := context.WithCancelCause(life)
	defer cancel(nil)
	watch := time.AfterFunc(c.p.idle, func() { cancel(errSilent) })
	defer watch.Stop()
	silence, done := c.p.faults.sent()
	defer done()
	try := c.p.connecting(cancel)
	resp, err := c.p.client.RoundTrip(c.request(c.p.trace(ctx, try)))
	try.limit.Stop()
	watch.Stop()
	c.freeBody()
	if err != nil {
		known = !try.sent.Load()
		c.line.Uncounted = !known && c.to.answers
		err = cmp.Or(context.Cause(ctx), err)
		if life.Err() != nil { // the dispatch ends, and the model was silent until then
			err = fmt.Errorf("no answer of %s within %s: %w", c.p.base.Host, c.b.cfg.Now().Sub(c.start).Round(time.Millisecond), err)
		}
		if !try.connected.Load() && c.b.ctx.Err() == nil {
			c.p.contact.fail(c.start, c.b.clean(line(c.p.secret.Text(err.Error()))))
		}
		c.unreachable(err)
		return
	}
	c.p.faults.heard(silence)
	answered := resp.StatusCode >= 200 && resp.StatusCode < 300
	if c.to.answers && answered {
		c.p.meter.answered(c.bill)
	}
	defer func() { _ = resp.Body.Close() }()
	c.line.Status = resp.StatusCode
	in := &idleReader{resp.Body, watch, c.p.idle, ctx, func() { c.p.faults.heard(silence) }}
	switch {
	case answered:
		known = c.relay(resp, in)
	case resp.StatusCode < 400:
		to := line(c.p.secret.Text(resp.Header.Get("Location")))
		c.faulted(fmt.Sprintf("answered %d, a redirect to %s", resp.StatusCode, to))
		c.answer(fmt.Errorf("redirect to %s, which is not followed", to), http.StatusBadGateway,
			"the model's endpoint redirects, which is not followed. Ask the person who maintains the catalog to correct it.")
	default:
		c.fault(resp, in)
	}
}

// idleReader reads an answer. It fails if a piece does not come in time.
type idleReader struct {
	io.Reader
	watch *time.Timer
	idle  time.Duration
	ctx   context.Context
	heard func()
}

func (r *idleReader) Read(p []byte) (int, error) {
	r.watch.Reset(r.idle)
	n, err := r.Reader.Read(p)
	r.watch.Stop()
	if n > 0 {
		r.heard()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = cmp.Or(context.Cause(r.ctx), err)
	}
	return n, err
}

// request is the request to the model: the agent's body with the model's credential.
func (c *call) request(ctx context.Context) *http.Request {
	m := c.p.model
	to := *c.p.base
	to.Path = strings.TrimSuffix(to.Path, "/") + "/" + c.to.path
	to.RawPath, to.RawQuery, to.Fragment = "", c.query, ""
	r := (&http.Request{
		Method: c.to.method, URL: &to, Host: to.Host, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if c.to.method == http.MethodPost {
		body := c.body
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Type", "application/json")
	}
	for _, name := range sentHeaders() {
		if v := c.r.Header.Values(name); len(v) > 0 {
			r.Header[name] = v
		}
	}
	r.Header.Set("Accept-Encoding", "identity") // so that the answer can be counted
	if m.Credential != nil {
		r.Header.Set(m.Credential.Header, m.Credential.Prefix+m.Value)
	}
	return r
}

// unreachable ends c if there is no answer from the model.
func (c *call) unreachable(err error) {
	c.faulted("did not answer: " + err.Error())
	c.answer(err, http.StatusBadGateway, fmt.Sprintf("the model %q did not answer: %s", c.p.model.Name, c.b.clean(err.Error())))
}

// fault passes an error of the model on. It is as the model sent it, unless it repeats
// the credential.
func (c *call) fault(resp *http.Response, in io.Reader) {
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") { // nobody asked for it
		in = strings.NewReader(fmt.Sprintf("bailiwick: the model's error has the encoding %.40q and cannot be searched for its credential\n", e))
		resp.Header.Del("Content-Encoding")
		resp.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	var text bytes.Buffer
	clean := c.p.secret.Writer(&text)
	n, err := io.Copy(clean, io.LimitReader(in, maxFault))
	if c.line.Received = n; n < maxFault {
		_ = clean.Close() // a longer one may end with the start of the credential
	}
	said := line(text.String())
	var v struct{ Error *modelError }
	if json.Unmarshal(text.Bytes(), &v) == nil && v.Error != nil {
		said = v.Error.String()
	}
	unauthorized := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
	with := ""
	if own := c.p.model.Credential; unauthorized && own != nil {
		with = fmt.Sprintf(" to the secret %q", own.Secret)
	}
	c.faulted(strings.TrimSuffix(fmt.Sprintf("answered %d%s: %s", resp.StatusCode, with, said), ": "))
	c.end(cmp.Or(err, fmt.Errorf("the model answered: %s", cmp.Or(said, http.StatusText(resp.StatusCode)))))
	resp.ContentLength = -1
	c.headers(resp)
	if unauthorized {
		// The agent cannot mend the credential. Claude Code would retry for three minutes.
		c.w.Header().Set("X-Should-Retry", "false")
	}
	c.w.WriteHeader(resp.StatusCode)
	_, _ = c.w.Write(text.Bytes())
}

// headers copies those of an answer that are not about the connection.
func (c *call) headers(resp *http.Response) {
	h := c.w.Header()
	dropHops(resp.Header)
	for name, values := range resp.Header {
		switch name {
		case "Content-Length", "Set-Cookie", "Alt-Svc", "Location":
			continue
		}
		for _, v := range values {
			h.Add(name, c.p.secret.Text(v))
		}
	}
	if resp.ContentLength >= 0 {
		h.Set("Content-Length", fmt.Sprint(resp.ContentLength))
	}
}

// relay passes an answer on as it comes, and counts it. It reports whether the count is
// that of the whole answer.
func (c *call) relay(resp *http.Response, in io.Reader) (known bool) {
	count, err := newCounter(c.p.model.API, resp.Header.Get("Content-Encoding"), maxInflated)
	if err != nil {
		c.faulted("sent an answer that cannot be counted: " + err.Error())
		c.uncounted(err)
		c.line.Uncounted = c.to.answers
		c.answer(err, http.StatusBadGateway, err.Error())
		return false
	}
	if !c.p.secret.Empty() {
		resp.ContentLength = -1 // an answer that repeats the credential becomes shorter
	}
	c.headers(resp)
	c.w.WriteHeader(resp.StatusCode)
	_ = http.NewResponseController(c.w).Flush() // so that even a break comes after the status
	err = c.copy(in, count)
	c.broken = err != nil && !errors.Is(err, errHungUp)
	count.close()
	spent := errors.Is(err, errSpent)
	if wrong := c.verdict(count, err); !spent {
		err = cmp.Or(wrong, err)
	}
	said := count.state()
	if known = said.usage && said.last && said.bad == nil && count.err == nil; !known && c.to.answers {
		c.line.Uncounted = true
	}
	c.end(err)
	return known
}

var (
	errHungUp = errors.New("the agent hung up")
	errSpent  = errors.New("a limit was passed")
)

// copy copies an answer to the agent until its end, and to the count. If the agent
// hangs up, does not read, or has passed a limit, it copies to the count alone.
func (c *call) copy(in io.Reader, count *counter) (err error) {
	buf, out, clean := make([]byte, copyBuffer), http.NewResponseController(c.w), c.p.secret.Writer(c.w)
	defer out.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may be gone
	for {
		n, readErr := in.Read(buf)
		c.line.Received += int64(n)
		if c.to.answers {
			if err := count.write(buf[:n]); err != nil {
				return err
			}
			if passed := c.count(count.state()); passed != "" && !errors.Is(err, errSpent) {
				c.b.spend(passed)
				err = fmt.Errorf("%w: %s", errSpent, passed)
			}
		}
		if err == nil && n > 0 {
			_ = out.SetWriteDeadline(c.b.cfg.Now().Add(c.p.write))
			if _, werr := clean.Write(buf[:n]); werr != nil || out.Flush() != nil {
				err = errHungUp
			}
		}
		if err == nil && errors.Is(readErr, io.EOF) && clean.Close() != nil { // what was held back
			err = errHungUp
		}
		switch {
		case err != nil && !c.to.answers:
			return err
		case errors.Is(readErr, io.EOF):
			return err
		case readErr != nil && errors.Is(err, errSpent):
			return err
		case readErr != nil:
			return readErr
		}
	}
}

// count tells the meter what the answer has said so far. It returns the limit that is
// passed.
func (c *call) count(s said) (passed string) {
	if s.tokens != c.bill.said {
		passed = c.p.meter.set(c.bill, s.tokens)
	}
	if s.usage {
		c.line.Usage = &s.tokens
	}
	return passed
}

// verdict says what was wrong with an answer, nil if nothing was; err is how it ended.
func (c *call) verdict(count *counter, err error) error {
	if !c.to.answers {
		return nil
	}
	s := count.state()
	if passed := c.count(s); passed != "" { // by an event without its end
		c.b.spend(passed)
		return fmt.Errorf("%w: %s", errSpent, passed)
	}
	wrong := count.err
	switch hungUp := errors.Is(err, errHungUp); {
	case wrong != nil:
	case s.fault != "":
		wrong = fmt.Errorf("the model ended its answer with an error: %s", line(c.p.secret.Text(s.fault)))
	case err != nil && !hungUp:
		wrong = fmt.Errorf("the answer broke off: %w", err)
	case s.bad != nil:
		wrong = s.bad
	case s.last && !s.usage:
		wrong = errNoUsage
	case !s.last:
		wrong = errors.New("the answer broke off before its last event")
	}
	if count.err != nil || errors.Is(wrong, errUsage) || errors.Is(wrong, errNoUsage) {
		c.uncounted(wrong)
	}
	if wrong == nil {
		c.p.faults.clear()
		return nil
	}
	c.faulted("failed: " + wrong.Error())
	return wrong
}

// uncounted ends the agent if a limit needs the count of an answer that has none.
func (c *call) uncounted(why error) {
	if c.to.answers && c.p.meter.bounded() {
		c.b.spend(fmt.Sprintf("tokens: unknown, because %s", why))
	}
}

var errNoUsage = errors.New("the answer does not say how many tokens it used")
