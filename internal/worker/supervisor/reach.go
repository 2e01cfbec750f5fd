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
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
	"github.com/bailiwick-dev/bailiwick/internal/worker/broker"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// reach is what an agent may reach outside its jail, and what it holds instead of
// secrets.
type reach struct {
	control  *control
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

// open gives each secret of the manifest its place: with the broker, or in the
// agent's environment. It returns the set that redacts everything that is not the agent's to see.
func (r *reach) open(m *record.Manifest, access *catalog.Access, secrets map[api.Name]string) (*redact.Set, error) {
	r.held = map[string]string{}
	var hide []string
	for _, s := range m.Secrets {
		value, ok := secrets[s.Name]
		if !ok {
			return nil, fail(api.ReasonFetch, "secret %q: the service gave the worker no value", s.Name)
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
				return nil, fail(api.ReasonIntegrity, "secret %q: env %q does not broker it", s.Name, s.Env)
			}
			b := broker.Secret{Brokered: *access.Envs[i].Secrets[s.Var].Brokered, Placeholder: broker.NewPlaceholder(""), Value: value}
			r.brokered, r.held[s.Var] = append(r.brokered, b), b.Placeholder
			hide = append(hide, b.Placeholder)
		default:
			return nil, fail(api.ReasonIntegrity, "secret %q: unknown use %q", s.Name, s.Use)
		}
	}
	if m.Endpoint != nil {
		r.key = broker.NewPlaceholder("")
		hide = append(hide, r.key)
	}
	return redact.New(hide), nil
}

// wantsReach reports whether the agent may reach anything but its tools.
func wantsReach(m *record.Manifest) bool { return m.Endpoint != nil || len(m.Egress) > 0 }

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
		Refused: r.refused, Spent: a.spent, Unreachable: a.control.unreachable, Tools: a.tools,
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
func (r *reach) refused(e record.EgressRefusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refusals) == record.MaxRefusals {
		return
	}
	e = e.Short()
	r.refusals = append(r.refusals, e)
	r.control.send(record.WorkerMessage{Event: "refused", Refused: &e})
}

// loopback returns the address of an endpoint on this machine, which has no TLS.
func loopback(endpoint string) (netip.AddrPort, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return netip.AddrPort{}, err
	}
	return netip.ParseAddrPort(u.Host)
}

// serve serves the listener of a jail, if it has one.
func (r *reach) serve(ctx context.Context, j *jail.Jail, logger *slog.Logger) {
	b, l := r.broker, j.Listener()
	if b == nil || l == nil {
		return
	}
	r.serving.Go(func() { // ends with close
		if err := b.Serve(l); err != nil {
			logger.ErrorContext(ctx, "the broker accepts no requests any more", slog.Any("err", err))
		}
	})
}

// hurriedDrain bounds how long the answers of a model are read after an attempt was
// cancelled or its agent has exceeded its time. Those that are longer are uncounted.
const hurriedDrain = 5 * time.Second

// drainTime is how much longer the attempt may wait for outstanding answers: all its
// waits together take at most record.DrainTime, which budgets reserve.
func (r *reach) drainTime(ctx context.Context) time.Duration {
	most := time.Duration(record.DrainTime)
	if r.hurried || context.Cause(ctx) != nil {
		most = hurriedDrain
	}
	return max(0, most-r.drained)
}

// drain waits for the answers that the agent left outstanding. The agent has ended.
// What follows, such as verify, has its whole time, and may use the model.
func (r *reach) drain(ctx context.Context, agentErr error, now func() time.Time) {
	f, ok := errors.AsType[*failure](agentErr)
	r.hurried = ok && f.reason == api.ReasonTimeout
	from := now()
	r.broker.Drain(r.drainTime(ctx))
	r.drained += max(0, now().Sub(from))
}

// close ends everything that processes of a jail reach, and puts what they have
// used into the summary. The agent has ended.
func (r *reach) close(ctx context.Context, s *summary) error {
	if r.broker == nil {
		return nil
	}
	err := r.broker.CloseWithin(r.drainTime(ctx))
	r.serving.Wait()
	r.used, r.broker = r.broker.Usage(), nil
	if r.key != "" {
		s.Usage.Model = &r.used
	}
	kept, keepErr := r.record.close()
	s.Network = kept
	refusals, refuseErr := record.RefusalsOf(r.refusals) // the broker has ended
	s.Refusals = refusals
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
func (r *reach) setEnvironment(m *record.Manifest, p *plan, certificates string) {
	network := map[string]string{}
	if len(m.Egress) > 0 {
		network = broker.ProxyVariables(jail.ListenPort)
		if bundle := broker.Bundle(certificates, r.broker.CA()); bundle != nil {
			const path = agent.Own + "/ca.pem"
			r.files = append(r.files, jail.File{Path: path, Mode: 0o644, Content: bundle})
			for _, name := range broker.BundleVariables() {
				network[name] = jail.HomeDir + "/" + path
			}
		}
	}
	r.env = environment(p.target, m, p.launch.Env, network, p.values, r.held)
}

// home lists the files in the agent's home directory.
func (r *reach) home(l agent.Launch) []jail.File {
	files := slices.Clone(r.files)
	for _, f := range l.Home {
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
