package mcpclient

import (
	"context"
	"testing"
	"time"
)

// deaf is a link to a server that never answers.
type deaf struct{ closed bool }

func (*deaf) send(context.Context, outgoing) error { return nil }
func (*deaf) agreed(string)                        {}
func (*deaf) listen()                              {}
func (d *deaf) close() (string, error)             { d.closed = true; return "", nil }

// A server that answers no cancelled request is left, so that what the session keeps of
// them is bounded.
func TestCancelledRequestsWithoutAnswerAreBounded(t *testing.T) {
	link := &deaf{}
	s := newSession(Config{Now: time.Now}, link, nil)
	for id := range int64(maxAbandoned) {
		s.requests.waiting[id] = &request{}
		s.abandon(t.Context(), id, false)
	}
	s.abandon(t.Context(), maxAbandoned+1, false) // was not waited for
	s.requests.waiting[maxAbandoned+2] = &request{}
	s.abandon(t.Context(), maxAbandoned+2, true) // was not sent
	if err := s.Err(); err != nil || link.closed || len(s.requests.abandoned) != maxAbandoned {
		t.Fatalf("%d cancelled requests: %v", len(s.requests.abandoned), err)
	}
	s.requests.waiting[maxAbandoned] = &request{}
	s.abandon(t.Context(), maxAbandoned, false)
	end, _ := s.end, s.Err()
	if end == nil || !end.Broke || !link.closed {
		t.Errorf("%d cancelled requests: %v", len(s.requests.abandoned), end)
	}
}
