// Package api is the vocabulary that every program of Bailiwick shares: ids,
// digests, tiers, outcomes, the artifacts of the catalog, the requests and
// answers of the service, and the one table of error codes.
//
// It holds values only. It does no input or output, reads no clock, and
// imports nothing but the standard library, so any program may link it.
package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Digest names content by its hash: "sha256:" and 64 lower-case hexadecimal
// digits, as in the OCI image specification.
type Digest string

const digestPrefix = "sha256:"

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest(digestPrefix + hex.EncodeToString(sum[:]))
}

// ParseDigest accepts only the canonical spelling.
func ParseDigest(s string) (Digest, error) {
	h, ok := strings.CutPrefix(s, digestPrefix)
	if raw, err := hex.DecodeString(h); !ok || err != nil || len(raw) != sha256.Size || h != strings.ToLower(h) {
		return "", fmt.Errorf("digest %q: want sha256: and 64 lower-case hexadecimal digits", s)
	}
	return Digest(s), nil
}

// Hex returns the hexadecimal part of d.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), digestPrefix) }

// Short returns enough of d for a person to recognise it.
func (d Digest) Short() string { return digestPrefix + d.Hex()[:min(12, len(d.Hex()))] }

// UnmarshalText refuses everything that ParseDigest refuses.
func (d *Digest) UnmarshalText(b []byte) error { return unmarshal(d, b, ParseDigest) }

// Name is the name of an artifact: 1 to 64 characters of a-z, 0-9, '.', '_'
// and '-', beginning and ending with a letter or digit.
type Name string

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$`)

// NamePattern is the form of a name, as a regular expression.
func NamePattern() string { return namePattern.String() }

// ParseName checks the form of a name.
func ParseName(s string) (Name, error) {
	if !namePattern.MatchString(s) {
		return "", fmt.Errorf("name %q: want 1 to 64 of a-z 0-9 . _ - beginning and ending with a letter or digit", s)
	}
	return Name(s), nil
}

// UnmarshalText refuses everything that ParseName refuses.
func (n *Name) UnmarshalText(b []byte) error { return unmarshal(n, b, ParseName) }

// Principal is an authenticated caller, as KIND:WHO. The kinds are human, agent, ci
// and local; local:LOGIN is the account of the socket's peer and is never human:.
type Principal string

var principalPattern = regexp.MustCompile(`^(human|agent|ci|local):[A-Za-z0-9_][A-Za-z0-9_.@:$-]{0,127}$`)

// ParsePrincipal checks the form of a principal.
func ParsePrincipal(s string) (Principal, error) {
	if !principalPattern.MatchString(s) {
		return "", fmt.Errorf("principal %q: want human:, agent:, ci: or local: and a name", s)
	}
	return Principal(s), nil
}

// Person reports whether p is somebody who signs in, not an AI or a program: it is of
// kind human or local.
func (p Principal) Person() bool {
	return strings.HasPrefix(string(p), "human:") || strings.HasPrefix(string(p), "local:")
}

// Human reports whether p is a person, not an account of a machine.
func (p Principal) Human() bool { return strings.HasPrefix(string(p), "human:") }

// Looks returns how people read p, in two spellings: without case, and with the
// letters that look alike as one. Principals that share one of them are taken for
// each other: agent:Claude, agent:cIaude and agent:c1aude for agent:claude. Only one
// of them may be added or granted.
func (p Principal) Looks() [2]string {
	alike := strings.NewReplacer("I", "l", "1", "l", "0", "o", "rn", "m").Replace(string(p))
	return [2]string{strings.ToLower(string(p)), "~" + strings.ToLower(alike)}
}

// Resembles reports whether o is another principal that people take for p.
func (p Principal) Resembles(o Principal) bool {
	a, b := p.Looks(), o.Looks()
	return p != o && (a[0] == b[0] || a[1] == b[1])
}

// SamePerson reports whether p and o may be one person: they are equal, people take
// one for the other, or they are human:NAME and local:NAME.
func (p Principal) SamePerson(o Principal) bool {
	if p.Person() && o.Person() {
		_, name, _ := strings.Cut(string(p), ":")
		_, other, _ := strings.Cut(string(o), ":")
		p, o = Principal(name), Principal(other)
	}
	return p == o || p.Resembles(o)
}

// SameName reports whether p and o name one person exactly: they are equal, or they are
// human:NAME and local:NAME.
func (p Principal) SameName(o Principal) bool {
	_, name, _ := strings.Cut(string(p), ":")
	_, other, _ := strings.Cut(string(o), ":")
	return p == o || p.Person() && o.Person() && name == other
}

// UnmarshalText refuses everything that ParsePrincipal refuses.
func (p *Principal) UnmarshalText(b []byte) error { return unmarshal(p, b, ParsePrincipal) }

// Actor is who did something: a Principal, or Service. Empty: nobody did it yet.
type Actor string

// Service is the actor of what the service does by itself, such as at a limit. It
// is the form of no principal.
const Service Actor = "service"

// UnmarshalText refuses what is neither Service nor the form of a principal.
func (a *Actor) UnmarshalText(b []byte) error {
	return unmarshal(a, b, func(s string) (Actor, error) {
		if Actor(s) == Service {
			return Service, nil
		}
		p, err := ParsePrincipal(s)
		return Actor(p), err
	})
}

// DispatchID identifies one dispatch. Ids made by the service sort by time; a caller
// may choose its own to make a retry safe.
type DispatchID string

var dispatchIDPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{2,62}[a-z0-9]$`)

// DispatchIDPattern is the form of an id, as a regular expression.
func DispatchIDPattern() string { return dispatchIDPattern.String() }

// ParseDispatchID checks the form of an id: 4 to 64 of a-z, 0-9 and '-'.
func ParseDispatchID(s string) (DispatchID, error) {
	if !dispatchIDPattern.MatchString(s) {
		return "", fmt.Errorf("dispatch id %q: want 4 to 64 of a-z 0-9 - beginning and ending with a letter or digit", s)
	}
	return DispatchID(s), nil
}

// UnmarshalText refuses everything that ParseDispatchID refuses.
func (id *DispatchID) UnmarshalText(b []byte) error { return unmarshal(id, b, ParseDispatchID) }

// NewDispatchID returns an unused id whose text sorts by now.
func NewDispatchID(now time.Time) DispatchID {
	var b [15]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16) //nolint:gosec // G115: times before 1970 do not occur
	_, _ = rand.Read(b[6:])                                        // crypto/rand.Read never fails
	enc := base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
	return DispatchID("d-" + enc.EncodeToString(b[:]))
}

// unmarshal sets to to what parse makes of b.
func unmarshal[T any](to *T, b []byte, parse func(string) (T, error)) error {
	v, err := parse(string(b))
	*to = v
	return err
}
