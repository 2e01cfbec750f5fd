package login

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// challengeTime is how long a person may take to touch a passkey.
const challengeTime = 2 * time.Minute

// Keys returns the operator keys in force, and the counters that their decisions had.
type Keys interface {
	Passkeys() []seal.Key
	CheckCount(id seal.KeyID, count uint32) error
}

// Passkeys opens sessions for operators' passkeys. A challenge is not kept: it carries the
// service's own code over what it is for, so that asking for many costs no memory. It is
// used once, because a session is opened once for each credential (Sessions.Begin).
type Passkeys struct {
	keys    Keys
	service string
	now     func() time.Time
	secret  [32]byte // of this start

	mu     sync.Mutex
	counts seal.SignCounter // of logins since the start; guarded by mu
}

// NewPasskeys returns the passkey logins of a service, by the id of its first key.
func NewPasskeys(keys Keys, service string, now func() time.Time) *Passkeys {
	p := &Passkeys{keys: keys, service: service, now: now, counts: seal.SignCounter{}}
	_, _ = rand.Read(p.secret[:]) // never fails
	return p
}

// statement is what a passkey signs to log in: its payload type keeps it apart from every
// decision.
type statement struct {
	Expires string `json:"expires"` // RFC 3339
	Nonce   []byte `json:"nonce"`
	Origin  string `json:"origin"` // of the page
	Service string `json:"service"`
	V       int    `json:"v"`
}

// Begin returns a challenge for the passkeys of people at the page with an origin.
func (p *Passkeys) Begin(origin string) (api.PasskeyChallenge, error) {
	list := p.of(origin)
	if len(list) == 0 {
		return api.PasskeyChallenge{}, api.Errorf(api.CodeNotFound, "no passkey of a person is enrolled for %.120q", origin).
			WithHint("log in with the identity provider or a token; an operator enrols a passkey: bailiwick operators add")
	}
	nonce := make([]byte, 32)
	_, _ = rand.Read(nonce)
	expires := p.now().Add(challengeTime).UTC()
	payload, err := canon.Marshal(statement{V: 1, Service: p.service, Origin: origin, Nonce: nonce, Expires: expires.Format(time.RFC3339)})
	if err != nil {
		return api.PasskeyChallenge{}, err
	}
	challenge := seal.Challenge(seal.Login, payload)
	c := api.PasskeyChallenge{ID: p.protect(payload), Challenge: challenge[:], ExpiresAt: expires}
	for _, k := range list {
		c.Passkeys = append(c.Passkeys, api.PasskeyInfo{Key: string(k.ID), Name: k.Name, Credential: k.Passkey.ID, RPID: k.Passkey.RPID, Origins: k.Passkey.Origins})
	}
	return c, nil
}

// Any reports whether a person has a passkey.
func (p *Passkeys) Any() bool {
	return slices.ContainsFunc(p.keys.Passkeys(), func(k seal.Key) bool { return strings.HasPrefix(string(k.Principal), "human:") })
}

// of returns the passkeys of people that a page may ask for.
func (p *Passkeys) of(origin string) []seal.Key {
	return slices.DeleteFunc(slices.Clone(p.keys.Passkeys()), func(k seal.Key) bool {
		return !strings.HasPrefix(string(k.Principal), "human:") || !slices.Contains(k.Passkey.Origins, origin)
	})
}

func (p *Passkeys) protect(payload []byte) string {
	return base64.RawURLEncoding.EncodeToString(payload) + "." + base64.RawURLEncoding.EncodeToString(p.code(payload))
}

func (p *Passkeys) code(payload []byte) []byte {
	m := hmac.New(sha256.New, p.secret[:])
	m.Write(payload)
	return m.Sum(nil)
}

// read returns the payload of a challenge of this start, if it has not expired.
func (p *Passkeys) read(id string) (payload []byte, s statement, err error) {
	text, code, _ := strings.Cut(id, ".")
	payload, err = base64.RawURLEncoding.Strict().DecodeString(text)
	given, err2 := base64.RawURLEncoding.Strict().DecodeString(code)
	if err != nil || err2 != nil || !hmac.Equal(given, p.code(payload)) || canon.DecodeExact(payload, &s) != nil {
		return nil, s, refused("passkey: the challenge is not one of this service since its start")
	}
	if expires, err := time.Parse(time.RFC3339, s.Expires); err != nil || !p.now().Before(expires) {
		return nil, s, refused("passkey: the challenge has expired")
	}
	return payload, s, nil
}

// Finish returns whose passkey answered a challenge.
func (p *Passkeys) Finish(id string, by api.Assertion) (Identity, error) {
	payload, s, err := p.read(id)
	if err != nil {
		return Identity{}, err
	}
	a := seal.Assertion(by)
	list := p.of(s.Origin)
	i := slices.IndexFunc(list, func(k seal.Key) bool { return slices.Equal(k.Passkey.ID, a.Credential) })
	if i < 0 {
		return Identity{}, refused("passkey: not one of a person that is enrolled for %.120q", s.Origin)
	}
	k := list[i]
	if err := k.VerifyAssertion(seal.Login, payload, a, s.Origin); err != nil {
		return Identity{}, refused("passkey %s: %w", k.ID, err)
	}
	if err := p.count(k.ID, a.SignCount()); err != nil {
		return Identity{}, refused("%w", err)
	}
	return Identity{Principal: k.Principal, Via: api.LoginPasskey, Key: string(k.ID), Credential: api.DigestOf(payload)}, nil
}

// count refuses an authenticator that may have been copied.
func (p *Passkeys) count(id seal.KeyID, n uint32) error {
	if err := p.keys.CheckCount(id, n); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := map[seal.KeyID]uint32{id: n}
	if err := p.counts.Check(counts); err != nil {
		return err
	}
	p.counts.Add(counts)
	return nil
}

// Valid returns an error unless a passkey still belongs to a person.
func (p *Passkeys) Valid(who Identity) error {
	for _, k := range p.keys.Passkeys() {
		if string(k.ID) == who.Key && k.Principal == who.Principal {
			return nil
		}
	}
	return refused("passkey %s is no longer in force for %s", who.Key, who.Principal)
}
