package evidence

import (
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// linkReuse finds the attempts whose results other dispatches have.
func (w *world) linkReuse() {
	for _, h := range w.ordered {
		for _, a := range h.attempts {
			d, ok := a.admitted.Detail.(record.TaskReuse)
			if !ok {
				continue
			}
			a.reuses = api.DispatchID(d.Of)
			if of := w.dispatches[a.reuses]; of != nil && a.reuses != h.id {
				if e := of.finished(a.admitted.seq); e != nil && e.reuses == "" {
					a.earlier = e
				}
			}
		}
	}
}

// made returns the attempt that made the result of a; nil if it is not in the bundle.
func (a *attempt) made() *attempt {
	if a.reuses != "" {
		return a.earlier
	}
	return a
}

// reuse verifies that a dispatch may have the result of the earlier one that its entry
// names: what it depends on is the same, and it is complete and free of text from
// outside. The authorisation row verifies whose results its principal may have.
func (c *closure) reuse(a *attempt) error {
	d := detail[record.TaskReuse](a.admitted)
	of, m := a.earlier, a.manifest
	switch {
	case of == nil:
		return fmt.Errorf("it has the result of dispatch %.80q, which is not in the bundle, had not finished, or has the result of another", d.Of)
	case of.manifest == nil || of.result == nil:
		return fmt.Errorf("it has the result of dispatch %s, whose manifest or result cannot be read", d.Of)
	}
	for _, x := range []*record.Manifest{m, of.manifest} {
		key, err := record.ReuseKey(x)
		switch {
		case err != nil:
			return err
		case key == "":
			return fmt.Errorf("the result of dispatch %s cannot be reused: its subagent is not pure, or its inputs are not all known", x.ID)
		case string(key) != d.Key:
			return fmt.Errorf("the inputs of dispatch %s have the key %s, but the entry says %.80q: the result is of other inputs", x.ID, key.Short(), d.Key)
		}
	}
	if err := errors.Join(record.CheckReusable(&of.result.Summary, of.tainted()), m.Pure.CheckAgent(&of.result.Summary)); err != nil {
		return fmt.Errorf("it has the result of dispatch %s: %w", d.Of, err)
	}
	return c.reusePlanned(a)
}

// reusePlanned refuses a reuse that the run or its plan excludes.
func (c *closure) reusePlanned(a *attempt) error {
	r := c.v.replayed[a.manifest.Run]
	if r == nil || r.plan == nil || r.submitted == nil {
		return nil // the bundle is about the dispatch alone
	}
	i, ok := r.plan.Index(a.manifest.Task)
	if !ok {
		return nil // planned reports it
	}
	request := detail[record.RunRequest](r.submitted)
	again := make([]api.TaskID, len(request.From))
	for n, t := range request.From {
		again[n] = api.TaskID(t)
	}
	age := a.admitted.At.Sub(a.earlier.end.At)
	if !r.plan.Reuse(i, request.NoReuse, again).Allows(age - clockSlack) {
		return fmt.Errorf("it has a result of dispatch %s that is %s old, which the plan or the request of its run excludes", a.reuses, age.Round(time.Second))
	}
	return nil
}

// pure refuses a manifest of a pure subagent whose definition does not say so.
func (r *revision) pure(m *record.Manifest, sub *api.Subagent) error {
	if m.Pure != nil && sub.Effect != api.EffectPure {
		return fmt.Errorf("it says that subagent %q is pure, but catalog revision %d does not", m.Subagent, m.Revision)
	}
	return nil
}

// shared refuses a reuse of the result of a principal that no grant shared then.
func (d *decider) shared(a *admission, at *attempt) error {
	if at.earlier == nil || at.earlier.manifest == nil {
		return nil // the provenance row reports it
	}
	m, owner := at.manifest, at.earlier.manifest.Principal
	return d.inForce(a, func(r *revision, engine *policy.Engine) error {
		if err := d.v.work.spend(unitDecision); err != nil {
			return err
		}
		if !engine.MayReuse(m.Principal, owner, m.Subagent) {
			return fmt.Errorf("dispatch %s has a result of %s, which no grant of catalog revision %d lets %s reuse", m.ID, owner, r.doc.Number, m.Principal)
		}
		return nil
	})
}

// reuseAgreements are those of the details of entries that admit an earlier result.
func reuseAgreements() []agreement {
	of := kinds(record.KindTaskReused)
	return []agreement{
		{kinds: of, field: "detail.key", truth: byManifest, by: "closure.reuse"},
		{kinds: of, field: "detail.of", truth: byManifest, by: "closure.reuse"},
	}
}
