package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/export"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// Tree is what the server reads of the tree over the log.
type Tree interface {
	Latest() (signed []byte, c logproof.Checkpoint)
	Wait(ctx context.Context, size uint64) error
	InclusionProof(ctx context.Context, index, size uint64) ([]logproof.Hash, error)
	Files() fs.FS
	Check(ctx context.Context) (uint64, error)
}

// Evidence makes evidence bundles.
type Evidence interface {
	Bundle(ctx context.Context, req export.Request) (*bundle.Bundle, error)
	Signed(ctx context.Context, seq uint64) ([]byte, error)
}

// coverTime is how long the proof of an entry waits for a checkpoint that covers
// it.
const coverTime = 5 * time.Second

// logCalls answers the calls about the audit log and evidence.
type logCalls struct{ cfg *Config }

func (c *logCalls) handlers() map[api.Call]handler {
	return map[api.Call]handler{
		api.CallLog:           c.entries,
		api.CallLogCheckpoint: document(c.checkpoint),
		api.CallLogTile:       c.tile,
		api.CallLogProof:      document(c.proof),
		api.CallLogCheck:      show(c.check),
		api.CallEvidence:      c.evidence,
	}
}

// checkpoint returns the newest signed checkpoint, exactly as signed. A caller
// that waits gets one that covers all that is durable now, with the attestations
// of what has ended.
func (c *logCalls) checkpoint(ctx context.Context, r *request) ([]byte, error) {
	q := r.query()
	wait := q.wait()
	if q.err != nil {
		return nil, q.err
	}
	if wait > 0 {
		if err := c.cover(ctx, wait); err != nil {
			return nil, err
		}
	}
	signed, _ := c.cfg.Tree.Latest()
	if signed == nil {
		return nil, api.Errorf(api.CodeNotFinished, "no checkpoint has been signed yet").WithHint("retry in a second")
	}
	return signed, nil
}

func (c *logCalls) cover(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err := c.cfg.Dispatch.AwaitAttestations(ctx); err != nil {
		return api.Errorf(api.CodeNotFinished, "%w", err).WithHint("see why in the service's log; then run the command again")
	}
	n, err := c.cfg.Ledger.Len(ctx)
	if err == nil {
		err = c.cfg.Tree.Wait(ctx, n)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		_, newest := c.cfg.Tree.Latest()
		return export.NotCovered(err, wait, newest.Size, n)
	}
	return err
}

// tile sends a file of the log: checkpoint, tile/L/N or tile/entries/N, the
// names of C2SP tlog-tiles; and signed/N, the signed documents that entry N names.
func (c *logCalls) tile(w http.ResponseWriter, r *request) error {
	name := r.PathValue("path")
	if seq, ok := logproof.ParseSignedName(name); ok {
		b, err := c.cfg.Evidence.Signed(r.Context(), seq)
		if err != nil {
			return err
		}
		return send(w, io.NopCloser(bytes.NewReader(b)), int64(len(b)))
	}
	f, err := c.cfg.Tree.Files().Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return api.Errorf(api.CodeNotFound, "the log has no file %.200q", name)
	}
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return send(w, f, st.Size())
}

// proof returns the inclusion proof of an entry in the format of C2SP
// tlog-proof, with the newest checkpoint.
func (c *logCalls) proof(ctx context.Context, r *request) ([]byte, error) {
	q := r.query()
	if !q.values.Has("entry") {
		q.fail("entry: want the number of an entry")
	}
	entry := uint64(q.number("entry", 0, 0, 1<<53)) //nolint:gosec // G115: number checks the range
	if q.err != nil {
		return nil, q.err
	}
	durable, err := c.cfg.Ledger.Len(ctx)
	if err != nil {
		return nil, err
	}
	if entry >= durable {
		return nil, api.Errorf(api.CodeNotFound, "the log has no entry #%d", entry)
	}
	covered, cancel := context.WithTimeout(ctx, coverTime)
	defer cancel()
	if err := c.cfg.Tree.Wait(covered, entry+1); err != nil {
		return nil, api.Errorf(api.CodeNotFinished, "entry #%d is durable, but no checkpoint covers it yet: %w", entry, err).WithHint("see: bailiwick status")
	}
	signed, checkpoint := c.cfg.Tree.Latest()
	hashes, err := c.cfg.Tree.InclusionProof(ctx, entry, checkpoint.Size)
	if err != nil {
		return nil, err
	}
	return logproof.Proof{Index: entry, Hashes: hashes, Signed: signed}.Encode(), nil
}

// check reads and hashes every entry of the log again and compares it with the
// signed tree, and the rows of the state with the entries.
func (c *logCalls) check(ctx context.Context, _ *request) (result api.LogCheck, err error) {
	if result.Entries, err = c.cfg.Tree.Check(ctx); err == nil {
		result.Chained, err = c.cfg.Ledger.CheckChains(ctx)
	}
	if err == nil && c.cfg.CheckState != nil {
		err = c.cfg.CheckState(ctx)
	}
	if err != nil {
		result.Wrong = err.Error()
	}
	return result, ctx.Err()
}

// evidence streams a bundle. Reading it is logged first, because a bundle tells
// its reader who did what.
func (c *logCalls) evidence(w http.ResponseWriter, r *request) error {
	req, err := evidenceRequest(r)
	if err == nil {
		err = (scopes{c.cfg}).resolve(r, &req.Run, &req.Dispatch)
	}
	if err != nil {
		return err
	}
	d, err := c.cfg.decide(r.Context(), r.caller, string(policy.ActionAuditRead))
	if err != nil {
		return err
	}
	operation := "evidence of run " + string(req.Run)
	if req.Dispatch != "" {
		operation = "evidence of dispatch " + string(req.Dispatch)
	}
	if _, err := c.cfg.Ledger.Commit(r.Context(), d, record.Entry{Kind: record.KindAuditRead, Detail: record.Access{Operation: operation}}, nil); err != nil {
		return err
	}
	b, err := c.cfg.Evidence.Bundle(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := bundle.Write(w, b); err != nil {
		panic(http.ErrAbortHandler) // a truncated body must not look whole
	}
	return nil
}

func evidenceRequest(r *request) (req export.Request, err error) {
	q := r.query()
	for name, list := range q.values {
		if name != "checkpoint" && (len(list) != 1 || name != "run" && name != "dispatch" && name != "blobs" && name != "wait") {
			return req, malformed(api.CodeInvalid, "%.40s: unknown or repeated parameter", name)
		}
	}
	if q.values.Has("run") == q.values.Has("dispatch") {
		return req, malformed(api.CodeInvalid, "name a run or a dispatch")
	}
	if q.values.Has("run") {
		req.Run, err = api.ParseRunID(q.values.Get("run"))
	} else {
		req.Dispatch, err = api.ParseDispatchID(q.values.Get("dispatch"))
	}
	if err != nil {
		return req, malformed(api.CodeInvalid, "%w", err)
	}
	req.Blobs, req.Wait = q.flag("blobs"), q.wait()
	if q.err != nil {
		return req, q.err
	}
	checkpoints := q.values["checkpoint"]
	if len(checkpoints) > api.MaxCheckpoints {
		return req, malformed(api.CodeInvalid, "%d checkpoints, more than %d", len(checkpoints), api.MaxCheckpoints)
	}
	for _, text := range checkpoints {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return req, malformed(api.CodeInvalid, "checkpoint: %w", err)
		}
		req.From = append(req.From, b)
	}
	return req, nil
}
