package toolhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mcpclient"
)

// accept redacts an answer.
func (h *host) accept(got mcpclient.Answer) (record.ToolReply, error) {
	text, found := h.redactor().Bytes(got.Result)
	if found {
		var err error
		if text, err = canon.Canonicalize(text); err != nil {
			return record.ToolReply{}, &mcpclient.InvalidError{Err: errors.New("it has a secret of the server that could not be removed")}
		}
	}
	return record.ToolReply{Answer: text, IsError: got.IsError}, nil
}

// failedAnswer is the answer of a tool that failed with a text.
func failedAnswer(text string) record.ToolReply {
	quoted, err := canon.Marshal(text)
	if err != nil {
		quoted = []byte(`"the tool failed"`)
	}
	return record.ToolReply{Answer: json.RawMessage(`{"content":[{"text":` + string(quoted) + `,"type":"text"}],"isError":true}`), IsError: true}
}

// command runs the declared command in a jail of its own, with the arguments as its input.
func (h *host) command(ctx context.Context, d *api.ToolDefinition, use *record.ToolUse) (r record.ToolReply, err error) {
	out := &output{full: make(chan struct{})}
	p, err := h.run(ctx, h.start.Server.Run.Command, bytes.NewReader(use.Arguments), out)
	if err != nil {
		return r, &mcpclient.UnsentError{Err: err}
	}
	select {
	case <-p.exited:
	case <-out.full:
	case <-ctx.Done():
	}
	p.stop()
	<-p.exited
	code := p.exit.Code
	if p.exit.Signal != 0 {
		code = 128 + int(p.exit.Signal)
	}
	switch _, words := h.says.said(); {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case len(out.text) > api.MaxToolAnswer:
		return r, &mcpclient.InvalidError{Err: fmt.Errorf("the command wrote more than %d bytes", api.MaxToolAnswer)}
	case p.err != nil:
		return r, &mcpclient.UnsentError{Err: fmt.Errorf("the command could not be run: %w", p.err)}
	case code != 0:
		return failedAnswer(strings.TrimSpace(fmt.Sprintf("the command failed with exit status %d\n%s", code, words))), nil
	}
	got, err := commandAnswer(d, out.text)
	if err != nil {
		return r, &mcpclient.InvalidError{Err: err}
	}
	return h.accept(got)
}

// output keeps what a command writes, up to just above the limit. full is closed then.
type output struct {
	text []byte // not a bytes.Buffer: io.Copy would fill it without a bound
	full chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	room := api.MaxToolAnswer + 1 - len(o.text)
	o.text = append(o.text, p[:min(len(p), room)]...)
	if len(p) < room {
		return len(p), nil
	}
	close(o.full)
	return 0, io.ErrShortWrite // nothing more is written
}

// commandAnswer makes an answer of the output of a command: with an output schema it is
// one JSON object, and else text.
func commandAnswer(d *api.ToolDefinition, out []byte) (a mcpclient.Answer, err error) {
	if !utf8.Valid(out) {
		return a, errors.New("its output is not UTF-8")
	}
	structured := ""
	if d.OutputSchema != nil {
		if a.Structured, err = canon.Canonicalize(out); err != nil {
			return a, fmt.Errorf("its output is not strict JSON: %w", err)
		}
		structured = `,"structuredContent":` + string(a.Structured)
	}
	text, err := canon.Marshal(strings.TrimSuffix(string(out), "\n"))
	a.Result = json.RawMessage(`{"content":[{"text":` + string(text) + `,"type":"text"}]` + structured + `}`)
	if err == nil && len(a.Result) > api.MaxToolAnswer {
		err = fmt.Errorf("it has %d bytes in canonical form, the limit is %d", len(a.Result), api.MaxToolAnswer)
	}
	return a, err
}
