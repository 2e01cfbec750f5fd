package operator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// situation is what follows from a chain of records. It is a value: apply
// changes a copy.
type situation struct {
	number uint64
	digest api.Digest // of the newest record

	principals map[api.Principal]principal // that were added
	ceilings   map[api.Principal]api.Tier
	tokens     map[api.TokenID]token
	hashes     map[api.Digest]api.TokenID
	subjects   map[api.OAuthSubject]api.Principal
	lifted     map[string]time.Time // stops
}

type principal struct{ oauth *api.OAuthSubject }

type token struct {
	principal        api.Principal
	created, expires time.Time
	ended            *time.Time
	how              api.TokenState // it ended
}

func (t token) state(now time.Time) api.TokenState {
	switch {
	case t.ended != nil:
		return t.how
	case !now.Before(t.expires):
		return api.TokenExpired
	}
	return api.TokenActive
}

func (t token) info(id api.TokenID, now time.Time) api.TokenInfo {
	return api.TokenInfo{ID: id, Principal: t.principal, State: t.state(now), CreatedAt: t.created, ExpiresAt: t.expires, EndedAt: t.ended}
}

func (s *situation) names() []api.Principal {
	all := map[api.Principal]bool{}
	for p := range s.principals {
		all[p] = true
	}
	for p := range s.ceilings {
		all[p] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func nothing() *situation {
	return &situation{
		principals: map[api.Principal]principal{}, ceilings: map[api.Principal]api.Tier{}, tokens: map[api.TokenID]token{},
		hashes: map[api.Digest]api.TokenID{}, subjects: map[api.OAuthSubject]api.Principal{}, lifted: map[string]time.Time{},
	}
}

// clone is what may be changed without anybody noticing.
func (s *situation) clone() *situation {
	c := *s
	c.principals, c.ceilings, c.tokens = maps.Clone(s.principals), maps.Clone(s.ceilings), maps.Clone(s.tokens)
	c.hashes, c.subjects, c.lifted = maps.Clone(s.hashes), maps.Clone(s.subjects), maps.Clone(s.lifted)
	return &c
}

// apply makes of s what it is after rec, whose form and place were checked. It
// refuses what makes no sense here; s is worth nothing then.
func (s *situation) apply(rec api.OperatorRecord, digest api.Digest) error {
	var err error
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
	default:
		err = api.Errorf(api.CodeInvalid, "verb %q is not known", string(rec.Verb))
	}
	s.number, s.digest = rec.Number, digest
	return err
}

func (s *situation) add(rec api.OperatorRecord) error {
	if _, ok := s.principals[rec.Principal]; ok {
		return api.Errorf(api.CodeConflict, "principal %s is known already", rec.Principal).WithHint("see: bailiwick principal show %s", rec.Principal)
	}
	if rec.OAuth != nil {
		if other, ok := s.subjects[*rec.OAuth]; ok {
			return api.Errorf(api.CodeConflict, "tokens of %s about %q stand for %s already", rec.OAuth.Issuer, rec.OAuth.Subject, other)
		}
		s.subjects[*rec.OAuth] = rec.Principal
	}
	s.principals[rec.Principal] = principal{rec.OAuth}
	return nil
}

// remove takes back all that was decided for a principal. Its tokens stay on the
// list, ended: should it be added again, none of them is good again.
func (s *situation) remove(rec api.OperatorRecord) error {
	if err := s.known(rec.Principal); err != nil {
		return err
	}
	for id, t := range s.tokens {
		if t.principal == rec.Principal && t.ended == nil {
			t.ended, t.how = &rec.At, api.TokenRevoked
			s.tokens[id] = t
		}
	}
	if o := s.principals[rec.Principal].oauth; o != nil {
		delete(s.subjects, *o)
	}
	delete(s.principals, rec.Principal)
	delete(s.ceilings, rec.Principal)
	return nil
}

// known refuses a name that nobody added, which may be misspelt. Who is local:
// the operating system says.
func (s *situation) known(p api.Principal) error {
	if _, ok := s.principals[p]; ok {
		return nil
	}
	return api.Errorf(api.CodeInvalid, "principal %s is not known", p).WithHint("run: bailiwick principal add %s; see: bailiwick principal list", p)
}

func (s *situation) bound(rec api.OperatorRecord) error {
	if !local(rec.Principal) {
		if err := s.known(rec.Principal); err != nil {
			return err
		}
	}
	s.ceilings[rec.Principal] = *rec.Ceiling
	return nil
}

func (s *situation) begin(rec api.OperatorRecord) error {
	if err := s.known(rec.Principal); err != nil {
		return err
	}
	t := rec.Token
	if _, ok := s.tokens[t.ID]; ok {
		return api.Errorf(api.CodeConflict, "token %s is there already", t.ID)
	}
	if id, ok := s.hashes[t.Hash]; ok {
		return api.Errorf(api.CodeConflict, "token %s: it is token %s, under another name", t.ID, id)
	}
	if good := t.ExpiresAt.Sub(rec.At); good <= 0 || good > api.MaxTokenLifetime {
		return api.Errorf(api.CodeInvalid, "token %s: expires at %s: want a time after %s and at most %d days later",
			t.ID, t.ExpiresAt.Format(time.RFC3339), rec.At.Format(time.RFC3339), int(api.MaxTokenLifetime.Hours()/24))
	}
	s.tokens[t.ID] = token{principal: rec.Principal, created: rec.At, expires: t.ExpiresAt}
	s.hashes[t.Hash] = t.ID
	return nil
}

func (s *situation) end(rec api.OperatorRecord, how api.TokenState) error {
	t, ok := s.tokens[rec.Replaces]
	switch {
	case !ok:
		return api.Errorf(api.CodeInvalid, "there is no token %s", rec.Replaces).WithHint("see: bailiwick token list")
	case t.principal != rec.Principal:
		return api.Errorf(api.CodeInvalid, "token %s is of %s, not of %s", rec.Replaces, t.principal, rec.Principal)
	case t.ended != nil:
		return api.Errorf(api.CodeConflict, "token %s was %s at %s", rec.Replaces, t.how, t.ended.Format(time.RFC3339))
	}
	t.ended, t.how = &rec.At, how
	s.tokens[rec.Replaces] = t
	return nil
}

// lift notes that a stop no longer holds. Whether there is such a stop the
// registry knows.
func (s *situation) lift(rec api.OperatorRecord) error {
	if at, ok := s.lifted[rec.Stop]; ok {
		return api.Errorf(api.CodeConflict, "stop %s was lifted at %s", rec.Stop, at.Format(time.RFC3339))
	}
	s.lifted[rec.Stop] = rec.At
	return nil
}

// place says whether rec is the one that comes next.
func (s *situation) place(rec api.OperatorRecord) error {
	if rec.Number == s.number+1 && rec.Previous == s.digest {
		return nil
	}
	return fmt.Errorf("record %d does not follow record %d", rec.Number, s.number)
}
