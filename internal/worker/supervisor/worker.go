// Package supervisor supervises one attempt of one dispatch, from the signed
// manifest to the signed result.
//
// It is the parent of the jail. It verifies before it runs, captures the work
// from outside the jail, and writes everything about the attempt to its
// directory, so that the service can restart beside it. It has no access to the
// state database or to another dispatch, cannot write the catalog, and has no
// effect outside its directory until the service confirms that the start is
// durable (R-A2, R-D2).
//
// Carries R-D3 (truthful outcomes), R-D4 (cancel and deadlines), R-D5 (results,
// also partial ones), R-D9 (default-deny environment) and R-D10 (verify in a
// fresh jail).
package supervisor

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
)

// Config is what one worker needs.
type Config struct {
	Dir      string       // of this attempt
	Scratch  string       // of what only this attempt uses, such as layers of jails; empty: Dir. Nobody else may write it
	Dirs     api.Dirs     // catalog, trust root and public key of the service
	Listener net.Listener // where the service connects
	Manifest api.Digest   // of the envelope of the manifest that the launcher verified
	Began    *os.File     // of the launcher: where a worker records that it begins
	Secrets  record.Secrets
	Tool     string // path of bailiwick-tool on this machine
	// Certificates is the file of those that upstream servers must chain to; empty: the
	// system's.
	Certificates string
	Now          func() time.Time
	Logger       *slog.Logger
}

// failure is a failure with its api.Reason.
type failure struct {
	reason api.Reason
	err    error
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

func fail(reason api.Reason, format string, args ...any) error {
	return &failure{reason, fmt.Errorf(format, args...)}
}

// errCancelled is the cause of a context that a cancel ended.
var errCancelled = errors.New("cancelled")

// attempt is the attempt in progress.
type attempt struct {
	cfg        Config
	key        seal.Signer
	control    *control
	log        *boundedLog
	envelope   api.Digest // of the manifest's stored bytes
	manifest   record.Manifest
	plan       plan // set once verified
	reach      reach
	program    program
	out        *sharedLog  // what processes of a jail write to the log
	env        []string    // of processes in the current jail
	transcript *transcript // of an agent with an adapter; nil until it runs
	report     agent.Report
	question   string // the beginning of the agent's question
	tools      *channel
	asked      asked                   // by the tool ask
	agent      context.Context         //nolint:containedctx // ends with the agent's time or authority
	end        context.CancelCauseFunc // ends agent
	started    time.Time
	workspace  *workspace // nil until it is prepared
	summary    summary
	changed    []string // paths of the patch
}

// Run carries out the attempt in cfg.Dir and signs its result. After an error
// there is no result, and the service records the attempt as lost.
func Run(ctx context.Context, cfg Config) error {
	failpoint.Hit(failpoint.WorkerBegin, cfg.Dir)
	cfg.Scratch = cmp.Or(cfg.Scratch, cfg.Dir)
	key, err := seal.NewEphemeral()
	if err != nil {
		return err
	}
	public := base64.StdEncoding.EncodeToString(key.Public())
	a := &attempt{cfg: cfg, key: key, started: cfg.Now(), tools: newChannel(), asked: asked{now: make(chan struct{})}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	agent, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.agent, a.end = agent, end
	a.control, err = newControl(cfg, handlers{
		cancel: func(reason string) { cancel(fmt.Errorf("%w: %s", errCancelled, reason)) },
		asked:  a.askedByTool, spent: a.spent, tools: a.tools.attach,
	})
	if err != nil {
		return err
	}
	a.reach.control = a.control
	a.summary = summary{dir: cfg.Dir, now: cfg.Now, control: a.control, redact: redact.New(nil)}
	defer a.control.close()
	defer a.tools.end()
	a.control.send(record.WorkerMessage{Event: "ready", Key: public})
	failpoint.Hit(failpoint.WorkerReady, cfg.Dir)

	err = a.execute(ctx)
	if err := a.seal(ctx, err); err != nil {
		return err
	}
	failpoint.Hit(failpoint.WorkerSealed, cfg.Dir)
	a.control.send(record.WorkerMessage{Event: "sealed"})
	err = a.workspace.removeScratch(cfg.Scratch)
	failpoint.Hit(failpoint.WorkerEnd, cfg.Dir)
	return err
}

// execute is the normal path. When it fails, a.summary has what was done so far.
func (a *attempt) execute(ctx context.Context) error {
	if err := a.load(); err != nil {
		return err
	}
	if err := a.control.awaitProceed(ctx, a.manifest.Expires.Sub(a.cfg.Now())); err != nil {
		return err
	}
	failpoint.Hit(failpoint.WorkerProceed, a.cfg.Dir)
	if err := begin(a.cfg.Began); err != nil {
		return fail(api.ReasonIntegrity, "record that the attempt begins: %w", err)
	}
	failpoint.Hit(failpoint.WorkerBegan, a.cfg.Dir)
	if err := a.verifyManifest(ctx); err != nil {
		return err
	}
	return a.work(ctx)
}

// begin durably records that the attempt begins: its launcher starts it no more.
func begin(began *os.File) error {
	if _, err := began.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if _, err := began.WriteString("proceeded\n"); err != nil {
		return err
	}
	return began.Sync()
}

// load reads the manifest without verifying it: it is needed to know how long to
// wait for the service, and which dispatch a refusal is about.
func (a *attempt) load() error {
	b, err := blob.ReadBounded(filepath.Join(a.cfg.Dir, record.WorkManifest), 1<<20)
	if err != nil {
		return fail(api.ReasonIntegrity, "%w", err)
	}
	if a.envelope = api.DigestOf(b); a.envelope != a.cfg.Manifest {
		return fail(api.ReasonIntegrity, "manifest: %s is in the directory, but the launcher verified %s", a.envelope.Short(), a.cfg.Manifest.Short())
	}
	payload, err := seal.Payload(b, seal.Manifest)
	if err != nil {
		return fail(api.ReasonIntegrity, "manifest: %w", err)
	}
	if err := canon.DecodeExact(payload, &a.manifest); err != nil {
		return fail(api.ReasonIntegrity, "manifest: %w", err)
	}
	return nil
}

// seal writes the signed result with the outcome of the attempt.
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
	case durable.IsFault(err): // whatever the step, another try may succeed
		r.Outcome, r.Reason, r.Message = api.EventFailed, api.ReasonLost, bounded("a fault of this machine ended the attempt: "+err.Error())
	case errors.As(err, &f):
		r.Outcome, r.Reason, r.Message = api.EventFailed, f.reason, bounded(f.Error())
	default:
		return err
	}
	r.Message = a.summary.redact.Text(r.Message)
	if err := a.summary.clean(); err != nil {
		return err
	}
	a.summary.Usage.WallSeconds = a.cfg.Now().Sub(a.started).Seconds() // by the monotonic clock
	r.Summary = a.summary.ResultSummary
	doc, err := canon.Marshal(r)
	if err != nil {
		return err
	}
	envelope, err := seal.Sign(context.WithoutCancel(ctx), seal.Result, doc, a.key)
	if err == nil && a.summary.Refusals != nil {
		err = a.control.keep()
	}
	if err != nil {
		return err
	}
	return writeResult(a.cfg.Dir, envelope)
}

// bounded shortens a message to what a record may have.
func bounded(s string) string {
	const most = 4096
	if len(s) > most {
		return fmt.Sprintf("%s... (%d bytes)", cuttext.Within(s, most), len(s))
	}
	return s
}
