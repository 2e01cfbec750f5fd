package dispatch

import (
	"context"
	"encoding/json"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	usedModel = "record -> '$.outcome.usage.model' IS NOT NULL"
	ofRun     = "record ->> '$.run'"

	// usageSchema finds the attempts of a run that used a model.
	usageSchema = "CREATE INDEX dispatch_used ON dispatch(" + ofRun + ") WHERE " + usedModel + ";" +
		"CREATE INDEX dispatch_attempt_used ON dispatch_attempt(" + ofRun + ") WHERE " + usedModel + ";"

	selectUsage = "SELECT record ->> '$.task', record -> '$.outcome.usage.model' FROM "
)

// RunUsage returns what the tasks of a run used of their models, one for each
// currency: all their dispatches, with the attempts that ended with a question. It
// checks no permissions.
func (s *records) RunUsage(ctx context.Context, run api.RunID) (map[api.TaskID][]api.ModelUsage, error) {
	used := map[api.TaskID][]api.ModelUsage{}
	err := s.cfg.Store.Read(ctx, func(v *store.View) error {
		where := " WHERE " + ofRun + " = ? AND " + usedModel
		return v.Each(selectUsage+"dispatch"+where+" UNION ALL "+selectUsage+"dispatch_attempt"+where, store.Args{run, run}, func(scan store.Scan) error {
			var task api.TaskID
			var u api.ModelUsage
			err := scan(&task, jsonText{&u})
			used[task] = api.AddUsage(used[task], u)
			return err
		})
	})
	return used, err
}

// Report is what the calls of tools of a dispatch say about it, and its worker while it
// runs.
type Report struct {
	Progress    *api.Progress
	Taint       *api.Taint
	Reused      *api.Reuse
	Unreachable *api.Unreachable `json:"-"`
}

// Reports returns the reports of dispatches that have one. It checks no permissions.
func (s *reader) Reports(ctx context.Context, ids []api.DispatchID) (map[api.DispatchID]Report, error) {
	list, err := json.Marshal(ids)
	found := map[api.DispatchID]Report{}
	if err != nil || len(ids) == 0 {
		return found, err
	}
	err = s.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT id, json_object('progress', record -> '$.progress', 'taint', record -> '$.taint', 'reused', record -> '$.reused') FROM dispatch WHERE id IN (SELECT value FROM json_each(?)) AND (record -> '$.progress' IS NOT NULL OR record -> '$.taint' IS NOT NULL OR record -> '$.reused' IS NOT NULL)",
			store.Args{string(list)}, func(scan store.Scan) error {
				var id api.DispatchID
				var r Report
				err := scan(&id, jsonText{&r})
				found[id] = r
				return err
			})
	})
	for _, id := range ids {
		if u := s.unreachableOf(id, 0); u != nil {
			r := found[id]
			r.Unreachable = u
			found[id] = r
		}
	}
	return found, err
}
