package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// Follow returns l with the keys that follow those that it knows, as rotations
// that those signed say. Rotations come oldest first. What l lists itself is
// not changed by any of them.
func (l LogTrust) Follow(rotations [][]byte) (LogTrust, error) {
	out := LogTrust{Origin: l.Origin, Keys: append([]LogKey(nil), l.Keys...)}
	for i, envelope := range rotations {
		if err := out.follow(envelope); err != nil {
			return l, fmt.Errorf("rotation %d: %w", i+1, err)
		}
	}
	return out, out.validate()
}

// statements returns the keys that sign statements, of which log is what follows
// the trust file's own: a service that signs them with its own key goes on with
// the one that follows it.
func (t Trust) statements(log LogTrust) []LogKey {
	out := slices.Clone(t.Statements)
	for i, k := range log.Keys {
		if _, listed := FindKey(t.Log.Keys, k.ID); listed || i == 0 || len(out) == 0 {
			continue // the auditor knows better
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
	said, err := seal.PeekRotation(envelope)
	if err != nil {
		return err
	}
	old, ok := FindKey(l.Keys, said.Old)
	if !ok {
		return fmt.Errorf("by key %s, which the trust file does not know", said.Old)
	}
	r, err := seal.OpenRotation(envelope, old.Key())
	if err != nil {
		return err
	}
	if r.Log != l.Origin {
		return fmt.Errorf("of another log, %.120q", r.Log)
	}
	if _, listed := FindKey(l.Keys, r.New.ID); listed {
		return nil // the auditor knows better
	}
	last := &l.Keys[len(l.Keys)-1]
	switch {
	case !old.Alone():
		return fmt.Errorf("by key %s, which is revoked: the trust file must name the key that follows it", old.ID)
	case last.ID != old.ID:
		return fmt.Errorf("by key %s, which %s followed", old.ID, last.ID)
	case last.UpTo != nil && *last.UpTo != r.Entry:
		return fmt.Errorf("at entry %d, and the trust file says that key %s is good up to %d", r.Entry, old.ID, *last.UpTo)
	case r.Entry < old.From:
		return fmt.Errorf("at entry %d, and key %s is good from %d", r.Entry, old.ID, old.From)
	}
	last.UpTo = &r.Entry
	l.Keys = append(l.Keys, LogKey{ID: r.New.ID, Name: r.New.Name, Public: r.New.Public, From: r.Entry + 1})
	return nil
}
