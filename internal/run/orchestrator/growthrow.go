package orchestrator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// growthSchema has the growths of runs, which with the plan give all tasks. The
// triggers keep the terms in step, and remove the growths of a removed run.
const growthSchema = `
CREATE TABLE run_growth (
	run    INTEGER NOT NULL,  -- seq
	n      INTEGER NOT NULL,  -- counts up from 0
	key    TEXT NOT NULL,     -- of the request that appended it
	doc    TEXT NOT NULL,     -- canonical plan.Growth, whose digest the log has
	PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;
DROP TRIGGER run_added;
CREATE TRIGGER run_added AFTER INSERT ON run BEGIN
	INSERT INTO run_term VALUES ('queue ' || (new.doc ->> '$.queue'), new.seq);
	INSERT INTO run_term SELECT DISTINCT 'subagent ' || (t.value ->> '$.subagent'), new.seq
		FROM json_each(new.plan, '$.tasks') AS t WHERE t.value ->> '$.subagent' IS NOT NULL;
END;
CREATE TRIGGER run_grown AFTER INSERT ON run_growth BEGIN
	INSERT OR IGNORE INTO run_term SELECT DISTINCT 'subagent ' || (t.value ->> '$.subagent'), new.run
		FROM json_each(new.doc, '$.tasks') AS t WHERE t.value ->> '$.subagent' IS NOT NULL;
END;
CREATE TRIGGER run_growth_removed AFTER DELETE ON run BEGIN
	DELETE FROM run_growth WHERE run = old.seq;
END;
`

// askedSchema has the digest of the tasks of an append as the request had them, before
// their commits were pinned. It is empty in older rows.
const askedSchema = `ALTER TABLE run_growth ADD COLUMN asked TEXT NOT NULL DEFAULT '';`

// growth is a growth of a run as it is stored.
type growth struct {
	request
	doc    string // canonical
	digest api.Digest
}

// request is what identifies the request of an append. It is empty where an end of a task
// caused the growth.
type request struct {
	key   string
	asked api.Digest // of its tasks as canonical JSON
}

// grow adds a growth to a run in memory, and returns the index of the first task. After
// an error nothing has changed.
func (r *run) grow(g plan.Growth, by request) (first int, err error) {
	doc, err := g.Canonical()
	if err != nil {
		return 0, err
	}
	if first, err = r.plan.Grow(g); err != nil {
		return 0, err
	}
	r.growths = append(r.growths, growth{by, string(doc), api.DigestOf(doc)})
	r.bytes += len(doc)
	r.addTasks()
	return first, nil
}

// begin records the growths that the plan of a retry has from its beginning.
func (r *run) begin(list []plan.Growth) error {
	for i := range list {
		doc, err := list[i].Canonical()
		if err != nil {
			return err
		}
		r.growths = append(r.growths, growth{request{}, string(doc), api.DigestOf(doc)})
		r.bytes += len(doc)
	}
	return nil
}

// readGrowths returns the growths of a run that was read.
func (r *run) readGrowths() ([]plan.Growth, error) {
	list := make([]plan.Growth, len(r.growths))
	for i := range list {
		var err error
		if list[i], err = plan.ReadGrowth([]byte(r.growths[i].doc)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// addTasks adds the state of tasks that the plan has and the run has not.
func (r *run) addTasks() {
	for i := len(r.tasks); i < len(r.plan.Tasks); i++ {
		r.tasks = append(r.tasks, task{state: api.TaskPending, deps: int32(len(r.plan.Deps(i))), cause: -1}) //nolint:gosec // G115: bounded by api.MaxPlanEdges
		r.counts[api.TaskPending]++
		r.left++
		if parent := r.plan.Parent(i); parent >= 0 {
			r.tasks[parent].children.Open++
		}
	}
}

// startAdded lets added tasks begin, from the one with index first: those that depend on
// a task which is settled as they do not accept are skipped.
func (e *engine) startAdded(b *batch, r *run, first int) {
	for i := first; i < len(r.tasks); i++ {
		at, cause := int32(i), int32(-1)         //nolint:gosec // G115: bounded by api.MaxRunTasks
		if r.tasks[i].state != api.TaskPending { // skipped because of one before it
			continue
		}
		for _, d := range r.plan.Deps(i) {
			switch end := r.end(d); {
			case r.plan.Free(at, d, end):
				r.tasks[i].deps--
			case end.State.Settled() && cause < 0:
				cause = d
			}
		}
		if cause < 0 {
			e.advance(b, r, at)
			continue
		}
		e.skip(b, r, at, cause, "")
	}
	e.settleRun(b, r)
}

// saveGrowth stores a growth.
func saveGrowth(tx *store.Tx, r *run, number int32) error {
	g := r.growths[number]
	_, err := tx.Exec("INSERT INTO run_growth(run, n, key, doc, asked) VALUES (?, ?, ?, ?, ?)", r.seq, number, g.key, g.doc, g.asked)
	return err
}

// loadGrowths reads the growths of a run in their order.
func loadGrowths(v store.Reader, r *run) error {
	return v.Each("SELECT n, key, doc, asked FROM run_growth WHERE run = ? ORDER BY n", store.Args{r.seq}, func(scan store.Scan) error {
		var number int
		var by request
		var doc string
		if err := scan(&number, &by.key, &doc, &by.asked); err != nil {
			return err
		}
		g, err := plan.ReadGrowth([]byte(doc))
		if err == nil && number != len(r.growths) {
			err = fmt.Errorf("growth %d is missing", len(r.growths))
		}
		if err == nil {
			_, err = r.grow(g, by)
		}
		if err != nil {
			return fmt.Errorf("run %s: stored growth %d: %w", r.id, number, err)
		}
		return nil
	})
}

// Growths returns the canonical growths of a run, in their order. It checks no
// permissions.
func (a *Archive) Growths(ctx context.Context, id api.RunID) (docs []json.RawMessage, err error) {
	err = a.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT run_growth.doc FROM run_growth JOIN run ON run.seq = run_growth.run WHERE run.id = ? ORDER BY n", store.Args{id}, func(scan store.Scan) error {
			var doc string
			err := scan(&doc)
			docs = append(docs, json.RawMessage(doc))
			return err
		})
	})
	return docs, err
}
