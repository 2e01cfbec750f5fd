package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// state is the result of applying a chain of records. Once published it never
// changes: apply works on a clone.
type state struct {
	number uint64
	digest api.Digest // of the newest record

	principals map[api.Principal]principal // added and not removed
	ceilings   map[api.Principal]api.Tier
	tokens     map[api.TokenID]token
	hashes     map[api.Digest]api.TokenID
	subjects   map[api.OAuthSubject]api.Principal
	lifted     map[string]time.Time  // when each stop was lifted, by id
	anchors    map[lostAnchor]uint64 // named as lost, by which record
	secrets    map[api.Name]secretValue
	votes      ballot.Votes
	counter    seal.SignCounter // of the passkeys

	operators *seal.Operators // whose signatures count; nil without operators.json
	sets      []setFrom       // all that were in force, in order
	keys      []api.OperatorKey
}

// setFrom is a set of operator keys, and the number of the first record under it.
type setFrom struct {
	from      uint64
	operators *seal.Operators // nothing follows it
}

type principal struct{ oauth *api.OAuthSubject }

type token struct {
	principal        api.Principal
	created, expires time.Time
	ended            *time.Time
	endState         api.TokenState // once it has ended: revoked or rotated
}

func (t token) stateAt(now time.Time) api.TokenState {
	switch {
	case t.ended != nil:
		return t.endState
	case !now.Before(t.expires):
		return api.TokenExpired
	}
	return api.TokenActive
}

func (t token) info(id api.TokenID, now time.Time) api.TokenInfo {
	return api.TokenInfo{ID: id, Principal: t.principal, State: t.stateAt(now), CreatedAt: t.created, ExpiresAt: t.expires, EndedAt: t.ended}
}

func (s *state) names() []api.Principal {
	all := map[api.Principal]bool{}
	for p := range s.principals {
		all[p] = true
	}
	for p := range s.ceilings {
		all[p] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func newState() *state {
	return &state{
		principals: map[api.Principal]principal{}, ceilings: map[api.Principal]api.Tier{}, tokens: map[api.TokenID]token{},
		hashes: map[api.Digest]api.TokenID{}, subjects: map[api.OAuthSubject]api.Principal{}, lifted: map[string]time.Time{}, anchors: map[lostAnchor]uint64{}, secrets: map[api.Name]secretValue{},
		votes: ballot.Votes{}, counter: seal.SignCounter{},
	}
}

// clone returns a deep copy of s.
func (s *state) clone() *state {
	c := *s
	c.principals, c.ceilings, c.tokens = maps.Clone(s.principals), maps.Clone(s.ceilings), maps.Clone(s.tokens)
	c.hashes, c.subjects, c.lifted, c.anchors = maps.Clone(s.hashes), maps.Clone(s.subjects), maps.Clone(s.lifted), maps.Clone(s.anchors)
	c.secrets, c.votes, c.counter = maps.Clone(s.secrets), s.votes.Clone(), maps.Clone(s.counter)
	if s.operators != nil {
		c.operators, c.keys = s.operators.Clone(), slices.Clone(s.keys)
	}
	return &c
}

// apply applies rec, whose form and place have been checked, to s. After an error
// s is invalid.
func (s *state) apply(v verified) error {
	rec, err := v.record, error(nil)
	if err := s.counter.Check(v.counts); err != nil {
		return api.Errorf(api.CodeIntegrity, "operator record: %w", err).WithHint("do not use this passkey any more; bailiwick operators list shows the operator keys")
	}
	s.counter.Add(v.counts)
	switch rec.Verb {
	case api.VerbPrincipalAdd:
		err = s.add(rec)
	case api.VerbPrincipalRemove:
		err = s.remove(rec)
	case api.VerbTokenCreate:
		err = s.begin(rec)
	case api.VerbTokenRotate:
		if err = s.end(rec, api.TokenRotated); err == nil {
			err = s.begin(rec)
		}
	case api.VerbTokenRevoke:
		err = s.end(rec, api.TokenRevoked)
	case api.VerbCeilingSet:
		err = s.bound(rec)
	case api.VerbStopLift:
		err = s.lift(rec)
	case api.VerbAnchorLost:
		err = s.lose(rec)
	case api.VerbSecretSet:
		s.secrets[rec.Secret] = secretValue{rec.Content, rec.At}
	case api.VerbSecretRemove:
		err = s.removeSecret(rec)
	case api.VerbApprove, api.VerbDeny:
		err = s.vote(v)
	case api.VerbOperatorSet:
		err = s.follow(v)
	default:
		err = api.Errorf(api.CodeInvalid, "unknown verb %q", string(rec.Verb))
	}
	s.number, s.digest = rec.Number, v.digest
	return err
}

func (s *state) add(rec api.OperatorRecord) error {
	if _, ok := s.principals[rec.Principal]; ok {
		return api.Errorf(api.CodeConflict, "principal %s already exists", rec.Principal).WithHint("see: bailiwick principal show %s", rec.Principal)
	}
	if rec.OAuth != nil {
		if other, ok := s.subjects[*rec.OAuth]; ok {
			return api.Errorf(api.CodeConflict, "subject %[2]q of issuer %[1]s already belongs to principal %[3]s", rec.OAuth.Issuer, rec.OAuth.Subject, other)
		}
		s.subjects[*rec.OAuth] = rec.Principal
	}
	s.principals[rec.Principal] = principal{rec.OAuth}
	return nil
}

// distinct refuses a new principal that is easily taken for one that operators
// decided about. Records older than this rule stay valid: only Add checks it.
func (s *state) distinct(p api.Principal) error {
	names := s.names()
	if p == "" || slices.Contains(names, p) {
		return nil
	}
	for _, other := range names {
		if other.Resembles(p) {
			return api.Errorf(api.CodeConflict, "principal %s is easily taken for %s, which exists", p, other).WithHint("use %s, or a name that differs in more; see: bailiwick principal list", other)
		}
	}
	return nil
}

// keyless refuses the removal of a principal while a key in force is that person's: it
// would still sign every decision. The removal does not retire the key itself, since that
// is a new set of keys, with its own rules: at least one key, and as many people as the
// threshold says. Records older than this rule stay valid: only Add checks it.
func (s *state) keyless(p api.Principal) error {
	keys := s.operators.Root().Keys
	for _, k := range keys {
		if k.Principal != p {
			continue
		}
		hint := "first run: bailiwick operators retire %s"
		if len(keys) == 1 {
			hint = "first add the key of another person: bailiwick operators add FILE --principal PRINCIPAL; then run: bailiwick operators retire %s"
		}
		return api.Errorf(api.CodeConflict, "principal %s has the operator key %s, which is in force and signs decisions", p, k.ID).WithHint(hint, k.ID)
	}
	return nil
}

// remove removes a principal and what was decided for it. Its tokens stay listed
// as revoked, so adding the principal again revives none of them.
func (s *state) remove(rec api.OperatorRecord) error {
	if err := s.known(rec.Principal); err != nil {
		return err
	}
	for id, t := range s.tokens {
		if t.principal == rec.Principal && t.ended == nil {
			t.ended, t.endState = &rec.At, api.TokenRevoked
			s.tokens[id] = t
		}
	}
	if o := s.principals[rec.Principal].oauth; o != nil {
		delete(s.subjects, *o)
	}
	delete(s.principals, rec.Principal)
	delete(s.ceilings, rec.Principal)
	s.votes.Withdraw(func(voter api.Principal) bool { return s.operators.Withdraws(rec.Principal, voter) })
	return nil
}

// known refuses a principal that was not added: the name may be misspelt.
func (s *state) known(p api.Principal) error {
	if _, ok := s.principals[p]; ok {
		return nil
	}
	return api.Errorf(api.CodeInvalid, "unknown principal %s", p).WithHint("run: bailiwick principal add %s; see: bailiwick principal list", p)
}

func (s *state) bound(rec api.OperatorRecord) error {
	if !local(rec.Principal) {
		if err := s.known(rec.Principal); err != nil {
			return err
		}
	}
	s.ceilings[rec.Principal] = *rec.Ceiling
	return nil
}

func (s *state) begin(rec api.OperatorRecord) error {
	if err := s.known(rec.Principal); err != nil {
		return err
	}
	t := rec.Token
	if _, ok := s.tokens[t.ID]; ok {
		return api.Errorf(api.CodeConflict, "duplicate token id %s", t.ID)
	}
	if id, ok := s.hashes[t.Hash]; ok {
		return api.Errorf(api.CodeConflict, "token %s has the same secret as token %s", t.ID, id)
	}
	if good := t.ExpiresAt.Sub(rec.At); good <= 0 || good > api.MaxTokenLifetime {
		return api.Errorf(api.CodeInvalid, "token %s: expires at %s: want a time after %s and at most %d days later",
			t.ID, t.ExpiresAt.Format(time.RFC3339), rec.At.Format(time.RFC3339), int(api.MaxTokenLifetime.Hours()/24))
	}
	s.tokens[t.ID] = token{principal: rec.Principal, created: rec.At, expires: t.ExpiresAt}
	s.hashes[t.Hash] = t.ID
	return nil
}

func (s *state) end(rec api.OperatorRecord, how api.TokenState) error {
	t, ok := s.tokens[rec.Replaces]
	switch {
	case !ok:
		return api.Errorf(api.CodeInvalid, "no such token %s", rec.Replaces).WithHint("see: bailiwick token list")
	case t.principal != rec.Principal:
		return api.Errorf(api.CodeInvalid, "token %s belongs to %s, not to %s", rec.Replaces, t.principal, rec.Principal)
	case t.ended != nil:
		return api.Errorf(api.CodeConflict, "token %s was %s at %s", rec.Replaces, t.endState, t.ended.Format(time.RFC3339))
	}
	t.ended, t.endState = &rec.At, how
	s.tokens[rec.Replaces] = t
	return nil
}

// lift marks a stop as lifted. The registry checks that the stop exists.
func (s *state) lift(rec api.OperatorRecord) error {
	if at, ok := s.lifted[rec.Stop]; ok {
		return api.Errorf(api.CodeConflict, "stop %s was lifted at %s", rec.Stop, at.Format(time.RFC3339))
	}
	s.lifted[rec.Stop] = rec.At
	return nil
}

// lostAnchor identifies an anchor in a state.
type lostAnchor struct {
	name  string
	found api.Digest
}

func (s *state) lose(rec api.OperatorRecord) error {
	a := lostAnchor{rec.Anchor, rec.Found}
	if number, ok := s.anchors[a]; ok {
		return api.Errorf(api.CodeConflict, "anchor %s was named as lost in this state by record %d", rec.Anchor, number)
	}
	s.anchors[a] = rec.Number
	return nil
}

// place refuses a record that is not the next one.
func (s *state) place(rec api.OperatorRecord) error {
	if rec.Number == s.number+1 && rec.Previous == s.digest {
		return nil
	}
	return fmt.Errorf("record %d does not follow record %d", rec.Number, s.number)
}

// unsignable is the error of decisions while the operator keys cannot be read.
func (s *state) unsignable(err error, root string) error {
	// If there are records, init would not restore the keys that signed them.
	if errors.Is(err, errNoOperator) && s.number == 0 {
		return api.Errorf(api.CodeInvalid, "operator record: %w: %s does not exist", err, root).WithHint("run: bailiwick init")
	}
	return api.Errorf(api.CodeIntegrity, "operator record: %w", err).WithHint("restore %s: every record must verify with its keys", root)
}

// next returns the state after v, which is handed in now.
func (s *state) next(v verified, now time.Time) (*state, error) {
	rec := v.record
	if err := s.place(rec); err != nil {
		return nil, api.Errorf(api.CodeConflict, "operator record: %w: another record came first, or this one is a duplicate", err).WithHint("run the command again")
	}
	if age := now.Sub(rec.At); age > api.OperatorRecordMaxAge || age < -maxClockLead {
		return nil, api.Errorf(api.CodeInvalid, "operator record: signed at %s, but it is %s now: want one signed in the last %s",
			rec.At.Format(time.RFC3339), now.UTC().Format(time.RFC3339), api.OperatorRecordMaxAge).WithHint("run the command again; check the clocks of both machines")
	}
	if err := s.distinct(rec.Principal); err != nil {
		return nil, err
	}
	if rec.Verb == api.VerbPrincipalRemove {
		if err := s.keyless(rec.Principal); err != nil {
			return nil, err
		}
	}
	next := s.clone()
	return next, next.apply(v)
}

// tokenInfos lists the tokens that want selects, oldest first.
func (s *state) tokenInfos(now time.Time, want func(token) bool) []api.TokenInfo {
	list := []api.TokenInfo{}
	for id, t := range s.tokens {
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
