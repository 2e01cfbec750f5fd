package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Slot is the slot of a schedule that a run is for.
type Slot struct {
	Schedule api.Name   `json:"schedule"`
	At       time.Time  `json:"at"`
	Artifact api.Digest `json:"artifact"` // of the schedule
	Revision api.Digest `json:"-"`        // of the catalog that has Artifact
}

// SubmitSlot is Submit for a slot of a schedule. It fails with CodeUnavailable if
// another revision is in force by now.
func (o *Orchestrator) SubmitSlot(ctx context.Context, caller dispatch.Caller, req api.RunRequest, slot Slot) (api.Run, error) {
	return o.admission.submit(ctx, caller, req, &slot)
}

// current refuses a slot whose schedule is of another revision than the run.
func (s *Slot) current(revision api.Digest) error {
	if s != nil && s.Revision != revision {
		return api.Errorf(api.CodeUnavailable, "another catalog revision is in force meanwhile; nothing was submitted")
	}
	return nil
}

// HasSlot reports whether the run of that id is the one of a slot.
func (a *Archive) HasSlot(ctx context.Context, id api.RunID, slot Slot) (bool, error) {
	r, err := a.stored(ctx, id)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil && r.doc.Slot != nil && r.doc.Slot.Schedule == slot.Schedule && r.doc.Slot.At.Equal(slot.At), err
}

// RunState returns the state of a run; false if no run has that id.
func (a *Archive) RunState(ctx context.Context, id api.RunID) (state api.RunState, ok bool, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT state FROM run WHERE id = ?", store.Args{id}, &state)
	})
	switch {
	case errors.Is(err, store.ErrNoRow):
		return "", false, nil
	case err != nil, state != "": // the row has the state of a settled run only
		return state, err == nil, err
	case a.driver == nil:
		r, err := a.stored(ctx, id)
		if err != nil {
			return "", false, err
		}
		return r.now(), true, nil
	}
	state, err = query(ctx, a.driver, func(e *engine) api.RunState {
		if r := e.byID[id]; r != nil {
			return r.now()
		}
		return api.RunRunning // it is about to begin, or has settled since
	})
	return state, err == nil, err
}
