package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/capture"
	"github.com/bailiwick-dev/bailiwick/internal/snapshot"
)

// pinSource returns the commit that a source means now.
func (s *Service) pinSource(ctx context.Context, p snapshot.Snapshot, from api.SourceRequest) (string, error) {
	src, _, err := p.Revision.Source(from.Name)
	if err != nil {
		return "", err
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
		return "", unstorable(err) // that is not the caller's to mend
	}
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "source %q: %w", src.Name, err)
	}
	return pinned, nil
}

// inputSchema returns what the input of a subagent is held against; nil:
// nothing.
func inputSchema(sub *api.Subagent) (*jsonschema.Resolved, error) {
	if len(sub.Input) == 0 {
		return nil, nil //nolint:nilnil // a subagent need not have one
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(sub.Input, &schema); err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "subagent %q: input schema: %w", sub.Name, err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "subagent %q: input schema: %w", sub.Name, err)
	}
	return resolved, nil
}

func checkInput(schema *jsonschema.Resolved, sub *api.Subagent, input []byte) error {
	if schema == nil {
		return nil
	}
	var value any
	if err := json.Unmarshal(input, &value); err != nil {
		return api.Errorf(api.CodeInvalid, "input: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return api.Errorf(api.CodeInvalid, "input does not fit the schema of subagent %q: %w", sub.Name, err)
	}
	return nil
}

// checkEnvs refuses envs of which two give one variable different values, and
// says which of them is one too many.
func (a *ask) checkEnvs() (int, error) {
	type origin struct {
		env   api.Name
		value string
	}
	seen := map[string]origin{}
	for i, n := range a.request.Envs {
		e, _, err := a.snapshot.Revision.Env(n)
		if err != nil {
			return i, err
		}
		for k, v := range e.Values {
			if o, ok := seen[k]; ok && o.value != v {
				return i, api.Errorf(api.CodeInvalid, "envs %q and %q both set %s, to different values", o.env, n, k)
			}
			seen[k] = origin{n, v}
		}
	}
	return 0, nil
}
