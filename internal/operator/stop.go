package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// stopSchema has what was engaged and never what was lifted: that a stop no
// longer holds follows from a record that an operator signed, and from nothing
// else.
const stopSchema = `
CREATE TABLE operator_stop (
	number INTEGER PRIMARY KEY CHECK (number >= 1),
	stop   TEXT NOT NULL -- api.Stop as it was engaged
) STRICT;
CREATE TRIGGER operator_stop_update BEFORE UPDATE ON operator_stop BEGIN SELECT RAISE(ABORT, 'stops are append-only'); END;
CREATE TRIGGER operator_stop_delete BEFORE DELETE ON operator_stop BEGIN SELECT RAISE(ABORT, 'stops are append-only'); END;
`

// loadStops reads the stops, and holds them against the log that says which
// were engaged and the chain that says which were lifted: a stop cannot be
// taken away by whoever writes into the table.
func (r *Registry) loadStops(ctx context.Context) error {
	var list []api.Stop
	if err := r.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		list, err = storedStops(v)
		return err
	}); err != nil {
		return err
	}
	n := 0
	for from, more := uint64(0), true; more; {
		const page = 1000
		entries, err := r.cfg.Ledger.List(ctx, audit.Query{From: from, Limit: page, Kind: record.KindStopEngaged})
		if err != nil {
			return err
		}
		for _, c := range entries {
			d, _ := c.Entry.Detail.(record.StopEngaged)
			if n >= len(list) {
				return fmt.Errorf("stop %s is missing: entry #%d of the log says that it was engaged", d.Stop, c.Seq)
			}
			if s := list[n]; d.Stop != s.ID || d.Scope != string(s.Scope) || d.Name != s.Name || c.Entry.Principal != s.By {
				return fmt.Errorf("stop %s is not the one that was engaged: entry #%d of the log says %s %s", s.ID, c.Seq, d.Scope, d.Name)
			}
			n, from = n+1, c.Seq+1
		}
		more = len(entries) == page
	}
	if n < len(list) {
		return fmt.Errorf("stop %s was never engaged: the log has no entry of it", list[n].ID)
	}
	for id := range r.state.Load().lifted {
		if !slices.ContainsFunc(list, func(s api.Stop) bool { return s.ID == id }) {
			return fmt.Errorf("stop %s is missing: a record says that it was lifted", id)
		}
	}
	r.stops.Store(&list)
	return nil
}

func storedStops(v store.Reader) (list []api.Stop, err error) {
	err = v.Each("SELECT number, stop FROM operator_stop ORDER BY number", nil, func(scan store.Scan) error {
		var number int
		var text string
		if err := scan(&number, &text); err != nil {
			return err
		}
		var s api.Stop
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return fmt.Errorf("stop %d: %w", number, err)
		}
		if number != len(list)+1 || s.ID != stopID(number) {
			return fmt.Errorf("stop %s is missing", stopID(len(list)+1))
		}
		s.LiftedAt = nil // which only a record says
		list = append(list, s)
		return nil
	})
	return list, err
}

func stopID(number int) string { return fmt.Sprintf("s-%d", number) }

// Engage makes a stop durable together with its entry, and with what mark
// writes about what it holds: mark runs in the same transaction and returns how
// many dispatches that is. From the commit on the stop holds.
func (r *Registry) Engage(ctx context.Context, by api.Principal, req api.StopRequest, mark func(*store.Tx, api.Stop) (int, error)) (api.Stop, error) {
	if err := req.Check(); err != nil {
		return api.Stop{}, api.Errorf(api.CodeInvalid, "%w", err)
	}
	r.engaging.Lock()
	defer r.engaging.Unlock()
	before := *r.stops.Load()
	number := len(before) + 1
	s := api.Stop{ID: stopID(number), Scope: req.Scope, Name: req.Name, Reason: req.Reason, By: by, At: r.cfg.Now().UTC()}
	_, err := r.cfg.Ledger.Record(ctx, record.Entry{
		Kind: record.KindStopEngaged, Principal: by,
		Detail: record.StopEngaged{Name: s.Name, Reason: s.Reason, Scope: string(s.Scope), Stop: s.ID},
	}, func(tx *store.Tx) (err error) {
		if s.Cancelled, err = mark(tx, s); err != nil {
			return err
		}
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO operator_stop(number, stop) VALUES (?, ?)", number, string(text))
		return err
	})
	if err != nil {
		return api.Stop{}, err
	}
	after := append(slices.Clip(before), s)
	r.stops.Store(&after)
	return s, nil
}

// liftable refuses to lift a stop that there is not.
func liftable(tx *store.Tx, id string) error {
	list, err := storedStops(tx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(s api.Stop) bool { return s.ID == id }) {
		return api.Errorf(api.CodeInvalid, "there is no stop %s", id).WithHint("see: bailiwick stop list")
	}
	return nil
}

// Stops lists all that were ever engaged, oldest first, those that were lifted
// with when.
func (r *Registry) Stops() []api.Stop {
	list, lifted := slices.Clone(*r.stops.Load()), r.state.Load().lifted
	for i := range list {
		if at, ok := lifted[list[i].ID]; ok {
			list[i].LiftedAt = &at
		}
	}
	return list
}

// StopsFor returns the ids of the stops that hold w. One that was just engaged may be missing: what acts asks again
// with StopsIn.
func (r *Registry) StopsFor(w api.StopSubject) []string {
	return r.held(*r.stops.Load(), w)
}

// StopsIn is StopsFor in a transaction: what it does not return holds nothing
// until the transaction has ended.
func (r *Registry) StopsIn(tx *store.Tx, w api.StopSubject) ([]string, error) {
	list, err := storedStops(tx)
	if err != nil {
		return nil, errors.Join(errors.New("emergency stops cannot be read"), err)
	}
	return r.held(list, w), nil
}

// Known reports whether an operator decided anything about p.
func (r *Registry) Known(p api.Principal) bool { return slices.Contains(r.state.Load().names(), p) }

// held returns which of list cover w and were not lifted. That one was
// lifted counts once the record of it is durable and in force.
func (r *Registry) held(list []api.Stop, w api.StopSubject) (ids []string) {
	lifted := r.state.Load().lifted
	for _, s := range list {
		if _, over := lifted[s.ID]; !over && s.Covers(w) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// holding returns the ids of the stops that hold everything that p asks for.
func (r *Registry) holding(p api.Principal) []string {
	ids := []string{}
	return append(ids, r.held(*r.stops.Load(), api.StopSubject{Principal: p})...)
}
