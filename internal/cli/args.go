package cli

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/console"
)

func names(a *console.Args, kind string, list []string) []api.Name {
	var out []api.Name
	for _, s := range list {
		out = append(out, a.Name(kind, s))
	}
	return out
}

// parseSource parses NAME or NAME@COMMIT.
func parseSource(a *console.Args, s string) *api.SourceRequest {
	if s == "" {
		return nil
	}
	name, commit, named := strings.Cut(s, "@")
	if name == "" || named && commit == "" {
		// An empty variable must not mean the newest commit.
		a.Fail(api.Errorf(api.CodeInvalid, "--source %s: want NAME or NAME@COMMIT", s))
	}
	return &api.SourceRequest{Name: a.Name("source", name), Commit: commit}
}

// readInput reads an input object: JSON text, @FILE, or - for standard input.
// The members of set (KEY=TEXT) are added to it.
func readInput(a *console.Args, text string, set []string, stdin io.Reader) json.RawMessage {
	raw, err := console.ReadInput(text, stdin)
	a.Fail(err)
	members := map[string]json.RawMessage{}
	if len(raw) > 0 {
		if _, err := canon.Canonicalize(raw); err != nil {
			a.Fail(api.Errorf(api.CodeInvalid, "input: %w", err))
		} else if err := json.Unmarshal(raw, &members); err != nil || members == nil {
			a.Fail(api.Errorf(api.CodeInvalid, "input: want a JSON object"))
		}
	}
	for _, kv := range set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			a.Fail(api.Errorf(api.CodeInvalid, "--set %s: want KEY=TEXT", kv))
			continue
		}
		members[key], err = json.Marshal(value)
		a.Fail(err)
	}
	if a.Err != nil {
		return nil
	}
	out, err := json.Marshal(members)
	a.Fail(err)
	return out
}
