package api

import (
	"fmt"
	"slices"
	"strings"
)

// Tier is the reach of an action's effects. Tiers are ordered: a ceiling admits its
// own tier and all lower ones.
type Tier int

// The tiers, lowest first.
const (
	Observe Tier = iota
	Reversible
	Stateful
	Irreversible
)

func tierNames() []string { return []string{"observe", "reversible", "stateful", "irreversible"} }

func (t Tier) String() string {
	if names := tierNames(); t >= 0 && int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("tier(%d)", int(t))
}

// ParseTier parses one of the four names.
func ParseTier(s string) (Tier, error) {
	i := slices.Index(tierNames(), s)
	if i < 0 {
		return Observe, fmt.Errorf("tier %q: want one of %s", s, strings.Join(tierNames(), ", "))
	}
	return Tier(i), nil
}

// MarshalText writes the name of t.
func (t Tier) MarshalText() ([]byte, error) {
	if _, err := ParseTier(t.String()); err != nil {
		return nil, err
	}
	return []byte(t.String()), nil
}

// UnmarshalText reads the name of a tier.
func (t *Tier) UnmarshalText(b []byte) error { return unmarshal(t, b, ParseTier) }

// Mode bounds the tiers on a target, whatever the grants allow.
type Mode string

// The modes of a target.
const (
	ReadOnly Mode = "readonly" // up to observe
	Guarded  Mode = "guarded"  // up to stateful
	Open     Mode = "open"     // everything
)

// Ceiling returns the highest tier that m admits.
func (m Mode) Ceiling() (Tier, error) {
	switch m {
	case ReadOnly:
		return Observe, nil
	case Guarded:
		return Stateful, nil
	case Open:
		return Irreversible, nil
	}
	return Observe, fmt.Errorf("mode %q: want one of %s, %s, %s", string(m), ReadOnly, Guarded, Open)
}
