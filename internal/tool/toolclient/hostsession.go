package toolclient

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Session is a session with a server, in a tool host. It is safe for concurrent use.
type Session struct {
	host    *Host
	id      int64
	changed func()

	once  sync.Once
	end   *EndedError // set before ended is closed
	ended chan struct{}
}

// Open opens a session with the server. changed is called when the server says that its
// tools have changed; it must return at once. The session ends with its host.
func (h *Host) Open(ctx context.Context, changed func()) (*Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openTime, fmt.Errorf("it was not ready after %s", openTime))
	defer cancel()
	h.mu.Lock()
	h.last++
	s := &Session{host: h, id: h.last, changed: changed, ended: make(chan struct{})}
	if h.end == nil {
		h.sessions[s.id] = s
	}
	h.mu.Unlock()
	if _, err := h.ask(ctx, record.ToolRequest{Verb: record.ToolVerbOpen, Session: s.id}, nil); err != nil {
		_ = s.Close()
		if unsent, ok := errors.AsType[*UnsentError](err); ok && !errors.Is(err, ErrCredential) {
			err = unsent.Err
		}
		return nil, err
	}
	return s, nil
}

// Ended is closed when the session has ended, by whatever cause.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Err says why the session has ended. It is nil before.
func (s *Session) Err() error {
	select {
	case <-s.ended:
		return s.end
	default:
		return nil
	}
}

// Close ends the session, and not its host.
func (s *Session) Close() error {
	s.finish(&EndedError{Why: "the session was closed"})
	return nil
}

func (s *Session) finish(why *EndedError) {
	s.once.Do(func() {
		s.end = why
		close(s.ended)
		s.host.mu.Lock()
		delete(s.host.sessions, s.id)
		ended := s.host.end != nil
		s.host.mu.Unlock()
		if ended {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), writeTime)
		defer cancel()
		_ = s.host.send(ctx, record.ToolRequest{Verb: record.ToolVerbClose, Session: s.id}) // or the host ends, which ends it too
	})
}

// Offer returns the definitions of all tools of the server, and what else it has.
func (s *Session) Offer(ctx context.Context) (Offer, error) {
	r, err := s.host.ask(ctx, record.ToolRequest{Verb: record.ToolVerbList, Session: s.id}, nil)
	if err == nil && r.Offer == nil {
		err = errors.New("the tool host gave no list")
	}
	if err != nil {
		return Offer{}, err
	}
	for i := range r.Offer.Tools {
		for _, name := range r.Offer.TaskOnly {
			r.Offer.Tools[i].TaskOnly = r.Offer.Tools[i].TaskOnly || r.Offer.Tools[i].Name == name
		}
	}
	return Offer{r.Offer.Tools, r.Offer.Unused}, nil
}

// Call calls a tool. The error is an *UnsentError if the call did not reach the server.
func (s *Session) Call(ctx context.Context, c Call) (Answer, error) {
	if err := s.Err(); err != nil {
		return Answer{}, &UnsentError{err}
	}
	return s.host.call(ctx, s.id, c)
}
