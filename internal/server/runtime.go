package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
)

const (
	maxList = 1000
	maxWait = time.Minute
)

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

func dispatchID(r *http.Request) (api.DispatchID, error) {
	id, err := api.ParseDispatchID(r.PathValue("id"))
	if err != nil {
		return "", malformed(api.CodeInvalid, "%w", err)
	}
	return id, nil
}

// number reads a parameter of the query; absent means def.
func number(r *http.Request, name string, def, low, high int64) (int64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		return 0, malformed(api.CodeInvalid, "%s=%q: want a number from %d to %d", name, s, low, high)
	}
	return n, nil
}

func flag(r *http.Request, name string) (bool, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, malformed(api.CodeInvalid, "%s=%q: want true or false", name, s)
	}
	return v, nil
}

func (s *Server) submit(w http.ResponseWriter, r *http.Request, who caller) error {
	var req api.DispatchRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	d, err := s.cfg.Dispatch.Submit(r.Context(), who.Caller, req)
	if err != nil {
		return s.orGone(r.Context(), who, err)
	}
	return answer(w, http.StatusAccepted, d)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, who caller) error {
	limit, err := number(r, "limit", 50, 1, maxList)
	if err != nil {
		return err
	}
	list, err := s.cfg.Dispatch.List(r.Context(), who.Principal, int(limit))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, list)
}

func (s *Server) describe(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	attempt, err := attemptOf(r)
	if err != nil {
		return err
	}
	var d api.Dispatch
	if attempt > 0 {
		d, err = s.cfg.Dispatch.Attempt(r.Context(), who.Principal, id, attempt)
	} else {
		d, err = s.cfg.Dispatch.Describe(r.Context(), who.Principal, id, wait)
	}
	if err == nil {
		err = s.still(r.Context(), who)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, d)
}

// waitOf reads how long the caller waits for what it asks for.
func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > maxWait {
		return 0, malformed(api.CodeInvalid, "wait=%q: want a duration of at most %s", text, maxWait)
	}
	return wait, nil
}

// attemptOf reads which attempt of a dispatch is wanted; 0 is the current one.
func attemptOf(r *http.Request) (int, error) {
	n, err := number(r, "attempt", 0, 1, 1<<30)
	return int(n), err
}

func (s *Server) answerQuestion(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	var req api.AnswerRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	d, err := s.dispatchAnswered(r.Context(), who, id, req)
	if err != nil {
		return s.orGone(r.Context(), who, err)
	}
	return answer(w, http.StatusAccepted, d)
}

// dispatchAnswered answers the question of a dispatch. Where that is a task's, the
// run has to know before the dispatch goes on: the task waits for its locks
// again first.
func (s *Server) dispatchAnswered(ctx context.Context, who caller, id api.DispatchID, req api.AnswerRequest) (api.Dispatch, error) {
	if s.cfg.Runs == nil || who.byToken {
		return s.cfg.Dispatch.Answer(ctx, who.Caller, id, req)
	}
	d, ok, err := s.cfg.Dispatch.Get(ctx, id)
	if err != nil {
		return d, err
	}
	if !ok || d.Run == "" {
		return s.cfg.Dispatch.Answer(ctx, who.Caller, id, req)
	}
	// The same words for a dispatch that is not the caller's as for none.
	if _, err := s.cfg.Dispatch.Describe(ctx, who.Principal, id, 0); err != nil {
		return d, err
	}
	if _, err := s.cfg.Runs.Answer(ctx, who.Caller, d.Run, api.RunAnswer{Task: d.Task, DispatchID: id, Text: req.Text, Option: req.Option, Attempt: cmp.Or(req.Attempt, d.Attempt)}); err != nil {
		return d, err
	}
	return s.cfg.Dispatch.Describe(ctx, who.Principal, id, 0)
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	var req api.CancelRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	if who.byToken {
		// To end a task's dispatch is to steer its run.
		if d, ok, err := s.cfg.Dispatch.Get(r.Context(), id); err != nil {
			return err
		} else if ok && d.Run != "" && d.Principal == who.Principal {
			return s.refuseSteering(r.Context(), who, policy.ActionRunCancel, "run.cancel")
		}
	}
	d, err := s.cfg.Dispatch.Cancel(r.Context(), who.Principal, id, req.Reason)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, d)
}

func (s *Server) can(w http.ResponseWriter, r *http.Request, who caller) error {
	var req api.CanRequest
	if err := decode(r, &req); err != nil {
		return err
	}
	a, err := s.cfg.Dispatch.Can(r.Context(), who.Caller, req)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, a)
}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	attempt, err := attemptOf(r)
	if err != nil {
		return err
	}
	content, size, err := s.cfg.Dispatch.Patch(r.Context(), who.Principal, id, attempt)
	if err != nil {
		return err
	}
	return sendPart(w, r, content, size)
}

func (s *Server) output(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	attempt, err := attemptOf(r)
	if err != nil {
		return err
	}
	content, size, err := s.cfg.Dispatch.Output(r.Context(), who.Principal, id, attempt, r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	return sendPart(w, r, content, size)
}

// maxPart bounds a piece of content that is asked for by itself, and maxParted
// the content that there are pieces of: whatever is asked for, all of it is
// read and proved first.
const (
	maxPart   = 1 << 20
	maxParted = 64 << 20
)

// sendPart sends what the query chooses: the whole, or a piece that begins at
// offset and has at most limit bytes.
func sendPart(w http.ResponseWriter, r *http.Request, content io.ReadCloser, size int64) error {
	offset, err := number(r, "offset", 0, 0, 1<<50)
	limit, limitErr := number(r, "limit", 0, 1, maxPart)
	if err := errors.Join(err, limitErr); err != nil {
		return errors.Join(err, content.Close())
	}
	if limit == 0 && offset == 0 {
		return send(w, content, size)
	}
	defer content.Close() //nolint:errcheck // only read
	if limit == 0 {
		return malformed(api.CodeInvalid, "offset: name a limit, too")
	}
	if size > maxParted {
		return api.Errorf(api.CodeTooLarge, "%d bytes, more than the %d that are given in pieces", size, maxParted).
			WithHint("a human can fetch all of it: bailiwick dispatch patch, bailiwick dispatch output")
	}
	part := &window{from: offset, to: offset + limit}
	if _, err := io.Copy(part, content); err != nil { // its end is the proof
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(part.kept)))
	_, _ = w.Write(part.kept) // the caller may be gone
	return nil
}

// window keeps a piece of what is written to it.
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

// send copies content, whose length is announced: a caller that gets less
// knows that something went wrong on the way.
func send(w http.ResponseWriter, content io.ReadCloser, size int64) error {
	defer content.Close() //nolint:errcheck // only read
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if _, err := io.Copy(w, content); err != nil {
		panic(http.ErrAbortHandler) // a truncated body must not look whole
	}
	return nil
}

func (s *Server) log(w http.ResponseWriter, r *http.Request, who caller) error {
	id, err := dispatchID(r)
	if err != nil {
		return err
	}
	offset, err := number(r, "offset", 0, 0, 1<<50)
	if err != nil {
		return err
	}
	follow, err := flag(r, "follow")
	if err != nil {
		return err
	}
	attempt, err := attemptOf(r)
	if err != nil {
		return err
	}
	lines := newLines(w)
	return lines.end(s.cfg.Dispatch.Log(r.Context(), who.Principal, id, dispatch.LogRequest{Attempt: attempt, Offset: offset, Follow: follow}, func(c api.Chunk) error {
		if err := s.still(r.Context(), who); err != nil {
			return err
		}
		return lines.send(c)
	}))
}

// lines is a stream of JSON lines. Its status is sent with the first.
type lines struct {
	w   http.ResponseWriter
	out *json.Encoder
	on  bool
}

func newLines(w http.ResponseWriter) *lines { return &lines{w: w, out: json.NewEncoder(w)} }

func (l *lines) send(v any) error {
	if err := l.put(v); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}

// put is send for a line that others follow at once.
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

// end returns err while it can still be said as a response. Later it breaks
// the connection, so that the stream does not look whole.
func (l *lines) end(err error) error {
	if err != nil && l.on {
		panic(http.ErrAbortHandler)
	}
	if err == nil {
		l.begin()
	}
	return err
}
