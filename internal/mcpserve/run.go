package mcpserve

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// submitInput is a plan.
type submitInput struct {
	Plan  object `json:"plan" jsonschema:"the tasks and what they depend on"`
	RunID string `json:"runId,omitempty" jsonschema:"an id of your choice; the same plan with the same id is not run twice"`
}

func (s *Server) submit(ctx context.Context, c *call, in submitInput) (api.Run, error) {
	if in.RunID != "" {
		if err := checkRun(in.RunID); err != nil {
			return api.Run{}, err
		}
	}
	return oneRun(ask(ctx, c, func(rt client.Runtime) (api.Run, error) {
		return rt.Submit(ctx, api.RunRequest{Plan: json.RawMessage(in.Plan), RunID: api.RunID(in.RunID)})
	}))
}

// runInput names a run.
type runInput struct {
	RunID string `json:"runId"`
}

func (s *Server) status(ctx context.Context, c *call, in runInput) (api.Run, error) {
	if err := checkRun(in.RunID); err != nil {
		return api.Run{}, err
	}
	return oneRun(ask(ctx, c, func(rt client.Runtime) (api.Run, error) { return rt.Run(ctx, api.RunID(in.RunID), "", 0) }))
}

// maxRunID bounds the id of a run.
const maxRunID = 128

// checkRun refuses what is no id of a run, and would be another call of the
// service's as part of a path.
func checkRun(id string) error {
	if id == "" || len(id) > maxRunID || strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return &invalidInput{api.Errorf(api.CodeInvalid, "runId %q: want 1 to %d of a-z A-Z 0-9 - _", cut(id, 64), maxRunID)}
	}
	return nil
}

func oneRun(r api.Run, err error) (api.Run, error) {
	if r.Tasks == nil {
		r.Tasks = []api.RunTask{}
	}
	return r, err
}

// watchInput says behind which event to watch a run.
type watchInput struct {
	RunID          string `json:"runId"`
	After          string `json:"after,omitempty" jsonschema:"next of the answer before; from the beginning when absent"`
	TimeoutSeconds int    `json:"timeoutSeconds,omitempty" jsonschema:"seconds to wait for an event, at most 50; 0 or absent: return what is there"`
}

func (watchInput) bounds() map[string]span { return map[string]span{"timeoutSeconds": {0, maxWait}} }

// watch returns the events behind a cursor, waiting for the first of them.
func (s *Server) watch(ctx context.Context, c *call, in watchInput) (api.RunEvents, error) {
	if err := checkRun(in.RunID); err != nil {
		return api.RunEvents{}, err
	}
	begun := s.cfg.Now()
	until := begun.Add(time.Duration(in.TimeoutSeconds) * time.Second)
	for {
		left := max(0, until.Sub(s.cfg.Now()))
		events, err := ask(ctx, c, func(rt client.Runtime) (api.RunEvents, error) {
			return rt.RunEvents(ctx, api.RunID(in.RunID), in.After, min(left, lookTime))
		})
		if err != nil || len(events.Events) > 0 || events.Done || left == 0 {
			if events.Events == nil {
				events.Events = []api.RunEvent{}
			}
			return events, err
		}
		c.progress(ctx, s.cfg.Now().Sub(begun).Seconds(), "run "+in.RunID+": nothing new")
	}
}
