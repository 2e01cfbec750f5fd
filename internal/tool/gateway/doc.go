// Package gateway is the only way from an agent to a tool. It makes one view for each
// attempt, from the role of the authenticated dispatch and never from what an agent
// says; it decides each call in one place, makes the decision durable in the log, has
// internal/tool/toolcall call the server, logs what came back, and answers.
//
// What is not in the view is absent from its list and refused when it is called, in the
// same words whether or not it exists.
//
// Carries R-G1 to R-G4, R-G6 and R-G7.
package gateway

import (
	"context"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Attempt is a started attempt whose agent may call tools. Dispatch makes one; the
// channel to its worker is its identity.
type Attempt struct {
	Manifest *record.Manifest
	Revision *catalog.Revision // that it is pinned to
	// Taint is that of the dispatch so far; nil: it has none, or it is not known here. A
	// start of the service has compared it with the log, unlike the rows of this package.
	Taint   *api.Taint
	Running Running
}

// Running is what a running attempt learns of its calls. Dispatch implements it.
type Running interface {
	// Mark checks in the transaction of a call's entry that the attempt still runs, and
	// stores what the call changes about it. Its errors are ErrEnded, ErrOvertaken,
	// ErrAsked, or of the store.
	Mark(tx *store.Tx, change Mark) error
	// Ask ends the attempt with the question of Mark. It returns once the worker keeps the
	// question, whatever the agent does. A service that ends before is followed by one that
	// tells the worker.
	Ask(ctx context.Context, q api.Question) error
	// Spent ends the attempt with the reason limit and the text of Mark.Spent.
	Spent(limit string)
}

// Errors of Running.Mark.
var (
	// ErrEnded says that the attempt has ended, or that a limit ends it.
	ErrEnded = errors.New("the attempt has ended")
	// ErrOvertaken says that a cancel, a stop or a lower ceiling overtook an allowed call.
	ErrOvertaken = errors.New("a cancel, a stop or a lower ceiling overtook the call")
	// ErrAsked says that the attempt has asked its question already.
	ErrAsked = errors.New("the agent has asked a question already")
)

// Mark is what a call changes about its dispatch.
type Mark struct {
	Allowed  bool
	Tier     api.Tier      // of the tool
	Taint    *api.Taint    // set by a call that gives it text from outside; nil: no change
	Progress *api.Progress // of report; nil: no change
	Question *api.Question // of ask, before Running.Ask; nil: no change
	Spent    string        // why a limit ends the attempt, before Running.Spent; empty: no change
}
