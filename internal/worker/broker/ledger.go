package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// The forms of requests in the record.
const (
	formModel   = "model"   // to the model
	formConnect = "connect" // a blind tunnel
	formHTTP    = "http"    // without TLS
	formTLS     = "tls"     // in a tunnel whose TLS the broker ends
)

// ledger writes the record of an attempt.
type ledger struct {
	cfg Config

	mu       sync.Mutex
	begun    int64 // requests
	number   int64 // of the last line
	refusals int
	spent    bool  // Spent was called
	err      error // of the first failed write
}

// exchange is one request of the agent. It ends with refused or end, which write its
// line; the fields of line are the owner's until then.
type exchange struct {
	b     *Broker
	line  api.NetworkLine
	start time.Time
	late  bool // beyond the bound
	ended bool
}

// begin counts a request. form is one of the forms, host HOST:PORT or the name of a
// model.
func (b *Broker) begin(form, host, method, path string) *exchange {
	now := b.cfg.Now()
	b.ledger.mu.Lock()
	b.ledger.begun++
	n := b.ledger.begun
	b.ledger.mu.Unlock()
	return &exchange{b: b, start: now, late: n > b.cfg.bounds.requests, line: api.NetworkLine{
		At: now.UTC(), Form: form, Host: b.clean(host), Method: cuttext.Within(method, 32), Path: b.clean(path),
	}}
}

// over says why x may not be served even if its host is allowed: the attempt has
// made too many requests, or its record cannot be kept. It is empty otherwise.
func (x *exchange) over() string {
	switch {
	case x.late:
		return fmt.Sprintf("the dispatch has made more than %d requests", x.b.cfg.bounds.requests)
	case x.b.ledger.failure() != nil:
		return "the record of requests cannot be written"
	}
	return ""
}

// refused ends x as refused: the refusal is told and recorded when it returns. The
// caller answers afterwards.
func (x *exchange) refused(status int, reason string) {
	if x.ended {
		return
	}
	reason = x.b.clean(reason)
	x.line.Status, x.line.Refused, x.line.Number = status, reason, x.b.ledger.next()
	x.b.cfg.Refused(record.EgressRefusal{Form: x.line.Form, Host: x.line.Host, Number: x.line.Number, Reason: reason})
	x.end(nil)
	if l := &x.b.ledger; l.refuse() > record.MaxRefusals {
		x.b.spend(fmt.Sprintf("more than %d refused requests", record.MaxRefusals))
	}
}

// end ends x. err says why an allowed request failed.
func (x *exchange) end(err error) {
	if x.ended {
		return
	}
	x.ended = true
	if x.line.Number == 0 {
		x.line.Number = x.b.ledger.next()
	}
	x.line.Millis = x.b.cfg.Now().Sub(x.start).Milliseconds()
	if err != nil {
		x.line.Error = x.b.clean(err.Error())
	}
	x.b.ledger.write(x.line)
}

// full reports whether the attempt has made so many requests, or so many refused ones,
// that no further one is answered or recorded: the agent was told, and is ended.
func (l *ledger) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begun > l.cfg.bounds.requests+record.MaxRefusals || l.refusals > record.MaxRefusals
}

// refuse refuses x and answers with 403 and a body that tells the agent why.
func (b *Broker) refuse(w http.ResponseWriter, x *exchange, reason string) {
	x.refused(http.StatusForbidden, reason)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprintf(w, "bailiwick: refused %s: %s\n%s\n", x.line.Host, x.line.Refused, useless) //nolint:gosec // plain text, and no browser reads it
}

// useless ends each answer to a refused request.
const useless = "Retrying will not help. Ask the person who maintains the catalog."

// spend tells once that a limit ends the agent.
func (b *Broker) spend(limit string) {
	l := &b.ledger
	l.mu.Lock()
	first := !l.spent
	l.spent = true
	l.mu.Unlock()
	if first {
		b.cfg.Spent(limit)
	}
}

// clean makes text of the agent or of a server fit for the record.
func (b *Broker) clean(s string) string { return cuttext.Text(b.cfg.Clean(s), maxPath) }

// next returns the number of a line that is about to be written.
func (l *ledger) next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	return l.number
}

func (l *ledger) refuse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusals++
	return l.refusals
}

func (l *ledger) write(line api.NetworkLine) {
	b, err := json.Marshal(line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.err == nil {
		_, err = l.cfg.Record.Write(append(b, '\n'))
	}
	if l.err == nil && err != nil {
		l.err = fmt.Errorf("record of requests: %w", err)
	}
}

func (l *ledger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
