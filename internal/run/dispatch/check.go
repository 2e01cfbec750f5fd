package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// pin returns the commit that a source refers to now. A source by URL has it in
// Dirs.Repository then.
func (s *sources) pin(ctx context.Context, p inforce.Snapshot, from api.SourceRequest) (string, error) {
	src, _, err := p.Revision.Source(from.Name)
	if err != nil {
		return "", err
	}
	if api.IsRemote(src.Repo) {
		return s.fetch(ctx, p, src, from.Commit)
	}
	repo, err := capture.OpenSource(ctx, src.Repo)
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "source %q: %w", src.Name, err)
	}
	commit := from.Commit
	if commit == "" {
		commit = "HEAD"
	}
	pinned, err := repo.Resolve(ctx, commit, s.cfg.Dirs.Scratch())
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "", storeError(err) // the caller cannot fix that
	}
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "source %q: %w", src.Name, err)
	}
	return pinned, nil
}

// inputSchema returns the input schema of a subagent; nil when it has none.
func inputSchema(agent *api.Subagent) (*jsonschema.Resolved, error) {
	if len(agent.Input) == 0 {
		return nil, nil //nolint:nilnil // a subagent need not have one
	}
	var schema jsonschema.Schema
	err := json.Unmarshal(agent.Input, &schema)
	var resolved *jsonschema.Resolved
	if err == nil {
		resolved, err = schema.Resolve(nil)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "subagent %q: input schema: %w", agent.Name, err)
	}
	return resolved, nil
}

// checkInputSize refuses an input that no worker reads.
func checkInputSize(input []byte) error {
	if len(input) > api.MaxInput {
		return api.Errorf(api.CodeTooLarge, "input of %d bytes: at most %d", len(input), api.MaxInput)
	}
	return nil
}

func checkInput(schema *jsonschema.Resolved, agent *api.Subagent, input []byte) error {
	if schema == nil {
		return nil
	}
	var value any
	if err := json.Unmarshal(input, &value); err != nil {
		return api.Errorf(api.CodeInvalid, "input: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return api.Errorf(api.CodeInvalid, "input does not match the schema of subagent %q: %s", agent.Name, canon.SchemaText(err))
	}
	return nil
}

// checkEnvs refuses envs that set one variable to different values, or to a secret
// and something else, and returns the index of the env that conflicts with an earlier
// one.
func (x subject) checkEnvs() (int, error) {
	type origin struct {
		env    api.Name
		value  string
		secret bool
	}
	seen := map[string]origin{}
	for i, n := range x.request.Envs {
		e, _, err := x.snapshot.Revision.Env(n)
		if err != nil {
			return i, err
		}
		now := map[string]origin{}
		for k, v := range e.Values {
			now[k] = origin{n, v, false}
		}
		for k := range e.Secrets {
			now[k] = origin{env: n, secret: true}
		}
		for k, v := range now {
			switch o, ok := seen[k]; {
			case ok && (o.secret || v.secret):
				return i, api.Errorf(api.CodeInvalid, "envs %q and %q both set %s, one of them to a secret", o.env, n, k)
			case ok && o.value != v.value:
				return i, api.Errorf(api.CodeInvalid, "envs %q and %q both set %s, to different values", o.env, n, k)
			}
			seen[k] = v
		}
	}
	return 0, nil
}
