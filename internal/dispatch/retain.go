package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/policy"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/retain"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// retentionSchema is a table of its own, because whoever ends a dispatch
// writes its whole record, and a pin may come at any moment.
const retentionSchema = `
CREATE TABLE dispatch_retention (
	id      TEXT PRIMARY KEY,
	pin     TEXT, -- api.Pin, while there is one
	removed TEXT  -- list of api.Removal, once there are
) STRICT;`

// keeping is what retention knows of a dispatch.
type keeping struct {
	pin     *api.Pin
	removed []api.Removal
	held    bool // by a run, or until it is attested; only where all are looked at
}

func (k *keeping) scanInto() []any { return []any{jsonText{&k.pin}, jsonText{&k.removed}} }

// jsonText scans JSON, and NULL as the zero value.
type jsonText struct{ into any }

// Scan implements sql.Scanner.
func (t jsonText) Scan(v any) error {
	switch s := v.(type) {
	case nil:
		reflect.ValueOf(t.into).Elem().SetZero()
		return nil
	case string:
		return json.Unmarshal([]byte(s), t.into)
	}
	return fmt.Errorf("stored mark is %T", v)
}

func loadKeeping(v store.Reader, id api.DispatchID) (k keeping, err error) {
	err = v.Get("SELECT pin, removed FROM dispatch_retention WHERE id = ?", store.Args{id}, k.scanInto()...)
	if errors.Is(err, store.ErrNoRow) {
		return keeping{}, nil
	}
	return k, err
}

func saveKeeping(tx *store.Tx, id api.DispatchID, k keeping) error {
	text := func(v any, absent bool) (any, error) {
		if absent {
			return nil, nil //nolint:nilnil // NULL
		}
		b, err := json.Marshal(v)
		return string(b), err
	}
	pin, err := text(k.pin, k.pin == nil)
	removed, removedErr := text(k.removed, k.removed == nil)
	if err = errors.Join(err, removedErr); err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO dispatch_retention(id, pin, removed) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pin = excluded.pin, removed = excluded.removed",
		id, pin, removed)
	return err
}

func (k *keeping) lacks(c api.Class) *api.Removal {
	for i := range k.removed {
		if k.removed[i].Class == c {
			return &k.removed[i]
		}
	}
	return nil
}

func (s *Service) keeping(ctx context.Context, id api.DispatchID) (k keeping, err error) {
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		k, err = loadKeeping(v, id)
		return err
	})
	return k, err
}

// final reports whether nothing will ever follow: a dispatch that waits for an
// answer has not come to its end.
func final(d *api.Dispatch) bool { return d.State.Ended() && d.State != api.EventNeedsInput }

// Items implements retain.Dispatches.
func (s *Service) Items(ctx context.Context, each func(retain.Item) error) error {
	return s.cfg.Store.Read(ctx, func(v *store.View) error {
		earlier := map[api.DispatchID]*retain.Item{}
		if err := v.Each("SELECT record, pin, removed FROM dispatch_attempt LEFT JOIN dispatch_retention USING (id)", nil, func(scan store.Scan) error {
			var d api.Dispatch
			var k keeping
			if err := scan(append([]any{(*recordText)(&d)}, k.scanInto()...)...); err != nil {
				return err
			}
			if earlier[d.ID] == nil {
				earlier[d.ID] = &retain.Item{}
			}
			return s.refer(ctx, earlier[d.ID], d, k)
		}); err != nil {
			return err
		}
		return v.Each("SELECT record, pin, removed, EXISTS (SELECT 1 FROM dispatch_hold WHERE dispatch_hold.id = dispatch.id) OR EXISTS (SELECT 1 FROM dispatch_unattested WHERE dispatch_unattested.id = dispatch.id) FROM dispatch LEFT JOIN dispatch_retention USING (id)", nil, func(scan store.Scan) error {
			var d api.Dispatch
			var k keeping
			if err := scan(append([]any{(*recordText)(&d)}, append(k.scanInto(), &k.held)...)...); err != nil {
				return err
			}
			i, err := s.item(ctx, d, k, earlier[d.ID])
			if err != nil {
				return err
			}
			return each(i)
		})
	})
}

func (s *Service) item(ctx context.Context, d api.Dispatch, k keeping, earlier *retain.Item) (retain.Item, error) {
	i := retain.Item{ID: d.ID, Pinned: k.pin != nil}
	if final(&d) && !k.held && d.EndedAt != nil {
		i.Ended = *d.EndedAt
	}
	if err := s.refer(ctx, &i, d, k); err != nil {
		return i, err
	}
	if earlier != nil {
		i.Content, i.Evidence = append(i.Content, earlier.Content...), append(i.Evidence, earlier.Evidence...)
	}
	return i, nil
}

// refer adds everything that a record refers to and that was not removed. What
// only its manifest names is read there: what an attempt under way goes on from,
// and what it takes over. Where content was removed the manifest may be gone too.
func (s *Service) refer(ctx context.Context, i *retain.Item, d api.Dispatch, k keeping) error {
	if k.lacks(api.ClassEvidence) == nil {
		i.Evidence = append(i.Evidence, evidence(d)...)
	}
	if k.lacks(api.ClassContent) != nil {
		return nil
	}
	if d.Input == "" || !final(&d) {
		m, err := s.manifest(ctx, d.Manifest)
		if err != nil {
			return fmt.Errorf("dispatch %s: what it refers to is in its manifest, which cannot be read, so nothing is removed: %w", d.ID, err)
		}
		i.Content = append(i.Content, m.Input)
		if m.Resume != nil {
			i.Content = appendDigests(i.Content, reflect.ValueOf(*m.Resume))
		}
		if d.Answer == nil { // an earlier attempt leaves them to the one that goes on
			i.Content = appendDigests(i.Content, reflect.ValueOf(m.Needs))
		}
	}
	d.Manifest, d.Result, d.Statement = "", "", ""
	i.Content = appendDigests(i.Content, reflect.ValueOf(d))
	return nil
}

// evidence are the signed documents of an attempt.
func evidence(d api.Dispatch) []api.Digest {
	return slices.DeleteFunc([]api.Digest{d.Manifest, d.Result, d.Statement}, func(d api.Digest) bool { return d == "" })
}

// appendDigests adds every digest in v, wherever it is: one that is added to
// the record some day is kept without anybody thinking of it here.
func appendDigests(to []api.Digest, v reflect.Value) []api.Digest {
	switch v.Kind() { //nolint:exhaustive // nothing else holds another value
	case reflect.String:
		if v.Type() == reflect.TypeFor[api.Digest]() && v.Len() > 0 {
			to = append(to, api.Digest(v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			to = appendDigests(to, v.Elem())
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return to
		}
		for i := range v.Len() {
			to = appendDigests(to, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			to = appendDigests(appendDigests(to, key), v.MapIndex(key))
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			to = appendDigests(to, field)
		}
	}
	return to
}

// MarkRemoved implements retain.Dispatches.
func (s *Service) MarkRemoved(tx *store.Tx, id api.DispatchID, r api.Removal) error {
	stored, ok, err := load(tx, id)
	if err != nil {
		return err
	}
	k, err := loadKeeping(tx, id)
	if err != nil {
		return err
	}
	inUse, err := held(tx, id)
	if err != nil {
		return err
	}
	due, err := owed(tx, id)
	if err != nil {
		return err
	}
	if !ok || inUse || due || !final(&stored.record) || k.pin != nil || k.lacks(r.Class) != nil {
		return fmt.Errorf("dispatch %s: %w", id, retain.ErrNotRemovable)
	}
	k.removed = append(k.removed, r)
	return saveKeeping(tx, id, k)
}

// kept adds to a description what retention knows of it.
func (s *Service) kept(ctx context.Context, d *api.Dispatch) error {
	k, err := s.keeping(ctx, d.ID)
	d.Pinned, d.Removed = k.pin, k.removed
	return err
}

// removed returns what was removed of a description, or nil.
func removed(d *api.Dispatch, c api.Class) *api.Removal {
	k := keeping{removed: d.Removed}
	return k.lacks(c)
}

func removedError(id api.DispatchID, what string, r *api.Removal) error {
	return api.Errorf(api.CodeNotFound, "the %s of dispatch %s was removed at %s by rule %s", what, id, r.At.Format(time.RFC3339), r.Rule).
		WithHint("its digests are in the record, so that a copy can still be checked: bailiwick dispatch show %s -o json", id)
}

// missing says what became of content that is not there, if it was removed at
// this very moment; else it returns err.
func (s *Service) missing(ctx context.Context, id api.DispatchID, what string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k, keepErr := s.keeping(ctx, id)
	if r := k.lacks(api.ClassContent); r != nil {
		return removedError(id, what, r)
	}
	return errors.Join(err, keepErr)
}

// Pin keeps a dispatch whatever the rules of retention say, or with on false
// no longer. The operator's pin is only for the operator to take away.
func (s *Service) Pin(ctx context.Context, principal api.Principal, id api.DispatchID, on bool) (api.Dispatch, error) {
	r, decision, err := s.access(ctx, principal, policy.ActionDispatchPin, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	before, err := s.keeping(ctx, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	if !on && before.pin != nil && before.pin.By != principal {
		// As if the pin were a dispatch of whoever set it.
		if decision, err = s.decidePin(ctx, principal, id, before.pin.By); err != nil {
			return api.Dispatch{}, err
		}
	}
	kind := record.KindDispatchPinned
	if !on {
		kind = record.KindDispatchUnpinned
	}
	if !s.repins(before.pin, principal, on) {
		err := s.kept(ctx, &r.record)
		return r.record, err
	}
	now := s.cfg.Now().UTC()
	_, err = s.cfg.Ledger.Commit(ctx, decision, about(kind, r, record.Access{Operation: string(policy.ActionDispatchPin)}), func(tx *store.Tx) error {
		k, err := loadKeeping(tx, id)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(k.pin, before.pin) {
			return api.Errorf(api.CodeConflict, "dispatch %s: somebody else changed its pin at the same moment", id).WithHint("see: bailiwick dispatch show %s", id)
		}
		k.pin = nil
		if on {
			k.pin = &api.Pin{By: principal, At: now}
		}
		return saveKeeping(tx, id, k)
	})
	if err != nil {
		return api.Dispatch{}, err
	}
	err = s.kept(ctx, &r.record)
	return r.record, err
}

// repins reports whether a request changes anything. The operator's pin takes
// the place of an owner's, not the other way round.
func (s *Service) repins(pin *api.Pin, by api.Principal, on bool) bool {
	if pin == nil || !on {
		return on || pin != nil
	}
	return by == s.cfg.Operator && pin.By != by
}

// decidePin decides whether principal may take away a pin of somebody else's.
func (s *Service) decidePin(ctx context.Context, principal api.Principal, id api.DispatchID, by api.Principal) (policy.Decision, error) {
	engine, err := s.Engine(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	d := engine.Decide(policy.Request{Principal: principal, Action: policy.ActionDispatchPin, Resource: string(id), Owner: by})
	if d.Allowed() {
		return d, nil
	}
	return d, s.cfg.Ledger.Deny(ctx, d, audit.AccessEntry(id, string(policy.ActionDispatchPin)), func(e *api.Error) *api.Error {
		return e.WithHint("%s pinned it; only %s or the operator may unpin it", by, by)
	})
}

var _ retain.Dispatches = (*Service)(nil)
