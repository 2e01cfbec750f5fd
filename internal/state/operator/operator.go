// Package operator keeps what operators decided: the known principals, their
// tokens and ceilings, and the emergency stops.
//
// Each decision is a record signed by an operator's key (R-B9). The records of a
// service form a chain in its state: each names its predecessor and the service,
// so none can be left out, replayed or used elsewhere. Each is verified when it is
// submitted, and the whole chain at every start: a record that does not verify, a
// gap, or a difference from the log refuses the start. The decisions in force are
// in memory only, so changing a row while the service runs has no effect.
//
// The package sees a token only to hash it, has no private key, and decides about
// no request: policy does, from what this package returns.
//
// Carries R-T4 (tokens), R-T5 (consent), R-T10 (emergency stops), R-B9 (the
// service's half).
package operator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Migration is the schema of this package.
func Migration() store.Migration {
	return store.Migration{Owner: "operator", Steps: []string{`
CREATE TABLE operator_record (
	number   INTEGER PRIMARY KEY CHECK (number >= 1),
	envelope TEXT NOT NULL -- DSSE, as it was handed in
) STRICT;
CREATE TRIGGER operator_record_update BEFORE UPDATE ON operator_record BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
CREATE TRIGGER operator_record_delete BEFORE DELETE ON operator_record BEGIN SELECT RAISE(ABORT, 'records are append-only'); END;
`, stopSchema, invitationSchema}}
}

// Config configures a Registry.
type Config struct {
	Root    string // path of the operators' trust root
	Service seal.KeyID
	Store   *store.Store
	Ledger  *audit.Ledger
	Secrets Secrets // nil: no secret can be set
	Origin  string  // of the page on which people enrol passkeys; empty: nowhere
	Now     func() time.Time
}

// Secrets stores the encrypted values of secrets. A stored value counts once a record
// names its digest.
type Secrets interface {
	Put(content []byte) error
	Keep(keep func(api.Digest) bool) error
}

// Registry holds the decisions of one service's operators. It is safe for
// concurrent use.
type Registry struct {
	Chain   *Chain   // of records
	Pending *Pending // of records that wait for signatures
	Invited *Invitations
	cfg     Config

	adding  sync.Mutex            // serializes Add
	first   api.Digest            // of the operators.json that the chain was verified by; guarded by adding
	pending atomic.Pointer[state] // what follows once the record is durable that was handed in last; nil before the first
	current atomic.Pointer[state] // what follows from the chain; replaced whole

	engaging sync.Mutex                 // one stop at a time
	stops    atomic.Pointer[[]api.Stop] // all that were ever engaged, in order; replaced whole
}

// Open verifies everything stored. Its error names the first invalid record.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg, Chain: &Chain{cfg}}
	r.Pending = &Pending{registry: r, byID: map[api.PendingID]*pending{}}
	r.Invited = &Invitations{registry: r, origin: cfg.Origin}
	s, first, err := r.Chain.load(ctx)
	if err == nil {
		err = sweepSecrets(cfg.Secrets, s)
	}
	var stops []api.Stop
	if err == nil {
		stops, err = r.Chain.stops(ctx, s.lifted)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "operator records: %w", err).
			WithHint("the operators' decisions cannot be trusted; restore the state and %s from a backup", cfg.Root)
	}
	r.first = first
	r.current.Store(s)
	r.stops.Store(&stops)
	return r, nil
}

// Head returns what the next record has to name.
func (r *Registry) Head() api.OperatorHead {
	s := r.current.Load()
	return api.OperatorHead{Service: string(r.cfg.Service), Number: s.number, Digest: s.digest}
}

// Consent returns the highest tier that an operator consented to for p; observe
// without a record.
func (r *Registry) Consent(p api.Principal) api.Tier { return r.current.Load().ceilings[p] }

// ConsentIn returns the consent as of transaction tx: it includes a record that is
// durable but that Add has not published yet.
func (r *Registry) ConsentIn(tx *store.Tx, p api.Principal) (api.Tier, error) {
	s, err := r.stateIn(tx)
	if err != nil {
		return api.Observe, err
	}
	return s.ceilings[p], nil
}

// stateIn returns the state as of transaction tx.
func (r *Registry) stateIn(tx *store.Tx) (*state, error) {
	next := r.pending.Load() // first: Add publishes a record before the next one is pending
	s := r.current.Load()
	if next != nil && next.number > s.number {
		var durable int
		if err := tx.Get("SELECT count(*) FROM operator_record WHERE number = ?", store.Args{int64(next.number)}, &durable); err != nil { //nolint:gosec // G115: numbers count up from 1
			return nil, err
		}
		if durable == 1 {
			s = next
		}
	}
	return s, nil
}

// Authenticate returns the principal and id of a token. If it refuses a token
// that this service knows, it returns the id with the error.
func (r *Registry) Authenticate(token string) (api.Principal, api.TokenID, error) {
	if err := api.CheckToken(token); err != nil {
		return "", "", refusedToken("%w", err)
	}
	s := r.current.Load()
	id, ok := s.hashes[api.DigestOf([]byte(token))]
	if !ok {
		return "", "", refusedToken("no such token")
	}
	t := s.tokens[id]
	if state := t.stateAt(r.cfg.Now()); state != api.TokenActive {
		return "", id, refusedToken("token %s is %s", id, state)
	}
	return t.principal, id, nil
}

func refusedToken(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, format, args...).WithHint("ask the operator for a token: bailiwick token create PRINCIPAL")
}

// Active reports whether a token is active now.
func (r *Registry) Active(id api.TokenID) bool {
	t, ok := r.current.Load().tokens[id]
	return ok && t.stateAt(r.cfg.Now()) == api.TokenActive
}

// Subject returns the principal of another issuer's subject.
func (r *Registry) Subject(s api.OAuthSubject) (api.Principal, bool) {
	p, ok := r.current.Load().subjects[s]
	return p, ok
}

// AnchorLost reports whether an operator named an anchor as lost in the state that
// found identifies.
func (r *Registry) AnchorLost(name string, found api.Digest) bool {
	_, ok := r.current.Load().anchors[lostAnchor{name, found}]
	return ok
}

// Secret returns the digest of the encrypted value of file:name in force.
func (r *Registry) Secret(name api.Name) (api.Digest, bool) {
	s, ok := r.current.Load().secrets[name]
	return s.content, ok
}

// SecretSetAt returns when the value of file:name in force was set.
func (r *Registry) SecretSetAt(name api.Name) (time.Time, bool) {
	s, ok := r.current.Load().secrets[name]
	return s.at, ok
}

// Secrets returns the names of the values in force, sorted.
func (r *Registry) Secrets() []api.Name { return slices.Sorted(maps.Keys(r.current.Load().secrets)) }

// Tokens lists all tokens ever created, oldest first.
func (r *Registry) Tokens() []api.TokenInfo {
	return r.current.Load().tokenInfos(r.cfg.Now(), func(token) bool { return true })
}

// Principal returns what operators decided about p, even if it is unknown. Grants
// come from the catalog and are empty here.
func (r *Registry) Principal(p api.Principal) api.PrincipalInfo {
	s := r.current.Load()
	known, ok := s.principals[p]
	return api.PrincipalInfo{
		Principal: p, Known: ok, Ceiling: s.ceilings[p], Grants: []api.Name{}, OAuth: known.oauth, Stops: append([]string{}, r.StopsFor(api.StopSubject{Principal: p})...),
		Tokens: s.tokenInfos(r.cfg.Now(), func(t token) bool { return t.principal == p }),
	}
}

// Principals lists, sorted, the principals that operators decided about.
func (r *Registry) Principals() []api.PrincipalInfo {
	list := []api.PrincipalInfo{}
	for _, p := range r.current.Load().names() {
		list = append(list, r.Principal(p))
	}
	return list
}

var errNoOperator = errors.New("this installation has no operator key")
