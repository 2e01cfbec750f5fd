package e2e

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// overlaps reports agents that ran at the same time although a lock excludes
// it, in the order that the workers recorded.
func overlaps(log []entry, hits []hit) (bad []string) {
	type holder struct {
		who   string
		locks map[string]bool // true if exclusive
	}
	holders := map[string]*holder{} // by dispatch
	for _, e := range log {
		if e.Kind != "task.started" || len(e.Detail.Locks)+len(e.Detail.Shared) == 0 {
			continue
		}
		h := &holder{who: e.Run + "/" + e.Task, locks: map[string]bool{}}
		for _, k := range e.Detail.Locks {
			h.locks[k] = true
		}
		for _, k := range e.Detail.Shared {
			h.locks[k] = false
		}
		holders[e.Dispatch] = h
	}
	ended := map[string]bool{} // attempts with a recorded end of the agent
	for _, h := range hits {
		ended[h.subject] = ended[h.subject] || h.name == failpoint.WorkerAgentEnded
	}
	active := map[string]*holder{}
	for _, h := range hits {
		if h.action != "" || h.name != failpoint.WorkerAgent && h.name != failpoint.WorkerAgentEnded {
			continue
		}
		me := holders[dispatchOf(h.subject)]
		if me == nil {
			continue
		}
		if h.name == failpoint.WorkerAgentEnded {
			delete(active, h.subject)
			continue
		}
		for _, other := range active {
			for key, alone := range me.locks {
				if theirs, ok := other.locks[key]; ok && (alone || theirs) && other != me {
					bad = append(bad, fmt.Sprintf("DOUBLED: %s ran while %s did, and both need lock %s", me.who, other.who, key))
				}
			}
		}
		if ended[h.subject] { // a killed worker records no end
			active[h.subject] = me
		}
	}
	return bad
}

// dispatchOf is the dispatch whose attempt directory a failpoint's subject
// names; otherwise empty.
func dispatchOf(subject string) string {
	parts := strings.Split(subject, "/")
	if len(parts) < 2 {
		return ""
	}
	return parts[len(parts)-2]
}

// runStory gathers everything recorded about a run.
func (k *trial) runStory(id string) *runStory {
	k.t.Helper()
	s := &runStory{id: id}
	var run api.Run
	for after := ""; ; {
		var page api.Run
		if err := k.insist("GET", runsPath+"/"+id+"?after="+after, nil, &page); err != nil {
			return s
		}
		if s.run == nil {
			run, s.run = page, &run
		} else {
			run.Tasks = append(run.Tasks, page.Tasks...)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	var plan json.RawMessage
	if err := k.insist("GET", runsPath+"/"+id+"/plan", nil, &plan); err != nil {
		k.t.Errorf("the plan of run %s: %v", id, err)
		return s
	}
	if err := json.Unmarshal(plan, &s.plan); err != nil {
		k.t.Errorf("the plan of run %s: %v", id, err)
	}
	return s
}

const runsPath = "/v1/runtime/runs"
