package evidence

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// planned refuses a manifest that does not match its task in the plan.
func (w *world) planned(a *attempt, m *record.Manifest) error {
	r := w.replayed[m.Run]
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
	start := r.tasks[i].startOf(m.ID, a.admitted.seq)
	submitted := detail[record.RunRequest](r.submitted)
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
	case m.ItemFrom != r.itemFrom(i):
		return fmt.Errorf("its item is from dispatch %q, but the item of task %s is from %q", m.ItemFrom, m.Task, r.itemFrom(i))
	}
	return r.sameNeeds(i, m)
}

// itemFrom is the dispatch whose products gave the item of task i; empty if none did.
func (r *replay) itemFrom(i int) api.DispatchID {
	if from := r.plan.ItemFrom(i); from >= 0 {
		return r.tasks[from].Dispatch
	}
	return ""
}

// inputsOf returns the digests of the inputs of tasks. Those that grew from one task
// can share an input, which is read once.
func inputsOf(tasks []api.PlanTask) (out []api.Digest, failed error) {
	out = make([]api.Digest, len(tasks))
	for i := range tasks {
		input := tasks[i].Input
		if i > 0 && len(input) > 0 && len(tasks[i-1].Input) == len(input) && &tasks[i-1].Input[0] == &input[0] {
			out[i] = out[i-1]
			continue
		}
		if len(input) == 0 {
			input = []byte("{}")
		}
		canonical, err := canon.Canonicalize(input)
		if err != nil {
			failed = err
			continue
		}
		out[i] = api.DigestOf(canonical)
	}
	return out, failed
}

// all reports whether every one of wanted is in have.
func all(wanted, have []api.Name) bool {
	set := make(map[api.Name]bool, len(have))
	for _, n := range have {
		set[n] = true
	}
	return !slices.ContainsFunc(wanted, func(n api.Name) bool { return !set[n] })
}

// startOf returns the last entry before n that starts the task as a dispatch.
func (t *taskReplay) startOf(id api.DispatchID, n uint64) *entry {
	starts := t.starts
	k := sort.Search(len(starts), func(k int) bool { return starts[k].seq >= n })
	if k == 0 || starts[k-1].Dispatch != id {
		return nil
	}
	return starts[k-1]
}

// sameNeeds refuses a manifest whose needs differ from the plan's. A need from a
// for_each is one for each of its tasks that is done, and one from a task that was
// skipped by its condition is absent.
func (r *replay) sameNeeds(i int, m *record.Manifest) error {
	t := &r.plan.Tasks[i]
	want := 0
	for _, n := range t.Needs {
		from, ok := r.plan.Index(n.From)
		switch {
		case !ok:
			return fmt.Errorf("the plan has no task %s", n.From)
		case r.tasks[from].State == api.TaskSkipped: // it gives nothing
		case r.plan.Tasks[from].ForEach != nil:
			want += r.tasks[from].offspring.Done
		default:
			want++
		}
	}
	if len(m.Needs) != want {
		return fmt.Errorf("it has %d needs, but task %s of the plan has %d", len(m.Needs), t.ID, want)
	}
	type place struct {
		name api.Name
		item string
	}
	seen := make(map[place]bool, len(m.Needs))
	for k := range m.Needs {
		n := &m.Needs[k]
		want, ok := t.Needs[n.Name]
		if !ok || seen[place{n.Name, n.Item}] || r.giver(i, want, n.Item) != n.Task || record.NeedKind(want) != n.Kind || want.Output != n.Path {
			return fmt.Errorf("its need %q differs from task %s of the plan", n.Name, t.ID)
		}
		seen[place{n.Name, n.Item}] = true
	}
	return nil
}

// giver returns the task whose dispatch gives task i what it needs, of an item if from
// is a for_each; empty if no task does.
func (r *replay) giver(i int, need api.Need, item string) api.TaskID {
	from, ok := r.plan.Index(need.From)
	if !ok || r.tasks[from].State == api.TaskSkipped {
		return ""
	}
	if (r.plan.Tasks[from].ForEach != nil) != (item != "") {
		return ""
	}
	if item != "" {
		if from, ok = r.plan.Index(api.TaskID(fmt.Sprintf("%s[%s]", need.From, item))); !ok || r.tasks[from].State != api.TaskDone {
			return ""
		}
	}
	if need.Patch {
		from = int(r.plan.Giver(int32(i), int32(from))) //nolint:gosec // G115: below api.MaxRunTasks
	}
	return r.plan.Tasks[from].ID
}

// sources compares the commits of the dispatches of a run, and of the runs that it
// retries, with the plan and with each other: each source is pinned once, when the
// run is submitted.
func (w *world) sources(row *report.Finding) {
	type key struct {
		name   api.Name
		commit string // as the plan has it
	}
	pinned := map[key]string{}
	for _, h := range w.ordered {
		if len(h.attempts) == 0 || h.attempts[0].manifest == nil {
			continue
		}
		m := h.attempts[0].manifest
		r := w.replayed[m.Run]
		if m.Run == "" || m.Source == nil || r == nil || r.plan == nil {
			continue
		}
		i, ok := r.plan.Index(m.Task)
		if !ok || r.plan.Tasks[i].Source == nil || r.plan.Tasks[i].Source.Name != m.Source.Name {
			continue // planned reports it
		}
		s := key{m.Source.Name, r.plan.Tasks[i].Source.Commit}
		if _, err := hex.DecodeString(s.commit); err == nil && (len(s.commit) == 40 || len(s.commit) == 64) && !strings.EqualFold(s.commit, m.Source.Commit) {
			row.Fail("dispatch %s starts from commit %.64s, but task %s of the plan from %s", h.id, m.Source.Commit, m.Task, s.commit)
		}
		if was, ok := pinned[s]; ok && was != m.Source.Commit {
			row.Fail("dispatch %s starts from commit %.64s of source %s, but others of its run from %.64s", h.id, m.Source.Commit, s.name, was)
		}
		pinned[s] = m.Source.Commit
	}
}
