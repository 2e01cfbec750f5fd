package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// Fetch has a process of its own fetch a commit of a source by URL into the state, with the
// value of the source's secret. The process ends with ctx, and with this one.
func (l *Launcher) Fetch(ctx context.Context, o Order, _, secret string) (record.FetchResult, error) {
	return l.fetch(ctx, o, secret, nil)
}

// fetch is Fetch. In mode system the launcher reads the value itself, perhaps from sealed.
func (l *Launcher) fetch(ctx context.Context, o Order, secret string, sealed map[api.Name][]byte) (record.FetchResult, error) {
	req := record.FetchRequest{Commit: o.Commit, Secret: secret}
	var of api.Secret
	if err := l.revisions.read(ctx, o.Revision, l.sys != nil, func(_ *catalog.Catalog, rev, head *catalog.Revision) (err error) {
		if head != nil && rev.Digest() != head.Digest() {
			return fmt.Errorf("revision %d is not in force: try again", rev.Number())
		}
		if req.Source, _, err = rev.Source(o.Source); err == nil && req.Source.Secret != "" {
			of, _, err = rev.Secret(req.Source.Secret)
		}
		return err
	}); err != nil {
		return record.FetchResult{}, err
	}
	if !api.IsRemote(req.Source.Repo) {
		return record.FetchResult{}, api.Errorf(api.CodeInvalid, "source %q is not fetched: it is no URL", o.Source)
	}
	p := account.Program{Path: l.cfg.Fetcher, Env: l.cfg.Env}
	if l.sys != nil {
		if of.Ref != "" {
			place, err := api.ParseSecretRef(of.Ref)
			if err == nil {
				req.Secret, err = l.sys.value(l.sys.marks.known(), place, sealed)
			}
			if err != nil {
				return record.FetchResult{}, api.Errorf(api.CodeInvalid, "source %q: secret %q: %w", o.Source, of.Name, err)
			}
		}
		b, err := l.sys.blocks.take(Running{Dispatch: api.DispatchID("fetch-" + string(o.Source)), Attempt: 1}, account.Limits{Memory: 1 << 30, Processes: 128, CPU: 1})
		if err != nil {
			return record.FetchResult{}, err
		}
		defer b.lock.Close() //nolint:errcheck // held until the process has ended
		mounts, err := account.Open(l.cfg.UID, []account.Path{{At: l.cfg.Dirs.Fetched(req.Source), Write: true}})
		if err != nil {
			return record.FetchResult{}, err
		}
		defer mounts.Close() //nolint:errcheck // only opened to be mounted
		p.Block, p.Group, p.Mounts = &b.Block, b.group, mounts
	}
	result, err := runFetch(ctx, p, req)
	if result.Error != "" {
		result.Error = req.Source.Repo + ": " + result.Error
	}
	return result, err
}

// runFetch runs bailiwick-fetch.
func runFetch(ctx context.Context, p account.Program, req record.FetchRequest) (result record.FetchResult, err error) {
	line, err := json.Marshal(req) //nolint:gosec // G117: for the pipe to the process
	if err != nil {
		return result, err
	}
	pipes := [3][2]*os.File{}
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return result, err
		}
		defer pipes[i][0].Close() //nolint:errcheck // the process has its own copies
		defer pipes[i][1].Close() //nolint:errcheck // likewise
	}
	in, out, said := pipes[0], pipes[1], pipes[2]
	p.File = []*os.File{in[0], out[1], said[1]}
	process, err := account.Start(p)
	if err != nil {
		return result, err
	}
	defer process.Handle.Close() //nolint:errcheck // only a handle
	stop := context.AfterFunc(ctx, func() { _ = process.Kill() })
	defer stop()
	_ = errors.Join(in[0].Close(), out[1].Close(), said[1].Close())
	answer, last := &cuttext.Head{Most: record.MaxFetchLine}, &cuttext.Head{Most: 4 << 10}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(last, said[0])
	}()
	_, err = in[1].Write(append(line, '\n')) // and stays open until the process has exited
	_, copyErr := io.Copy(answer, out[0])
	<-read
	state, waitErr := process.Wait()
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	if err = errors.Join(err, copyErr, waitErr); err == nil && !state.Success() {
		err = fmt.Errorf("%s", state)
	}
	if err == nil {
		err = canon.Decode(bytes.TrimSpace(answer.Bytes()), &result)
	}
	if err != nil {
		return record.FetchResult{}, fmt.Errorf("%s: %w: %s", filepath.Base(p.Path), err, last.Text())
	}
	return result, nil
}
