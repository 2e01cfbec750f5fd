package executor

import (
	"context"
	"errors"
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
	got, handles, err := h.ask(ctx, launch.Request{Kind: launch.KindTools, Fetch: &launch.Order{Revision: s.Revision, Source: s.Name}, Sealed: sealed}, in, out, errs)
	if err != nil {
		return nil, err
	}
	if len(handles) != 1 || len(got.Running) != 1 {
		unixframe.CloseAll(handles)
		return nil, errNoAnswer
	}
	handle, who := handles[0], got.Running[0]
	return toolHost{&launch.Process{
		PID: got.PID, Handle: handle,
		Wait: func() error { return errors.Join(awaitExit(handle), handle.Close()) },
		Kill: func() error { return h.End(context.WithoutCancel(ctx), who) },
	}}, nil
}
