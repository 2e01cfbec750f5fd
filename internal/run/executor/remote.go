package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// Remote is the launcher of this machine, which has an account of its own, and trusts the service
// in nothing. It is safe for concurrent use.
type Remote struct {
	Path string // of its socket
	// Sealed returns what operators encrypted to the launcher for a name.
	Sealed func(name api.Name) ([]byte, error)
	// Records returns the decisions of operators after the first n, as they were signed.
	Records func(ctx context.Context, n uint64) ([][]byte, error)
	// Approval returns what people approved to start m; nil: nothing.
	Approval func(ctx context.Context, m *record.Manifest) ([]byte, error)
	Keys     seal.History // of the service
	Now      func() time.Time
	Logger   *slog.Logger

	mu   sync.Mutex
	sent uint64 // how many decisions the launcher has; guarded by mu

	refused atomic.Pointer[string] // see Refused
}

// refusal is an error that the launcher answered.
type refusal struct{ err *api.Error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// Refused returns which attempt the launcher refused last because something was not what people
// signed, when, and why; empty once it has started another one.
func (c *Remote) Refused() string {
	if s := c.refused.Load(); s != nil {
		return *s
	}
	return ""
}

// noted logs that the launcher refused an attempt, and tells the caller that waits for it.
func (c *Remote) noted(ctx context.Context, who launch.Running, err error) error {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return err
	}
	c.Logger.WarnContext(ctx, "the launcher refused an attempt", slog.String("dispatch", string(who.Dispatch)), slog.Int("attempt", who.Attempt), slog.Any("err", err))
	if r.err.Code != api.CodeIntegrity { // such as a secret that has no value
		return err
	}
	s := fmt.Sprintf("dispatch %s attempt %d at %s: %s", who.Dispatch, who.Attempt, c.Now().UTC().Format(time.RFC3339), r.err.Message)
	c.refused.Store(&s)
	return api.Errorf(api.CodeIntegrity, "the launcher refused it, and no worker was started: %s; an administrator looks at: bailiwick doctor", r.err.Message)
}

var errNoAnswer = errors.New("launcher: it does not answer")

// tries is how often a request is sent to launchers that are killed before they answer.
const tries = 4

// call sends a request and returns its answer. The next launcher is asked again if one was killed
// meanwhile, after what that one may have started for who has ended: nothing of it has had an
// effect, since this service has not told it to proceed.
func (c *Remote) call(ctx context.Context, who *launch.Running, r launch.Request, files ...*os.File) (a launch.Answer, handles []*os.File, err error) {
	for try := 1; ; try++ {
		a, handles, err = c.ask(ctx, r, files...)
		if !errors.Is(err, errNoAnswer) || try == tries {
			return a, handles, err
		}
		c.Logger.WarnContext(ctx, "the launcher ended without an answer, and is asked again", slog.String("request", r.Kind), slog.Any("err", err))
		if who != nil {
			if err := c.End(ctx, *who); err != nil {
				return a, nil, err
			}
		}
	}
}

// ask sends a request once and returns its answer.
func (c *Remote) ask(ctx context.Context, r launch.Request, files ...*os.File) (a launch.Answer, handles []*os.File, err error) {
	r.V = launch.Version
	conn, err := egress.Unix(c.Path).DialContext(ctx, "unix", c.Path)
	if err != nil {
		return a, nil, api.Errorf(api.CodeUnavailable, "launcher: %w", err).WithHint("see: systemctl status bailiwick-launch.socket")
	}
	defer conn.Close() //nolint:errcheck // one answer
	unixConn, _ := conn.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	sent := unixframe.Write(unixConn, r, files...)
	if handles, err = unixframe.Read(unixConn, &a, 0); err != nil { // one that is refused early is not read whole
		err = errors.Join(sent, err)
	}
	switch {
	case ctx.Err() != nil:
		unixframe.CloseAll(handles)
		return a, nil, context.Cause(ctx)
	case err != nil:
		return a, nil, errors.Join(errNoAnswer, err)
	case a.Error != nil:
		unixframe.CloseAll(handles)
		return a, nil, &refusal{a.Error}
	}
	return a, handles, nil
}

// follow gives the launcher the decisions that it does not have.
func (c *Remote) follow(ctx context.Context) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range tries {
		if err = c.give(ctx); !errors.Is(err, errNoAnswer) {
			break
		}
		c.sent = 0 // it may have some of them
	}
	return err
}

// give sends the decisions after those that were sent. The caller holds mu.
func (c *Remote) give(ctx context.Context) error {
	for asked := c.sent > 0; ; asked = true {
		records, err := c.Records(ctx, c.sent)
		if err != nil || len(records) == 0 && asked {
			return err
		}
		batch, size := records[:0:0], 0
		for _, r := range records {
			if size += 2 * len(r); asked && size <= unixframe.Max/2 { // the first call asks how many it has
				batch = append(batch, r)
			}
		}
		a, _, err := c.ask(ctx, launch.Request{Kind: launch.KindRecords, Keys: &c.Keys, Records: batch})
		if err == nil && len(batch) > 0 && a.Records <= c.sent {
			err = fmt.Errorf("launcher: it has %d decisions of operators, after %d more than %d were given", a.Records, len(batch), c.sent)
		}
		if err != nil {
			return err
		}
		c.sent = a.Records
	}
}

// sealed returns the encrypted values that the launcher needs for references.
func (c *Remote) sealed(refs ...string) (map[api.Name][]byte, error) {
	values := map[api.Name][]byte{}
	for _, ref := range refs {
		p, err := api.ParseSecretRef(ref)
		if err != nil || p.Source != api.SecretFile {
			continue // the launcher has it, or says why not
		}
		value, err := c.Sealed(api.Name(p.Name))
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "%s: %w", ref, err)
		}
		values[api.Name(p.Name)] = value
	}
	return values, nil
}

// Worker has the launcher start the worker of an attempt.
func (c *Remote) Worker(ctx context.Context, a *launch.Attempt) (*launch.Process, error) {
	var m record.Manifest
	payload, err := seal.Payload(a.Manifest, seal.Manifest)
	if err == nil {
		err = canon.DecodeExact(payload, &m)
	}
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, s := range m.Secrets {
		refs = append(refs, s.Ref)
	}
	r := launch.Request{Kind: launch.KindWorker, Manifest: a.Manifest, Keys: &c.Keys}
	if r.Sealed, err = c.sealed(refs...); err == nil {
		r.Approval, err = c.Approval(ctx, &m)
	}
	who := launch.Running{Dispatch: m.ID, Attempt: m.Attempt}
	if err == nil {
		err = c.follow(ctx)
	}
	if err != nil {
		return nil, c.noted(ctx, who, err)
	}
	got, handles, err := c.call(ctx, &who, r, a.Dir, a.Control, a.Log)
	if err != nil {
		return nil, c.noted(ctx, who, err)
	}
	c.refused.Store(nil)
	p, err := c.process(ctx, who, got, handles)
	if err != nil {
		return nil, err
	}
	for _, lack := range p.Lacks {
		c.Logger.WarnContext(ctx, "a limit is not held", slog.String("dispatch", string(m.ID)), slog.String("lack", lack))
	}
	return p, nil
}

// Find has the launcher find the worker of an attempt.
func (c *Remote) Find(ctx context.Context, who launch.Running) (*launch.Process, error) {
	a, handles, err := c.call(ctx, nil, launch.Request{Kind: launch.KindFind, Attempt: &who})
	switch {
	case api.CodeOf(err) == api.CodeNotFound:
		return nil, launch.ErrNoWorker
	case err != nil:
		return nil, err
	}
	return c.process(ctx, who, a, handles)
}

// process returns the process of who that an answer has.
func (c *Remote) process(ctx context.Context, who launch.Running, a launch.Answer, handles []*os.File) (*launch.Process, error) {
	if len(handles) != 1 || a.PID <= 0 {
		unixframe.CloseAll(handles)
		return nil, errNoAnswer
	}
	handle, end := handles[0], func() error { return c.End(context.WithoutCancel(ctx), who) }
	return &launch.Process{
		PID: a.PID, Handle: handle, Lacks: a.Lacks, Kill: end,
		Wait: func() error {
			_, err := account.AwaitExit(handle, -1)
			return errors.Join(err, end(), handle.Close())
		},
	}, nil
}

// Fetch has the launcher fetch a commit of a source, whose secret has a reference.
func (c *Remote) Fetch(ctx context.Context, o launch.Order, ref, _ string) (record.FetchResult, error) {
	sealed, err := c.sealed(ref)
	if err == nil {
		err = c.follow(ctx)
	}
	if err != nil {
		return record.FetchResult{}, err
	}
	who := launch.Fetching(o.Source)
	a, _, err := c.call(ctx, &who, launch.Request{Kind: launch.KindFetch, Fetch: &o, Sealed: sealed})
	if err != nil || a.Fetched == nil {
		return record.FetchResult{}, err
	}
	return *a.Fetched, nil
}

// End has the launcher kill what is left of an attempt.
func (c *Remote) End(ctx context.Context, who launch.Running) error {
	_, _, err := c.call(ctx, nil, launch.Request{Kind: launch.KindEnd, Attempt: &who})
	return err
}

// Running lists the attempts that have processes.
func (c *Remote) Running(ctx context.Context) ([]launch.Running, error) {
	a, _, err := c.call(ctx, nil, launch.Request{Kind: launch.KindList})
	return a.Running, err
}

// Probe has the launcher try a jail as an attempt has it, and returns the trial's report as its worker wrote it, and the limits that the
// control groups of an attempt do not hold.
func (c *Remote) Probe(ctx context.Context) (report []byte, lacks []string, err error) {
	a, _, err := c.call(ctx, nil, launch.Request{Kind: launch.KindProbe})
	return a.Report, a.Lacks, err
}

// CheckSecret has the launcher read the value that a reference names, and returns why a worker could not have it.
func (c *Remote) CheckSecret(ctx context.Context, ref string, uses []api.SecretKind) error {
	sealed, err := c.sealed(ref)
	if err == nil {
		err = c.follow(ctx)
	}
	if err == nil {
		_, _, err = c.call(ctx, nil, launch.Request{Kind: launch.KindSecret, Check: &launch.SecretCheck{Ref: ref, Uses: uses}, Sealed: sealed})
	}
	return err
}
