package cli

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/readiness"
	"github.com/bailiwick-dev/bailiwick/internal/front/runverbs"
)

// readinessOf returns what the caller lacks for a dispatch, by the service of c.
func (t *tree) readinessOf(ctx context.Context, c *client.Conn, starts bool) (readiness.List, error) {
	return readiness.Of(ctx, readiness.Config{
		Dirs: t.Dirs, Conn: c, Starts: starts,
		HasCommit: func(ctx context.Context, repo string) bool { return runverbs.HasCommit(ctx, t.Env, repo) },
	})
}

// canAnything prints what the caller lacks for its first dispatch.
func (t *findVerbs) canAnything(ctx context.Context) error {
	c := t.connect(true)
	defer c.Close()
	l, err := t.readinessOf(ctx, c, t.starts())
	if err != nil {
		return err
	}
	err = t.Emit(l, "", func() {
		for _, n := range l.Needs {
			if n.Met {
				t.Row(n.Name, "ok: %s", n.Detail)
				continue
			}
			t.Row(n.Name, "MISSING: %s", n.Detail)
			t.Row("", "run: %s", n.Run)
		}
		if l.Ready {
			t.Row("next", "%s", l.Next)
		}
	})
	if err == nil && !l.Ready {
		err = console.ExitFor(api.CodeDenied)
	}
	return err
}
