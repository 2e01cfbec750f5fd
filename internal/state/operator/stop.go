package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// stopSchema stores that a stop was engaged and never that it was lifted: only a
// record signed by an operator lifts one.
const stopSchema = `
CREATE TABLE operator_stop (
	number INTEGER PRIMARY KEY CHECK (number >= 1),
	stop   TEXT NOT NULL -- api.Stop as it was engaged
) STRICT;
CREATE TRIGGER operator_stop_update BEFORE UPDATE ON operator_stop BEGIN SELECT RAISE(ABORT, 'stops are append-only'); END;
CREATE TRIGGER operator_stop_delete BEFORE DELETE ON operator_stop BEGIN SELECT RAISE(ABORT, 'stops are append-only'); END;
`

// stops reads the stops and compares them with the log, which says which were
// engaged, and the chain, which says which were lifted: writing to the table
// removes no stop.
func (c *Chain) stops(ctx context.Context, lifted map[string]time.Time) (list []api.Stop, err error) {
	if err := c.cfg.Store.Read(ctx, func(v *store.View) (err error) {
		list, err = storedStops(v)
		return err
	}); err != nil {
		return nil, err
	}
	n := 0
	if err := c.entries(ctx, audit.Query{Kind: record.KindStopEngaged}, func(c audit.Committed) error {
		d, _ := c.Entry.Detail.(record.StopEngaged)
		if n >= len(list) {
			return fmt.Errorf("stop %s is missing: log entry #%d says that it was engaged", d.Stop, c.Seq)
		}
		if s := list[n]; d.Stop != s.ID || d.Scope != string(s.Scope) || d.Name != s.Name || c.Entry.Principal != s.By {
			return fmt.Errorf("stop %s differs from the one engaged by log entry #%d: %s %s", s.ID, c.Seq, d.Scope, d.Name)
		}
		n++
		return nil
	}); err != nil {
		return nil, err
	}
	if n < len(list) {
		return nil, fmt.Errorf("stop %s has no log entry, so it was never engaged", list[n].ID)
	}
	for id := range lifted {
		if !slices.ContainsFunc(list, func(s api.Stop) bool { return s.ID == id }) {
			return nil, fmt.Errorf("stop %s is missing: a record says that it was lifted", id)
		}
	}
	return list, nil
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
		s.LiftedAt = nil // only a record lifts a stop
		list = append(list, s)
		return nil
	})
	return list, err
}

func stopID(number int) string { return fmt.Sprintf("s-%d", number) }

// Engage makes a stop durable together with its log entry. In the same transaction
// mark marks the dispatches that the stop covers and returns their number. The
// stop is in force from the commit on.
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

// liftable refuses to lift a stop that does not exist.
func liftable(tx *store.Tx, id string) error {
	list, err := storedStops(tx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(s api.Stop) bool { return s.ID == id }) {
		return api.Errorf(api.CodeInvalid, "no such stop %s", id).WithHint("see: bailiwick stop list")
	}
	return nil
}

// Stops lists all stops ever engaged, oldest first, including lifted ones.
func (r *Registry) Stops() []api.Stop {
	list, lifted := slices.Clone(*r.stops.Load()), r.current.Load().lifted
	for i := range list {
		if at, ok := lifted[list[i].ID]; ok {
			list[i].LiftedAt = &at
		}
	}
	return list
}

// StopsFor returns the ids of the stops in force that cover w. One just engaged may
// be missing, so use StopsIn before an effect.
func (r *Registry) StopsFor(w api.StopSubject) []string {
	return r.current.Load().covering(*r.stops.Load(), w)
}

// StopsIn returns the ids of the stops that cover w as of transaction tx.
func (r *Registry) StopsIn(tx *store.Tx, w api.StopSubject) ([]string, error) {
	list, err := storedStops(tx)
	if err != nil {
		return nil, fmt.Errorf("read emergency stops: %w", err)
	}
	return r.current.Load().covering(list, w), nil
}

// Known reports whether an operator decided anything about p.
func (r *Registry) Known(p api.Principal) bool { return slices.Contains(r.current.Load().names(), p) }

// covering returns the ids in list that cover w and are not lifted.
func (s *state) covering(list []api.Stop, w api.StopSubject) (ids []string) {
	for _, stop := range list {
		if _, ok := s.lifted[stop.ID]; !ok && stop.Covers(w) {
			ids = append(ids, stop.ID)
		}
	}
	return ids
}
