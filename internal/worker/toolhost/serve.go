package toolhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mcpclient"
)

// maxBusy bounds the requests that run at once.
const maxBusy = 4096

// serve serves requests until In ends. One that cannot be read is an error: the service
// is not what it was.
func (h *host) serve() error {
	in := bufio.NewReaderSize(h.cfg.In, 64<<10)
	slots := make(chan struct{}, maxBusy)
	for {
		line, err := readLine(in, record.MaxToolRequest)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		var q record.ToolRequest
		if err := canon.DecodeExact(line, &q); err != nil {
			return fmt.Errorf("a request that cannot be read: %w", err)
		}
		ctx, cancel := context.WithCancel(h.ctx)
		h.mu.Lock()
		switch q.Verb {
		case record.ToolVerbCancel:
			if stop := h.calls[q.Of]; stop != nil {
				stop()
			}
		case record.ToolVerbCall:
			h.calls[q.ID] = cancel
		case record.ToolVerbOpen, record.ToolVerbList, record.ToolVerbClose, record.ToolVerbRecords:
		}
		h.mu.Unlock()
		switch q.Verb { //nolint:exhaustive // the others take time
		case record.ToolVerbCancel:
			cancel()
			continue
		case record.ToolVerbRecords: // before the calls that follow
			h.handle(ctx, &q)
			cancel()
			continue
		}
		slots <- struct{}{}
		h.busy.Go(func() {
			defer func() { <-slots }()
			defer cancel()
			h.handle(ctx, &q)
		})
	}
}

func (h *host) handle(ctx context.Context, q *record.ToolRequest) {
	var r record.ToolReply
	var err error
	switch q.Verb {
	case record.ToolVerbOpen:
		err = h.openSession(ctx, q.Session)
	case record.ToolVerbClose:
		if s := h.session(q.Session); s != nil {
			_ = s.Close()
		}
		return
	case record.ToolVerbList:
		r.Offer, err = h.list(ctx, q.Session)
	case record.ToolVerbCall:
		r, err = h.call(ctx, q)
		h.mu.Lock()
		delete(h.calls, q.ID)
		h.mu.Unlock()
	case record.ToolVerbRecords:
		if err = errUngated; h.gate != nil {
			err = h.gate.records(q.Records)
		}
	case record.ToolVerbCancel:
	default:
		err = &mcpclient.UnsentError{Err: fmt.Errorf("unknown verb %.40q", string(q.Verb))}
	}
	if err != nil {
		r = record.ToolReply{Fault: h.fault(err)}
	}
	r.ID = q.ID
	h.reply(r)
}

func (h *host) reply(r record.ToolReply) {
	line, err := canon.Marshal(r)
	if err != nil || len(line) >= record.MaxToolReply {
		line, _ = canon.Marshal(record.ToolReply{ID: r.ID, Session: r.Session, Fault: &record.ToolFault{Kind: record.ToolFaultInvalid, Text: "the answer cannot be passed on", Reason: "it is too large to pass on"}})
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	_, _ = h.cfg.Out.Write(append(line, '\n')) // a service that is gone closes In too
}

// open returns the sessions.
func (h *host) open() (list []*mcpclient.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		list = append(list, s)
	}
	return list
}

func (h *host) session(id int64) *mcpclient.Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id]
}

// openSession opens a session with the server, and says when it has ended.
func (h *host) openSession(ctx context.Context, id int64) (err error) {
	cfg := mcpclient.Config{Now: h.cfg.Now, Said: func(line string) { h.says.own(line) }}
	changed := func() { go h.reply(record.ToolReply{Session: id, Changed: true}) }
	var s *mcpclient.Session
	switch {
	case h.session(id) != nil || id == 0:
		return fmt.Errorf("session %d is open already", id)
	case h.start.Server.Stdio != nil && len(h.open()) > 0:
		return errors.New("the server has a session already")
	case h.start.Server.Stdio != nil:
		s, err = mcpclient.OpenProgram(ctx, cfg, h.program, changed)
	case h.start.Server.HTTP != nil:
		s, err = mcpclient.OpenHTTP(ctx, cfg, mcpclient.Server{ToolServer: h.start.Server, Secrets: h.start.Secrets}, changed)
	default:
		err = fmt.Errorf("%s is no MCP server", h.start.Server.Name)
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.sessions[id] = s
	h.mu.Unlock()
	h.busy.Go(func() {
		select {
		case <-s.Ended():
		case <-h.ctx.Done():
			return
		}
		h.mu.Lock()
		delete(h.sessions, id)
		h.mu.Unlock()
		h.reply(record.ToolReply{Session: id, Ended: h.fault(s.Err())})
	})
	return nil
}

func (h *host) list(ctx context.Context, session int64) (*record.ToolOffer, error) {
	s := h.session(session)
	if s == nil {
		return nil, errNoSession
	}
	offer, err := s.Offer(ctx)
	if err != nil {
		return nil, err
	}
	out := &record.ToolOffer{Tools: offer.Tools, Unused: offer.Unused}
	for _, d := range offer.Tools {
		if d.TaskOnly {
			out.TaskOnly = append(out.TaskOnly, d.Name)
		}
	}
	return out, nil
}

var errNoSession = &mcpclient.UnsentError{Err: errors.New("there is no such session: it has ended")}

func (h *host) call(ctx context.Context, q *record.ToolRequest) (r record.ToolReply, err error) {
	use := q.Call
	if use == nil {
		return r, &mcpclient.UnsentError{Err: errors.New("a call without a tool")}
	}
	definitions := h.start.Server.Definitions
	i := slices.IndexFunc(definitions, func(d api.ToolDefinition) bool { return d.Name == use.Tool })
	if i < 0 {
		return r, &mcpclient.UnsentError{Err: fmt.Errorf("tool %.80q has no pinned definition", use.Tool)}
	}
	s := h.session(q.Session)
	if s == nil && h.start.Server.Run == nil {
		return r, errNoSession
	}
	if err := h.admit(ctx, use); err != nil {
		return r, err
	}
	if h.start.Server.Run != nil {
		return h.command(ctx, &definitions[i], use)
	}
	c := mcpclient.Call{Definition: &definitions[i], Arguments: use.Arguments}
	if use.Progress {
		c.Progress = func(text string) {
			text = h.redactor().Text(text)
			h.reply(record.ToolReply{ID: q.ID, Progress: &text})
		}
	}
	got, err := s.Call(ctx, c)
	if refused, ok := errors.AsType[*mcpclient.RefusedError](err); ok {
		return failedAnswer(h.redactor().Text(refused.Error())), nil
	}
	if err != nil {
		h.restore(use, err)
		return r, err
	}
	return h.accept(got)
}

var errUngated = refused("this tool host was started without what approvals are verified with, so it makes no call that people approve")

// admit returns nil if a call may be sent: the signed catalog makes nobody approve it, or
// people have. An approval that the service sends although the catalog wants none, such as
// one because of taint, counts as wanted.
func (h *host) admit(ctx context.Context, use *record.ToolUse) error {
	allow := h.start.Server.Allow
	i := slices.IndexFunc(allow, func(a api.ToolAllow) bool { return a.Tool == use.Tool })
	switch {
	case i < 0:
		return refused("no role has tool %.80q", use.Tool)
	case use.Approved == nil && !allow[i].AsksPeople():
		return nil
	case h.gate == nil:
		return errUngated
	case use.Approved == nil:
		return refused("people approve each call of %s, and the service has sent no approval", catalog.ToolID(h.start.Server.Name, use.Tool))
	}
	return h.gate.admit(ctx, use)
}

// restore makes the approval of a call that was not sent usable again.
func (h *host) restore(use *record.ToolUse, why error) {
	var unsent *mcpclient.UnsentError
	var status *mcpclient.StatusError
	if use.Approved == nil || !errors.As(why, &unsent) || errors.As(why, &status) {
		return
	}
	if err := h.gate.restore(use.Approved); err != nil {
		h.says.own("an approval that was not used cannot be used again: " + err.Error())
	}
}

// redactor returns what removes secrets, also the tokens that sessions got by themselves.
func (h *host) redactor() *redact.Set {
	var tokens []string
	for _, s := range h.open() {
		tokens = append(tokens, s.Tokens()...)
	}
	slices.Sort(tokens)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(tokens, h.tokens) {
		h.tokens, h.redact = tokens, redact.New(append(h.secrets(), tokens...))
	}
	return h.redact
}

// maxFault bounds what a fault says, in bytes.
const maxFault = 4 << 10

// fault says what an error means for the service.
func (h *host) fault(err error) *record.ToolFault {
	f := &record.ToolFault{Kind: record.ToolFaultFailed, Text: err.Error()}
	var ended *mcpclient.EndedError
	var invalid *mcpclient.InvalidError
	var unsent *mcpclient.UnsentError
	var status *mcpclient.StatusError
	var no *refusedError
	switch {
	case errors.As(err, &no):
		f.Kind, f.Reason = record.ToolFaultRefused, no.reason
	case errors.Is(err, errBehind):
		f.Kind, f.Reason = record.ToolFaultBehind, err.Error()
	case errors.As(err, &unsent) && errors.As(err, &status) && status.Code == http.StatusUnauthorized:
		f.Kind = record.ToolFaultCredential
	case errors.As(err, &unsent):
		f.Kind = record.ToolFaultUnsent
	case errors.As(err, &invalid):
		f.Kind, f.Reason = record.ToolFaultInvalid, invalid.Reason()
	case errors.As(err, &ended):
		if f.Kind = record.ToolFaultEnded; ended.Broke {
			f.Kind = record.ToolFaultBroke
		}
		f.Said = ended.Said
	}
	f.Text = cuttext.Text(printable(h.redactor().Text(f.Text)), maxFault)
	return f
}
