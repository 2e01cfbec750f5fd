// Package scriptmodel is a model server for tests and the demo: it speaks the wire
// formats of Anthropic Messages, OpenAI Responses, OpenAI Chat and Gemini, streamed and
// not, and answers by a script instead of a model. No program that is shipped links it.
//
// A script keeps no state: it sees the whole conversation, as a model does. The server
// records every request and the tokens that it reported, so a test can compare both
// with what a broker counted.
package scriptmodel

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Script answers a turn.
type Script func(*Turn) Reply

// Server is a scripted model. Its fields are fixed before the first request.
type Server struct {
	Script Script
	// Key must be in one of the headers that the formats use for it. If it is empty, any
	// client may ask.
	Key string

	mu       sync.Mutex
	idle     sync.Cond        // signalled when active reaches 0; lazily bound to mu
	active   int              // requests in progress
	requests []*Request       // in order of arrival
	tries    map[[32]byte]int // by conversation
}

// Request is the record of one request.
type Request struct {
	Method string
	Path   string // with the query
	Header http.Header
	Body   []byte
	Turn   *Turn // nil unless it asked for a reply
	Status int   // of the response; 0 while it has none
	// Tokens is the usage in the response that was sent.
	Tokens api.Tokens
	Broken bool // the response was not sent completely
}

// maxBody bounds a request.
const maxBody = 32 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	rec := &Request{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(), Body: body}
	s.begin(rec)
	defer s.end()
	out := &output{ResponseWriter: w, ctx: r.Context(), cut: -1, done: func(status int, n api.Tokens, broken bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		rec.Status, rec.Tokens, rec.Broken = status, n, broken
	}}
	defer out.close()
	format, verb := formatOf(r.URL.Path)
	switch {
	case err != nil:
		out.fail(format, http.StatusBadRequest, err.Error())
	case s.Key != "" && rec.Key() != s.Key:
		out.fail(format, http.StatusUnauthorized, "this is not the key of the scripted model")
	case format == nil || r.Method != http.MethodPost:
		out.fail(format, http.StatusNotFound, "no such page") // lists of models and similar, which are optional
	default:
		s.answer(out, rec, format, verb)
	}
}

func (s *Server) answer(out *output, rec *Request, format wire, verb string) {
	t, err := format.parse(rec.Body)
	if err != nil {
		out.fail(format, http.StatusBadRequest, err.Error())
		return
	}
	t.Size = len(rec.Body)
	switch {
	case verb == "count_tokens":
		out.whole(object{"input_tokens": t.Size/4 + 1}, api.Tokens{})
		return
	case verb == "countTokens":
		out.whole(object{"totalTokens": t.Size/4 + 1}, api.Tokens{})
		return
	case format.api() == api.Gemini:
		_, t.Model, _ = strings.Cut(strings.TrimSuffix(rec.Path[:strings.LastIndexByte(rec.Path, ':')], "/"), "/models/")
		t.Streamed = verb == "streamGenerateContent"
	}
	s.note(rec, t)
	reply := s.Script(t)
	out.obey(&reply)
	switch {
	case reply.Status != 0:
		if reply.RetryAfter != "" {
			out.Header().Set("Retry-After", reply.RetryAfter)
		}
		out.fail(format, reply.Status, "the script says so")
	case t.Streamed:
		out.stream(format.events(t, &reply), format.last())
	default:
		out.whole(format.document(t, &reply), t.tokens(&reply))
	}
}

// formatOf returns the format that a path belongs to, and the verb at its end. An
// endpoint may have any path in front.
func formatOf(path string) (wire, string) {
	switch {
	case strings.HasSuffix(path, "/messages"), strings.HasSuffix(path, "/messages/count_tokens"):
		return messages{}, path[strings.LastIndexByte(path, '/')+1:]
	case strings.HasSuffix(path, "/responses"):
		return responses{}, ""
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}, ""
	case strings.Contains(path, "/models/"):
		switch verb := path[strings.LastIndexByte(path, ':')+1:]; verb {
		case "generateContent", "streamGenerateContent", "countTokens":
			return gemini{}, verb
		}
	}
	return nil, ""
}

func (s *Server) begin(rec *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	s.requests = append(s.requests, rec)
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.active == 0 && s.idle.L != nil {
		s.idle.Broadcast()
	}
}

// note counts how often a conversation was sent.
func (s *Server) note(rec *Request, t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries == nil {
		s.tries = map[[32]byte]int{}
	}
	k := t.key()
	t.Try = s.tries[k]
	s.tries[k]++
	rec.Turn = t
}

// Requests returns the requests so far, also those in progress.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, r := range s.requests {
		all[i] = *r
	}
	return all
}

// Wait returns when no request is in progress.
func (s *Server) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle.L = &s.mu
	for s.active > 0 {
		s.idle.Wait()
	}
}

// Sent waits until no request is in progress, and returns the sum of the usage that
// responses have reported, how many requests asked for a reply, and how many of them were
// answered with status 200.
func (s *Server) Sent() (n api.Tokens, requests, turns int64) {
	s.Wait()
	for _, r := range s.Requests() {
		if r.Turn == nil {
			continue
		}
		requests++
		if r.Status == http.StatusOK {
			turns++
		}
		n.Input += r.Tokens.Input
		n.Output += r.Tokens.Output
		n.CacheRead += r.Tokens.CacheRead
		n.CacheWrite += r.Tokens.CacheWrite
	}
	return n, requests, turns
}

// Key returns the key that a request has.
func (r *Request) Key() string {
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key", "Authorization"} {
		if v := r.Header.Get(name); v != "" {
			return strings.TrimPrefix(v, "Bearer ")
		}
	}
	return ""
}

func (r *Request) String() string {
	return fmt.Sprintf("%s %s %d %+v broken=%v", r.Method, r.Path, r.Status, r.Tokens, r.Broken)
}
