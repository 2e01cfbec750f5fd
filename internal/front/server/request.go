package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

const (
	maxList   = 1000
	maxWait   = time.Minute
	maxCursor = 256
	maxOffset = 1 << 50
)

// request is a request of an established caller, its body read.
type request struct {
	*http.Request
	caller caller
	status int // of success

	dispatch api.DispatchID // set by aboutDispatch
	run      api.RunID      // set by aboutRun
}

// handler answers a request, or returns the error to answer with.
type handler func(w http.ResponseWriter, r *request) error

// none is the body of a call without one.
type none struct{}

// handle returns the handler of a call that takes a Req and answers with a Resp,
// both as JSON. Req is the type none for a call without a body.
func handle[Req, Resp any](act func(ctx context.Context, r *request, req Req) (Resp, error)) handler {
	return func(w http.ResponseWriter, r *request) error {
		var req Req
		if _, ok := any(req).(none); !ok {
			if err := decode(r.Request, &req); err != nil {
				return err
			}
		}
		resp, err := act(r.Context(), r, req)
		if err != nil {
			return err
		}
		return answer(w, r.status, resp)
	}
}

// show is handle for a call without a body.
func show[Resp any](act func(ctx context.Context, r *request) (Resp, error)) handler {
	return handle(func(ctx context.Context, r *request, _ none) (Resp, error) { return act(ctx, r) })
}

// document returns the handler of a call that answers with bytes.
func document(read func(ctx context.Context, r *request) ([]byte, error)) handler {
	return func(w http.ResponseWriter, r *request) error {
		b, err := read(r.Context(), r)
		if err != nil {
			return err
		}
		return send(w, io.NopCloser(bytes.NewReader(b)), int64(len(b)))
	}
}

// aboutDispatch parses the id in the path of a call about one dispatch.
func (c *dispatchCalls) aboutDispatch(h handler) handler {
	return func(w http.ResponseWriter, r *request) error {
		id, err := api.ParseDispatchID(r.PathValue("id"))
		if err != nil {
			return malformed(api.CodeInvalid, "%w", err)
		}
		r.dispatch = id
		if err := (scopes{c.cfg}).resolve(r, nil, &r.dispatch); err != nil {
			return err
		}
		return h(w, r)
	}
}

// malformedError is a request that could not be understood and is not logged
// yet.
type malformedError struct{ err *api.Error }

func (e *malformedError) Error() string { return e.err.Error() }

func malformed(code api.Code, format string, args ...any) error {
	return &malformedError{api.Errorf(code, format, args...)}
}

// decode reads the body of a request strictly.
func decode(r *http.Request, v any) error {
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		return malformed(api.CodeInvalid, "content type %q: want application/json", ct)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := canon.Decode(b, v); err != nil {
		return malformed(api.CodeInvalid, "request: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the caller may be gone
	return nil
}

// query reads the parameters of a request and keeps the first error.
type query struct {
	values url.Values
	err    error
}

func (r *request) query() *query { return &query{values: r.URL.Query()} }

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = malformed(api.CodeInvalid, format, args...)
	}
}

// number returns a parameter, or def if it is absent.
func (q *query) number(name string, def, low, high int64) int64 {
	s := q.values.Get(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		q.fail("%s=%q: want a number from %d to %d", name, s, low, high)
	}
	return n
}

// parameter returns a parameter as parse reads it, or zero if it is absent.
func parameter[T any](q *query, name string, parse func(string) (T, error)) (v T) {
	s := q.values.Get(name)
	if s == "" {
		return v
	}
	v, err := parse(s)
	if err != nil {
		q.fail("%s=%.80q: %w", name, s, err)
	}
	return v
}

// limit returns the size of a page.
func (q *query) limit(def int64) int { return int(q.number("limit", def, 1, maxList)) }

// attempt returns an attempt of a dispatch; 0 is the current one.
func (q *query) attempt() int { return int(q.number("attempt", 0, 1, 1<<30)) }

func (q *query) flag(name string) bool {
	s := q.values.Get(name)
	if s == "" {
		return false
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		q.fail("%s=%q: want true or false", name, s)
	}
	return v
}

// wait returns how long the caller waits for the answer.
func (q *query) wait() time.Duration {
	s := q.values.Get("wait")
	if s == "" {
		return 0
	}
	wait, err := time.ParseDuration(s)
	if err != nil || wait < 0 || wait > maxWait {
		q.fail("wait=%q: want a duration of at most %s", s, maxWait)
	}
	return wait
}

// after returns the cursor where a page of a run begins.
func (q *query) after() string {
	after := q.values.Get("after")
	if len(after) > maxCursor {
		q.fail("after: unknown cursor")
	}
	return after
}

// Limits of reading content in pieces: of a piece, and of the whole, which is read
// and verified for each piece.
const (
	maxPart   = 1 << 20
	maxParted = 64 << 20
)

// sendPart sends what the query selects: the whole content, or at most limit
// bytes from offset.
func sendPart(w http.ResponseWriter, r *request, content io.ReadCloser, size int64) error {
	q := r.query()
	offset, limit := q.number("offset", 0, 0, maxOffset), q.number("limit", 0, 1, maxPart)
	if q.err != nil {
		return errors.Join(q.err, content.Close())
	}
	if limit == 0 && offset == 0 {
		return send(w, content, size)
	}
	defer content.Close() //nolint:errcheck // only read
	if limit == 0 {
		return malformed(api.CodeInvalid, "offset: needs a limit")
	}
	if size > maxParted {
		return api.Errorf(api.CodeTooLarge, "%d bytes, more than the %d that can be read in pieces", size, maxParted).
			WithHint("a human can fetch all of it: bailiwick dispatch patch, bailiwick dispatch outputs")
	}
	part := &window{from: offset, to: offset + limit}
	if _, err := io.Copy(part, content); err != nil { // reading to the end verifies the digest
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(part.kept)))
	_, _ = w.Write(part.kept) // the caller may be gone
	return nil
}

// window keeps the bytes from from to to of what is written to it.
type window struct {
	from, to, at int64
	kept         []byte
}

func (v *window) Write(p []byte) (int, error) {
	low, high := max(v.from-v.at, 0), min(v.to-v.at, int64(len(p)))
	if low < high {
		v.kept = append(v.kept, p[low:high]...)
	}
	v.at += int64(len(p))
	return len(p), nil
}

// send copies content of an announced length, so that a caller notices a
// truncated body.
func send(w http.ResponseWriter, content io.ReadCloser, size int64) error {
	defer content.Close() //nolint:errcheck // only read
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(w, content); err != nil {
		panic(http.ErrAbortHandler) // a truncated body must not look whole
	}
	return nil
}

// lines is a stream of JSON lines. The first one sends the status.
type lines struct {
	w   http.ResponseWriter
	out *json.Encoder
	on  bool
}

func newLines(w http.ResponseWriter) *lines { return &lines{w: w, out: json.NewEncoder(w)} }

// send writes a line and flushes it.
func (l *lines) send(v any) error {
	if err := l.put(v); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}

// put writes a line.
func (l *lines) put(v any) error {
	l.begin()
	return l.out.Encode(v)
}

func (l *lines) begin() {
	if !l.on {
		l.w.Header().Set("Content-Type", "application/jsonl")
		l.w.WriteHeader(http.StatusOK)
		l.on = true
	}
}

// end returns err if it can still become the response. Otherwise it breaks the
// connection, so that the stream does not look whole.
func (l *lines) end(err error) error {
	if err != nil && l.on {
		panic(http.ErrAbortHandler)
	}
	if err == nil {
		l.begin()
	}
	return err
}
