package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Recover records that the outcome of the calls that were out when an earlier service
// ended is unknown. It runs before dispatches are recovered, whose ends come after it in the
// log. No call is repeated.
func (g *Gateway) Recover(ctx context.Context) error { return g.unknown(ctx, "", nil) }

// abandon is Recover for one attempt.
func (g *Gateway) abandon(ctx context.Context, id api.DispatchID, attempt int) error {
	return g.unknown(ctx, " AND dispatch = ? AND attempt = ?", store.Args{id, attempt})
}

func (g *Gateway) unknown(ctx context.Context, where string, args store.Args) error {
	type out struct {
		id   api.DispatchID
		line api.ToolCallLine
		about
	}
	var list []out
	err := g.cfg.Store.Read(ctx, func(r *store.View) error {
		return r.Each("SELECT dispatch, line, about FROM gateway_call WHERE state = 'running'"+where+" ORDER BY dispatch, attempt, number", args, func(scan store.Scan) error {
			var o out
			var line, other string
			if err := scan(&o.id, &line, &other); err != nil {
				return err
			}
			list = append(list, o)
			last := &list[len(list)-1]
			return errors.Join(json.Unmarshal([]byte(line), &last.line), json.Unmarshal([]byte(other), &last.about))
		})
	})
	for _, o := range list {
		if err != nil {
			return err
		}
		m := record.Manifest{ID: o.id, Attempt: o.line.Attempt, Role: o.Role, Run: o.Run, Task: o.Task}
		d := record.ToolReturn{Number: o.line.Number, Millis: max(0, g.cfg.Now().Sub(o.line.At).Milliseconds())}
		e := record.CallEntry(record.KindToolUnknown, &m, o.line.Tool, &o.line.Tier, d)
		_, err = g.cfg.Ledger.Record(ctx, e, func(tx *store.Tx) error {
			d.Error = "the service stopped during the call: it may have taken effect"
			return settle(tx, o.id, o.line.Attempt, o.line.Number, stateUnknown, d, content{}, 0)
		})
		if errors.Is(err, errSettled) {
			err = nil
		}
	}
	return err
}

// Out returns how many calls have not returned yet, or 0 if that cannot be read.
func (g *Gateway) Out(ctx context.Context) (n int) {
	if err := g.cfg.Store.Read(ctx, func(r *store.View) error {
		return r.Get("SELECT count(*) FROM gateway_call WHERE state = 'running'", nil, &n)
	}); err != nil {
		return 0
	}
	return n
}
