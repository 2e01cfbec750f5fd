package webpage

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// linesPage bounds the lines of a page about a dispatch.
const linesPage = 500

// outputs lists the files that a dispatch left.
func (s *dispatchPages) outputs(r *http.Request) (*view, error) {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	return &view{"outputs", "Outputs of " + string(d.ID), d}, nil
}

// output downloads an output.
func (s *dispatchPages) output(w http.ResponseWriter, r *http.Request) error {
	d, attempt, err := s.dispatchOf(r)
	if err != nil {
		return err
	}
	name := r.URL.Query().Get("path")
	if d.Outcome == nil || !slices.ContainsFunc(d.Outcome.Outputs, func(a api.Artifact) bool { return a.Path == name }) {
		return api.Errorf(api.CodeNotFound, "dispatch %s has no output %.200q", d.ID, name)
	}
	return attachment(w, r, fileName(path.Base(name)), func(ctx context.Context, to io.Writer) error {
		return s.runtime(r.Context()).Output(ctx, d.ID, attempt, name, to)
	})
}

// fileName is a name that is safe for any system, and begins with no dot.
func fileName(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, name)
	if safe = strings.TrimLeft(safe, "."); safe == "" {
		return "output"
	}
	return safe[:min(len(safe), 100)]
}

// errEnough ends a stream whose further lines a page does not show.
var errEnough = errors.New("enough lines")

// page collects the lines of a stream that follow a number, up to linesPage.
type page[T any] struct {
	After  int64
	Lines  []T
	Next   int64 // number of the last line, if there are more; else 0
	number func(T) int64
}

func newPage[T any](r *http.Request, number func(T) int64) (*page[T], error) {
	p := &page[T]{number: number}
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if p.After, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, api.Errorf(api.CodeInvalid, "after %.20q: want a number", text)
		}
	}
	return p, nil
}

func (p *page[T]) add(line T) error {
	switch {
	case p.number(line) <= p.After:
	case len(p.Lines) == linesPage:
		p.Next = p.number(p.Lines[linesPage-1])
		return errEnough
	default:
		p.Lines = append(p.Lines, line)
	}
	return nil
}

// tools lists the calls of tools, or shows one with its arguments and answer.
func (s *dispatchPages) tools(r *http.Request) (*view, error) {
	d, attempt, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	p, err := newPage(r, func(l api.ToolCallLine) int64 { return l.Number })
	q := client.ToolQuery{Attempt: attempt, Denied: r.URL.Query().Get("denied") == "true"}
	if text := r.URL.Query().Get("number"); err == nil && text != "" {
		if q.Number, err = strconv.ParseInt(text, 10, 64); err != nil || q.Number < 1 {
			err = api.Errorf(api.CodeInvalid, "number %.20q: want the number of a call, from 1", text)
		}
	}
	if err == nil {
		err = s.runtime(r.Context()).Tools(r.Context(), d.ID, q, p.add)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return &view{"tools", "Tool calls of " + string(d.ID), struct {
		api.Dispatch
		Page   *page[api.ToolCallLine]
		Denied bool
	}{d, p, q.Denied}}, nil
}

// network lists the requests that the agent made.
func (s *dispatchPages) network(r *http.Request) (*view, error) {
	d, attempt, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	p, err := newPage(r, func(l api.NetworkLine) int64 { return l.Number })
	refused := r.URL.Query().Get("refused") == "true"
	if err == nil {
		err = s.runtime(r.Context()).Network(r.Context(), d.ID, attempt, refused, p.add)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return &view{"network", "Requests of " + string(d.ID), struct {
		api.Dispatch
		Page    *page[api.NetworkLine]
		Refused bool
	}{d, p, refused}}, nil
}

// statement shows what the service signed about a dispatch.
func (s *dispatchPages) statement(r *http.Request) (*view, error) {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := s.runtime(r.Context()).Statement(r.Context(), d.ID, &b); err != nil {
		return nil, err
	}
	var envelope struct {
		Payload    string
		Signatures []struct{ KeyID string }
	}
	err = json.Unmarshal(b.Bytes(), &envelope)
	payload, failed := base64.StdEncoding.DecodeString(envelope.Payload)
	if err = errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("statement about dispatch %s: %w", d.ID, err)
	}
	return &view{"statement", "Statement about " + string(d.ID), struct {
		api.Dispatch
		Payload  json.RawMessage
		Keys     []struct{ KeyID string }
		Envelope string
	}{d, payload, envelope.Signatures, b.String()}}, nil
}

// downloadStatement downloads the envelope, for other tools.
func (s *dispatchPages) downloadStatement(w http.ResponseWriter, r *http.Request) error {
	d, _, err := s.dispatchOf(r)
	if err != nil {
		return err
	}
	return attachment(w, r, string(d.ID)+".dsse.json", func(ctx context.Context, to io.Writer) error {
		return s.runtime(r.Context()).Statement(ctx, d.ID, to)
	})
}
