package toolcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
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
// because it has forgotten the session or refuses the credential, gets it once more in a
// new one.
func (s *source) call(ctx context.Context, c Call) (Answer, error) {
	if s.definition(c.Tool) == nil {
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
		got, err := l.session.Call(ctx, toolclient.Call{Tool: c.Tool, Arguments: c.Arguments, Progress: c.Progress, Dispatch: c.Owner.Dispatch, Approved: c.Approved})
		l.calls.Done()
		var no *toolclient.UnsentError
		if again && errors.As(err, &no) && ctx.Err() == nil && (s.renewed(l, err) || l.session.Err() != nil && s.forgotten(l)) {
			continue
		}
		return s.answer(ctx, got, err)
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

// renewTime is how long a session lives at least before a refused credential makes its
// tool host start again, which reads the secrets again.
const renewTime = 10 * time.Second

// renewed reports whether a server refused a credential that may have been replaced since
// its tool host started. The next session has a new one; the calls of this one end.
func (s *source) renewed(l *live, err error) bool {
	if !errors.Is(err, toolclient.ErrCredential) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != l { // another call has renewed it
		return true
	}
	if s.pool.cfg.Now().Sub(l.opened) < renewTime {
		return false
	}
	s.live = nil
	s.pool.retire(l.host)
	s.pool.busy.Go(func() {
		l.calls.Wait()
		_ = l.session.Close()
	})
	return true
}

func (s *source) isClosed(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.closed, func(c Change) bool { return c.Tool == tool })
}

// answer makes an answer or a fault of what a call came to.
func (s *source) answer(ctx context.Context, got toolclient.Answer, err error) (Answer, error) {
	var ended *toolclient.EndedError
	var invalid *toolclient.InvalidError
	var no *toolclient.UnsentError
	var refused *toolclient.RefusedError
	switch {
	case errors.As(err, &refused):
		s.log(ctx, "a tool host refuses a call", err)
		return Answer{}, unsent("the tool host of server %s does not make the call: %s", s.name(), refused.Reason)
	case err == nil:
		s.answered()
		return s.accept(got)
	case errors.As(err, &no):
		s.log(ctx, "a tool server could not be called", err)
		return Answer{}, unsent("server %s could not be reached; the service's log has the reason", s.name())
	case errors.As(err, &invalid):
		s.answered()
		s.log(ctx, "a tool server gave an invalid answer", err)
		return Answer{}, unclear("server %s gave an invalid answer: %s", s.name(), invalid.Reason)
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

// accept refuses an answer whose structured part takes too much memory.
func (s *source) accept(got toolclient.Answer) (Answer, error) {
	if canon.Memory(got.Result) > maxDecoded {
		var parts struct {
			Structured json.RawMessage `json:"structuredContent"`
		}
		if err := json.Unmarshal(got.Result, &parts); err != nil || canon.Memory(parts.Structured) > maxDecoded {
			return Answer{}, unclear("server %s gave an answer with too many values", s.name())
		}
	}
	return Answer{Result: got.Result, IsError: got.IsError}, nil
}

// saidBy is the end of a server's standard error in an error.
func saidBy(err error) string {
	if ended, ok := errors.AsType[*toolclient.EndedError](err); ok {
		return ended.Said
	}
	return ""
}

// run runs a declared command in a tool host of its own.
func (s *source) run(ctx context.Context, c Call) (Answer, error) {
	if s.definition(c.Tool) == nil {
		return Answer{}, unsent("%s is no declared command", s.name())
	}
	host, err := s.start(ctx)
	if errors.Is(err, errFull) {
		return Answer{}, unsent("%s could not be run: %v", s.name(), err)
	}
	if err != nil {
		s.log(ctx, "a declared command could not be run", err)
		return Answer{}, unsent("%s could not be run; the service's log has the reason", s.name())
	}
	defer host.release()
	got, err := host.Run(ctx, toolclient.Call{Arguments: c.Arguments, Dispatch: c.Owner.Dispatch, Approved: c.Approved})
	if _, ok := errors.AsType[*toolclient.UnsentError](err); ok {
		s.log(ctx, "a declared command could not be run", err)
		return Answer{}, unsent("%s could not be run; the service's log has the reason", s.name())
	}
	return s.answer(ctx, got, err)
}
