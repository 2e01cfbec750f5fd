package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/snapshot"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// startTime is how long a signed manifest may wait for its worker to start.
const startTime = 5 * time.Minute

// ask is one request on its way to a decision.
type ask struct {
	principal api.Principal
	by        Caller
	consent   api.Tier // of the principal
	ceiling   api.Tier // that the request has bound itself to
	stops     []string // emergency stops that hold it
	attempt   int      // that an answer would begin; 0 for a request
	request   api.DispatchRequest
	order     *TaskRequest  // of a task; nil for a request of its own
	run       api.RunID     // of the task
	task      api.TaskID    //
	needs     []record.Need // of the task, once they are found
	digest    api.Digest    // of principal, request and order
	snapshot  snapshot.Snapshot
	subagent  api.Subagent // zero when there is none of that name
	target    api.Name
	commit    string // pinned, when there is a source
	from      time.Time
	trace     api.Trace // of the request
}

// Submit asks policy, makes the decision durable and starts a worker. It
// returns before the worker has done anything. The same id and request again
// returns the same dispatch.
func (s *Service) Submit(ctx context.Context, caller Caller, req api.DispatchRequest) (api.Dispatch, error) {
	return s.submit(ctx, &ask{principal: caller.Principal, by: caller, ceiling: caller.Ceiling, request: req, from: s.cfg.Now(), trace: TraceOf(ctx)})
}

// submit is the one way from a request or an order to a dispatch.
func (s *Service) submit(ctx context.Context, a *ask) (api.Dispatch, error) {
	if err := a.normalise(); err != nil {
		return api.Dispatch{}, s.invalid(ctx, a.principal, err)
	}
	if d, ok, err := s.repeated(ctx, a); ok || err != nil {
		return d, err
	}
	var err error
	if a.snapshot, err = s.snapshotFor(ctx, a); err != nil {
		return api.Dispatch{}, s.invalid(ctx, a.principal, err)
	}
	decision := s.decide(a)
	if !decision.Allowed() {
		return api.Dispatch{}, s.deny(ctx, a, decision)
	}
	ctx, release := s.cfg.Blobs.Protect(ctx)
	defer release() // the row refers to what is stored or taken over by then
	if err := s.complete(ctx, a); err != nil {
		return api.Dispatch{}, s.invalid(ctx, a.principal, err)
	}
	d, err := s.admit(ctx, a, decision)
	if errors.Is(err, errTaken) {
		return s.taken(ctx, a)
	}
	return d, s.decideAgain(ctx, a, err)
}

var errTaken = errors.New("the dispatch id is in use")

// normalise gives every field its one form.
func (a *ask) normalise() error {
	r := &a.request
	if len(r.Input) == 0 {
		r.Input = json.RawMessage("{}")
	}
	input, err := canon.Canonicalize(r.Input)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "input: %w", err)
	}
	if input[0] != '{' {
		return api.Errorf(api.CodeInvalid, "input: want a JSON object")
	}
	r.Input = input
	if r.Subagent == "" {
		return api.Errorf(api.CodeInvalid, "subagent: name the one to dispatch")
	}
	if r.TimeoutSeconds < 0 {
		return api.Errorf(api.CodeInvalid, "timeoutSeconds: want a positive number")
	}
	if r.Source != nil && r.Source.Name == "" {
		return api.Errorf(api.CodeInvalid, "source: name the one to start from")
	}
	for _, list := range [][]api.Name{r.Envs, r.Capabilities} {
		seen := make(map[api.Name]bool, len(list))
		for _, n := range list {
			if seen[n] {
				return api.Errorf(api.CodeInvalid, "%q is named twice", n)
			}
			seen[n] = true
		}
	}
	if err := a.normaliseOrder(); err != nil {
		return err
	}
	doc, err := canon.Marshal(struct {
		Principal api.Principal       `json:"principal"`
		Request   api.DispatchRequest `json:"request"`
		Order     *TaskRequest        `json:"order,omitempty"`
	}{a.principal, *r, a.order})
	a.digest = api.DigestOf(doc)
	return err
}

// snapshotFor returns what a is decided by and what its names mean.
func (s *Service) snapshotFor(ctx context.Context, a *ask) (snapshot.Snapshot, error) {
	var p snapshot.Snapshot
	var err error
	if a.order != nil {
		p, err = s.snapshots.At(ctx, a.order.Revision)
	} else {
		p, err = s.snapshots.Current(ctx)
	}
	if err == nil && p.Revision == nil {
		err = api.Errorf(api.CodeNotFound, "no catalog has been applied yet").WithHint("run: bailiwick init, then bailiwick catalog apply")
	}
	return p, err
}

// decide asks policy by a's page.
func (s *Service) decide(a *ask) policy.Decision {
	a.resolve()
	a.consent, a.stops = s.cfg.Registry.Consent(a.principal), s.cfg.Registry.StopsFor(api.StopSubject{Principal: a.principal, Target: a.target, Run: a.run, Dispatch: a.request.DispatchID})
	return a.snapshot.Engine.Decide(a.policyRequest())
}

// taken answers a request that is allowed and whose id is in use. Nobody else
// is told: an id of another caller's is not for everyone to find out.
func (s *Service) taken(ctx context.Context, a *ask) (api.Dispatch, error) {
	// The same id may have come twice at once, and the other was faster.
	if d, ok, err := s.repeated(ctx, a); ok || err != nil {
		return d, err
	}
	err := api.Errorf(api.CodeConflict, "dispatch id %s is in use for another request", a.request.DispatchID).WithHint("choose another id, or none")
	return api.Dispatch{}, s.invalid(ctx, a.principal, err)
}

// repeated answers a request that the same caller has made before.
func (s *Service) repeated(ctx context.Context, a *ask) (api.Dispatch, bool, error) {
	if a.request.DispatchID == "" {
		return api.Dispatch{}, false, nil
	}
	r, ok, err := s.row(ctx, a.request.DispatchID)
	if !ok || err != nil || r.request != a.digest {
		return api.Dispatch{}, false, err
	}
	return r.record, true, nil
}

// resolve looks the names up. One that is not there is left as it is: no grant
// lists it, so policy answers as it does for a name that is not granted.
func (a *ask) resolve() {
	a.subagent, _, _ = a.snapshot.Revision.Subagent(a.request.Subagent)
	a.target = a.request.Target
	if a.target == "" {
		a.target = a.subagent.Target
	}
}

func (a *ask) policyRequest() policy.Request {
	req := a.request
	req.Target = a.target
	r := policy.DispatchRequest(a.principal, req, a.subagent.Tier)
	r.Consent, r.Session, r.Stops = a.consent, a.ceiling, a.stops
	return r
}

func (a *ask) entry() record.Entry {
	d := record.DispatchRequest{
		Subagent: string(a.request.Subagent), Target: string(a.target), Commit: a.commit,
		Revision: int64(a.snapshot.Revision.Number()), //nolint:gosec // G115: numbers count up from 1
	}
	for _, n := range a.request.Envs {
		d.Envs = append(d.Envs, string(n))
	}
	for _, n := range a.request.Capabilities {
		d.Capabilities = append(d.Capabilities, string(n))
	}
	if a.request.Source != nil {
		d.Source = string(a.request.Source.Name)
	}
	tier := a.subagent.Tier
	return record.Entry{
		Kind: record.KindDispatchAccepted, Run: string(a.run), Task: string(a.task), Dispatch: a.request.DispatchID,
		Role: a.subagent.Role, Tier: &tier, Detail: d,
	}
}

// complete checks what only an allowed caller gets an answer about, and pins the
// source; of an order, which has that pinned, it finds what the task takes over.
func (s *Service) complete(ctx context.Context, a *ask) error {
	schema, err := inputSchema(&a.subagent)
	if err == nil {
		err = checkInput(schema, &a.subagent, a.request.Input)
	}
	if err != nil {
		return err
	}
	if _, err := a.checkEnvs(); err != nil {
		return err
	}
	if a.order != nil {
		return s.takeOver(ctx, a)
	}
	if a.request.Source != nil {
		a.commit, err = s.pinSource(ctx, a.snapshot, *a.request.Source)
	}
	return err
}

// invalid logs a request that could not be carried out as it was made.
func (s *Service) invalid(ctx context.Context, principal api.Principal, cause error) error {
	return LogInvalid(ctx, s.cfg.Ledger, principal, "dispatch", cause)
}

// LogInvalid records a request that was malformed, or contradicts what is
// stored, and returns the error for its caller.
func LogInvalid(ctx context.Context, ledger *audit.Ledger, principal api.Principal, operation string, cause error) error {
	var e *api.Error
	if !errors.As(cause, &e) {
		return cause
	}
	seq, err := ledger.Record(ctx, record.Entry{
		Kind: record.KindRequestInvalid, Principal: principal,
		Detail: record.InvalidRequest{Code: string(e.Code), Message: e.Message, Operation: operation},
	}, nil)
	if err != nil {
		return err
	}
	logged := *e
	logged.AuditEntry = &seq
	return &logged
}

// admit makes the decision durable together with the dispatch, and starts it.
// Its context holds what it stores.
func (s *Service) admit(ctx context.Context, a *ask, decision policy.Decision) (api.Dispatch, error) {
	now := s.cfg.Now().UTC()
	if a.request.DispatchID == "" {
		a.request.DispatchID = api.NewDispatchID(now)
	}
	m, err := a.manifest(now, decision)
	if err != nil {
		return api.Dispatch{}, err
	}
	envelope, err := s.sign(ctx, m)
	if err != nil {
		return api.Dispatch{}, err
	}
	digest, err := s.cfg.Blobs.Put(ctx, envelope)
	if err == nil {
		_, err = s.cfg.Blobs.Put(ctx, a.request.Input)
	}
	if err != nil {
		return api.Dispatch{}, unstorable(err)
	}
	r := row{request: a.digest, record: api.Dispatch{
		ID: m.ID, State: api.EventAccepted, Attempt: m.Attempt, Principal: m.Principal, Run: m.Run, Task: m.Task, Subagent: m.Subagent, Role: m.Role, Tier: m.Tier,
		Target: m.Target, Source: m.Source, Revision: m.Revision, Manifest: digest, Input: m.Input, AcceptedAt: now, Mode: s.cfg.Mode, Trace: a.trace,
	}}
	entry := a.entry()
	entry.Dispatch, entry.Attempt = m.ID, m.Attempt
	entry.Refs = map[string]api.Digest{record.RefManifest: digest, record.RefInput: m.Input}
	failpoint.Hit(failpoint.AcceptCommit, string(m.ID))
	admission, err := s.cfg.Ledger.Commit(ctx, decision, entry, func(tx *store.Tx) error {
		switch _, ok, err := load(tx, m.ID); {
		case err != nil:
			return err
		case ok:
			return errTaken
		}
		if err := a.by.CheckToken(); err != nil {
			return err
		}
		if err := s.stillBound(tx, m); err != nil {
			return err
		}
		return insert(tx, r)
	})
	if err != nil {
		return api.Dispatch{}, err
	}
	failpoint.Hit(failpoint.AcceptCommitted, string(m.ID))
	s.accepted(r.record, a.from)
	s.start(admission, r, s.job(r, m))
	return r.record, nil
}

// unstorable says why nothing was decided: what a decision is about is stored
// before it.
func unstorable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return api.Errorf(api.CodeAuditUnavailable, "what the decision is about cannot be stored, so nothing is allowed: %w", err).
		WithHint("see to the disk of the state directory")
}

func (s *Service) sign(ctx context.Context, m record.Manifest) ([]byte, error) {
	doc, err := canon.Marshal(m)
	if err != nil {
		return nil, err
	}
	return seal.Sign(ctx, seal.Manifest, doc, s.cfg.Key)
}

// manifest is the complete description of what will run.
func (a *ask) manifest(now time.Time, decision policy.Decision) (record.Manifest, error) {
	rev := a.snapshot.Revision
	target, _, err := rev.Target(a.target)
	if err != nil {
		return record.Manifest{}, err
	}
	mode, err := target.Mode.Ceiling() // as it was where the revision is not the one in force
	if err != nil {
		return record.Manifest{}, err
	}
	m := record.Manifest{
		V: 1, ID: a.request.DispatchID, Attempt: 1, Principal: a.principal, Policies: decision.Policies(),
		Revision: rev.Number(), RevisionDigest: rev.Digest(),
		Subagent: a.subagent.Name, Agent: a.subagent.Agent, Model: a.subagent.Model, Role: a.subagent.Role, Tier: a.subagent.Tier,
		Ceiling: min(decision.Ceiling(), mode), Target: target.Name, Level: target.Level,
		Capabilities: slices.Concat(a.subagent.Capabilities, a.extra()), Envs: a.request.Envs,
		Limits: a.limits(target), Egress: []string{}, Input: api.DigestOf(a.request.Input), Trace: a.trace.Attempt(a.request.DispatchID, 1),
		NotBefore: now, Expires: now.Add(startTime), Nonce: nonce(),
	}
	if a.order != nil {
		m.Run, m.Task, m.Fence, m.Needs = a.run, a.task, a.order.Fence, a.needs
	}
	if a.request.Source != nil {
		m.Source = &api.PinnedSource{Name: a.request.Source.Name, Commit: a.commit}
	}
	m.Artifacts, err = pins(rev, m)
	return m, err
}

func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	return hex.EncodeToString(b[:])
}

// extra are the capabilities of the request that the subagent does not have
// already.
func (a *ask) extra() []api.Name {
	return slices.DeleteFunc(slices.Clone(a.request.Capabilities), func(n api.Name) bool { return slices.Contains(a.subagent.Capabilities, n) })
}

// limits are those of the subagent, lowered by the target and by the request.
func (a *ask) limits(t api.Target) api.Limits {
	l := a.subagent.Limits.Or(api.DefaultLimits()).Least(t.Limits)
	seconds := min(a.request.TimeoutSeconds, math.MaxInt32) // more overflows: a limit far in the past
	return l.Least(api.Limits{Timeout: api.Duration(time.Duration(seconds) * time.Second)})
}

func pins(rev *catalog.Revision, m record.Manifest) ([]record.Pin, error) {
	var out []record.Pin
	for _, ref := range m.Refs() {
		k, n, err := ref.Split()
		if err != nil {
			return nil, err
		}
		e, err := rev.Entry(k, n)
		if err != nil {
			return nil, err
		}
		out = append(out, record.Pin{Ref: ref, Digest: e.Digest})
	}
	return out, nil
}
