package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// reach is what an agent may reach outside its jail, and what it holds instead of
// secrets.
type reach struct {
	key      string            // placeholder of the model
	held     map[string]string // variables with exposed secrets and placeholders
	brokered []broker.Secret
	value    string // of the model's credential

	broker  *broker.Broker // nil: nothing, or closed
	serving sync.WaitGroup
	record  *networkRecord
	used    api.ModelUsage // once it is closed
	drained time.Duration  // waited for outstanding answers so far
	hurried bool           // the agent has exceeded its time
	env     []string       // of the agent and of setup scripts
	files   []jail.File    // for the home directory of a jail whose processes have env

	mu       sync.Mutex
	refusals []record.EgressRefusal // reported to the service; guarded by mu
}

// openReach gives each secret of the manifest its place: with the broker, or in the
// agent's environment. Everything that is not the agent's to see is redacted.
func (a *attempt) openReach() error {
	r, m, access := &a.reach, &a.manifest, &a.plan.access
	r.held = map[string]string{}
	var hide []string
	for _, s := range m.Secrets {
		value, ok := a.cfg.Secrets[s.Name]
		if !ok {
			return fail(api.ReasonFetch, "secret %q: the service gave the worker no value", s.Name)
		}
		hide = append(hide, value)
		switch s.Use {
		case api.SecretModel:
			r.value = value
		case api.SecretExposed:
			r.held[s.Var] = value
		case api.SecretBrokered:
			i := slices.IndexFunc(access.Envs, func(e api.Env) bool { return e.Name == s.Env })
			if i < 0 || access.Envs[i].Secrets[s.Var].Brokered == nil {
				return fail(api.ReasonIntegrity, "secret %q: env %q does not broker it", s.Name, s.Env)
			}
			b := broker.Secret{Brokered: *access.Envs[i].Secrets[s.Var].Brokered, Placeholder: broker.NewPlaceholder(""), Value: value}
			r.brokered, r.held[s.Var] = append(r.brokered, b), b.Placeholder
			hide = append(hide, b.Placeholder)
		default:
			return fail(api.ReasonIntegrity, "secret %q: unknown use %q", s.Name, s.Use)
		}
	}
	if m.Endpoint != nil {
		r.key = broker.NewPlaceholder("")
		hide = append(hide, r.key)
	}
	a.summary.redact = redact.New(hide)
	return nil
}

// wantsReach reports whether the agent may reach anything but its tools.
func (a *attempt) wantsReach() bool { return a.manifest.Endpoint != nil || len(a.manifest.Egress) > 0 }

// spent ends the agent because of a limit.
func (a *attempt) spent(limit string) {
	a.end(fail(api.ReasonLimit, "the agent was stopped: %s", limit))
}

// openBroker makes the broker of an attempt.
func (a *attempt) openBroker() (err error) {
	r, access := &a.reach, &a.plan.access
	if r.record, err = newNetworkRecord(filepath.Join(a.cfg.Dir, record.WorkNetwork)); err != nil {
		return err
	}
	cfg := broker.Config{
		Egress: a.manifest.Egress, Secrets: r.brokered, Limits: a.manifest.Limits, Record: r.record, Clean: a.summary.redact.Text, Now: a.cfg.Now,
		Refused: a.refused, Spent: a.spent, Unreachable: a.control.unreachable, Tools: a.tools,
	}
	if m := access.Model; m != nil {
		cfg.Model = &broker.Model{Model: *m, ID: access.Endpoint.ID, Placeholder: r.key, Value: r.value}
		if cfg.Model.Loopback, err = loopback(m.Endpoint); err != nil {
			return fail(api.ReasonIntegrity, "model %q: %w", m.Name, err)
		}
	}
	r.broker, err = broker.New(cfg)
	if err != nil {
		return fail(api.ReasonSetup, "broker: %w", err)
	}
	return nil
}

// refused reports a refused request to the service, which logs it.
func (a *attempt) refused(e record.EgressRefusal) {
	a.reach.mu.Lock()
	defer a.reach.mu.Unlock()
	if len(a.reach.refusals) == record.MaxRefusals {
		return
	}
	e = e.Short()
	a.reach.refusals = append(a.reach.refusals, e)
	a.control.send(record.WorkerMessage{Event: "refused", Refused: &e})
}

// loopback returns the address of an endpoint on this machine, which has no TLS.
func loopback(endpoint string) (netip.AddrPort, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return netip.AddrPort{}, err
	}
	return netip.ParseAddrPort(u.Host)
}

// serveReach serves the listener of a jail, if it has one.
func (a *attempt) serveReach(ctx context.Context, j *jail.Jail) {
	b, l := a.reach.broker, j.Listener()
	if b == nil || l == nil {
		return
	}
	a.reach.serving.Go(func() { // ends with closeReach
		if err := b.Serve(l); err != nil {
			a.cfg.Logger.ErrorContext(ctx, "the broker accepts no requests any more", slog.Any("err", err))
		}
	})
}

// hurriedDrain bounds how long the answers of a model are read after an attempt was
// cancelled or its agent has exceeded its time. Those that are longer are uncounted.
const hurriedDrain = 5 * time.Second

// drainTime is how much longer the attempt may wait for outstanding answers: all its
// waits together take at most record.DrainTime, which budgets reserve.
func (a *attempt) drainTime(ctx context.Context) time.Duration {
	most := time.Duration(record.DrainTime)
	if a.reach.hurried || context.Cause(ctx) != nil {
		most = hurriedDrain
	}
	return max(0, most-a.reach.drained)
}

// drainModel waits for the answers that the agent left outstanding. The agent has ended.
// What follows, such as verify, has its whole time, and may use the model.
func (a *attempt) drainModel(ctx context.Context, agentErr error) {
	r := &a.reach
	f, ok := errors.AsType[*failure](agentErr)
	r.hurried = ok && f.reason == api.ReasonTimeout
	from := a.cfg.Now()
	r.broker.Drain(a.drainTime(ctx))
	r.drained += max(0, a.cfg.Now().Sub(from))
}

// closeReach ends everything that processes of a jail reach, and puts what they have
// used into the summary. The agent has ended.
func (a *attempt) closeReach(ctx context.Context) error {
	r := &a.reach
	if r.broker == nil {
		return nil
	}
	err := r.broker.CloseWithin(a.drainTime(ctx))
	r.serving.Wait()
	r.used, r.broker = r.broker.Usage(), nil
	if a.manifest.Endpoint != nil {
		a.summary.Usage.Model = &r.used
	}
	kept, keepErr := r.record.close()
	a.summary.Network = kept
	refusals, refuseErr := record.RefusalsOf(r.refusals) // the broker has ended
	a.summary.Refusals = refusals
	if err := errors.Join(err, keepErr, refuseErr); err != nil {
		return fmt.Errorf("record of the agent's requests: %w", err)
	}
	return nil
}

// usage is what the agent has used of its model so far.
func (r *reach) usage() api.ModelUsage {
	if r.broker != nil {
		return r.broker.Usage()
	}
	return r.used
}

// modelFault says why the agent had no answer of its model the last time, or is empty.
func (r *reach) modelFault() string {
	if r.broker != nil {
		return r.broker.ModelFault()
	}
	return ""
}

// setEnvironment decides the whole environment of the agent and of setup scripts, with
// files that it refers to.
func (a *attempt) setEnvironment() {
	network := map[string]string{}
	if len(a.manifest.Egress) > 0 {
		network = broker.ProxyVariables(jail.ListenPort)
		if bundle := broker.Bundle(a.cfg.Certificates, a.reach.broker.CA()); bundle != nil {
			const path = agent.Own + "/ca.pem"
			a.reach.files = append(a.reach.files, jail.File{Path: path, Mode: 0o644, Content: bundle})
			for _, name := range broker.BundleVariables() {
				network[name] = jail.HomeDir + "/" + path
			}
		}
	}
	a.reach.env = environment(a.plan.target, &a.manifest, a.plan.launch.Env, network, a.plan.values, a.reach.held)
}

// agentHome lists the files in the agent's home directory.
func (a *attempt) agentHome() []jail.File {
	files := slices.Clone(a.reach.files)
	for _, f := range a.plan.launch.Home {
		files = append(files, jail.File{Path: f.Path, Content: f.Content})
	}
	return files
}

// networkRecord is the record of an agent's requests: a file in the worker's
// directory.
type networkRecord struct {
	file *os.File
	sum  hash.Hash
	size int64
}

func newNetworkRecord(path string) (*networkRecord, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return nil, err
	}
	return &networkRecord{file, sha256.New(), 0}, nil
}

// Write takes one line. The broker writes one at a time.
func (r *networkRecord) Write(line []byte) (int, error) {
	n, err := r.file.Write(line)
	r.sum.Write(line[:n])
	r.size += int64(n)
	return n, err
}

// close makes the record durable. It is nil where the agent made no request.
func (r *networkRecord) close() (*api.Artifact, error) {
	if err := errors.Join(r.file.Sync(), r.file.Close()); err != nil || r.size == 0 {
		return nil, err
	}
	return &api.Artifact{Size: r.size, Digest: api.Digest("sha256:" + hex.EncodeToString(r.sum.Sum(nil)))}, nil
}
