package cli

import (
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// runLine is one line of what dispatch run prints with -o jsonl. It has exactly
// one member, which says who speaks: what an agent wrote is always within log,
// in base64, whatever it looks like.
type runLine struct {
	Event  *runEvent     `json:"event,omitempty"`
	Log    *api.Chunk    `json:"log,omitempty"`
	Record *api.Dispatch `json:"record,omitempty"` // last, unless it goes on
}

// runEvent is a step in the life of a dispatch.
type runEvent struct {
	Dispatch api.DispatchID `json:"dispatchId"`
	Attempt  int            `json:"attempt"`
	Event    api.Event      `json:"event"`
	At       *time.Time     `json:"at,omitempty"`
	Reason   api.Reason     `json:"reason,omitempty"`
	Message  string         `json:"message,omitempty"`
}

// events prints the steps of one dispatch as they become known, each once.
type events struct {
	t    *tree
	said map[api.Event]bool
}

func (t *tree) newEvents() *events { return &events{t, map[api.Event]bool{}} }

// typed says that dispatch run prints runLines.
func (t *tree) typed() bool { return t.output == "jsonl" }

// tell prints what a record says that was not said before.
func (e *events) tell(d api.Dispatch) error {
	since := d.Since()
	steps := []runEvent{{Event: api.EventAccepted, At: &since}}
	if d.StartedAt != nil {
		steps = append(steps, runEvent{Event: api.EventStarted, At: d.StartedAt})
	}
	if d.State.Ended() {
		steps = append(steps, runEvent{Event: d.State, At: d.EndedAt, Reason: d.Reason, Message: d.Message})
	}
	for _, s := range steps {
		if e.said[s.Event] {
			continue
		}
		e.said[s.Event] = true
		s.Dispatch, s.Attempt = d.ID, d.Attempt
		if err := e.t.printJSON(runLine{Event: &s}); err != nil {
			return err
		}
	}
	return nil
}
