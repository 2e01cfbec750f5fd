package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// closure holds what a dispatch consumed against where it says that it is from.
type closure struct {
	v *verification
	h *history
	finding
}

func (c *closure) run() {
	for i, a := range c.h.attempts {
		m := a.manifest
		if m == nil {
			continue // and another row says so
		}
		before := (*attempt)(nil)
		if i > 0 {
			before = c.h.attempts[i-1]
		}
		c.v.used.Store(m.Input, nil)
		c.note(a, c.pins(m))
		c.note(a, c.resume(m, before, a))
		for n := range m.Needs {
			c.note(a, c.need(&m.Needs[n], m, c.h.attempts[0].admitted))
		}
	}
}

func (c *closure) note(a *attempt, err error) {
	if err != nil {
		c.fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
		return
	}
	c.checked++
}

// pins holds the artifacts of a manifest against the revision that it names.
func (c *closure) pins(m *record.Manifest) error {
	rev := c.v.revisions[m.RevisionDigest]
	if rev == nil {
		return fmt.Errorf("catalog revision %s is not here", m.RevisionDigest.Short())
	}
	if rev.doc.Number != m.Revision {
		return fmt.Errorf("catalog revision %s has the number %d, not %d", m.RevisionDigest.Short(), rev.doc.Number, m.Revision)
	}
	refs := m.Refs()
	if len(m.Artifacts) != len(refs) {
		return fmt.Errorf("%d artifacts are pinned, and %d are named", len(m.Artifacts), len(refs))
	}
	for i, ref := range refs {
		p := m.Artifacts[i]
		if entry, ok := rev.doc.Artifacts[ref]; p.Ref != ref || !ok || entry.Digest != p.Digest {
			return fmt.Errorf("%s is not what revision %d of the catalog says", ref, m.Revision)
		}
		if _, err := c.v.artifact(rev, ref); err != nil {
			return err
		}
	}
	sub, err := rev.subagent(m.Subagent)
	if err != nil {
		return err
	}
	switch {
	case sub.Agent != m.Agent || sub.Model != m.Model || sub.Role != m.Role || sub.Tier != m.Tier:
		return fmt.Errorf("agent, model, role or tier are not those of subagent %q", m.Subagent)
	case len(m.Capabilities) < len(sub.Capabilities) || !slices.Equal(m.Capabilities[:len(sub.Capabilities)], sub.Capabilities):
		return fmt.Errorf("capabilities of subagent %q are missing", m.Subagent)
	}
	// Of a later attempt sameWork says that it has those of the first.
	asked, ok := c.h.attempts[0].admitted.Detail.(record.DispatchRequest)
	if !ok || len(asked.Capabilities) >= listed {
		return nil
	}
	for _, n := range m.Capabilities[len(sub.Capabilities):] {
		if !slices.Contains(asked.Capabilities, string(n)) {
			return fmt.Errorf("nobody asked for capability %q, and subagent %q does not have it", n, m.Subagent)
		}
	}
	return nil
}

// resume holds what an attempt goes on with against the attempt before.
func (c *closure) resume(m *record.Manifest, before, a *attempt) error {
	if m.Resume == nil {
		return nil
	}
	if before == nil || before.result == nil {
		return fmt.Errorf("it goes on from an attempt whose result is not here")
	}
	c.v.used.Store(m.Resume.Answer, nil)
	patch := api.Digest("")
	if p := before.result.Summary.Patch; p != nil {
		patch = p.Digest
	}
	question := api.Digest("")
	if q := before.result.Summary.Question; q != nil {
		question = q.Digest
	}
	switch {
	case m.Resume.Patch != patch:
		return fmt.Errorf("it goes on with the patch %s, which is not that of attempt %d", m.Resume.Patch.Short(), before.number)
	case a.admitted.Refs[record.RefQuestion] != question:
		return fmt.Errorf("entry #%d answers another question than that of attempt %d", a.admitted.seq, before.number)
	}
	return nil
}

// need holds something that was taken over against the dispatch that it is of.
func (c *closure) need(n *record.Need, m *record.Manifest, admitted *entry) error {
	h := c.v.dispatches[n.Dispatch]
	if h == nil || len(h.attempts) == 0 {
		return fmt.Errorf("%q is of dispatch %s, which is not here: it is from nowhere", n.Name, n.Dispatch)
	}
	a := h.finished(admitted.seq)
	switch {
	case a == nil:
		return fmt.Errorf("%q is of dispatch %s, which had not finished", n.Name, n.Dispatch)
	case a.manifest == nil || a.result == nil:
		return fmt.Errorf("%q is of dispatch %s, of which manifest or result cannot be read", n.Name, n.Dispatch)
	case a.manifest.Task != n.Task || a.manifest.Principal != m.Principal:
		return fmt.Errorf("%q is of dispatch %s, which is of another task or principal", n.Name, n.Dispatch)
	}
	if r := c.v.replayed[m.Run]; r != nil && r.plan != nil {
		if i, ok := r.plan.Index(n.Task); !ok || r.tasks[i].dispatch != n.Dispatch {
			return fmt.Errorf("%q is of dispatch %s, by which task %s was not done", n.Name, n.Dispatch, n.Task)
		}
	}
	left, ok := record.Product(&a.result.Summary, n.Kind, n.Path)
	if !ok || left.Digest != n.Digest || left.Size != n.Size {
		return fmt.Errorf("%q is %s, which dispatch %s did not leave: it is from nowhere", n.Name, n.Digest.Short(), n.Dispatch)
	}
	c.v.used.Store(n.Digest, nil)
	return nil
}
