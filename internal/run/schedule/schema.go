package schedule

import (
	"encoding/json"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Migration returns the schema of this package.
func Migration() store.Migration {
	return store.Migration{Owner: "schedule", Steps: []string{`
CREATE TABLE schedule (
	name      TEXT PRIMARY KEY,
	times     TEXT NOT NULL,    -- cron expression and zone that cursor is about; empty: it was removed
	cursor    INTEGER NOT NULL, -- nanoseconds since 1970: slots until then are in schedule_slot
	paused_by TEXT NOT NULL,
	paused_at INTEGER NOT NULL
) STRICT;
CREATE TABLE schedule_slot (
	seq      INTEGER PRIMARY KEY,
	schedule TEXT NOT NULL,
	slot     INTEGER NOT NULL, -- nanoseconds since 1970
	state    TEXT NOT NULL,    -- an api.SlotState
	doc      TEXT NOT NULL,    -- api.Slot
	UNIQUE (schedule, slot)
) STRICT;
CREATE INDEX schedule_slot_of ON schedule_slot(schedule, seq);
CREATE INDEX schedule_slot_open ON schedule_slot(seq) WHERE state IN ('waiting', 'fired');
`}}
}

// keptSlots is how many slots of a schedule stay in the database. The log has them all.
const keptSlots = 1000

func saveLine(tx *store.Tx, l *line) error {
	_, err := tx.Exec(`INSERT INTO schedule(name, times, cursor, paused_by, paused_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET times = excluded.times, cursor = excluded.cursor, paused_by = excluded.paused_by, paused_at = excluded.paused_at`,
		l.name, l.times, l.cursor.UnixNano(), l.pausedBy, nanos(l.pausedAt))
	return err
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// insertSlot stores a new slot, and removes the oldest ones of its schedule.
func insertSlot(tx *store.Tx, s *api.Slot) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := tx.Get("INSERT INTO schedule_slot(schedule, slot, state, doc) VALUES (?, ?, ?, ?) RETURNING seq", store.Args{s.Schedule, s.Slot.UnixNano(), s.State, string(doc)}, &s.Seq); err != nil {
		return err
	}
	_, err = tx.Exec(`DELETE FROM schedule_slot WHERE schedule = ? AND state IN ('submitted', 'skipped')
AND seq <= (SELECT seq FROM schedule_slot WHERE schedule = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)`, s.Schedule, s.Schedule, keptSlots)
	return err
}

func updateSlot(tx *store.Tx, s *api.Slot) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE schedule_slot SET state = ?, doc = ? WHERE seq = ?", s.State, string(doc), s.Seq)
	return err
}

func readLines(v store.Reader) (map[api.Name]*line, error) {
	all := map[api.Name]*line{}
	err := v.Each("SELECT name, times, cursor, paused_by, paused_at FROM schedule", nil, func(scan store.Scan) error {
		l := &line{}
		var cursor, paused int64
		if err := scan(&l.name, &l.times, &cursor, &l.pausedBy, &paused); err != nil {
			return err
		}
		l.cursor, l.pausedAt = time.Unix(0, cursor).UTC(), instant(paused)
		all[l.name] = l
		return nil
	})
	return all, err
}

// readSlots reads slots; where follows WHERE.
func readSlots(v store.Reader, where string, args store.Args) (list []api.Slot, err error) {
	err = v.Each("SELECT seq, doc FROM schedule_slot WHERE "+where, args, func(scan store.Scan) error {
		var s api.Slot
		var seq int64
		var doc string
		if err := scan(&seq, &doc); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(doc), &s); err != nil {
			return err
		}
		s.Seq = seq
		list = append(list, s)
		return nil
	})
	return list, err
}
