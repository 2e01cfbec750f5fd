package cli

import (
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
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
