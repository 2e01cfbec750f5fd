package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
)

// The bounds of the model's reverse proxy.
const (
	maxExchanges = 32               // with the model at once; more wait
	maxBody      = 64 << 20         // bytes of a request
	smallBody    = 1 << 20          // larger bodies are in memory two at a time
	maxFault     = 1 << 20          // bytes of an answer that is an error
	modelIdle    = 10 * time.Minute // without a byte of an answer
	modelWrite   = 2 * time.Minute  // for the agent to take a piece of an answer
)

// proxy is the reverse proxy to the model of an attempt.
type proxy struct {
	model   *Model
	rules   *node
	base    *url.URL // of the endpoint
	client  http.RoundTripper
	closer  interface{ CloseIdleConnections() }
	secret  *redact.Set // the credential, which an error could repeat
	slots   chan struct{}
	large   chan struct{} // one for each large body
	idle    time.Duration
	connect time.Duration
	write   time.Duration
	faults  faults
	contact contact
	meter   *meter
}

// newProxy returns nothing but a meter if the attempt has no model.
func newProxy(cfg Config) (*proxy, error) {
	m, err := newMeter(cfg)
	p := &proxy{
		meter: m, model: cfg.Model, idle: modelIdle, write: modelWrite, connect: modelConnect,
		slots: make(chan struct{}, maxExchanges), large: make(chan struct{}, 2),
	}
	if err != nil || cfg.Model == nil {
		return p, err
	}
	if p.rules = rulesOf(cfg.Model.API); p.rules == nil {
		return nil, fmt.Errorf("model %q: unknown API %q", cfg.Model.Name, cfg.Model.API)
	}
	p.secret = redact.New([]string{cfg.Model.Value})
	p.faults.model, p.faults.secret, p.faults.now = string(cfg.Model.Name), p.secret, cfg.Now
	if p.base, err = url.Parse(cfg.Model.Endpoint); err != nil {
		return nil, fmt.Errorf("model %q: endpoint: %w", cfg.Model.Name, err)
	}
	p.faults.host = p.base.Host
	p.contact = contact{model: cfg.Model.Name, host: hostPort(p.base), tell: cfg.Unreachable}
	dial := cfg.Dial
	switch local := cfg.Model.Loopback.IsValid(); {
	case p.base.Scheme == "http" && local:
		only, err := egress.Only(cfg.Model.Loopback)
		if err != nil {
			return nil, fmt.Errorf("model %q: %w", cfg.Model.Name, err)
		}
		dial = only.DialContext
	case p.base.Scheme != "https" || local:
		return nil, fmt.Errorf("model %q: endpoint %q: want https://HOST, or http://127.0.0.1:PORT", cfg.Model.Name, cfg.Model.Endpoint)
	}
	t := egress.Relay(dialWithin(dial, modelDial), cfg.Roots)
	p.client, p.closer = t, t
	return p, nil
}

func (p *proxy) close() {
	if p.closer != nil {
		p.closer.CloseIdleConnections()
	}
}

// ModelFault says what was wrong with the last requests to the model, in words, or is
// empty if the last one was answered. It explains why an agent failed.
func (b *Broker) ModelFault() string { return b.cfg.Clean(b.proxy.faults.String()) }

// call is one request of the agent to its model.
type call struct {
	*exchange

	p     *proxy
	w     http.ResponseWriter
	r     *http.Request
	to    endpoint
	query string

	body    []byte
	output  int64  // tokens that the answer may have; 0: nothing bounds it
	release func() // gives the memory of a large body back; maybe nil
	bill    *bill  // of a request for an answer
	broken  bool   // the agent must not take its answer for a whole one
}

// denial says why a request does not reach the model, and with which status.
type denial struct {
	status int
	reason string
}

func (r *denial) Error() string { return r.reason }

func denied(err error) error { return &denial{http.StatusForbidden, err.Error()} }

// serveModel answers a request to /model/NAME/….
func (b *Broker) serveModel(w http.ResponseWriter, r *http.Request) {
	p := b.proxy
	p.meter.request()
	raw, query, _ := strings.Cut(r.RequestURI, "?")
	name, path, _ := strings.Cut(strings.TrimPrefix(raw, modelPath), "/")
	c := &call{exchange: b.begin(formModel, name, r.Method, "/"+path), p: p, w: w, r: r}
	switch {
	case p.model == nil:
		b.refuse(w, c.exchange, "this dispatch has no model")
		return
	case name != string(p.model.Name) || !strings.HasPrefix(raw, modelPath):
		c.line.Host = b.clean(name)
		b.refuse(w, c.exchange, fmt.Sprintf("the model of this dispatch is %q: use %s%s/", p.model.Name, modelPath, p.model.Name))
		return
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		// Codex then uses HTTP at once.
		c.line.Status = http.StatusUpgradeRequired
		c.answer(nil, http.StatusUpgradeRequired, "the model is served over HTTP, not over a WebSocket")
		return
	}
	if err := c.admit(path, query); err != nil {
		c.deny(err)
		return
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-r.Context().Done():
		c.end(r.Context().Err())
		return
	}
	err := c.serve()
	c.freeBody()
	if err != nil {
		c.deny(err)
	}
	if c.broken {
		panic(http.ErrAbortHandler) // ends the connection without the end of the answer
	}
}

// admit checks all of a request but its body.
func (c *call) admit(path, raw string) (err error) {
	if over := c.over(); over != "" {
		return &denial{http.StatusForbidden, over}
	}
	if c.to, err = c.p.model.find(c.r.Method, path); err != nil {
		return denied(err)
	}
	if c.query, err = query(raw); err != nil {
		return denied(err)
	}
	if e := c.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return &denial{http.StatusBadRequest, fmt.Sprintf("the body of the request has the encoding %.40q: send it as it is", e)}
	}
	return nil
}

// serve reads, checks and forwards a request. It ends c, or returns why the request did
// not reach the model.
func (c *call) serve() error {
	if err := c.readBody(); err != nil {
		return err
	}
	if c.to.method == http.MethodPost {
		if err := c.inspect(); err != nil {
			return err
		}
	}
	if c.to.answers {
		c.bill = c.p.meter.bill(int64(len(c.body)), c.output)
		spent, err := c.p.meter.begin(c.r.Context(), c.bill)
		if err != nil {
			return err
		}
		if spent != "" {
			c.b.spend(spent)
			return &denial{http.StatusForbidden, "a limit of this dispatch is spent: " + spent}
		}
	}
	c.forward()
	return nil
}

// readBody reads the body. It waits while others use the memory for large ones.
func (c *call) readBody() error {
	in := http.MaxBytesReader(c.w, c.r.Body, maxBody)
	var all bytes.Buffer
	_, err := io.CopyN(&all, in, smallBody)
	if err == nil {
		select {
		case c.p.large <- struct{}{}:
			c.release = func() { <-c.p.large }
		case <-c.r.Context().Done():
			return c.r.Context().Err()
		}
		if n := c.r.ContentLength - smallBody; n > 0 && n < maxBody {
			all.Grow(int(n) + bytes.MinRead)
		}
		_, err = all.ReadFrom(in)
	}
	c.line.Sent = int64(all.Len())
	c.body = all.Bytes()
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return &denial{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body of the request is larger than %d MiB", maxBody>>20)}
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("the body of the request: %w", err)
	case c.to.method == http.MethodGet && all.Len() > 0:
		return &denial{http.StatusBadRequest, "a GET request has no body"}
	}
	return nil
}

// freeBody forgets the body.
func (c *call) freeBody() {
	c.body = nil
	if c.release != nil {
		c.release()
		c.release = nil
	}
}

// inspect checks the body.
func (c *call) inspect() error {
	m := c.p.model
	facts, err := inspect(c.body, c.p.rules, m)
	switch {
	case errors.Is(err, errSyntax):
		return &denial{http.StatusBadRequest, err.Error()}
	case err != nil:
		return denied(err)
	case !facts.named && !strings.Contains(c.to.path, ":"): // gemini has it in the path
		return denied(fmt.Errorf("the request names no model: this worker may use only %q", m.ID))
	case facts.many && c.p.meter.bounded() && c.to.answers:
		// It would multiply what the request may use.
		return denied(errors.New("n or candidateCount asks for several answers, but this dispatch has a limit of tokens or cost, so a request may ask for one only: leave the member out, or send several requests"))
	}
	if len(m.ServerTools) == 0 { // the provider's own tools put more into an answer, and into its input
		c.output = facts.output()
	}
	switch {
	case m.API == api.OpenAIChat:
		c.body, err = withUsage(c.body, facts)
	case m.API == api.OpenAIResponses && !m.serverTool(toolStored):
		c.body = withoutStore(c.body, facts)
	}
	return err
}

// deny ends c with a refusal, or because the agent's own connection failed.
func (c *call) deny(err error) {
	r, ok := errors.AsType[*denial](err)
	if !ok {
		c.line.Status = http.StatusBadRequest
		c.answer(err, http.StatusBadRequest, err.Error())
		return
	}
	c.refused(r.status, r.reason)
	c.faulted("was not asked, because the broker refused a request: " + r.reason)
	c.write(r.status, "refused: "+c.line.Refused+". "+useless)
}

// faulted notes what was wrong with the model, unless the attempt itself has ended.
func (c *call) faulted(predicate string) {
	if c.b.ctx.Err() == nil {
		c.p.faults.add(predicate)
	}
}

// answer ends c, with an error unless it is nil, and answers for the model. The record
// has the status of the model's own answer, if there was one.
func (c *call) answer(err error, status int, message string) {
	c.end(err)
	c.write(status, message)
}

// write writes an error in the shape of the API.
func (c *call) write(status int, message string) {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(errorBody(c.p.model.API, status, "bailiwick: "+message))
}
