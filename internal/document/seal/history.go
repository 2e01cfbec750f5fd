package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

const (
	historyFile = "service-keys.json"
	maxHistory  = 4 << 20
)

// History lists every key with which a service has signed. Each key is signed by
// its predecessor, so a reader who knows the first key can verify all others.
// The log exposes a shortened history.
type History struct {
	V    int      `json:"v"`    // 1
	Log  string   `json:"log"`  // LogOrigin of the first key
	Keys []Period `json:"keys"` // oldest first; the last is current
	// Rotations are the signed KeyRotations, one for each key but the first.
	Rotations []json.RawMessage `json:"rotations"`
	// Statements are the keys that signed statements about dispatches; the last is
	// current. Without a configured key they are the service's own.
	Statements []Period `json:"statements"`
}

// Period is a key and the range of log entries for which it was current.
type Period struct {
	Key  Key     `json:"key"`
	From uint64  `json:"from"`
	UpTo *uint64 `json:"upTo,omitempty"` // inclusive; nil: it is current
}

// NewHistory returns the history of a service whose only key is k.
func NewHistory(k Key) History {
	return History{V: 1, Log: LogOrigin(k.ID), Keys: []Period{{Key: k}}, Rotations: []json.RawMessage{}, Statements: []Period{}}
}

// First returns the key that names the service and its log.
func (h History) First() Key { return h.Keys[0].Key }

// Current returns the current key.
func (h History) Current() Key { return h.Keys[len(h.Keys)-1].Key }

// Rotate returns h with the key of the rotation in envelope added.
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

// SignStatementsWith returns h with k as the key of statements from entry n on.
func (h History) SignStatementsWith(k Key, n uint64) (History, error) {
	out := h
	out.Statements = slices.Clone(h.Statements)
	if last := len(out.Statements) - 1; last >= 0 {
		if n == 0 || out.Statements[last].From > n-1 {
			return h, fmt.Errorf("statement key %s from entry %d on does not follow its predecessor, from entry %d on", k.ID, n, out.Statements[last].From)
		}
		end := n - 1
		out.Statements[last].UpTo = &end
	}
	out.Statements = append(out.Statements, Period{Key: k, From: n})
	return out, out.Validate()
}

// Verify returns the payload of an envelope with a single signature, by any key
// of h, and that key.
func (h History) Verify(envelope []byte, t PayloadType) (payload []byte, by Key, err error) {
	payload, err = VerifyOne(envelope, t, func(id KeyID) (Key, error) {
		for _, p := range h.Keys {
			if p.Key.ID == id {
				by = p.Key
				return by, nil
			}
		}
		return Key{}, ErrUnknownKey
	})
	return payload, by, err
}

// Validate refuses a history with a key that its predecessor did not sign.
func (h History) Validate() error {
	if err := canon.Format(h.V, 1); err != nil {
		return fmt.Errorf("service keys: %w", err)
	}
	switch {
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
			return fmt.Errorf("service keys: key %s does not match the rotation that key %s signed", h.Keys[i+1].Key.ID, h.Keys[i].Key.ID)
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
			return fmt.Errorf("key %s has ended and has no successor", p.Key.ID)
		case !last && (p.UpTo == nil || *p.UpTo < p.From || list[i+1].From != *p.UpTo+1):
			return fmt.Errorf("key %s and its successor leave a gap or overlap", p.Key.ID)
		}
	}
	return nil
}

// ParseHistory parses canonical JSON, with or without one final line feed.
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

// LoadHistory reads the history that Save wrote to the state directory dir. If
// there is no such file, the service has had one key, whose public half is in
// dir; without that too the error is fs.ErrNotExist.
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

// HistoryFiles are the files that LoadHistory reads. None has a private key, and one may be missing.
func HistoryFiles(dir string) []string {
	return []string{filepath.Join(dir, historyFile), filepath.Join(dir, serviceKeyFile+publicSuffix)}
}

// Save replaces the history in the state directory dir, atomically.
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
