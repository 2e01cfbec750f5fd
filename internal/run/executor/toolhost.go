package executor

import (
	"cmp"
	"context"
	"os"

	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolclient"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// ToolHosts has the launcher start tool hosts: it is a toolclient.Starter. The service has
// no value of their secrets.
type ToolHosts struct{ *Remote }

type toolHost struct {
	*launch.Process
}

// Wait implements toolclient.Process.
func (p toolHost) Wait() { _ = p.Process.Wait() }

// Kill implements toolclient.Process.
func (p toolHost) Kill() error { return p.Process.Kill() }

// Start implements toolclient.Starter.
func (h ToolHosts) Start(ctx context.Context, s toolclient.Server, in, out, errs *os.File) (toolclient.Process, error) {
	sealed, err := h.sealed(s.Refs...)
	if err == nil {
		err = h.follow(ctx)
	}
	if err != nil {
		return nil, err
	}
	a, handles, err := h.ask(ctx, launch.Request{Kind: launch.KindTools, Fetch: &launch.Order{Revision: s.Revision, Source: s.Name}, Sealed: sealed}, in, out, errs)
	if err != nil || len(a.Running) != 1 {
		unixframe.CloseAll(handles)
		return nil, cmp.Or(err, errNoAnswer)
	}
	p, err := h.process(ctx, a.Running[0], a, handles)
	if err != nil {
		return nil, err
	}
	return toolHost{p}, nil
}
