package mcpclient

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// link carries messages to a server.
type link interface {
	// send sends a message. Over HTTP it returns when the exchange of a request is over, and
	// gives what comes to the session before.
	send(ctx context.Context, m outgoing) error
	agreed(revision string) // of the protocol; "" for not yet
	listen()                // to what a server with sessions says by itself
	close() (said string, err error)
}

// outgoing is a message to a server.
type outgoing struct {
	text   []byte
	id     int64 // of a request
	method string
	tool   *toolCall // of tools/call
}

// toolCall is what headers repeat of a call.
type toolCall struct {
	definition *api.ToolDefinition
	arguments  json.RawMessage
}

// Session is a connection to a server that completed the handshake. It is safe for concurrent
// use.
type Session struct {
	link     link
	changed  func()
	said     func(string) // may be nil
	bucket   bucket
	revision string // of the protocol
	offer    offer

	requests requests

	mu    sync.Mutex
	skips int         // messages that were skipped; guarded by mu
	end   *EndedError // guarded by mu; set when ended is closed
	ended chan struct{}
}

func newSession(cfg Config, l link, changed func()) *Session {
	s := &Session{link: l, changed: changed, said: cfg.Said, bucket: bucket{now: cfg.Now}, ended: make(chan struct{})}
	s.requests.waiting, s.requests.abandoned = map[int64]*request{}, map[int64]struct{}{}
	return s
}

// Ended is closed when the session has ended, by whatever cause.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Err says why the session has ended. It is nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		return nil
	}
	return s.end
}

// Close ends the session, with the server if it was started for it.
func (s *Session) Close() error {
	_, err := s.finish("the session was closed", false)
	return err
}

// finish ends the session once.
func (s *Session) finish(why string, broke bool) (*EndedError, error) {
	s.mu.Lock()
	if s.end != nil {
		defer s.mu.Unlock()
		return s.end, nil
	}
	s.end = &EndedError{Why: why, Broke: broke}
	s.mu.Unlock()
	said, err := s.link.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = &EndedError{Why: why, Broke: broke, Said: said}
	close(s.ended)
	return s.end, err
}

// line is a line of a stream. Of one that is longer than a message it has the outline.
type line struct {
	text []byte
	size int
	long *outline // nil: it is not longer
}

func (l *line) add(part []byte) {
	l.size += len(part)
	switch {
	case l.long != nil:
		l.long.add(part)
	case l.size > maxMessage:
		l.long = &outline{}
		l.long.add(l.text)
		l.long.add(part)
		l.text = nil
	default:
		l.text = append(l.text, part...)
	}
}

// readLines reads messages from a stream of lines until it ends.
func (s *Session) readLines(r io.Reader) {
	in := bufio.NewReaderSize(r, 64<<10)
	var l line
	for {
		part, err := in.ReadSlice('\n')
		l.add(part)
		switch {
		case l.size > maxLine:
			_, _ = s.finish(fmt.Sprintf("the server sent a line of more than %d bytes", maxLine), true)
			return
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			_, _ = s.finish("the server ended", false)
			return
		}
		if !s.receiveLine(&l) {
			return
		}
		if l = (line{text: l.text[:0]}); cap(l.text) > 64<<10 {
			l.text = nil
		}
	}
}

// receiveLine is receive for a line.
func (s *Session) receiveLine(l *line) bool {
	if l.long != nil {
		s.invalid(l.long, 0, errLong)
		return s.continues(nil)
	}
	if text := bytes.TrimSpace(l.text); len(text) > 0 {
		return s.receive(text, 0)
	}
	return s.take(1)
}

// receive takes one message, over HTTP of the exchange of a request; 0: of none. It is
// false when the session has ended.
func (s *Session) receive(raw []byte, exchange int64) bool {
	m, err := parse(raw)
	switch {
	case err != nil:
		var o outline
		o.add(raw)
		s.invalid(&o, exchange, err)
		err = nil
	case m.method != "" && m.id != nil:
		s.refuse(m)
	case m.method != "":
		s.notified(m, len(raw))
	case string(m.id) == "null": // the server could not read a message of ours
		s.unnamed(cmp.Or(exchange, s.requests.only()), m, len(raw))
	default:
		err = s.requests.answer(m.id, m)
	}
	return s.continues(err)
}

// continues ends the session with an error, and reports whether it continues.
func (s *Session) continues(err error) bool {
	if err != nil {
		_, _ = s.finish("the server broke the protocol: "+err.Error(), true)
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// invalid takes a message that cannot be read. It fails the request that the message
// answers, and no other: the one with its id, or that of its exchange, or the only one
// that is out. Any other such message is skipped.
func (s *Session) invalid(o *outline, exchange int64, why error) {
	m := message{invalid: why}
	id := o.answers()
	switch {
	case id != 0 && s.requests.deliver(id, m) == nil:
		return
	case id != 0 || o.method: // of no request
		id = 0
	case exchange != 0:
		id = exchange
	case o.mayAnswer():
		id = s.requests.only()
	}
	s.unnamed(id, m, o.size)
}

// unnamed takes a message that does not say which request it answers: id is likely, 0
// for none. An answer to it that comes later is dropped.
func (s *Session) unnamed(id int64, m message, size int) {
	failed := s.requests.fail(id, m)
	s.boundAbandoned()
	if !failed && s.take(size) {
		s.skipped(m.err())
	}
}

// skipped tells a person about the first message that was skipped, the second, the
// fourth, and so on.
func (s *Session) skipped(err error) {
	s.mu.Lock()
	s.skips++
	n := s.skips
	s.mu.Unlock()
	if invalid, ok := errors.AsType[*InvalidError](err); ok && n&(n-1) == 0 && s.said != nil {
		s.said(fmt.Sprintf("skipped message %d of the server that cannot be read: %s", n, invalid.Reason()))
	}
}

// take takes what a server says by itself from the bucket.
func (s *Session) take(n int) bool {
	if s.bucket.take(n) {
		return true
	}
	_, _ = s.finish("the server exceeded the limit for unsolicited messages", true)
	return false
}

// refuse answers a request of the server: this client samples nothing, asks nobody and
// has no roots.
func (s *Session) refuse(m message) {
	if !s.take(len(m.params)) {
		return
	}
	answer := `"error":{"code":-32601,"message":"this client answers no requests"}`
	if m.method == "ping" {
		answer = `"result":{}`
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	_ = s.link.send(ctx, outgoing{text: []byte(`{"jsonrpc":"2.0","id":` + string(m.id) + `,` + answer + `}`)})
}

func (s *Session) notified(m message, size int) {
	if !s.take(size) {
		return
	}
	switch m.method {
	case "notifications/tools/list_changed":
		if s.changed != nil {
			s.changed()
		}
	case "notifications/progress":
		s.progressed(m.params)
	}
}

// progressed passes progress on. What cannot be read of it is dropped.
func (s *Session) progressed(params json.RawMessage) {
	var id int64
	var text string
	var done, total float64
	err := members(params, func(name string, value json.RawMessage) error {
		switch name {
		case "progressToken":
			id, _ = strconv.ParseInt(string(value), 10, 64) // another token is nobody's
		case "message":
			return json.Unmarshal(value, &text)
		case "progress":
			return json.Unmarshal(value, &done)
		case "total":
			return json.Unmarshal(value, &total)
		}
		return nil
	})
	switch {
	case err != nil:
		return
	case text == "" && total > 0:
		text = fmt.Sprintf("%g of %g", done, total)
	case text == "":
		text = fmt.Sprintf("%g", done)
	}
	if r := s.requests.get(id); r != nil && r.progress != nil {
		r.progress(words(text))
	}
}

// ask sends a request and returns its answer.
func (s *Session) ask(ctx context.Context, method string, params func(id int64) []byte, tool *toolCall, progress func(string)) (json.RawMessage, error) {
	if err := s.Err(); err != nil {
		return nil, &UnsentError{err}
	}
	r := &request{answer: make(chan message, 1), progress: progress, lasting: method == "subscriptions/listen"}
	id := s.requests.enrol(r)
	text := slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), strconv.AppendInt(nil, id, 10), []byte(`,"method":"`+method+`","params":`), params(id), []byte("}"))
	sent := s.link.send(ctx, outgoing{text: text, id: id, method: method, tool: tool})
	if sent != nil && len(r.answer) == 0 {
		var unsent *UnsentError
		s.abandon(ctx, id, errors.As(sent, &unsent))
		return nil, sent
	}
	select {
	case m := <-r.answer:
		return m.result, m.err()
	case <-ctx.Done():
		s.abandon(ctx, id, false)
		return nil, context.Cause(ctx)
	case <-s.ended:
		select { // the answer may have come first
		case m := <-r.answer:
			return m.result, m.err()
		default:
			return nil, s.Err()
		}
	}
}

// abandon waits for an answer no longer, and tells the server so.
func (s *Session) abandon(ctx context.Context, id int64, unsent bool) {
	waited := s.requests.abandon(id, unsent)
	s.boundAbandoned()
	if !waited || unsent || s.revision == discovery && s.overHTTP() {
		return // there the end of the exchange says it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	_ = s.notify(ctx, "notifications/cancelled", `{"reason":"nobody waits for it any more","requestId":`+strconv.FormatInt(id, 10)+`}`)
}

func (s *Session) boundAbandoned() {
	if s.requests.full() {
		_, _ = s.finish(fmt.Sprintf("the server left %d cancelled requests without an answer", maxAbandoned), true)
	}
}

func (s *Session) overHTTP() bool {
	_, ok := s.link.(*httpLink)
	return ok
}

func (s *Session) notify(ctx context.Context, method, params string) error {
	return s.link.send(ctx, outgoing{text: []byte(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`), method: method})
}

// bucket bounds what a server says by itself. It holds a number of bytes, and each
// message takes at least leastTaking.
type bucket struct {
	now  func() time.Time
	used int64     // guarded by mu
	at   time.Time // guarded by mu
	mu   sync.Mutex
}

const (
	bucketSize  = 16 << 20
	bucketRate  = 1 << 20 // a second
	leastTaking = 4 << 10
)

func (b *bucket) take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.at.IsZero() {
		b.used -= int64(now.Sub(b.at).Seconds() * bucketRate)
	}
	b.at, b.used = now, max(b.used, 0)+int64(max(n, leastTaking))
	return b.used <= bucketSize
}
