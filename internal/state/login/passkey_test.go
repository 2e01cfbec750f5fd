package login

import (
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// ring is the operator keys.
type ring struct {
	keys    []seal.Key
	counter seal.SignCounter
}

func (r *ring) Passkeys() []seal.Key { return r.keys }

func (r *ring) CheckCount(id seal.KeyID, n uint32) error {
	return r.counter.Check(map[seal.KeyID]uint32{id: n})
}

func passkey(t *testing.T, p api.Principal) (*softkey.Authenticator, seal.Key) {
	t.Helper()
	a, err := softkey.New(false)
	if err != nil {
		t.Fatal(err)
	}
	k, err := a.Key(string(p))
	if err != nil {
		t.Fatal(err)
	}
	k.Principal = p
	return a, k
}

// proves R-B9, R-T4, R-P7
func TestAPasskeyLogsIn(t *testing.T) {
	a, k := passkey(t, "human:ann")
	stranger, _ := passkey(t, "human:eve")
	account, ofAccount := passkey(t, "local:root")
	now := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	keys := &ring{keys: []seal.Key{k, ofAccount}, counter: seal.SignCounter{k.ID: 10}}
	a.Count = 10
	p := NewPasskeys(keys, "service", func() time.Time { return now })
	begin := func() api.PasskeyChallenge {
		t.Helper()
		c, err := p.Begin(softkey.Origin)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	finish := func(id string, a *softkey.Authenticator, challenge []byte) (Identity, error) {
		t.Helper()
		by, err := a.Assert([32]byte(challenge))
		if err != nil {
			t.Fatal(err)
		}
		return p.Finish(id, api.Assertion(by))
	}
	honest := func() {
		t.Helper()
		c := begin()
		if who, err := finish(c.ID, a, c.Challenge); err != nil || who.Principal != "human:ann" || who.Key != string(k.ID) || who.Credential == "" {
			t.Fatalf("the control: %+v, %v", who, err)
		}
	}
	honest()
	if c := begin(); len(c.Passkeys) != 1 || c.Passkeys[0].Key != string(k.ID) {
		t.Errorf("the passkeys of people: %v", c.Passkeys)
	}
	refusedFor := func(name, want string, err error) {
		t.Helper()
		if api.CodeOf(err) != api.CodeUnauthenticated || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		honest()
	}
	c, other := begin(), begin()
	_, err := finish(c.ID, a, other.Challenge)
	refusedFor("another challenge", "another challenge", err)
	_, err = finish(c.ID, stranger, c.Challenge)
	refusedFor("a stranger", "not one of a person", err)
	_, err = finish(c.ID, account, c.Challenge)
	refusedFor("the key of an account", "not one of a person", err)
	_, err = finish(c.ID+"A", a, c.Challenge)
	refusedFor("a changed challenge", "not one of this service", err)
	_, err = finish(NewPasskeys(keys, "service", p.now).protect([]byte(`{"v":1}`)), a, c.Challenge)
	refusedFor("a challenge of another start", "not one of this service", err)
	at := *a
	at.Origin = "http://evil.bailiwick.localhost:8471"
	_, err = finish(c.ID, &at, c.Challenge)
	refusedFor("another origin", "origin", err)
	at = *a
	at.Flags = 0x01
	_, err = finish(c.ID, &at, c.Challenge)
	refusedFor("an unverified user", "not verified", err)
	at = *a
	at.Stuck, at.Count = true, 5
	_, err = finish(c.ID, &at, c.Challenge)
	refusedFor("a copied authenticator", "may have been copied", err)
	decision, err := a.Assert(seal.Challenge(seal.Operator, []byte(`{"v":1}`)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Finish(c.ID, api.Assertion(decision))
	refusedFor("the signature of a decision", "another challenge", err)
	c = begin()
	now = now.Add(challengeTime)
	_, err = finish(c.ID, a, c.Challenge)
	refusedFor("late", "expired", err)
	if _, err := p.Begin("https://evil.example"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a page without passkeys: %v", err)
	}
	who := Identity{Principal: "human:ann", Key: string(k.ID)}
	if err := p.Valid(who); err != nil {
		t.Error(err)
	}
	if keys.keys = []seal.Key{ofAccount}; p.Valid(who) == nil {
		t.Error("a retired key is in force")
	}
}
