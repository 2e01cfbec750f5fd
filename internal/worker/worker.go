// Package worker supervises one attempt of one dispatch, from the signed
// manifest to the sealed result.
//
// It is the parent of the jail. It verifies before it runs, captures from
// outside what the jail left, and writes the whole truth about the attempt to
// its directory, so that the service can be killed and started again beside
// it. It has no access to the state database or to another dispatch, cannot
// write the catalog, and has no effect outside its directory until the
// service has said that the start is durable (R-A2, R-D2).
//
// Carries R-D3 (truthful outcomes), R-D4 (cancel and deadlines), R-D5 (results,
// also partial ones), R-D9 (default-deny environment) and R-D10 (verify in a
// fresh jail).
package worker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/checkout"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// Config is what one worker needs.
type Config struct {
	Dir      string       // of this attempt
	Dirs     api.Dirs     // catalog, trust root and public key of the service
	Listener net.Listener // where the service connects
	Lock     *os.File     // of Dir, locked by whoever fired this worker before it was there
	Now      func() time.Time
	Logger   *slog.Logger
}

// failure is an end for one of the closed reasons.
type failure struct {
	reason api.Reason
	err    error
}

func (f *failure) Error() string { return f.err.Error() }

func fail(reason api.Reason, format string, args ...any) error {
	return &failure{reason, fmt.Errorf(format, args...)}
}

// errCancelled is the cause of a context that a cancel ended.
var errCancelled = errors.New("cancelled")

// attempt is the work in progress.
type attempt struct {
	cfg      Config
	key      seal.Signer
	control  *control
	log      *boundedLog
	envelope api.Digest // of the manifest's stored bytes
	manifest record.Manifest
	plan     plan   // what the catalog says, once verified
	question string // the beginning of what the agent asks
	started  time.Time
	cached   *checkout.Checkout // what the workspace starts from; nil without a source
	summary  api.ResultSummary
}

// Run carries out the attempt in cfg.Dir and seals its result. Its error means
// that there is no result: the service will find the attempt lost.
func Run(ctx context.Context, cfg Config) error {
	failpoint.Hit(failpoint.WorkerBegin, cfg.Dir)
	if err := hold(cfg.Lock, cfg.Dir); err != nil {
		return err
	}
	defer cfg.Lock.Close() //nolint:errcheck // it ends with this process at the latest
	failpoint.Hit(failpoint.WorkerLocked, cfg.Dir)
	key, err := seal.NewEphemeral()
	if err != nil {
		return err
	}
	public := base64.StdEncoding.EncodeToString(key.Public())
	a := &attempt{cfg: cfg, key: key, started: cfg.Now()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.control, err = newControl(cfg, func(reason string) { cancel(fmt.Errorf("%w: %s", errCancelled, reason)) })
	if err != nil {
		return err
	}
	defer a.control.close()
	a.control.say(record.WorkerMessage{Event: "ready", Key: public})
	failpoint.Hit(failpoint.WorkerReady, cfg.Dir)

	err = a.execute(ctx)
	if err := a.seal(ctx, err); err != nil {
		return err
	}
	failpoint.Hit(failpoint.WorkerSealed, cfg.Dir)
	a.control.say(record.WorkerMessage{Event: "sealed"})
	err = a.removeScratch()
	failpoint.Hit(failpoint.WorkerEnd, cfg.Dir)
	return err
}

// hold marks this process as the one worker of dir, for as long as it lives.
func hold(lock *os.File, dir string) error {
	given, err := lock.Stat()
	if err != nil {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	there, err := os.Lstat(filepath.Join(dir, record.WorkLock))
	if err != nil {
		return err
	}
	if !os.SameFile(given, there) {
		return fmt.Errorf("lock of %s: another file was handed over", dir)
	}
	// Handed over locked, this changes nothing.
	if err := durable.TryLock(lock); err != nil {
		return fmt.Errorf("%s: another worker has this attempt: %w", dir, err)
	}
	return durable.SetOwner(lock)
}

// execute is the normal path, top to bottom. What it has got when it fails is
// in a.summary.
func (a *attempt) execute(ctx context.Context) error {
	if err := a.load(); err != nil {
		return err
	}
	if err := a.control.awaitProceed(ctx, a.manifest.Expires.Sub(a.cfg.Now())); err != nil {
		return err
	}
	failpoint.Hit(failpoint.WorkerProceed, a.cfg.Dir)
	if err := a.verifyManifest(ctx); err != nil {
		return err
	}
	return a.work(ctx)
}

// load reads the manifest without trusting it: it says how long to wait for
// the service, and which dispatch a refusal is about.
func (a *attempt) load() error {
	b, err := blob.ReadBounded(filepath.Join(a.cfg.Dir, record.WorkManifest), 1<<20)
	if err != nil {
		return fail(api.ReasonIntegrity, "%w", err)
	}
	a.envelope = api.DigestOf(b)
	payload, err := seal.Payload(b, seal.Manifest)
	if err != nil {
		return fail(api.ReasonIntegrity, "manifest: %w", err)
	}
	if err := canon.DecodeExact(payload, &a.manifest); err != nil {
		return fail(api.ReasonIntegrity, "manifest: %w", err)
	}
	return nil
}

// step runs do and notes when it began and how long it took.
func (a *attempt) step(name string, do func() error) error {
	from := a.cfg.Now()
	err := do()
	s := api.Step{Name: name, At: from.UTC(), Seconds: a.cfg.Now().Sub(from).Seconds()}
	a.summary.Steps = append(a.summary.Steps, s)
	a.control.say(record.WorkerMessage{Event: "step", Step: &s})
	return err
}

// seal writes the signed result, which says how the attempt ended.
func (a *attempt) seal(ctx context.Context, err error) error {
	failpoint.Hit(failpoint.WorkerSeal, a.cfg.Dir)
	r := record.Result{
		V: 1, ID: a.manifest.ID, Attempt: a.manifest.Attempt, Fence: a.manifest.Fence, Manifest: a.envelope,
		Outcome: api.EventFinished, StartedAt: a.started.UTC(), EndedAt: a.cfg.Now().UTC(),
	}
	var f *failure
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), errCancelled):
		r.Outcome, r.Message = api.EventCancelled, context.Cause(ctx).Error()
	case errors.Is(err, errAsked):
		r.Outcome, r.Message = api.EventNeedsInput, a.question
	case errors.As(err, &f):
		r.Outcome, r.Reason, r.Message = api.EventFailed, f.reason, bounded(f.Error())
	default:
		return err
	}
	a.summary.Usage.WallSeconds = r.EndedAt.Sub(r.StartedAt).Seconds()
	r.Summary = a.summary
	doc, err := canon.Marshal(r)
	if err != nil {
		return err
	}
	envelope, err := seal.Sign(context.WithoutCancel(ctx), seal.Result, doc, a.key)
	if err != nil {
		return err
	}
	return writeResult(a.cfg.Dir, envelope)
}

// bounded keeps a message short enough for a record.
func bounded(s string) string {
	const most = 4096
	if len(s) > most {
		return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
	}
	return s
}
