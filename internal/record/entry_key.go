package record

import "fmt"

// KeyRotation is the detail of KindKeyRotated. For the service's own key
// RefRotation names what the old key signed; a key for statements is only what
// the configuration says.
type KeyRotation struct {
	New string `json:"new"`           // id of the key that is in force from the next entry on; for statements, from this one on
	Old string `json:"old,omitempty"` // id of the one that was; empty: there was none
	Use string `json:"use"`           // service or statements
}

// What a key is for.
const (
	UseService    = "service"
	UseStatements = "statements"
)

func (d KeyRotation) bound(b *bounds) Detail {
	d.New, d.Old, d.Use = b.cut(d.New), b.cut(d.Old), b.cut(d.Use)
	return d
}

func (d KeyRotation) say(*Entry) string {
	what := "the service signs"
	if d.Use != UseService {
		what = word(d.Use) + " are signed"
	}
	if d.Old == "" {
		return fmt.Sprintf("%s with key %s", what, word(d.New))
	}
	return fmt.Sprintf("%s with key %s from here on, no longer with %s", what, word(d.New), word(d.Old))
}

// DispatchAttested is the detail of KindDispatchAttested; RefStatement names
// what was signed.
type DispatchAttested struct {
	Key      string `json:"key"`      // id of the key that signed
	Subjects int64  `json:"subjects"` // that the statement is about
}

func (d DispatchAttested) bound(b *bounds) Detail {
	d.Key, d.Subjects = b.cut(d.Key), b.number(d.Subjects)
	return d
}

func (d DispatchAttested) say(e *Entry) string {
	return fmt.Sprintf("what %s came to is stated, about %d subjects, signed with %s", e.dispatch(), d.Subjects, word(d.Key))
}
