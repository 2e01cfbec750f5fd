package notify

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Migration returns the schema of this package. The log is the queue: a row has a
// receiver's place in it.
func Migration() store.Migration {
	return store.Migration{Owner: "notify", Steps: []string{`
CREATE TABLE notify_receiver (
	name      TEXT PRIMARY KEY,
	next      INTEGER NOT NULL, -- the first entry that was not looked at
	pending   TEXT NOT NULL,    -- JSON: numbers of earlier entries whose message is not delivered
	delivered INTEGER NOT NULL,
	dropped   INTEGER NOT NULL  -- messages that expired
) STRICT, WITHOUT ROWID;
`}}
}

// load returns the sender of a subscription, from its row or from a new one.
func load(ctx context.Context, cfg *Config, sub Subscription) (*sender, error) {
	s := &sender{Subscription: sub, cfg: cfg}
	var next int64
	var pending string
	err := cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT next, pending, delivered, dropped FROM notify_receiver WHERE name = ?", store.Args{sub.Name}, &next, &pending, &s.delivered, &s.dropped)
	})
	switch {
	case errors.Is(err, store.ErrNoRow):
		if s.next, err = cfg.Ledger.Len(ctx); err == nil {
			err = s.save(ctx)
		}
		return s, err
	case err != nil:
		return nil, err
	}
	s.next = uint64(next) //nolint:gosec // G115: never negative
	var entries []uint64
	err = json.Unmarshal([]byte(pending), &entries)
	for _, seq := range entries {
		s.pending = append(s.pending, due{seq: seq})
	}
	return s, err
}

// save stores the place of a receiver.
func (s *sender) save(ctx context.Context) error {
	s.mu.Lock()
	entries := make([]uint64, len(s.pending))
	for i, d := range s.pending {
		entries[i] = d.seq
	}
	next, delivered, dropped := s.next, s.delivered, s.dropped
	s.mu.Unlock()
	pending, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	return s.cfg.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO notify_receiver(name, next, pending, delivered, dropped) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET next = excluded.next, pending = excluded.pending, delivered = excluded.delivered, dropped = excluded.dropped`,
			s.Name, int64(next), string(pending), delivered, dropped) //nolint:gosec // G115: counts up from 0
		return err
	})
}
