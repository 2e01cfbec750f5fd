package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/run/retention"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// retentionSchema is a table of its own, because the end of a dispatch writes
// its whole record, and a pin may come at any moment.
const retentionSchema = `
CREATE TABLE dispatch_retention (
	id      TEXT PRIMARY KEY,
	pin     TEXT, -- api.Pin, while there is one
	removed TEXT  -- list of api.Removal, once there are
) STRICT;`

// marks is what retention knows of a dispatch.
type marks struct {
	pin       *api.Pin
	removed   []api.Removal
	protected bool // by a run, or until it is attested; only set by Items
}

func (k *marks) scanInto() []any { return []any{jsonText{&k.pin}, jsonText{&k.removed}} }

func loadMarks(v store.Reader, id api.DispatchID) (k marks, err error) {
	err = v.Get("SELECT pin, removed FROM dispatch_retention WHERE id = ?", store.Args{id}, k.scanInto()...)
	if errors.Is(err, store.ErrNoRow) {
		return marks{}, nil
	}
	return k, err
}

// Pinned reports whether a dispatch is pinned.
func Pinned(v store.Reader, id api.DispatchID) (bool, error) {
	k, err := loadMarks(v, id)
	return k.pin != nil, err
}

func saveMarks(tx *store.Tx, id api.DispatchID, k marks) error {
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

// retained tells the garbage collector what dispatches refer to, and pins
// them.
type retained struct{ *reader }

var _ retention.Dispatches = (*Service)(nil)

// Items implements retention.Dispatches.
func (t *retained) Items(ctx context.Context, each func(retention.Item) error) error {
	return t.cfg.Store.Read(ctx, func(v *store.View) error {
		earlier := map[api.DispatchID]*retention.Item{}
		calls, err := gateway.Blobs(v)
		if err != nil {
			return err
		}
		if err := v.Each("SELECT record, pin, removed FROM dispatch_attempt LEFT JOIN dispatch_retention USING (id)", nil, func(scan store.Scan) error {
			var d api.Dispatch
			var k marks
			if err := scan(append([]any{jsonText{&d}}, k.scanInto()...)...); err != nil {
				return err
			}
			if earlier[d.ID] == nil {
				earlier[d.ID] = &retention.Item{}
			}
			return t.addReferences(ctx, earlier[d.ID], d, k)
		}); err != nil {
			return err
		}
		return v.Each(selectItems, nil, func(scan store.Scan) error {
			var d, reused api.Dispatch
			var k marks
			if err := scan(append([]any{jsonText{&d}}, append(k.scanInto(), &k.protected, jsonText{&reused})...)...); err != nil {
				return err
			}
			i, err := t.item(ctx, d, k, earlier[d.ID])
			if err != nil {
				return err
			}
			i.Content = append(i.Content, calls[d.ID]...)
			if d.Reused != nil && removal(k.removed, api.ClassEvidence) == nil {
				i.Evidence = append(i.Evidence, signed(&reused)...)
			}
			return each(i)
		})
	})
}

// selectItems reads each dispatch with its marks, whether it is protected, and the one
// whose result it reused, without whose documents it has no evidence.
const selectItems = `
SELECT d.record, pin, removed, EXISTS (SELECT 1 FROM dispatch_hold AS h WHERE h.id = d.id) OR EXISTS (SELECT 1 FROM dispatch_unattested AS u WHERE u.id = d.id), e.record
FROM dispatch AS d LEFT JOIN dispatch_retention USING (id) LEFT JOIN dispatch AS e ON e.id = d.record ->> '$.reused.dispatchId'`

func (t *retained) item(ctx context.Context, d api.Dispatch, k marks, earlier *retention.Item) (retention.Item, error) {
	i := retention.Item{ID: d.ID, Pinned: k.pin != nil}
	if final(&d) && !k.protected && d.EndedAt != nil {
		i.Ended = *d.EndedAt
	}
	if err := t.addReferences(ctx, &i, d, k); err != nil {
		return i, err
	}
	if earlier != nil {
		i.Content, i.Evidence = append(i.Content, earlier.Content...), append(i.Evidence, earlier.Evidence...)
	}
	return i, nil
}

// addReferences adds every digest that a record refers to and that was not
// removed. What only the manifest names is read there: what an attempt under way
// resumes from and takes over. Once content was removed the manifest may be gone
// too.
func (t *retained) addReferences(ctx context.Context, i *retention.Item, d api.Dispatch, k marks) error {
	if removal(k.removed, api.ClassEvidence) == nil {
		i.Evidence = append(i.Evidence, signed(&d)...)
	}
	if removal(k.removed, api.ClassContent) != nil {
		return nil
	}
	if d.Input == "" || !final(&d) {
		m, err := t.manifest(ctx, d.Manifest)
		if err != nil {
			return fmt.Errorf("dispatch %s: the manifest cannot be read, so its references are unknown and nothing is removed: %w", d.ID, err)
		}
		i.Content = append(i.Content, m.Input)
		if m.Resume != nil {
			i.Content = appendDigests(i.Content, reflect.ValueOf(*m.Resume))
		}
		if d.Answer == nil { // an answered attempt leaves them to the one that resumes it
			i.Content = appendDigests(i.Content, reflect.ValueOf(m.Needs))
		}
	}
	d.Manifest, d.Result, d.Statement, d.ReuseKey, d.Reused = "", "", "", "", nil
	i.Content = appendDigests(i.Content, reflect.ValueOf(d))
	return nil
}

// signed are the signed documents about the end of a dispatch.
func signed(d *api.Dispatch) []api.Digest {
	return slices.DeleteFunc([]api.Digest{d.Manifest, d.Result, d.Statement}, func(d api.Digest) bool { return d == "" })
}

// appendDigests adds every digest in v, at any depth: a digest that is added to
// the record later is protected without a change here.
func appendDigests(to []api.Digest, v reflect.Value) []api.Digest {
	switch v.Kind() { //nolint:exhaustive // no other kind contains values
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

// MarkRemoved implements retention.Dispatches.
func (t *retained) MarkRemoved(tx *store.Tx, id api.DispatchID, r api.Removal) error {
	stored, ok, err := load(tx, id)
	if err != nil {
		return err
	}
	k, err := loadMarks(tx, id)
	if err != nil {
		return err
	}
	inUse, err := reserved(tx, id)
	if err != nil {
		return err
	}
	pending, err := attestationPending(tx, id)
	if err != nil {
		return err
	}
	if !ok || inUse || pending || !final(&stored.record) || k.pin != nil || removal(k.removed, r.Class) != nil {
		return fmt.Errorf("dispatch %s: %w", id, retention.ErrNotRemovable)
	}
	k.removed = append(k.removed, r)
	if r.Class == api.ClassEvidence {
		if err := t.cfg.People.ForgetDispatch(tx, id); err != nil {
			return err
		}
	}
	return saveMarks(tx, id, k)
}

// Pin protects a dispatch from the rules of retention; with pinned false it no
// longer does. Only the operator may remove the operator's pin.
func (t *retained) Pin(ctx context.Context, principal api.Principal, id api.DispatchID, pinned bool) (api.Dispatch, error) {
	r, decision, err := t.access(ctx, principal, policy.ActionDispatchPin, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	before, err := t.marks(ctx, id)
	if err != nil {
		return api.Dispatch{}, err
	}
	kind := record.KindDispatchPinned
	if !pinned {
		kind = record.KindDispatchUnpinned
		if before.pin != nil && before.pin.By != principal {
			// As if the pin were a dispatch of the principal who set it.
			if decision, err = t.decideUnpin(ctx, principal, id, before.pin.By); err != nil {
				return api.Dispatch{}, err
			}
		}
	}
	// The operator's pin replaces an owner's, not the other way round.
	changes := pinned != (before.pin != nil) || pinned && principal == t.cfg.Operator && before.pin.By != principal
	if !changes {
		err := t.addRetention(ctx, &r.record)
		return r.record, err
	}
	now := t.cfg.Now().UTC()
	_, err = t.cfg.Ledger.Commit(ctx, decision, entryAbout(kind, r, record.Access{Operation: string(policy.ActionDispatchPin)}), func(tx *store.Tx) error {
		k, err := loadMarks(tx, id)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(k.pin, before.pin) {
			return api.Errorf(api.CodeConflict, "dispatch %s: its pin was changed meanwhile", id).WithHint("see: bailiwick dispatch show %s", id)
		}
		k.pin = nil
		if pinned {
			k.pin = &api.Pin{By: principal, At: now}
		}
		return saveMarks(tx, id, k)
	})
	if err != nil {
		return api.Dispatch{}, err
	}
	err = t.addRetention(ctx, &r.record)
	return r.record, err
}

// decideUnpin decides whether principal may remove the pin of another.
func (t *retained) decideUnpin(ctx context.Context, principal api.Principal, id api.DispatchID, by api.Principal) (policy.Decision, error) {
	engine, err := t.Engine(ctx)
	if err != nil {
		return policy.Decision{}, err
	}
	d := engine.Decide(policy.Request{Principal: principal, Action: policy.ActionDispatchPin, Resource: string(id), Owner: by})
	if d.Allowed() {
		return d, nil
	}
	return d, t.cfg.Ledger.Deny(ctx, d, audit.AccessEntry(id, string(policy.ActionDispatchPin)), func(e *api.Error) *api.Error {
		return e.WithHint("%s pinned it; only %s or the operator may unpin it", by, by)
	})
}
