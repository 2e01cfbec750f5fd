package toolcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
)

// errFull means that the limit of servers is reached.
var errFull = errors.New("too many tool servers run at once")

func unsent(format string, args ...any) *Fault {
	return &Fault{Message: fmt.Sprintf(format, args...), Unsent: true}
}

// unclear is a fault of a call that reached the server.
func unclear(format string, args ...any) *Fault {
	return &Fault{Message: fmt.Sprintf(format, args...)}
}

// call calls a tool of a session. A server that says that it did not serve the call,
// because it has forgotten the session, gets it once more in a new one.
func (s *source) call(ctx context.Context, c Call) (Answer, error) {
	definition := s.definition(c.Tool)
	if definition == nil {
		return Answer{}, unsent("server %s has no tool of this name", s.name())
	}
	for again := true; ; again = false {
		l, err := s.ready(ctx)
		if err != nil {
			return Answer{}, err
		}
		if s.isClosed(c.Tool) {
			return Answer{}, unsent("this tool of server %s is closed: its definition differs from the one that the operator reviewed", s.name())
		}
		got, err := l.session.Call(ctx, toolclient.Call{Definition: definition, Arguments: c.Arguments, Progress: clean(s.redactor(l), c.Progress)})
		var no *toolclient.UnsentError
		if again && errors.As(err, &no) && l.session.Err() != nil && ctx.Err() == nil && s.forgotten(l) {
			continue
		}
		return s.answer(ctx, l, got, err)
	}
}

// definition returns the pinned definition of a tool, or nil.
func (s *source) definition(tool string) *api.ToolDefinition {
	list := s.order.server.Definitions
	i := slices.IndexFunc(list, func(d api.ToolDefinition) bool { return d.Name == tool })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// forgotten reports whether a session is one over HTTP that its server has ended. It may
// be opened again at once.
func (s *source) forgotten(l *live) bool {
	if s.order.server.HTTP == nil {
		return false
	}
	<-l.session.Ended()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retryAt = s.pool.cfg.Now()
	return s.failures < 2
}

func clean(set *redact.Set, progress func(string)) func(string) {
	if progress == nil {
		return nil
	}
	return func(text string) { progress(set.Text(text)) }
}

func (s *source) isClosed(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.closed, func(c Change) bool { return c.Tool == tool })
}

// answer makes an answer or a fault of what a call came to.
func (s *source) answer(ctx context.Context, l *live, got toolclient.Answer, err error) (Answer, error) {
	var refused *toolclient.RefusedError
	var ended *toolclient.EndedError
	var invalid *toolclient.InvalidError
	var no *toolclient.UnsentError
	switch {
	case err == nil:
		s.answered()
		return s.accept(s.redactor(l), got)
	case errors.As(err, &no):
		s.log(ctx, "a tool server could not be called", err)
		return Answer{}, unsent("server %s could not be reached; the service's log has the reason", s.name())
	case errors.As(err, &refused):
		s.answered()
		return failedAnswer(s.redactor(l).Text(refused.Error())), nil
	case errors.As(err, &invalid):
		s.answered()
		s.log(ctx, "a tool server gave an invalid answer", err)
		return Answer{}, unclear("server %s gave an invalid answer: %s", s.name(), invalid.Reason())
	case errors.As(err, &ended):
		return Answer{}, unclear("server %s failed during the call; the service's log has the reason", s.name())
	}
	return Answer{}, s.broken(ctx, err)
}

// broken is the fault of a call that ended without an answer.
func (s *source) broken(ctx context.Context, err error) *Fault {
	var late *lateError
	switch {
	case errors.As(context.Cause(ctx), &late):
		return unclear("server %s gave no answer within %s", s.name(), late.limit)
	case ctx.Err() != nil:
		return unclear("the call was cancelled")
	}
	s.log(ctx, "a call of a tool server failed", err)
	return unclear("server %s failed during the call; the service's log has the reason", s.name())
}

func (s *source) log(ctx context.Context, what string, err error) {
	s.pool.cfg.Logger.WarnContext(ctx, what, slog.String("server", s.name()), slog.Any("err", err), slog.String("stderr", saidBy(err))) //nolint:sloglint // what is one of few constants
}

// maxDecoded bounds the memory that the structured part of an answer takes when it is
// compared with its schema, which the gateway does.
const maxDecoded = 32 << 20

// accept redacts an answer.
func (s *source) accept(values *redact.Set, got toolclient.Answer) (Answer, error) {
	if canon.Memory(got.Structured) > maxDecoded {
		return Answer{}, unclear("server %s gave an answer with too many values", s.name())
	}
	text, found := values.Bytes(got.Result)
	if found {
		var err error
		if text, err = canon.Canonicalize(text); err != nil {
			return Answer{}, unclear("server %s gave an answer with a secret of its own that could not be removed", s.name())
		}
	}
	return Answer{Result: text, IsError: got.IsError}, nil
}

// redactor returns what removes the server's secrets from what it says, also those that
// the session got by itself.
func (s *source) redactor(l *live) *redact.Set {
	tokens := l.session.Tokens()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(tokens, l.tokens) {
		l.tokens, l.redact = tokens, redact.New(append(slices.Clone(l.values), tokens...))
	}
	return l.redact
}

// failedAnswer is the answer of a tool that failed with a text.
func failedAnswer(text string) Answer {
	quoted, err := canon.Marshal(text)
	if err != nil {
		quoted = []byte(`"the tool failed"`)
	}
	return Answer{Result: json.RawMessage(`{"content":[{"text":` + string(quoted) + `,"type":"text"}],"isError":true}`), IsError: true}
}

// saidBy is the end of a server's standard error in an error.
func saidBy(err error) string {
	if ended, ok := errors.AsType[*toolclient.EndedError](err); ok {
		return ended.Said
	}
	return ""
}

// run runs a declared command in a jail of its own.
func (s *source) run(ctx context.Context, c Call) (Answer, error) {
	definition := s.definition(c.Tool)
	if definition == nil {
		return Answer{}, unsent("%s is no declared command", s.name())
	}
	server, err := s.pool.resolve(ctx, s.order)
	if err != nil {
		s.log(ctx, "a declared command could not be run", err)
		return Answer{}, unsent("%s could not be run; the service's log has the reason", s.name())
	}
	release, err := s.place(ctx)
	if err != nil {
		return Answer{}, unsent("%s could not be run: %v", s.name(), err)
	}
	defer release()
	out, err := toolclient.Run(ctx, s.pool.cfg.Client, server, c.Arguments)
	var failed *toolclient.CommandError
	var ended *toolclient.EndedError
	switch {
	case errors.As(err, &failed):
		return failedAnswer(strings.TrimSpace(failed.Error() + "\n" + failed.Said)), nil
	case errors.As(err, &ended) && !ended.Broke:
		s.log(ctx, "a declared command could not be run", err)
		return Answer{}, unsent("%s could not be run; the service's log has the reason", s.name())
	case errors.As(err, &ended):
		s.log(ctx, "a declared command gave an invalid answer", err)
		return Answer{}, unclear("%s gave an invalid answer: %s", s.name(), ended.Why)
	case err != nil:
		return Answer{}, s.broken(ctx, err)
	}
	got, err := commandAnswer(definition, out)
	if err != nil {
		s.log(ctx, "a declared command gave an invalid answer", err)
		return Answer{}, unclear("%s gave an invalid answer: %s", s.name(), (&toolclient.InvalidError{Err: err}).Reason())
	}
	return s.accept(redact.New(slices.Collect(maps.Values(server.Secrets))), got)
}

// commandAnswer makes an answer of the output of a command: with an output schema it is
// one JSON object, and else text.
func commandAnswer(d *api.ToolDefinition, out []byte) (a toolclient.Answer, err error) {
	if !utf8.Valid(out) {
		return a, errors.New("its output is not UTF-8")
	}
	structured := ""
	if d.OutputSchema != nil {
		if a.Structured, err = canon.Canonicalize(out); err != nil {
			return a, fmt.Errorf("its output is not strict JSON: %w", err)
		}
		structured = `,"structuredContent":` + string(a.Structured)
	}
	text, err := canon.Marshal(strings.TrimSuffix(string(out), "\n"))
	a.Result = json.RawMessage(`{"content":[{"text":` + string(text) + `,"type":"text"}]` + structured + `}`)
	if err == nil && len(a.Result) > api.MaxToolAnswer {
		err = fmt.Errorf("it has %d bytes in canonical form, the limit is %d", len(a.Result), api.MaxToolAnswer)
	}
	return a, err
}
