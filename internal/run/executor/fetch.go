package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// ErrFetch marks what a server or a credential is the cause of.
var ErrFetch = errors.New("fetch")

// Fetch has a process of its own fetch a commit of a source by URL into the state, and
// returns the full name of the commit. The process ends with ctx, and with the service.
func (l *Local) Fetch(ctx context.Context, req record.FetchRequest) (string, error) {
	line, err := json.Marshal(req) //nolint:gosec // G117: for the pipe to the process
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, l.Fetcher) //nolint:gosec // G204: our own program
	cmd.Env, cmd.Dir, cmd.WaitDelay = l.Env, "/", time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, said := &cuttext.Head{Most: record.MaxFetchLine}, &cuttext.Head{Most: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, said
	in, err := cmd.StdinPipe() // open until the process has exited
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start %s: %w", l.Fetcher, err)
	}
	_, err = in.Write(append(line, '\n'))
	if waited := cmd.Wait(); ctx.Err() != nil {
		return "", context.Cause(ctx)
	} else if err = errors.Join(err, waited); err != nil {
		return "", fmt.Errorf("%s: %w: %s", l.Fetcher, err, said.Text())
	}
	var result record.FetchResult
	if err := canon.Decode(bytes.TrimSpace(out.Bytes()), &result); err != nil {
		return "", fmt.Errorf("%s: %w", l.Fetcher, err)
	}
	if result.Error != "" {
		return "", fmt.Errorf("%w %s: %s", ErrFetch, req.Source.Repo, result.Error)
	}
	return result.Commit, nil
}
