package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// ToolAction returns what people approve before a call of t by the attempt that m
// describes, with canonical arguments: without its id, and what the moment adds, namely the
// policies, the taint and the time. needs is how many people approve it, definition the
// digest of what the tool's server says.
func ToolAction(m *Manifest, t *api.Tool, definition api.Digest, arguments json.RawMessage, needs int) api.ToolAction {
	return api.ToolAction{
		V: api.ToolActionVersion, Tool: t.ID, Arguments: arguments, Definition: definition, Tier: t.Tier,
		Dispatch: m.ID, Run: m.Run, Task: m.Task, Subagent: m.Subagent, Role: m.Role, Target: m.Target, Principal: m.Principal,
		Revision: m.RevisionDigest, Needs: needs,
	}
}

// ApprovedCall is a call that an approval is to be used for, as those know it who make it
// or verify it.
type ApprovedCall struct {
	Tool      string
	Arguments api.Digest // of the canonical ones
	Dispatch  api.DispatchID
	At        time.Time
}

// Covered returns an error unless a is about exactly this call and has not expired.
func (c ApprovedCall) Covered(a *api.ToolAction) error {
	switch {
	case a.Tool != c.Tool || api.DigestOf(a.Arguments) != c.Arguments:
		return errors.New("it is for another call")
	case a.Dispatch != c.Dispatch:
		return fmt.Errorf("it is for dispatch %s, not %s", a.Dispatch, c.Dispatch)
	case !c.At.Before(a.Expires):
		return fmt.Errorf("it expired at %s, before the call", a.Expires)
	}
	return nil
}

// TaskAction returns what people approve about a task of a run that needs the
// approval of by: without its id, the products that they are shown and the time, and before
// the member write is filled in.
func TaskAction(run api.RunID, task api.TaskID, principal api.Principal, plan api.Digest, by []api.Principal, needs int) api.TaskAction {
	return api.TaskAction{V: 1, Run: run, Task: task, Principal: principal, Plan: plan, By: by, Needs: needs, Shown: []api.ShownTask{}}
}

// WriteAction returns what people approve before the attempt of a task starts that m
// describes, with its canonical input.
func WriteAction(m *Manifest, input json.RawMessage) api.WriteAction {
	w := api.WriteAction{
		Dispatch: m.ID, Subagent: m.Subagent, Tier: m.Tier, Target: m.Target, Revision: m.RevisionDigest,
		Envs: slices.Clone(m.Envs), Capabilities: slices.Clone(m.Capabilities), Source: m.Source, Input: input, Taint: m.Taint,
	}
	for _, n := range m.Needs {
		w.Needs = append(w.Needs, api.WriteNeed(n))
	}
	return w
}
