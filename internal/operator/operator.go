// Package operator keeps what operators decided: who is a principal, which
// tokens stand for it, how far it may go, and which emergency stops hold.
//
// A decision is a record that an operator's key signed, one by one (R-B9). The
// records of a service are a chain in its state: each names the one before and
// the service, so that none can be left out, brought back or used elsewhere.
// They are verified when they are handed in, and all of them again whenever the
// service starts: one that does not verify, a gap, or a chain that is not the
// one of the log is a refusal to start. What follows from them is in memory
// only, so a row that is changed while the service runs changes nothing.
//
// The package never sees a token but to hash it, holds no key, and decides
// nothing about a request: policy does, by what is asked here.
//
// Carries R-T4 (tokens), R-T5 (consent), R-T10 (emergency stops), R-B9 (the
// service's half).
package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/store"
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
`, stopSchema}}
}

// Config is what a Registry is made of.
type Config struct {
	Root    string // path of the file that says which operator keys count
	Service seal.KeyID
	Store   *store.Store
	Ledger  *audit.Ledger
	Now     func() time.Time
}

// Registry is what the operators of one service decided. It is safe for
// concurrent use.
type Registry struct {
	cfg Config

	adding  sync.Mutex                // one record at a time
	root    string                    // digest of the keys that the chain was verified by; guarded by adding
	pending atomic.Pointer[situation] // what follows once the record is durable that was handed in last; nil before the first
	state   atomic.Pointer[situation] // what follows from the chain; replaced whole

	engaging sync.Mutex                 // one stop at a time
	stops    atomic.Pointer[[]api.Stop] // all that were ever engaged, in order; replaced whole
}

// Open verifies all that is stored. Whatever is wrong is an error that names
// the record.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg}
	if err := r.load(ctx); err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "operator records: %w", err).
			WithHint("nothing that operators decided can be relied on; restore the state and %s as they were", cfg.Root)
	}
	return r, nil
}

// Head is what the next record has to name.
func (r *Registry) Head() api.OperatorHead {
	s := r.state.Load()
	return api.OperatorHead{Service: string(r.cfg.Service), Number: s.number, Digest: s.digest}
}

// Consent returns the highest tier that an operator has consented to for p:
// observe unless one was recorded.
func (r *Registry) Consent(p api.Principal) api.Tier { return r.state.Load().ceilings[p] }

// ConsentIn is Consent in a transaction: no record that comes before its end
// in the log says otherwise.
func (r *Registry) ConsentIn(tx *store.Tx, p api.Principal) (api.Tier, error) {
	s, next := r.state.Load(), r.pending.Load()
	if next != nil && next.number > s.number {
		var durable int
		if err := tx.Get("SELECT count(*) FROM operator_record WHERE number = ?", store.Args{int64(next.number)}, &durable); err != nil { //nolint:gosec // G115: numbers count up from 1
			return api.Observe, err
		}
		if durable == 1 { // and Add is about to say so
			s = next
		}
	}
	return s.ceilings[p], nil
}

// Authenticate returns whose token it is. Where it is refused the id is that
// of the token, if it is one that was ever made here.
func (r *Registry) Authenticate(token string) (api.Principal, api.TokenID, error) {
	if err := api.CheckToken(token); err != nil {
		return "", "", refusedToken("%w", err)
	}
	s := r.state.Load()
	id, ok := s.hashes[api.DigestOf([]byte(token))]
	if !ok {
		return "", "", refusedToken("no such token")
	}
	t := s.tokens[id]
	if state := t.state(r.cfg.Now()); state != api.TokenActive {
		return "", id, refusedToken("token %s is %s", id, state)
	}
	return t.principal, id, nil
}

func refusedToken(format string, args ...any) *api.Error {
	return api.Errorf(api.CodeUnauthenticated, format, args...).WithHint("ask the operator for a token: bailiwick token create PRINCIPAL")
}

// Active reports whether a token is good at this moment.
func (r *Registry) Active(id api.TokenID) bool {
	t, ok := r.state.Load().tokens[id]
	return ok && t.state(r.cfg.Now()) == api.TokenActive
}

// Subject returns which principal another issuer's tokens about a subject
// stand for.
func (r *Registry) Subject(s api.OAuthSubject) (api.Principal, bool) {
	p, ok := r.state.Load().subjects[s]
	return p, ok
}

// Tokens lists all that were ever made, oldest first.
func (r *Registry) Tokens() []api.TokenInfo {
	return r.tokens(func(token) bool { return true })
}

func (r *Registry) tokens(want func(token) bool) []api.TokenInfo {
	now, list := r.cfg.Now(), []api.TokenInfo{}
	for id, t := range r.state.Load().tokens {
		if want(t) {
			list = append(list, t.info(id, now))
		}
	}
	slices.SortFunc(list, func(a, b api.TokenInfo) int {
		if d := a.CreatedAt.Compare(b.CreatedAt); d != 0 {
			return d
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list
}

// Principal says what operators decided about p, whether or not they know it.
// Which grants it has is for the catalog to say.
func (r *Registry) Principal(p api.Principal) api.PrincipalInfo {
	s := r.state.Load()
	known, ok := s.principals[p]
	return api.PrincipalInfo{
		Principal: p, Known: ok, Ceiling: s.ceilings[p], Grants: []api.Name{}, OAuth: known.oauth, Stops: r.holding(p),
		Tokens: r.tokens(func(t token) bool { return t.principal == p }),
	}
}

// Principals lists, sorted, those that operators decided something about.
func (r *Registry) Principals() []api.PrincipalInfo {
	list := []api.PrincipalInfo{}
	for _, p := range r.state.Load().names() {
		list = append(list, r.Principal(p))
	}
	return list
}

// keys returns who may sign, and the digest of that. Where there is no such
// file nobody may.
func (r *Registry) keys() (seal.TrustRoot, string, error) {
	root, err := seal.LoadTrustRoot(r.cfg.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return root, "", errNoOperator
	}
	if err != nil {
		return root, "", fmt.Errorf("the keys of operators: %w", err)
	}
	b, err := root.Encode()
	return root, string(api.DigestOf(b)), err
}

var errNoOperator = errors.New("this installation has no operator key")
