package account

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Fetch runs bailiwick-fetch, p, until it has answered. It ends with ctx.
func Fetch(ctx context.Context, p Program, req record.FetchRequest) (result record.FetchResult, err error) {
	line, err := json.Marshal(req) //nolint:gosec // G117: for the pipe to the process
	if err != nil {
		return result, err
	}
	answer, err := Ask(ctx, p, append(line, '\n'))
	if err == nil {
		if err = canon.Decode(bytes.TrimSpace(answer), &result); err != nil {
			err = fmt.Errorf("%s: %w", filepath.Base(p.Path), err)
		}
	}
	return result, err
}

// Ask runs p with a request on its standard input until it has answered on its standard output, in at most record.MaxFetchLine bytes.
// It ends with ctx.
func Ask(ctx context.Context, p Program, request []byte) (result []byte, err error) {
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
	process, err := Start(p)
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
	_, err = in[1].Write(request) // and stays open until the process has exited
	_, copyErr := io.Copy(answer, out[0])
	<-read
	state, waitErr := process.Wait()
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	if err = errors.Join(err, copyErr, waitErr); err == nil && !state.Success() {
		err = fmt.Errorf("%s", state)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(p.Path), err, last.Text())
	}
	return answer.Bytes(), nil
}
