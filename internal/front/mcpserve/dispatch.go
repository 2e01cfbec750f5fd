package mcpserve

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/usererror"
)

// maxWait is the longest wait of a call in seconds. Clients abandon a call after
// a minute.
const maxWait = 50

// pollInterval is how often a waiting call sends progress.
const pollInterval = 5 * time.Second

// dispatchInput names what humans defined; it carries no authority (R-B7).
type dispatchInput struct {
	Subagent       api.Name           `json:"subagent,omitempty" jsonschema:"name of the subagent, from bailiwick_subagents_list; omit with resume"`
	Input          object             `json:"input,omitempty" jsonschema:"input of the subagent; bailiwick_subagents_list has its schema"`
	Target         api.Name           `json:"target,omitempty" jsonschema:"where to run, one of the subagent's targets; default: the subagent's own"`
	Envs           []api.Name         `json:"env,omitempty" jsonschema:"names of envs to set"`
	Capabilities   []api.Name         `json:"capabilities,omitempty" jsonschema:"names of extra capabilities that you are granted"`
	Source         *sourceInput       `json:"source,omitempty" jsonschema:"what the workspace starts from"`
	TimeoutSeconds int                `json:"timeoutSeconds,omitempty" jsonschema:"timeout in seconds; can only shorten the subagent's own"`
	DispatchID     api.DispatchID     `json:"dispatchId,omitempty" jsonschema:"idempotency key of your choice, 4 to 64 characters of a-z 0-9 -; repeating a call with the same id does not start a second dispatch; answers may name the dispatch by this id with a suffix, and every tool accepts both"`
	Resume         api.DispatchID     `json:"resume,omitempty" jsonschema:"dispatch whose question you answer"`
	Answer         *api.AnswerRequest `json:"answer,omitempty" jsonschema:"the answer: a text, or the number of an option counted from 1; attempt must be the question's attempt"`
	Wait           int                `json:"wait,omitempty" jsonschema:"seconds to wait for it to finish, at most 50; default: return at once"`
}

// sourceInput is a granted source at a commit.
type sourceInput struct {
	Name   api.Name `json:"name" jsonschema:"name of a granted source"`
	Commit string   `json:"commit,omitempty" jsonschema:"commit, branch or tag; default: HEAD"`
}

func (dispatchInput) bounds() map[string]span {
	return map[string]span{"wait": {0, maxWait}, "timeoutSeconds": {1, 0}}
}

// dispatchState is the state of a dispatch.
type dispatchState struct {
	DispatchID api.DispatchID `json:"dispatchId"`
	State      api.Event      `json:"state"`
	Ended      bool           `json:"ended" jsonschema:"no further progress without you"`
	Attempt    int            `json:"attempt"`
	Reason     api.Reason     `json:"reason,omitempty" jsonschema:"why it failed"`
	Message    string         `json:"message,omitempty" jsonschema:"explanation of reason"`
	Advice     string         `json:"advice,omitempty" jsonschema:"what you can do next"`
}

// dispatchOutput is the state, and the record if it finished during the wait.
type dispatchOutput struct {
	dispatchState
	Record *record `json:"record,omitempty" jsonschema:"the record, if it finished during wait"`
}

// dispatch starts an execution, or answers the question of one.
func (s *Server) dispatch(ctx context.Context, c *call, in dispatchInput) (dispatchOutput, error) {
	d, err := s.begin(ctx, c, in)
	if err != nil {
		return dispatchOutput{}, err
	}
	out := dispatchOutput{dispatchState: stateOf(&d)}
	if in.Wait > 0 && !d.State.Ended() {
		later, err := s.await(ctx, c, d.ID, in.Wait)
		if err != nil {
			// It was accepted: a client without its id might start another.
			out.Advice = "waiting failed (" + errorText(toolError(err)) + ") but the dispatch continues: check it with " + toolDescribe
			return out, nil //nolint:nilerr // reported as advice
		}
		d, out.dispatchState = later, stateOf(&later)
	}
	if !d.State.Ended() {
		out.Advice = in.waitingAdvice(d.ID)
	}
	if in.Wait > 0 && d.State.Ended() {
		r := recordOf(&d)
		out.Record = &r
	}
	return out, nil
}

// waitingAdvice says how to wait for the end. Clients abort a model that repeats
// the same call without waiting.
func (in *dispatchInput) waitingAdvice(id api.DispatchID) string {
	with := " with dispatchId " + string(id) + " and wait"
	if in.Resume != "" {
		with = " with wait"
	}
	return "to wait for it to finish, repeat this call" + with + "; for its state: " + toolDescribe
}

func (s *Server) begin(ctx context.Context, c *call, in dispatchInput) (api.Dispatch, error) {
	if err := in.check(); err != nil {
		return api.Dispatch{}, &invalidInput{err}
	}
	if in.Resume != "" {
		return withRuntime(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Answer(ctx, in.Resume, *in.Answer) })
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
	d, err := withRuntime(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Dispatch(ctx, req) })
	if api.CodeOf(err) == api.CodeUnavailable { // the request may have arrived
		err = &adviceError{err, "then repeat the call with dispatchId " + string(req.DispatchID) + ", so that it is not started twice"}
	}
	return d, err
}

// check refuses fields that would be ignored.
func (in *dispatchInput) check() *api.Error {
	switch {
	case in.Resume == "" && in.Answer != nil:
		return api.Errorf(api.CodeInvalid, "answer: requires resume, the id of the dispatch that asked")
	case in.Resume == "" && in.Subagent == "":
		return api.Errorf(api.CodeInvalid, "subagent: missing").WithHint("names: %s", toolSubagents)
	case in.Resume != "" && in.Answer == nil:
		return api.Errorf(api.CodeInvalid, "resume: requires answer").WithHint("the question: %s with include question", toolDescribe)
	case in.Resume == "":
		return nil
	}
	for name, given := range map[string]bool{
		"subagent": in.Subagent != "", "input": in.Input != nil, "target": in.Target != "", "env": in.Envs != nil, "capabilities": in.Capabilities != nil,
		"source": in.Source != nil, "timeoutSeconds": in.TimeoutSeconds != 0, "dispatchId": in.DispatchID != "",
	} {
		if given {
			return api.Errorf(api.CodeInvalid, "%s: not allowed with resume: a resumed dispatch keeps what it was started with", name)
		}
	}
	return nil
}

// await returns the dispatch when it has ended or after the given seconds.
func (s *Server) await(ctx context.Context, c *call, id api.DispatchID, seconds int) (d api.Dispatch, err error) {
	begun := s.cfg.Now()
	until := begun.Add(api.Span(int64(seconds), time.Second))
	for {
		left := max(0, until.Sub(s.cfg.Now()))
		d, err = withRuntime(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Describe(ctx, id, min(left, pollInterval)) })
		if err != nil || d.State.Ended() || left == 0 {
			return d, err
		}
		c.progress(ctx, s.cfg.Now().Sub(begun).Seconds(), "dispatch "+string(id)+" is "+string(d.State))
	}
}

// stateOf returns the state of a dispatch, and what a model can do next.
func stateOf(d *api.Dispatch) dispatchState {
	out := dispatchState{DispatchID: d.ID, State: d.State, Ended: d.State.Ended(), Attempt: d.Attempt, Reason: d.Reason, Message: cuttext.Text(usererror.WithoutPaths(d.Message), 4<<10)}
	switch {
	case d.State == api.EventNeedsInput && d.CancelBy == "":
		out.Advice = "read the question with " + toolDescribe + " and include question, then call " + toolDispatch + " with resume and answer"
	case !out.Ended:
		out.Advice = "check it with " + toolDescribe
	case d.Outcome != nil && d.Outcome.Patch != nil:
		out.Advice = "read the patch with " + toolDescribe + " and include patch"
	}
	return out
}

// cancelInput names a dispatch to cancel.
type cancelInput struct {
	DispatchID api.DispatchID `json:"dispatchId"`
	Reason     string         `json:"reason,omitempty" jsonschema:"for the people who read the record"`
}

// cancel requests the cancellation of a dispatch.
func (s *Server) cancel(ctx context.Context, c *call, in cancelInput) (dispatchState, error) {
	d, err := withRuntime(ctx, c, func(rt client.Runtime) (api.Dispatch, error) { return rt.Cancel(ctx, in.DispatchID, in.Reason) })
	if err != nil {
		return dispatchState{}, err
	}
	return stateOf(&d), nil
}
