package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

const (
	historyFile = "service-keys.json"
	maxHistory  = 4 << 20
)

// History is every key with which a service has signed. Each but the first was
// signed in by the one before it, so the file may lie about no key that a
// reader of the first one cares for; a shortened one is found out by the log.
type History struct {
	V    int      `json:"v"`    // 1
	Log  string   `json:"log"`  // the origin of the log, which LogOrigin gives of the first key
	Keys []Period `json:"keys"` // oldest first; the last is in force
	// Rotations are the envelopes by which each key but the first came in.
	Rotations []json.RawMessage `json:"rotations"`
	// Statements are the keys that signed what was made of dispatches. The last
	// is in force. They are the service's own unless it was told otherwise.
	Statements []Period `json:"statements"`
}

// Period is a key and the entries of the log for which it was in force.
type Period struct {
	Key  Key     `json:"key"`
	From uint64  `json:"from"`
	UpTo *uint64 `json:"upTo,omitempty"` // nil: it is in force
}

// NewHistory is that of a service whose only key is k.
func NewHistory(k Key) History {
	return History{V: 1, Log: LogOrigin(k.ID), Keys: []Period{{Key: k}}, Rotations: []json.RawMessage{}, Statements: []Period{}}
}

// First returns the key that names the service and its log.
func (h History) First() Key { return h.Keys[0].Key }

// Current returns the key that is in force.
func (h History) Current() Key { return h.Keys[len(h.Keys)-1].Key }

// Rotate returns h with the key that follows, as envelope says.
func (h History) Rotate(envelope []byte) (History, error) {
	r, err := OpenRotation(envelope, h.Current())
	if err != nil {
		return h, err
	}
	out := h
	out.Keys, out.Rotations = slices.Clone(h.Keys), append(slices.Clone(h.Rotations), json.RawMessage(envelope))
	out.Keys[len(out.Keys)-1].UpTo = &r.Entry
	out.Keys = append(out.Keys, Period{Key: r.New, From: r.Entry + 1})
	return out, out.Validate()
}

// SignStatementsWith returns h where from entry n on statements are signed with k.
func (h History) SignStatementsWith(k Key, n uint64) (History, error) {
	out := h
	out.Statements = slices.Clone(h.Statements)
	if last := len(out.Statements) - 1; last >= 0 {
		if n == 0 || out.Statements[last].From > n-1 {
			return h, fmt.Errorf("key %s signs statements from entry %d on, and the one before it from %d", k.ID, n, out.Statements[last].From)
		}
		end := n - 1
		out.Statements[last].UpTo = &end
	}
	out.Statements = append(out.Statements, Period{Key: k, From: n})
	return out, out.Validate()
}

// Verify returns the payload of an envelope that a key of h alone signed,
// whichever, and that key.
func (h History) Verify(envelope []byte, t PayloadType) ([]byte, Key, error) {
	ids, err := Signers(envelope, t)
	if err != nil {
		return nil, Key{}, err
	}
	if len(ids) != 1 {
		return nil, Key{}, fmt.Errorf("%w: %d signatures, want that of the service alone", ErrUnsigned, len(ids))
	}
	for _, p := range h.Keys {
		if p.Key.ID == ids[0] {
			payload, _, err := Verify(envelope, t, RootOf(p.Key))
			return payload, p.Key, err
		}
	}
	return nil, Key{}, ErrUnknownKey
}

// Validate refuses a history in which a key came in otherwise than by the one
// before it.
func (h History) Validate() error {
	switch {
	case h.V != 1:
		return fmt.Errorf("service keys: format %d is not known to this build, which reads 1", h.V)
	case len(h.Keys) == 0 || len(h.Keys) != len(h.Rotations)+1:
		return fmt.Errorf("service keys: %d keys and %d rotations", len(h.Keys), len(h.Rotations))
	case h.Log != LogOrigin(h.Keys[0].Key.ID):
		return fmt.Errorf("service keys: log %.120q, and the first key is %s", h.Log, h.Keys[0].Key.ID)
	}
	if err := validatePeriods(h.Keys); err != nil {
		return fmt.Errorf("service keys: %w", err)
	}
	if err := validatePeriods(h.Statements); err != nil {
		return fmt.Errorf("service keys: statements: %w", err)
	}
	for i, envelope := range h.Rotations {
		r, err := OpenRotation(envelope, h.Keys[i].Key)
		if err != nil {
			return fmt.Errorf("service keys: %w", err)
		}
		if upTo := h.Keys[i].UpTo; r.Log != h.Log || upTo == nil || *upTo != r.Entry || h.Keys[i+1].From != r.Entry+1 || !bytes.Equal(r.New.Public, h.Keys[i+1].Key.Public) {
			return fmt.Errorf("service keys: key %s did not come in as %s says", h.Keys[i+1].Key.ID, h.Keys[i].Key.ID)
		}
	}
	return nil
}

func validatePeriods(list []Period) error {
	for i, p := range list {
		if err := p.Key.Validate(); err != nil {
			return err
		}
		switch last := i == len(list)-1; {
		case last && p.UpTo != nil:
			return fmt.Errorf("key %s is not in force, and none follows it", p.Key.ID)
		case !last && (p.UpTo == nil || *p.UpTo < p.From || list[i+1].From != *p.UpTo+1):
			return fmt.Errorf("key %s and the one that follows it leave a gap or overlap", p.Key.ID)
		}
	}
	return nil
}

// ParseHistory reads canonical JSON, with or without one line feed at the end.
func ParseHistory(b []byte) (History, error) {
	var h History
	if err := canon.DecodeExact(bytes.TrimSuffix(b, []byte("\n")), &h); err != nil {
		return History{}, fmt.Errorf("service keys: %w", err)
	}
	if err := h.Validate(); err != nil {
		return History{}, err
	}
	return h, nil
}

// LoadHistory reads the history that Save wrote to the state directory. Where
// there is none, the service has had one key: the one whose public half stands
// there. Where there is none of that either, the error is fs.ErrNotExist.
func LoadHistory(dir string) (History, error) {
	path := filepath.Join(dir, historyFile)
	b, err := readGuarded(path, "service keys", maxHistory, 0o022, "chmod go-w")
	if errors.Is(err, fs.ErrNotExist) {
		k, err := LoadPublic(filepath.Join(dir, serviceKeyFile))
		if err != nil {
			return History{}, err
		}
		return NewHistory(k), nil
	}
	if err != nil {
		return History{}, err
	}
	h, err := ParseHistory(b)
	if err != nil {
		return History{}, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// Save makes h the history in the state directory, whole or not at all.
func (h History) Save(dir string) error {
	if err := h.Validate(); err != nil {
		return err
	}
	b, err := canon.Marshal(h)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, historyFile), append(b, '\n'), 0o644)
}
