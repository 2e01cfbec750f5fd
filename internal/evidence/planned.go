package evidence

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/plan"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// planned refuses a manifest that does not match its task in the plan.
func (v *verification) planned(a *attempt, m *record.Manifest) error {
	r := v.replayed[m.Run]
	if m.Run == "" || r == nil || r.plan == nil {
		return nil // the bundle is about the dispatch alone
	}
	i, ok := r.plan.Index(m.Task)
	if !ok {
		return fmt.Errorf("the plan of run %s has no task %s", m.Run, m.Task)
	}
	t := &r.plan.Tasks[i]
	source, target := api.Name(""), api.Name("")
	if m.Source != nil {
		source = m.Source.Name
	}
	if target = t.Target; target == "" {
		target = m.Target
	}
	wanted := api.Name("")
	if t.Source != nil {
		wanted = t.Source.Name
	}
	start := r.startOf(i, m.ID, a.admitted.seq)
	submitted, _ := r.submitted.Detail.(record.RunRequest)
	switch {
	case m.Principal != r.submitted.Principal:
		return fmt.Errorf("its principal is %s, but run %s is of %s", m.Principal, r.id, r.submitted.Principal)
	case submitted.Revision < 0 || m.Revision != uint64(submitted.Revision):
		return fmt.Errorf("resolved in catalog revision %d, but run %s was submitted with revision %d", m.Revision, r.id, submitted.Revision)
	case r.inputs[i] != m.Input:
		return fmt.Errorf("its input differs from task %s of the plan", m.Task)
	case m.Subagent != t.Subagent || m.Target != target || source != wanted || !slices.Equal(m.Envs, t.Envs):
		return fmt.Errorf("its subagent, target, source or envs differ from task %s of the plan", m.Task)
	case !all(t.Capabilities, m.Capabilities):
		return fmt.Errorf("its capabilities differ from task %s of the plan", m.Task)
	case t.Timeout > 0 && m.Limits.Timeout > t.Timeout:
		return fmt.Errorf("its timeout is %s, but task %s of the plan has %s", time.Duration(m.Limits.Timeout), m.Task, time.Duration(t.Timeout))
	case start == nil:
		return fmt.Errorf("no entry of task %s starts it", m.Task)
	}
	return sameNeeds(t, m)
}

// inputsOf returns the digests of the inputs of a plan's tasks.
func inputsOf(p *plan.Plan) ([]api.Digest, error) {
	out := make([]api.Digest, len(p.Tasks))
	for i := range p.Tasks {
		input := p.Tasks[i].Input
		if len(input) == 0 {
			input = []byte("{}")
		}
		canonical, err := canon.Canonicalize(input)
		if err != nil {
			return nil, err
		}
		out[i] = api.DigestOf(canonical)
	}
	return out, nil
}

// all reports whether every one of wanted is in have.
func all(wanted, have []api.Name) bool {
	set := make(map[api.Name]bool, len(have))
	for _, n := range have {
		set[n] = true
	}
	return !slices.ContainsFunc(wanted, func(n api.Name) bool { return !set[n] })
}

// startOf returns the last entry before n that starts task i as a dispatch.
func (r *replay) startOf(i int, id api.DispatchID, n uint64) *entry {
	starts := r.tasks[i].starts
	k := sort.Search(len(starts), func(k int) bool { return starts[k].seq >= n })
	if k == 0 || starts[k-1].Dispatch != id {
		return nil
	}
	return starts[k-1]
}

// sameNeeds refuses a manifest whose needs differ from the plan's.
func sameNeeds(t *api.PlanTask, m *record.Manifest) error {
	if len(m.Needs) != len(t.Needs) {
		return fmt.Errorf("it has %d needs, but task %s of the plan has %d", len(m.Needs), t.ID, len(t.Needs))
	}
	for i := range m.Needs {
		n := &m.Needs[i]
		want, ok := t.Needs[n.Name]
		if !ok || want.From != n.Task || record.NeedKind(want) != n.Kind || want.Output != n.Path {
			return fmt.Errorf("its need %q differs from task %s of the plan", n.Name, t.ID)
		}
	}
	return nil
}

// sources compares the commits of the dispatches of a run, and of the runs that it
// retries, with the plan and with each other: each source is pinned once, when the
// run is submitted.
func (v *verification) sources() {
	type key struct {
		name   api.Name
		commit string // as the plan has it
	}
	pinned := map[key]string{}
	for _, h := range v.ordered {
		if len(h.attempts) == 0 || h.attempts[0].manifest == nil {
			continue
		}
		m := h.attempts[0].manifest
		r := v.replayed[m.Run]
		if m.Run == "" || m.Source == nil || r == nil || r.plan == nil {
			continue
		}
		i, ok := r.plan.Index(m.Task)
		if !ok || r.plan.Tasks[i].Source == nil || r.plan.Tasks[i].Source.Name != m.Source.Name {
			continue // planned reports it
		}
		s := key{m.Source.Name, r.plan.Tasks[i].Source.Commit}
		if _, err := hex.DecodeString(s.commit); err == nil && (len(s.commit) == 40 || len(s.commit) == 64) && !strings.EqualFold(s.commit, m.Source.Commit) {
			v.rows[RowManifest].fail("dispatch %s starts from commit %.64s, but task %s of the plan from %s", h.id, m.Source.Commit, m.Task, s.commit)
		}
		if was, ok := pinned[s]; ok && was != m.Source.Commit {
			v.rows[RowManifest].fail("dispatch %s starts from commit %.64s of source %s, but others of its run from %.64s", h.id, m.Source.Commit, s.name, was)
		}
		pinned[s] = m.Source.Commit
	}
}
