// Package dispatch turns a request into a running worker and a durable record.
//
// The order is fixed: policy decides, the log makes the decision durable and
// yields an Admission, and only an Admission starts a worker. The same code
// collects what a worker left, whether the service saw it exit or recovered its
// directory after a restart. The package does not know the orchestrator.
//
// Carries R-D1, R-D2, R-D3, R-D4, R-D5, R-T10, R-B7 and R-A8.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/background"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Config is what a Service needs.
type Config struct {
	Dirs       api.Dirs
	Store      *store.Store
	Ledger     *audit.Ledger
	Blobs      *blob.Store  // of the state, not of the catalog
	Key        seal.Signer  // of the service
	Keys       seal.History // every key that the service has had; the zero value: only Key
	Statements seal.Signer  // signs attestations; nil: Key
	Executor   *executor.Local
	Tools      Tools
	People     People
	Secrets    Secrets
	Operator   api.Principal   // may read everything; see policy.Rules
	Registry   Registry        // what operators decided
	InForce    *inforce.Reader // the catalog and the policy
	Mode       string          // same-user or system
	Sweep      func()          // removes what jails of killed processes left on the machine; it may take seconds
	Now        func() time.Time
	Steady     func() time.Time // measures time; its readings are only compared with each other; nil: Now
	Logger     *slog.Logger
	Observer   Observer
}

// check names the first part that is missing.
func (c *Config) check() error {
	for _, part := range []struct {
		name    string
		missing bool
	}{
		{"Store", c.Store == nil},
		{"Ledger", c.Ledger == nil},
		{"Blobs", c.Blobs == nil},
		{"Key", c.Key == nil},
		{"Executor", c.Executor == nil},
		{"Tools", c.Tools == nil},
		{"People", c.People == nil},
		{"Secrets", c.Secrets == nil && c.Mode != api.ModeSystem},
		{"Registry", c.Registry == nil},
		{"InForce", c.InForce == nil},
		{"Sweep", c.Sweep == nil},
		{"Now", c.Now == nil},
		{"Logger", c.Logger == nil},
		{"Observer", c.Observer == nil},
	} {
		if part.missing {
			return fmt.Errorf("dispatch: Config.%s is required", part.name)
		}
	}
	return nil
}

// Service admits dispatches, runs them and answers questions about them. Its
// methods are split over the types that it embeds. It is safe for concurrent
// use.
type Service struct {
	*records
	*reader    // what callers may read
	*rights    // what callers may do
	*answers   // to the questions of agents
	*stopper   // cancels and emergency stops
	*retained  // pins, and what may be removed
	*attester  // signed statements of outcomes
	*lifecycle // from the start of a worker to the durable outcome

	preparer *preparer
	admitter *admitter
}

// Open recovers what an earlier service left: it adopts running workers,
// collects those that exited, and records those that died as lost.
func Open(ctx context.Context, cfg Config) (*Service, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := newService(ctx, cfg)
	if err := errors.Join(os.RemoveAll(cfg.Dirs.Scratch()), os.MkdirAll(cfg.Dirs.Scratch(), 0o700)); err != nil {
		return nil, err
	}
	if err := s.recover(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.work.Go(func() { background.Loop{Wake: s.questions.Sent, Step: s.expireQuestions}.Run(s.life) })
	s.work.Go(func() { background.Loop{Wake: s.ended.Sent, Step: s.attestAll}.Run(s.life) })
	return s, nil
}

func newService(ctx context.Context, cfg Config) *Service {
	if len(cfg.Keys.Keys) == 0 {
		cfg.Keys = seal.NewHistory(seal.KeyOf(cfg.Key, ""))
	}
	if cfg.Statements == nil {
		cfg.Statements = cfg.Key
	}
	if cfg.Steady == nil {
		cfg.Steady = cfg.Now
	}
	s := &Service{records: &records{cfg: cfg}}
	s.lifecycle = newLifecycle(ctx, s.records)
	s.attester = &attester{records: s.records, lifetime: s.life}
	s.reader = &reader{records: s.records, lifecycle: s.lifecycle}
	s.rights, s.stopper, s.retained = &rights{s.records}, &stopper{s.reader}, &retained{s.reader}
	s.preparer = &preparer{reader: s.reader, sources: sources{s.records, newFetches()}}
	s.admitter = &admitter{s.lifecycle}
	s.answers = &answers{reader: s.reader, admitter: s.admitter}
	return s
}
