package evidence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// closure compares everything that a dispatch consumed with its origin.
type closure struct {
	v *verification
	h *history
	report.Finding
	version int // the highest of its requests for approval so far
}

func (c *closure) run() {
	for i, a := range c.h.attempts {
		m := a.manifest
		if m == nil {
			continue // the manifest row reports it
		}
		before := (*attempt)(nil)
		if i > 0 {
			before = c.h.attempts[i-1]
		}
		c.v.docs.nameBlob(m.Input)
		a.traceTaint()
		for _, e := range a.calls {
			if e.Kind == record.KindApprovalRequest && !e.refused {
				c.note(a, c.request(a, e))
			}
		}
		c.note(a, c.pins(m))
		if a.reuses != "" {
			c.note(a, c.reuse(a))
		}
		c.note(a, c.resume(m, before))
		c.note(a, c.taint(m, before))
		c.note(a, c.changed(a))
		for n := range m.Needs {
			c.note(a, c.need(&m.Needs[n], m, c.h.attempts[0].admitted))
		}
	}
}

// owned reports whether an entry of the dispatch was written by a service that knows who
// holds each operator key: its run says so, or the keys had principals. Earlier ones keep
// their rule.
func (c *closure) owned(m *record.Manifest, e *entry) bool {
	_, ok := c.v.line.owned(e.seq)
	return ok || c.v.rulesOf(m.Run) >= plan.RulesOfOwners
}

func (c *closure) note(a *attempt, err error) {
	if err != nil {
		c.Fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
		return
	}
	c.Checked++
}

// pins compares the artifacts of a manifest with the revision that it names.
func (c *closure) pins(m *record.Manifest) error {
	rev := c.v.revisions[m.RevisionDigest]
	if rev == nil {
		return fmt.Errorf("catalog revision %s is not in the bundle", m.RevisionDigest.Short())
	}
	if err := catalog.CheckPins(&rev.doc, m); err != nil {
		return err
	}
	for _, ref := range m.Refs() {
		if _, err := rev.artifact(ref); err != nil {
			return err
		}
	}
	sub, err := rev.subagent(m.Subagent)
	if err != nil {
		return err
	}
	target, err := rev.target(m.Target)
	if err != nil {
		return err
	}
	access, err := rev.access(sub, target, m.Envs)
	if err != nil {
		return err
	}
	switch err := catalog.CheckManifest(m, sub, target, &access); {
	case err != nil:
		return err
	case m.VerifyTime != sub.Verify.Time() && c.owned(m, c.h.attempts[0].admitted):
		return fmt.Errorf("the manifest has no time of verify, and subagent %q has one", m.Subagent)
	case m.Drain != record.DrainOf(m.Endpoint) && c.v.rulesOf(m.Run) >= 5:
		return errors.New("the manifest has no time for outstanding answers of its model")
	}
	return rev.pure(m, sub)
}

// matchedPerUnit is how many products of a byte of a pattern and a byte of a path are
// compared for one unit.
const matchedPerUnit = 256

// changed compares the files of a patch that verify is known to run with those that the
// worker named. Results from before they were named have none.
func (c *closure) changed(a *attempt) error {
	m, r := a.manifest, a.result
	if r == nil || r.Summary.Verify == nil || m.VerifyTime == 0 && c.v.rulesOf(m.Run) < 5 && len(r.Summary.Verify.Changed) == 0 {
		return nil
	}
	rev := c.v.revisions[m.RevisionDigest]
	if rev == nil {
		return nil // pins reports it
	}
	sub, err := rev.subagent(m.Subagent)
	switch {
	case err != nil:
		return err
	case sub.Verify == nil:
		return fmt.Errorf("it has the outcome of a verify command, and subagent %q has none", m.Subagent)
	}
	patterns, paths := 0, 0
	for _, p := range sub.Verify.Protects {
		patterns += len(p)
	}
	for _, f := range r.Summary.Files {
		paths += len(f.Path)
	}
	if err := c.v.work.spend(unitCompare*len(r.Summary.Files) + patterns*paths/matchedPerUnit); err != nil {
		return err
	}
	return record.CheckChanged(sub.Verify, &r.Summary)
}

// resume compares what an attempt resumes with to the previous attempt.
func (c *closure) resume(m *record.Manifest, before *attempt) error {
	if m.Resume == nil {
		return nil
	}
	if before == nil || before.result == nil {
		return errors.New("it resumes an attempt whose result is not in the bundle")
	}
	c.v.docs.nameBlob(m.Resume.Answer)
	patch := api.Digest("")
	if p := before.result.Summary.Patch; p != nil {
		patch = p.Digest
	}
	if m.Resume.Patch != patch {
		return fmt.Errorf("it resumes with patch %s, which does not belong to attempt %d", m.Resume.Patch.Short(), before.number)
	}
	session := api.Digest("")
	if s := before.result.Summary.Session; s != nil {
		session = s.Digest
	}
	if m.Resume.Session != session {
		return fmt.Errorf("it resumes with session %s, which does not belong to attempt %d", m.Resume.Session.Short(), before.number)
	}
	return nil
}

// product is record.Product of the attempt's result, which many may need.
func (a *attempt) product(kind, path string) (api.Artifact, bool) {
	a.index.Do(func() {
		a.outputs = make(map[string]api.Artifact, len(a.result.Summary.Outputs))
		for _, o := range slices.Backward(a.result.Summary.Outputs) { // the first of a path counts
			a.outputs[o.Path] = o
		}
	})
	sum := a.result.Summary
	sum.Outputs = nil
	if o, ok := a.outputs[record.ProductPath(kind, path)]; ok {
		sum.Outputs = []api.Artifact{o}
	}
	return record.Product(&sum, kind, path)
}

// need compares a need with the product of the dispatch that it names.
func (c *closure) need(n *record.Need, m *record.Manifest, admitted *entry) error {
	h := c.v.dispatches[n.Dispatch]
	if h == nil || len(h.attempts) == 0 {
		return fmt.Errorf("need %q is of dispatch %s, which is not in the bundle", n.Name, n.Dispatch)
	}
	a := h.finished(admitted.seq)
	switch {
	case a == nil:
		return fmt.Errorf("need %q is of dispatch %s, which had not finished", n.Name, n.Dispatch)
	case a.manifest == nil || a.made() == nil || a.made().result == nil:
		return fmt.Errorf("need %q is of dispatch %s, whose manifest or result cannot be read", n.Name, n.Dispatch)
	case a.manifest.Task != n.Task || a.manifest.Principal != m.Principal:
		return fmt.Errorf("need %q is of dispatch %s, which is of another task or principal", n.Name, n.Dispatch)
	}
	if r := c.v.replayed[m.Run]; r != nil && r.plan != nil {
		if i, ok := r.plan.Index(n.Task); !ok || r.tasks[i].Dispatch != n.Dispatch {
			return fmt.Errorf("need %q is of dispatch %s, which does not belong to task %s", n.Name, n.Dispatch, n.Task)
		}
	}
	product, ok := a.made().product(n.Kind, n.Path)
	if !ok || product.Digest != n.Digest || product.Size != n.Size {
		return fmt.Errorf("need %q is %s, which is not a product of dispatch %s", n.Name, n.Digest.Short(), n.Dispatch)
	}
	c.v.docs.nameBlob(n.Digest)
	return nil
}
