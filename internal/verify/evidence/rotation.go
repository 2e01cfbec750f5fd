package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Follow returns l with the keys that rotations, oldest first, add to its own.
// Each must be signed by the key before. Keys that l lists are not changed.
func (l LogTrust) Follow(rotations [][]byte) (LogTrust, error) {
	out := LogTrust{Origin: l.Origin, Keys: append([]LogKey(nil), l.Keys...)}
	for i, envelope := range rotations {
		if err := out.follow(envelope); err != nil {
			return l, fmt.Errorf("rotation %d: %w", i+1, err)
		}
	}
	return out, out.validate()
}

// statements returns the keys of statements. If the service signs them with its
// own key, they include the keys that follow it in log.
func (t Trust) statements(log LogTrust) []LogKey {
	out := slices.Clone(t.Statements)
	for i, k := range log.Keys {
		if _, listed := FindKey(t.Log.Keys, k.ID); listed || i == 0 || len(out) == 0 {
			continue // the trust file lists it
		}
		last := &out[len(out)-1]
		if _, known := FindKey(out, k.ID); known || last.ID != log.Keys[i-1].ID || last.UpTo != nil || !last.Alone() || last.From >= k.From {
			continue
		}
		end := k.From - 1
		last.UpTo, k.UpTo = &end, nil // until one follows it
		out = append(out, k)
	}
	return out
}

func (l *LogTrust) follow(envelope []byte) error {
	claimed, err := seal.PeekRotation(envelope)
	if err != nil {
		return err
	}
	old, ok := FindKey(l.Keys, claimed.Old)
	if !ok {
		return fmt.Errorf("by key %s, which is not in the trust file", claimed.Old)
	}
	r, err := seal.OpenRotation(envelope, old.Key())
	if err != nil {
		return err
	}
	if r.Log != l.Origin {
		return fmt.Errorf("of another log, %.120q", r.Log)
	}
	if _, listed := FindKey(l.Keys, r.New.ID); listed {
		return nil // the trust file lists it
	}
	last := &l.Keys[len(l.Keys)-1]
	switch {
	case !old.Alone():
		return fmt.Errorf("by key %s, which is revoked: list the next key in the trust file", old.ID)
	case last.ID != old.ID:
		return fmt.Errorf("by key %s, but the key in force is %s", old.ID, last.ID)
	case last.UpTo != nil && *last.UpTo != r.Entry:
		return fmt.Errorf("at entry %d, but in the trust file key %s is valid up to %d", r.Entry, old.ID, *last.UpTo)
	case r.Entry < old.From:
		return fmt.Errorf("at entry %d, but key %s is valid from %d", r.Entry, old.ID, old.From)
	}
	last.UpTo = &r.Entry
	l.Keys = append(l.Keys, LogKey{ID: r.New.ID, Name: r.New.Name, Public: r.New.Public, From: r.Entry + 1})
	return nil
}
