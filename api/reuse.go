package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Effect says what a worker changes beside its products.
type Effect string

// The values of Effect. Without one a worker is taken to have effects, and what it does
// is not known to repeat.
const (
	// EffectPure: it changes nothing, and the same inputs give results that are as good.
	EffectPure  Effect = "pure"
	EffectWrite Effect = "write" // it changes things outside
)

// UnmarshalText refuses other values.
func (e *Effect) UnmarshalText(b []byte) error {
	if v := Effect(b); v != EffectPure && v != EffectWrite {
		return fmt.Errorf("effect %.40q: want %s or %s", b, EffectPure, EffectWrite)
	}
	*e = Effect(b)
	return nil
}

// ReusePolicy says whether a task of a pure subagent may be done with the result of an
// earlier dispatch. Its JSON is "never" or {"max_age": DURATION}; the zero value allows
// any that is still stored.
type ReusePolicy struct {
	Never  bool
	MaxAge Duration // of the end of the earlier dispatch; 0: no bound
}

const reuseNever = "never"

type reuseAge struct {
	MaxAge Duration `json:"max_age"`
}

// MarshalJSON writes the form that UnmarshalJSON reads.
func (p ReusePolicy) MarshalJSON() ([]byte, error) {
	if p.Never {
		return json.Marshal(reuseNever)
	}
	return json.Marshal(reuseAge{p.MaxAge})
}

// UnmarshalJSON reads "never" or {"max_age": DURATION}.
func (p *ReusePolicy) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) == nil && word == reuseNever {
		*p = ReusePolicy{Never: true}
		return nil
	}
	var o reuseAge
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil || o.MaxAge <= 0 {
		return errors.New(`reuse: want never, or {"max_age": DURATION} such as 24h`)
	}
	*p = ReusePolicy{MaxAge: o.MaxAge}
	return nil
}

// Allows reports whether a result of that age may be reused.
func (p *ReusePolicy) Allows(age time.Duration) bool {
	return p == nil || !p.Never && (p.MaxAge == 0 || age <= time.Duration(p.MaxAge))
}

// Reuse says which earlier dispatch has the result of one that did not run.
type Reuse struct {
	DispatchID DispatchID `json:"dispatchId"`
	Key        Digest     `json:"key"`                 // of all that the result depends on
	EndedAt    time.Time  `json:"endedAt"`             // of the earlier dispatch
	Principal  Principal  `json:"principal,omitempty"` // its owner, if it is another one
}
