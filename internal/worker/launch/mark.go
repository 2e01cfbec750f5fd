package launch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// Marks is what a launcher with trust of its own has seen: the keys of its service and the
// catalog's head. Neither goes back. It is durable before anything that it allows starts.
type Marks struct {
	path    string
	service seal.KeyID    // configured; empty: the first that is seen
	grace   time.Duration // how long a revision may start after a later one was seen

	mu  sync.Mutex
	doc *marksDoc // nil until it is read; guarded by mu
}

type marksDoc struct {
	V       int            `json:"v"`
	Service seal.KeyID     `json:"service,omitempty"` // first key of the service
	Key     seal.KeyID     `json:"key,omitempty"`     // its newest key
	Keys    int            `json:"keys"`              // how many it has had
	Rotated time.Time      `json:"rotated"`           // when Key was seen first
	Head    catalog.Mark   `json:"head"`
	Trust   seal.TrustMark `json:"trust,omitzero"` // newest set of deploy keys
	Seen    []seen         `json:"seen,omitempty"` // heads, oldest first
	// Expired are the manifests that expired before it: their attempts may be forgotten.
	Expired time.Time `json:"expired"`
}

// seen is when a head was seen first.
type seen struct {
	Number uint64    `json:"number"`
	At     time.Time `json:"at"`
}

const maxMarks = 1 << 20

// follow refuses a manifest that is signed by a key or names a revision that humans have
// replaced, or whose authority they have withdrawn since. head and at are verified.
func (k *Marks) follow(ctx context.Context, cat *catalog.Catalog, head, at *catalog.Revision, h *seal.History, by seal.KeyID, m *record.Manifest, clock func() time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := clock() // not before what a request at the same time has noted
	if err := k.load(); err != nil {
		return err
	}
	next := *k.doc
	if m == nil && next.Service == "" {
		return errors.New("this launcher knows no service yet: it was given no decision of operators")
	} else if m == nil { // a tool host
	} else if err := k.keys(&next, h, by, now); err != nil {
		return err
	}
	if m != nil && !m.Expires.After(next.Expired) {
		return fmt.Errorf("manifest of dispatch %s: expired before %s, when this launcher ran last: the clock of this machine was set back", m.ID, next.Expired.Format(time.RFC3339))
	}
	if err := errors.Join(next.Trust.Follow(cat.TrustRoot()), cat.CheckHighWater(ctx, next.Head, head)); err != nil {
		return err
	}
	if next.Head != head.Mark() {
		next.Head, next.Seen = head.Mark(), append(slices.Clip(next.Seen), seen{head.Number(), now.UTC()})
	}
	if err := k.revision(&next, at, now); err != nil {
		return err
	}
	if m != nil && at.Number() < head.Number() {
		if err := head.Permits(m); err != nil {
			return err
		}
	}
	if floor := now.Add(-keepStarted + MaxValidity).UTC(); floor.Sub(next.Expired) > pruneEvery {
		next.Expired = floor
	}
	return k.keep(next)
}

// keys follows the keys of the service.
func (k *Marks) keys(next *marksDoc, h *seal.History, by seal.KeyID, now time.Time) error {
	first := h.First().ID
	switch {
	case k.service != "" && first != k.service:
		return fmt.Errorf("service keys: the first is %s, launch.yaml names %s", first, k.service)
	case next.Service != "" && first != next.Service:
		return fmt.Errorf("service keys: the first is %s, but this launcher serves %s", first, next.Service)
	case len(h.Keys) < next.Keys || next.Keys > 0 && h.Keys[next.Keys-1].Key.ID != next.Key:
		return fmt.Errorf("service keys: key %s, which was seen, is not key %d of this service", next.Key, next.Keys)
	}
	if len(h.Keys) > next.Keys {
		next.Rotated = now.UTC()
	}
	next.Service, next.Key, next.Keys = first, h.Current().ID, len(h.Keys)
	if by != next.Key && (len(h.Keys) < 2 || by != h.Keys[len(h.Keys)-2].Key.ID || now.Sub(next.Rotated).Abs() > MaxValidity) {
		return fmt.Errorf("manifest: signed by key %s, which key %s has replaced", by, next.Key)
	}
	return nil
}

// revision refuses a revision that a later one has replaced for longer than the grace: a run
// keeps its revision, but not for ever.
func (k *Marks) revision(next *marksDoc, at *catalog.Revision, now time.Time) error {
	switch n := at.Number(); {
	case n > next.Head.Number || n == next.Head.Number && at.Digest() != next.Head.Digest:
		return fmt.Errorf("manifest: revision %d %s is not in the catalog's history, whose head is %d", n, at.Digest().Short(), next.Head.Number)
	case n < next.Head.Number:
		for _, s := range next.Seen {
			if s.Number > n {
				if now.Sub(s.At) >= k.grace || now.Before(s.At) {
					return fmt.Errorf("manifest: revision %d is below revision %d, which was seen at %s: a run of an older revision may start attempts for %s after that (grace in launch.yaml)", n, s.Number, s.At.Format(time.RFC3339), k.grace)
				}
				break
			}
		}
	}
	for len(next.Seen) > 1 && now.Sub(next.Seen[1].At) >= k.grace {
		next.Seen = next.Seen[1:] // all before the second have ended
	}
	return nil
}

// pin returns the first key of the service, once it is durable that h is its history.
func (k *Marks) pin(h *seal.History) (seal.KeyID, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := h.Validate(); err != nil {
		return "", err
	}
	if err := k.load(); err != nil {
		return "", err
	}
	next := *k.doc
	if err := k.keys(&next, h, h.Current().ID, next.Rotated); err != nil {
		return "", err
	}
	return next.Service, k.keep(next)
}

// known returns the first key of the service; empty before it was seen.
func (k *Marks) known() seal.KeyID {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.load() != nil {
		return ""
	}
	return k.doc.Service
}

// load reads the marks once. The caller holds mu.
func (k *Marks) load() error {
	if k.doc != nil {
		return nil
	}
	doc, err := k.read()
	k.doc = doc
	return err
}

func (k *Marks) read() (*marksDoc, error) {
	b, err := blob.ReadBounded(k.path, maxMarks)
	if errors.Is(err, fs.ErrNotExist) {
		return &marksDoc{V: Version}, nil
	}
	var doc marksDoc
	if err == nil {
		if err = canon.DecodeExact(b, &doc); err == nil {
			err = canon.Format(doc.V, Version)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("marks of the launcher: %s: %w", k.path, err)
	}
	return &doc, nil
}

// keep makes the marks durable, if they changed.
func (k *Marks) keep(next marksDoc) error {
	if reflect.DeepEqual(*k.doc, next) {
		return nil
	}
	is, err := canon.Marshal(next)
	if err != nil {
		return err
	}
	if err := durable.Replace(k.path, is, 0o600); err != nil {
		return fmt.Errorf("marks of the launcher: %w", err)
	}
	k.doc = &next
	return nil
}
