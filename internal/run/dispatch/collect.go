package dispatch

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// maxResult bounds a signed result document.
const maxResult = 16 << 20

var errNoRecord = errors.New("no record of the dispatch")

// collect stores what a worker left and makes the outcome durable. Every
// dispatch whose worker was started ends here.
func (l *lifecycle) collect(ctx context.Context, r row) error {
	ctx = context.WithoutCancel(ctx)
	failpoint.Hit(failpoint.CollectBegin, string(r.record.ID))
	ctx, release := l.cfg.Blobs.Protect(ctx)
	defer release() // by then the row refers to what is stored
	return l.endLatest(ctx, r, func(ctx context.Context, latest row) (outcome, error) {
		if err := l.files.completeRefusals(ctx, latest); err != nil {
			return outcome{}, err
		}
		return l.withCalls(ctx, latest)
	})
}

// withCalls is outcomeOf with the record of the attempt's tool calls.
func (l *lifecycle) withCalls(ctx context.Context, r row) (outcome, error) {
	calls, err := l.cfg.Tools.Seal(ctx, r.record.ID, r.record.Attempt)
	if err != nil {
		return outcome{}, err
	}
	failpoint.Hit(failpoint.CollectCalls, string(r.record.ID))
	o, err := l.outcomeOf(ctx, r)
	o.calls = calls
	return o, err
}

func (l *lifecycle) outcomeOf(ctx context.Context, r row) (outcome, error) {
	c := collector{records: l.records, row: r, dir: l.files.dir(&r)}
	envelope, err := readWork(c.dir, record.WorkResult, maxResult)
	if errors.Is(err, fs.ErrNotExist) {
		l.work.Go(l.cfg.Sweep)
		return c.lost(ctx)
	}
	if err != nil {
		return outcome{}, err
	}
	return c.outcome(ctx, envelope)
}

// collector reads the directory of an attempt whose worker has exited.
type collector struct {
	*records
	row row
	dir string
}

// outcome verifies a worker's result and stores the content that it names.
func (c *collector) outcome(ctx context.Context, envelope []byte) (o outcome, err error) {
	var fence uint64
	if c.row.record.Run != "" {
		m, err := c.manifest(ctx, c.row.record.Manifest)
		if api.CodeOf(err) == api.CodeIntegrity { // without it nothing of the worker's can be verified
			return corrupt("the manifest", err), nil
		}
		if err != nil {
			return o, err
		}
		fence = m.Fence
	}
	result, err := openResult(c.row, envelope, fence)
	if err != nil {
		return corrupt("the worker's result", err), nil
	}
	if err := c.storeContent(ctx, result.Summary); err != nil {
		if bad, ok := errors.AsType[*api.Error](err); ok && bad.Code == api.CodeIntegrity {
			return outcome{event: api.EventFailed, reason: api.ReasonIntegrity, message: bad.Message}, nil
		}
		return o, err
	}
	digest, err := c.cfg.Blobs.Put(ctx, envelope)
	failpoint.Hit(failpoint.CollectResult, string(c.row.record.ID))
	o = outcome{event: result.Outcome, reason: result.Reason, message: result.Message, digest: digest, summary: &result.Summary}
	switch o.event { //nolint:exhaustive // the others need nothing more
	case api.EventCancelled:
		o.cancelBy = c.row.record.CancelBy
	case api.EventNeedsInput:
		m, manifestErr := c.manifest(ctx, c.row.record.Manifest)
		o.answerTime, err = time.Duration(m.Limits.Answer), errors.Join(err, manifestErr)
	}
	return o, err
}

// corrupt is the outcome of an attempt whose documents do not verify.
func corrupt(what string, err error) outcome {
	return outcome{event: api.EventFailed, reason: api.ReasonIntegrity, message: what + ": " + err.Error()}
}

// lost is the outcome of an attempt without a result. Its log and its network record
// are kept.
func (c *collector) lost(ctx context.Context) (outcome, error) {
	o := outcome{event: api.EventFailed, reason: api.ReasonLost, message: strings.TrimSuffix("the worker died without a result: "+c.errorTail(), ": ")}
	if by := c.row.record.CancelBy; by != "" {
		o = outcome{event: api.EventCancelled, cancelBy: by, message: "the worker left no result"}
	}
	sum := &api.ResultSummary{Partial: true}
	network := api.Artifact{}
	var err error
	network.Digest, network.Size, err = c.storeFile(ctx, record.WorkNetwork)
	switch {
	case err == nil && network.Size > 0:
		sum.Network, o.summary = &network, sum
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return o, err
	}
	parts, err := logParts(c.dir)
	if err != nil || len(parts) == 0 {
		return o, err
	}
	o.summary = sum
	for _, p := range parts {
		if p.Digest, p.Size, err = c.storeFile(ctx, filepath.Join(record.WorkLog, record.LogFile(p))); err != nil {
			return o, err
		}
		sum.Log = append(sum.Log, p)
		sum.LogBytes, sum.LogKept = p.Offset+p.Size, sum.LogKept+p.Size
	}
	return o, nil
}

// errorTail is the end of what the worker itself printed: nothing, unless it
// failed.
func (c *collector) errorTail() string {
	b, err := readWork(c.dir, record.WorkErrors, 1<<20)
	if err != nil || len(b) == 0 {
		return ""
	}
	return strings.TrimSpace(string(b[max(0, len(b)-1000):]))
}

// storeFile stores a file of the worker's directory.
func (c *collector) storeFile(ctx context.Context, name string) (api.Digest, int64, error) {
	f, err := openWork(c.dir, name)
	if err != nil {
		return "", 0, err
	}
	digest, size, err := c.cfg.Blobs.PutStream(ctx, f)
	failpoint.Hit(failpoint.CollectBlob, filepath.Join(c.dir, name))
	return digest, size, errors.Join(err, f.Close())
}

// storeContent stores what the result names, and the log. Content that does not
// have its digest is an integrity error.
func (c *collector) storeContent(ctx context.Context, sum api.ResultSummary) error {
	want := map[string]api.Digest{}
	for _, p := range sum.Log {
		want[filepath.Join(record.WorkLog, record.LogFile(p))] = p.Digest
	}
	for _, a := range record.Captured(&sum) {
		name := filepath.Join(record.WorkOut, a.Digest.Hex())
		if a == sum.Network {
			name = record.WorkNetwork
		}
		want[name] = a.Digest
	}
	for name, digest := range want {
		got, _, err := c.storeFile(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return api.Errorf(api.CodeIntegrity, "captured content %s: %w", digest.Short(), err)
		}
		if err != nil {
			return err
		}
		if got != digest {
			return api.Errorf(api.CodeIntegrity, "captured content: digest %s, the result says %s", got.Short(), digest.Short())
		}
	}
	return nil
}

// openResult verifies a result: signed with the key that the log binds to this
// attempt, about this attempt, and made under its lease.
func openResult(r row, envelope []byte, fence uint64) (result record.Result, err error) {
	key, err := decodeKey(r.key)
	if err != nil {
		return result, err
	}
	payload, _, err := seal.Verify(envelope, seal.Result, seal.RootOf(seal.Key{ID: seal.IDOf(key), Public: key}))
	if err != nil {
		return result, err
	}
	if err := canon.DecodeExact(payload, &result); err != nil {
		return result, err
	}
	return result, result.Check(r.record.ID, r.record.Attempt, r.record.Manifest, fence)
}
