package daemoncli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/server"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/run/schedule"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
	"github.com/bailiwick-dev/bailiwick/internal/state/approval"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/notify"
	"github.com/bailiwick-dev/bailiwick/internal/state/oauth"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/secret"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
	"github.com/bailiwick-dev/bailiwick/internal/tool/toolcall"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

func (t *tree) serveCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		if err := t.chooseMode(); err != nil {
			return t.finish(err)
		}
		// The process that started the service may be gone when it reports that it
		// listens. Unlike ignoring SIGPIPE, a handler is not inherited by children.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		return t.finish(t.serve(ctx))
	})
	v.Flag(&t.system, "system")
	v.Flag(&t.idle, "idle")
	v.Flag(&t.orchestrator, "orchestrator")
	v.Flags().BoolVar(&t.join, "join", false, "if another service owns the state, wait until it answers; report in JSON")
	_ = v.Flags().MarkHidden("join") // for start
}

// service is the running service with everything it has opened.
type service struct {
	t         *tree
	set       settings
	again     bool // it opens its state again, with the same settings
	logger    *slog.Logger
	started   time.Time
	socket    string
	remote    string // address of remote callers; empty: none are served
	reserve   *store.Reserve
	store     *store.Store
	ledger    *audit.Ledger
	log       atomic.Pointer[audit.Tree] // nil until openTree
	agree     atomic.Pointer[agreement]  // nil until openAgreement
	anchors   *anchorService
	blobs     *blob.Store
	keys      keys
	registry  *operator.Registry
	secrets   *secret.Store
	files     *secret.Files   // its directory
	people    *people         // who log in
	issuer    *oauth.Verifier // nil: only the service's own tokens are accepted
	me        api.Principal   // the service's own account, which is the operator
	inForce   *inforce.Reader // the catalog and the policy
	events    *events
	approvals *approval.Approvals
	servers   *toolcall.Pool // of tools
	gateway   *gateway.Gateway
	dispatch  *dispatch.Service
	runs      *orchestrator.Orchestrator // may be nil
	archive   *orchestrator.Archive      // of its runs
	schedules *schedule.Keeper
	evidence  *evidenceService
	notify    *notify.Keeper // nil: no receiver is configured
	retain    *retention.Collector
	telemetry *telemetry.Telemetry
	metrics   telemetry.Address // zero: not served
	report    jail.Report       // of this process; in mode system trial
	trial     trial
	// checkSecret reads a value as a dispatch would; in mode system the launcher does.
	checkSecret func(ctx context.Context, ref string, uses []api.SecretKind) error
	// refused says which attempt the launcher refused last; nil in mode same-user.
	refused func() string
}

func (t *tree) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := t.checkRuns(); err != nil {
		return err
	}
	set, err := t.settings()
	if err != nil {
		return err
	}
	if err := t.ownPlaces(); err != nil {
		return err
	}
	started, logger := t.Now().UTC(), set.logger(t.Stderr)
	var f *front // of every generation
	for {
		first := f == nil
		s := &service{t: t, set: set, again: !first, logger: logger, started: started, reserve: store.NewReserve(t.Dirs.State)}
		err := s.open(ctx)
		set, logger = s.set, s.logger // read again
		if err == nil && first {
			f, err = t.claimFront(ctx, set)
			if err == nil {
				if f.remote, err = s.listenRemote(ctx); err != nil {
					err = errors.Join(err, f.close())
				}
			}
		}
		if err == nil && first {
			defer t.supervised(ctx, logger, f.path)()
		}
		if err == nil {
			var again bool
			if again, err = s.serve(ctx, stop, f, first); again {
				continue
			}
			return errors.Join(err, f.close())
		}
		err = errors.Join(err, s.close())
		if first {
			return cannotStart(err)
		}
		if !s.standIn(ctx, f, err) {
			if ctx.Err() != nil {
				err = nil // it was told to stop
			}
			return errors.Join(err, f.close())
		}
	}
}

// serve answers requests until ctx ends, or, and it then returns true, until the
// state has to be opened again.
func (s *service) serve(ctx context.Context, stop func(), f *front, first bool) (again bool, err error) {
	s.socket = f.path
	listener, err := f.listen()
	if err != nil {
		return false, errors.Join(err, s.close())
	}
	srv := server.New(server.Config{
		Mode:     s.t.mode(),
		Dispatch: s.dispatch, InForce: s.inForce, Operator: s.me, Runs: apiRuns(s.runs), Reader: s.archive, Schedules: s.schedules, Registry: s.registry, Approvals: s.approvals, OAuth: s.issuer, People: s.people.sessions, Provider: s.people.provider, Passkeys: s.people.passkeys, Map: s.people, Page: s.t.page(), Ledger: s.ledger, Tree: s.log.Load(), Evidence: s.evidence.exporter, CheckState: s.agree.Load().checkAll, Retain: s.retain, Login: s.t.Login, Status: s.status, Trust: func(context.Context) ([]byte, error) { return s.keys.trust(s.t.Dirs) },
		Secrets: secretLister{s.inForce, s.registry, s.checkSecret, s.files}.list, Stop: sync.OnceFunc(stop), Now: s.t.Now, Logger: s.logger, Idle: s.t.idle, Broken: func() bool { return s.store.Poisoned() != nil },
		Observe: func(a server.Answered) { s.telemetry.Request(telemetry.Request(a)) }, Traced: !s.set.Tracing.OTLP.IsZero(),
	})
	s.telemetry.Watch(s.state)
	failed, room := make(chan error, 2), make(chan bool, 1)
	watching, unwatch := context.WithCancel(ctx)
	go func() { failed <- srv.Serve(listener) }()
	if f.remote != nil {
		s.remote = f.remote.listener.Addr().String()
		go func() { failed <- f.remote.serve(srv) }()
	}
	go func() { room <- awaitRoom(watching, s.store, s.reserve, s.logger) }()
	if first {
		f.address.set(s.socket)
		failpoint.Hit(failpoint.ServiceListening, s.socket)
		s.t.tell(s.logger, notifyReady)
		s.t.report(report{Listening: s.socket})
	}
	select {
	case err = <-failed:
		unwatch()
		<-room
	case again = <-room:
		unwatch()
	}
	again = again && ctx.Err() == nil
	if again && srv.Stays() {
		s.t.idle = 0
	}
	return again, errors.Join(err, s.shutdown(srv, again))
}

// stopTimeout bounds how long open requests may take at shutdown.
const stopTimeout = 5 * time.Second

// shutdown closes the service. If it opens its state again, the log cannot say that
// it stops.
func (s *service) shutdown(srv *server.Server, again bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	running := s.dispatch.Running()
	if !again {
		s.t.tell(s.logger, notifyStopping)
	}
	failpoint.Hit(failpoint.ServiceStopping, "")
	var standIn http.Handler
	if why := s.store.Poisoned(); again && why != nil {
		standIn = s.refusing(s.socket, func() error { return why })
	}
	err := srv.Shutdown(ctx, standIn)
	if !again {
		_, logErr := s.ledger.Record(ctx, record.Entry{
			Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: srv.StoppedBecause(), Running: int64(running)},
		}, nil)
		err = errors.Join(err, logErr)
	}
	failpoint.Hit(failpoint.ServiceStopped, "")
	err = errors.Join(err, s.close())
	failpoint.Hit(failpoint.ServiceClosed, "")
	return err
}

// open opens everything in the order of dependencies. Anything missing or damaged
// refuses the start.
func (s *service) open(ctx context.Context) error {
	state, before := s.t.Dirs.State, uint64(0)
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) (err error) { s.report, err = s.t.probe(ctx); return err },
		s.openState,
		func(ctx context.Context) (err error) { s.issuer, err = s.t.issuer(ctx, s.set.OAuth); return err },
		func(context.Context) error { return s.serveMetrics() },
		func(ctx context.Context) (err error) { s.keys, err = openKeys(ctx, state, s.ledger); return err },
		s.openTree,
		s.openRegistry,
		func(context.Context) error { return s.openSecrets() },
		s.openAnchors,
		func(ctx context.Context) error { return s.keys.openStatements(ctx, s.set.Keys) },
		func(context.Context) (err error) { s.blobs, err = openBlobs(s.t.Dirs.Blobs()); return err },
		func(context.Context) error { return s.blobs.RemoveTemp() },
		// The parts opened from here on may write to the log.
		s.announce,
		func(ctx context.Context) error { return s.keys.settleStatements(ctx, state, s.ledger) },
		func(context.Context) (err error) {
			s.me, err = server.LocalPrincipal(uint32(s.t.UID), s.t.Login) //nolint:gosec // G115: a uid
			return err
		},
		func(ctx context.Context) error { return checkState(ctx, s.store) },
		// The evidence of everything that ends from here on is checked.
		func(ctx context.Context) (err error) { before, err = s.ledger.Len(ctx); return err },
		s.wire,
		func(ctx context.Context) error { s.agree.Store(openAgreement(ctx, s.store, s.logger)); return nil },
		func(ctx context.Context) error { return s.openEvidence(ctx, before) },
		s.openNotify,
		s.openRetention,
		func(ctx context.Context) error { s.schedules.Start(ctx); return nil },
		func(ctx context.Context) (err error) { s.people, err = s.openPeople(ctx); return err },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// probe refuses a machine that cannot isolate workers completely. In mode system the
// service may not even create a namespace: the launcher builds the jails.
func (t *tree) probe(ctx context.Context) (jail.Report, error) {
	if t.Dirs.System() {
		return jail.Report{}, nil
	}
	r := jail.Probe(ctx)
	if !r.Full {
		return r, api.Errorf(api.CodeUnavailable, "this machine cannot isolate at level full:\n%s", strings.Join(missing(r), "\n")).WithHint("see: bailiwick doctor")
	}
	return r, nil
}

// openState opens or creates the state, its log, and the settings to start it with.
func (s *service) openState(ctx context.Context) (err error) {
	if err := s.reserve.Ensure(); err != nil {
		return err
	}
	observe := func(n int) (ended func()) { return s.telemetry.Commit(n) } // opened before the first transaction
	cfg := store.Config{Dir: s.t.Dirs.Store(), Logger: s.logger, Observe: observe, Migrations: migrations()}
	if s.store, err = s.t.joiner().open(ctx, cfg); err != nil {
		return err
	}
	if err := s.reread(); err != nil {
		return err
	}
	if err := s.openTelemetry(); err != nil {
		return err
	}
	if s.ledger, err = audit.Open(ctx, audit.Config{Store: s.store, Now: s.t.Now, Logger: s.logger, Observe: s.telemetry.Entry, Admit: s.admit}); err != nil {
		return err
	}
	return s.checkMemory(ctx)
}

// launcherTimeout is how long the launcher may take to answer when the service starts.
const launcherTimeout = time.Minute

// openRegistry verifies the operators' decisions. It needs the keys.
func (s *service) openRegistry(ctx context.Context) (err error) {
	if s.t.Dirs.System() {
		asking, cancel := context.WithTimeout(ctx, launcherTimeout)
		running, err := (&executor.Remote{Path: s.t.Dirs.LauncherSocket(), Logger: s.logger}).Running(asking) // it makes the recipient at its first start
		cancel()
		if err != nil {
			return err
		}
		s.logger.InfoContext(ctx, "the launcher answers", slog.Int("running", len(running)))
		if s.files, err = secret.OpenSealed(s.t.Dirs.Secrets(), s.t.Dirs.SecretsRecipient()); err != nil {
			return err
		}
	} else if s.files, err = secret.OpenFiles(s.t.Dirs.Secrets()); err != nil {
		return err
	}
	s.registry, err = operator.Open(ctx, operator.Config{Root: s.t.Dirs.OperatorRoot(), Service: s.keys.history.First().ID, Store: s.store, Ledger: s.ledger, Secrets: s.files, Origin: s.set.Web.Origin, Now: s.t.Now})
	return err
}

// migrations returns the schemas of all packages with tables in the state database.
func migrations() []store.Migration {
	return []store.Migration{audit.Migration(), dispatch.Migration(), retention.Migration(), operator.Migration(), orchestrator.Migration(), audit.TreeMigration(), anchor.Migration(), notify.Migration(), gateway.Migration(), approval.Migration(), budget.Migration(), schedule.Migration()}
}

func openOrCreate(ctx context.Context, cfg store.Config) (*store.Store, error) {
	st, err := store.Open(ctx, cfg)
	if errors.Is(err, store.ErrNotExist) {
		return store.Create(ctx, cfg)
	}
	return st, err
}

func openBlobs(dir string) (*blob.Store, error) {
	cfg := blob.Config{Dir: dir, Private: true, Swept: true}
	b, err := blob.Open(cfg)
	if errors.Is(err, blob.ErrNoStore) {
		return blob.Create(cfg)
	}
	return b, err
}

// workerEnv is the environment of the programs that the service starts.
func (t *tree) workerEnv() []string {
	return append(workerEnv(t.Env), api.ModeVariable+"="+t.mode())
}

// workerEnv keeps the variables that name directories and the certificates of servers,
// and no others.
func workerEnv(env []string) []string {
	keep := []string{"HOME", "PATH", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(keep, name)
	})
}

// sweepJails removes the control groups that jails of killed processes left.
func sweepJails(logger *slog.Logger) {
	if left := jail.Sweep(); left > 0 {
		logger.WarnContext(context.Background(), "control groups of killed processes could not be removed; the next jail retries", slog.Int("left", left))
	}
}

func (s *service) announce(ctx context.Context) error {
	_, err := s.ledger.Record(ctx, record.Entry{
		Kind:   record.KindServiceStarted,
		Detail: record.ServiceStart{Config: s.set.logged(s.t.Dirs.State), Version: s.t.Version, PID: int64(os.Getpid()), Mode: s.t.mode(), Isolation: active(s.report)},
	}, nil)
	return err
}

func (s *service) close() error {
	var errs []error
	if s.notify != nil {
		s.notify.Close()
	}
	if s.evidence != nil {
		s.evidence.close()
	}
	s.agree.Load().close()
	if s.retain != nil {
		errs = append(errs, s.retain.Close())
	}
	if s.schedules != nil {
		s.schedules.Close()
	}
	if s.runs != nil {
		errs = append(errs, s.runs.Close())
	}
	if s.dispatch != nil {
		errs = append(errs, s.dispatch.Close())
	}
	if s.servers != nil {
		s.servers.Close()
	}
	if s.approvals != nil {
		s.approvals.Close()
	}
	errs = append(errs, s.anchors.close(), closeTree(s.log.Load()), closeTelemetry(s.telemetry))
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.blobs != nil {
		errs = append(errs, s.blobs.Close())
	}
	return errors.Join(errs...)
}

// identity is the part of the status that needs no state.
func (s *service) identity(socket string) api.ServiceStatus {
	d := s.t.Dirs
	return api.ServiceStatus{
		Version: s.t.Version, PID: os.Getpid(), Mode: s.t.mode(), StartedAt: s.started, Isolation: active(s.report),
		Socket: socket, Remote: s.remote, StateDir: d.State, CatalogDir: d.Catalog(), TrustRoot: d.TrustRoot(),
		ConfigFile: s.set.File, ConfigDigest: s.set.Digest, Metrics: s.metrics.String(), Tracing: s.set.Tracing.OTLP.String(),
	}
}

func (s *service) status(ctx context.Context) (api.ServiceStatus, error) {
	st := s.identity(s.socket)
	if s.t.Dirs.System() {
		st.Isolation, st.IsolationLacks = s.trial.lines(ctx, s.t.Now())
		st.LauncherRefused = s.refused()
	}
	st.Log = treeStatus(ctx, s.log.Load())
	checked := s.evidence.checker.Status()
	st.Evidence = &checked
	st.Notify = notifyStatus(s.notify)
	err := s.stateStatus(ctx, &st)
	list, _ := s.conditions(ctx)
	st.NotReady = notReady(list)
	st.Ready = st.NotReady == ""
	if poisoned := s.store.Poisoned(); poisoned != nil {
		st.StateError = poisoned.Error()
		return st, nil //nolint:nilerr // the status reports it
	}
	return st, err
}

// stateStatus adds what is read from the state.
func (s *service) stateStatus(ctx context.Context, st *api.ServiceStatus) (err error) {
	if st.Orchestrator, err = runStatus(ctx, s.runs); err != nil {
		return err
	}
	if s.runs == nil {
		if st.UndrivenRuns, err = s.archive.OpenRuns(ctx); err != nil {
			return err
		}
	}
	if st.Anchors, err = s.anchors.status(ctx); err != nil {
		return err
	}
	if st.Disk, err = s.retain.DiskUse(ctx); err != nil {
		st.DiskError = err.Error()
	}
	return s.dispatch.Status(ctx, st)
}
