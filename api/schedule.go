package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Schedule submits a plan at the times of a cron expression. It is an artifact of the
// catalog, so people signed when which plan runs as whom.
type Schedule struct {
	Name        Name   `json:"name"`
	Description string `json:"description,omitempty"`
	Cron        string `json:"cron"` // minute, hour, day of the month, month, day of the week
	Zone        string `json:"zone"` // of the IANA database, such as Europe/Rome or UTC
	// Plan is the text of the plan's file, and Set the values of its parameters.
	Plan      string                     `json:"plan"`
	Set       map[string]json.RawMessage `json:"set,omitempty"`
	Principal Principal                  `json:"principal"` // of kind ci; its grants decide
	Overlap   Overlap                    `json:"overlap,omitempty"`
	CatchUp   CatchUp                    `json:"catchUp,omitempty"`
	// CatchUpWithin is how old a missed slot may be that is made up.
	CatchUpWithin Duration `json:"catchUpWithin,omitempty"`
	Jitter        Duration `json:"jitter,omitempty"` // a slot is submitted at most this long after its time
	Pause         bool     `json:"pause,omitempty"`
}

// Bounds of a schedule.
const (
	MaxSchedulePlan  = 1 << 20 // bytes of the plan's text
	MaxJitter        = Duration(24 * time.Hour)
	MaxCatchUpWithin = Duration(31 * 24 * time.Hour)
	MaxCatchUp       = 100 // slots made up at once
	ScheduleGrace    = 2 * time.Minute
	MaxNextSlots     = 100 // in an answer
)

// Overlap says what happens at a slot while a run of the same schedule is open.
type Overlap string

// The values of Overlap.
const (
	OverlapSkip   Overlap = "skip"   // the slot is skipped; the default
	OverlapQueue  Overlap = "queue"  // one slot waits for the end of that run; further ones are skipped
	OverlapCancel Overlap = "cancel" // that run is cancelled first
)

// UnmarshalText refuses other values.
func (o *Overlap) UnmarshalText(b []byte) error {
	switch Overlap(b) {
	case OverlapSkip, OverlapQueue, OverlapCancel:
		*o = Overlap(b)
		return nil
	}
	return fmt.Errorf("overlap %.40q: want skip, queue or cancel", b)
}

// CatchUp says which slots are made up that were missed while no service ran.
type CatchUp string

// The values of CatchUp.
const (
	CatchUpNone CatchUp = "none" // the default
	CatchUpLast CatchUp = "last"
	CatchUpAll  CatchUp = "all" // in their order, at most MaxCatchUp; needs OverlapQueue
)

// UnmarshalText refuses other values.
func (c *CatchUp) UnmarshalText(b []byte) error {
	switch CatchUp(b) {
	case CatchUpNone, CatchUpLast, CatchUpAll:
		*c = CatchUp(b)
		return nil
	}
	return fmt.Errorf("catchUp %.40q: want none, last or all", b)
}

// ScheduleRun returns the id of the run of a slot. It is the id of no other slot.
func ScheduleRun(schedule Name, slot time.Time) RunID {
	at := slot.UTC().Format("20060102t1504z")
	if slot.Second() != 0 {
		at = slot.UTC().Format("20060102t150405z")
	}
	return RunID(ScheduleStem(schedule) + "-" + at)
}

// ScheduleStem is what the ids of a schedule's runs begin with: its name, or a part of
// it and a digest if the name is long or has characters that ids have not.
func ScheduleStem(schedule Name) string {
	const most = 64 - len("-20060102t150405z")
	if len(schedule) <= most {
		if _, err := ParseRunID(string(schedule) + "-x"); err == nil {
			return string(schedule)
		}
	}
	stem := []byte(schedule[:min(len(schedule), most-9)])
	for i, c := range stem {
		if c == '.' || c == '_' {
			stem[i] = '-'
		}
	}
	return string(stem) + "-" + DigestOf([]byte(schedule)).Hex()[:8]
}

// IsScheduleRun reports whether id has the form of the id of a run of a schedule.
func IsScheduleRun(schedule Name, id RunID) bool {
	return schedule != "" && ScheduleStemOf(id) == ScheduleStem(schedule)
}

// ScheduleStemOf returns the stem of the schedule that id is the id of a run of; empty
// if it has not the form of such an id.
func ScheduleStemOf(id RunID) string {
	i := strings.LastIndexByte(string(id), '-')
	if i < 1 {
		return ""
	}
	for _, form := range []string{"20060102t1504z", "20060102t150405z"} {
		if _, err := time.Parse(form, string(id[i+1:])); err == nil {
			return string(id[:i])
		}
	}
	return ""
}

// ScheduleInfo is a schedule of the revision in force, with its state.
type ScheduleInfo struct {
	Schedule
	Revision  uint64      `json:"revision"`
	Digest    Digest      `json:"digest"` // of its artifact
	PausedBy  Principal   `json:"pausedBy,omitempty"`
	PausedAt  *time.Time  `json:"pausedAt,omitempty"`
	Ahead     *time.Time  `json:"ahead,omitempty"` // the clock was set back: slots until then were decided before
	Stops     []string    `json:"stops,omitempty"` // ids of the emergency stops that cover it
	Next      []time.Time `json:"next"`            // slots, in its zone
	Last      *Slot       `json:"last,omitempty"`
	Error     string      `json:"error,omitempty"`     // why it cannot be submitted
	Undriven  bool        `json:"undriven,omitempty"`  // the service has no orchestrator: nothing is submitted
	StartWith string      `json:"startWith,omitempty"` // if undriven: what a person does about it
}

// SlotState is the state of a slot.
type SlotState string

// The states of a slot.
const (
	SlotWaiting   SlotState = "waiting"   // for the run of an earlier slot
	SlotFired     SlotState = "fired"     // it is logged, and its run is about to be submitted
	SlotSubmitted SlotState = "submitted" // it has a run
	SlotSkipped   SlotState = "skipped"   // it has none
)

// Reasons of a slot that was skipped.
const (
	SkipPaused  = "paused"  // the schedule
	SkipStopped = "stopped" // by an emergency stop
	SkipMissed  = "missed"  // no service ran, and catchUp does not make it up
	SkipOverlap = "overlap" // a run of the schedule was open
	SkipChanged = "changed" // its schedule was changed or removed before it was submitted
	SkipRefused = "refused" // the submission was refused
)

// Slot is one time of a schedule, or several skipped ones that follow each other.
type Slot struct {
	Schedule Name      `json:"schedule"`
	Slot     time.Time `json:"slot"`
	State    SlotState `json:"state"`
	RunID    RunID     `json:"run,omitempty"`
	Replaces RunID     `json:"replaces,omitempty"` // the run that is cancelled before
	RunState RunState  `json:"runState,omitempty"` // empty if the run has expired
	By       Principal `json:"by,omitempty"`       // who requested it beside the cron expression
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Last     time.Time `json:"last,omitzero"`   // of Count skipped slots
	Count    int       `json:"count,omitempty"` // absent: 1
	At       time.Time `json:"at"`              // of the newest change
	Seq      int64     `json:"seq"`             // for the next page
}
