package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// resultFile is the output that the output schema describes.
const resultFile = record.ResultOutput

// maxValue bounds the structured result, which becomes part of the record.
const maxValue = 256 << 10

// harvest captures the patch and the outputs from a workspace without running
// processes. It returns the tree of base and patch.
func (a *attempt) harvest(ctx context.Context, ws *workspace, j *jail.Jail) (tree string, err error) {
	failpoint.Hit(failpoint.WorkerCapture, a.cfg.Dir)
	err = a.summary.step("capture", func() error {
		if err := os.Mkdir(filepath.Join(a.cfg.Dir, record.WorkOut), 0o700); err != nil {
			return err
		}
		var patchErr error
		if ws.baseline != nil { // nil when the agent has not run
			tree, patchErr = a.takePatch(ctx, ws, j)
		}
		return errors.Join(patchErr, a.summary.takeOutputs(ctx, j, a.manifest.Limits.Disk))
	})
	failpoint.Hit(failpoint.WorkerCaptured, a.cfg.Dir)
	var limit *capture.LimitError
	var f *failure
	switch {
	case errors.As(err, &limit):
		return "", fail(api.ReasonLimit, "%w", err)
	case err != nil && !errors.As(err, &f):
		return "", fail(api.ReasonOutput, "%w", err)
	}
	return tree, err
}

func (a *attempt) takePatch(ctx context.Context, ws *workspace, j *jail.Jail) (string, error) {
	res, err := ws.repo.Capture(ctx, j.Workspace(), ws.baseline)
	a.summary.LeftOut = append(a.summary.LeftOut, res.LeftOut...)
	a.summary.Captured = err == nil
	if res.Secrets {
		a.summary.redacted("patch")
	}
	if err != nil || res.PatchFile == "" {
		return res.Tree, err
	}
	if a.manifest.Tier == api.Observe {
		a.summary.LeftOut = append(a.summary.LeftOut, api.LeftOut{Path: ".", Why: fmt.Sprintf("%d changed files: a subagent of tier observe returns no patch", len(res.Files))})
		return res.Base, os.Remove(res.PatchFile)
	}
	for _, link := range res.LinksOut {
		a.summary.LeftOut = append(a.summary.LeftOut, api.LeftOut{Path: link, Why: "a symbolic link that leaves the tree; it is in the patch, review it"})
	}
	f, err := os.Open(res.PatchFile)
	if err != nil {
		return "", err
	}
	kept, err := a.summary.keep(f, "patch")
	if err := errors.Join(err, f.Close(), os.Remove(res.PatchFile)); err != nil {
		return "", err
	}
	a.summary.Patch, a.summary.Files, a.changed = &kept, res.Files[:min(len(res.Files), api.MaxFiles)], res.Changed
	return res.Tree, nil
}

// binaryStart is how much of a file decides whether it is binary: a NUL byte in it, as
// for git.
const binaryStart = 8000

func (s *summary) takeOutputs(ctx context.Context, j *jail.Jail, disk api.Bytes) error {
	cfg := capture.OutputConfig{Dir: outputsDir, MaxTotal: min(maxOutputs, int64(disk)), Setting: "limits.disk"}
	left, err := capture.Outputs(ctx, j.Workspace(), cfg, func(o capture.Output, r io.Reader) error {
		start := bufio.NewReaderSize(r, binaryStart)
		head, _ := start.Peek(binaryStart) // an error comes again
		kept, err := s.keep(start, outputsDir+"/"+o.Path)
		if err != nil {
			return err
		}
		if kept.Redacted && bytes.IndexByte(head, 0) >= 0 {
			s.LeftOut = append(s.LeftOut, api.LeftOut{Path: outputsDir + "/" + o.Path, Why: "a binary file that contains a secret"})
			return os.Remove(filepath.Join(s.dir, record.WorkOut, kept.Digest.Hex()))
		}
		kept.Path = o.Path
		s.Outputs = append(s.Outputs, kept)
		return nil
	})
	s.LeftOut = append(s.LeftOut, left...)
	return err
}

// checkOutput validates the structured result against the subagent's output
// schema.
func (s *summary) checkOutput(of api.Subagent) error {
	schema := of.Output
	if len(schema) == 0 {
		return nil
	}
	var found *api.Artifact
	for i, o := range s.Outputs {
		if o.Path == resultFile {
			found = &s.Outputs[i]
		}
	}
	if found == nil {
		return fail(api.ReasonOutput, "outputs/%s is missing; the output schema of subagent %q requires it", resultFile, of.Name)
	}
	if found.Size > maxValue {
		return fail(api.ReasonOutput, "outputs/%s has %d bytes: at most %d", resultFile, found.Size, maxValue)
	}
	b, err := blob.ReadBounded(filepath.Join(s.dir, record.WorkOut, found.Digest.Hex()), maxValue)
	if err != nil {
		return fail(api.ReasonOutput, "outputs/%s: %w", resultFile, err)
	}
	value, err := canon.Canonicalize(b)
	if err != nil {
		return fail(api.ReasonOutput, "outputs/%s: %w", resultFile, err)
	}
	if err := validate(schema, value); err != nil {
		return fail(api.ReasonOutput, "outputs/%s does not match the output schema: %w", resultFile, err)
	}
	s.Value = value
	return nil
}

func validate(schema, value []byte) error {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return err
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return err
	}
	var v any
	if err := json.NewDecoder(bytes.NewReader(value)).Decode(&v); err != nil {
		return err
	}
	if err := resolved.Validate(v); err != nil {
		return errors.New(canon.SchemaText(err))
	}
	return nil
}
