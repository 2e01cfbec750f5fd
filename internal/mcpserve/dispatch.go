package mcpserve

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// maxWait is how many seconds a call may wait for what it asked for. Clients
// give up on a call after a minute.
const maxWait = 50

// lookTime is how often who waits is told how things are.
const lookTime = 5 * time.Second

// dispatchInput names things; it carries no authority (R-B7).
type dispatchInput struct {
	Subagent       api.Name           `json:"subagent,omitempty" jsonschema:"name of the subagent, from bailiwick_subagents_list; leave out with resume"`
	Input          object             `json:"input,omitempty" jsonschema:"what the subagent works on; its input schema is in bailiwick_subagents_list"`
	Target         api.Name           `json:"target,omitempty" jsonschema:"where it runs, one of the subagent's targets; its own when absent"`
	Envs           []api.Name         `json:"env,omitempty" jsonschema:"names of envs that it gets"`
	Capabilities   []api.Name         `json:"capabilities,omitempty" jsonschema:"names of extra capabilities, where they are granted"`
	Source         *sourceInput       `json:"source,omitempty" jsonschema:"where its workspace starts"`
	TimeoutSeconds int                `json:"timeoutSeconds,omitempty" jsonschema:"shortens the subagent's own limit"`
	DispatchID     api.DispatchID     `json:"dispatchId,omitempty" jsonschema:"an id of your choice, 4 to 64 of a-z 0-9 -; the same call with the same id is not done twice"`
	Resume         api.DispatchID     `json:"resume,omitempty" jsonschema:"the dispatch whose question you answer"`
	Answer         *api.AnswerRequest `json:"answer,omitempty" jsonschema:"your answer: a text, or the number of an option from 1; attempt is that of the question, so that a late answer goes to no other"`
	Wait           int                `json:"wait,omitempty" jsonschema:"seconds to wait for the end, at most 50"`
}

// sourceInput is a granted source at a commit.
type sourceInput struct {
	Name   api.Name `json:"name" jsonschema:"name of a source that the subagent may use"`
	Commit string   `json:"commit,omitempty" jsonschema:"a commit, branch or tag of it; its HEAD when absent"`
}

func (dispatchInput) bounds() map[string]span {
	return map[string]span{"wait": {0, maxWait}, "timeoutSeconds": {1, 0}}
}

// dispatchState is how a dispatch stands.
type dispatchState struct {
	DispatchID api.DispatchID `json:"dispatchId"`
	State      api.Event      `json:"state"`
	Ended      bool           `json:"ended" jsonschema:"nothing more happens by itself"`
	Attempt    int            `json:"attempt"`
	Reason     api.Reason     `json:"reason,omitempty" jsonschema:"why it failed"`
	Message    string         `json:"message,omitempty" jsonschema:"the reason in words"`
	Advice     string         `json:"advice,omitempty" jsonschema:"what you can do now"`
}

// dispatchOutput is how it stands, and with wait what came of it.
type dispatchOutput struct {
	dispatchState
	Record *record `json:"record,omitempty" jsonschema:"the record, where it ended while you waited"`
}

// dispatch starts an execution, or answers the question of one.
func (s *Server) dispatch(ctx context.Context, c *call, in dispatchInput) (dispatchOutput, error) {
	d, err := s.begin(ctx, c, in)
	if err != nil {
		return dispatchOutput{}, err
	}
	out := dispatchOutput{dispatchState: standing(&d)}
	if in.Wait > 0 && !d.State.Ended() {
		later, err := s.await(ctx, c, d.ID, in.Wait)
		if err != nil {
			// It was accepted, and whoever does not hear its id may ask for another.
			out.Advice = "waiting for it failed (" + faultText(faultOf(err)) + "); it goes on: look again with " + toolDescribe
			return out, nil //nolint:nilerr // it says so
		}
		d, out.dispatchState = later, standing(&later)
	}
	if !d.State.Ended() {
		out.Advice = in.waitAdvice(d.ID)
	}
	if in.Wait > 0 && d.State.Ended() {
		r := recordOf(&d)
		out.Record = &r
	}
	return out, nil
}

// waitAdvice says how to hear of the end. Clients take a model that asks the
// same again and again for one that is stuck, and end it.
func (in *dispatchInput) waitAdvice(id api.DispatchID) string {
	with := " with dispatchId " + string(id) + " and wait"
	if in.Resume != "" {
		with = " with wait"
	}
	return "to wait for its end, make the same call again" + with + "; how it stands: " + toolDescribe
}

func (s *Server) begin(ctx context.Context, c *call, in dispatchInput) (api.Dispatch, error) {
	if err := in.check(); err != nil {
		return api.Dispatch{}, &invalidInput{err}
	}
	if in.Resume != "" {
		return ask(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Answer(ctx, in.Resume, *in.Answer) })
	}
	req := api.DispatchRequest{
		Subagent: in.Subagent, Input: json.RawMessage(in.Input), Target: in.Target, Envs: in.Envs, Capabilities: in.Capabilities,
		TimeoutSeconds: in.TimeoutSeconds, DispatchID: in.DispatchID,
	}
	if req.DispatchID == "" {
		req.DispatchID = api.NewDispatchID(s.cfg.Now())
	}
	if in.Source != nil {
		req.Source = &api.SourceRequest{Name: in.Source.Name, Commit: in.Source.Commit}
	}
	d, err := ask(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Dispatch(ctx, req) })
	if api.CodeOf(err) == api.CodeUnavailable { // after the request may have arrived
		err = &advised{err, "then call again with dispatchId " + string(req.DispatchID) + ", so that it is not done twice"}
	}
	return d, err
}

// check refuses what would be passed over in silence.
func (in *dispatchInput) check() *api.Error {
	switch {
	case in.Resume == "" && in.Answer != nil:
		return api.Errorf(api.CodeInvalid, "answer: name the dispatch that asked with resume")
	case in.Resume == "" && in.Subagent == "":
		return api.Errorf(api.CodeInvalid, "subagent: missing").WithHint("see: %s", toolSubagents)
	case in.Resume != "" && in.Answer == nil:
		return api.Errorf(api.CodeInvalid, "resume: give the answer, too").WithHint("what it asks: %s with include question", toolDescribe)
	case in.Resume == "":
		return nil
	}
	for name, given := range map[string]bool{
		"subagent": in.Subagent != "", "input": in.Input != nil, "target": in.Target != "", "env": in.Envs != nil, "capabilities": in.Capabilities != nil,
		"source": in.Source != nil, "timeoutSeconds": in.TimeoutSeconds != 0, "dispatchId": in.DispatchID != "",
	} {
		if given {
			return api.Errorf(api.CodeInvalid, "%s: a dispatch that goes on keeps what it was started with; leave it out with resume", name)
		}
	}
	return nil
}

// await returns the record when a dispatch has ended or the seconds are over.
func (s *Server) await(ctx context.Context, c *call, id api.DispatchID, seconds int) (d api.Dispatch, err error) {
	begun := s.cfg.Now()
	until := begun.Add(time.Duration(seconds) * time.Second)
	for {
		left := max(0, until.Sub(s.cfg.Now()))
		d, err = ask(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Describe(ctx, id, min(left, lookTime)) })
		if err != nil || d.State.Ended() || left == 0 {
			return d, err
		}
		c.progress(ctx, s.cfg.Now().Sub(begun).Seconds(), "dispatch "+string(id)+" is "+string(d.State))
	}
}

// standing is how a dispatch stands, and what a model can do about it.
func standing(d *api.Dispatch) dispatchState {
	out := dispatchState{DispatchID: d.ID, State: d.State, Ended: d.State.Ended(), Attempt: d.Attempt, Reason: d.Reason, Message: Truncate(d.Message, 4<<10)}
	switch {
	case d.State == api.EventNeedsInput && d.CancelBy == "":
		out.Advice = "read the question with " + toolDescribe + " and include question, then call " + toolDispatch + " with resume and answer"
	case !out.Ended:
		out.Advice = "look again with " + toolDescribe
	case d.Outcome != nil && d.Outcome.Patch != nil:
		out.Advice = "read the patch with " + toolDescribe + " and include patch"
	}
	return out
}

// cancelInput names a dispatch that is to end.
type cancelInput struct {
	DispatchID api.DispatchID `json:"dispatchId"`
	Reason     string         `json:"reason,omitempty" jsonschema:"for people who read the record"`
}

// cancel asks for the end of a dispatch.
func (s *Server) cancel(ctx context.Context, c *call, in cancelInput) (dispatchState, error) {
	d, err := ask(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Cancel(ctx, in.DispatchID, in.Reason) })
	if err != nil {
		return dispatchState{}, err
	}
	return standing(&d), nil
}
