package daemoncli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/server"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
)

// Bounds of the section. Each queue has several series of metrics.
const (
	maxQueues   = 64
	maxSlots    = 10_000
	maxWeight   = 100
	maxWeighted = 1000 // principals of a queue
)

// orchestratorSettings is the section orchestrator.
type orchestratorSettings struct {
	On     bool             // whether the section exists
	Queues map[api.Name]int // slots by queue; orchestrator.DefaultSlots by default
	// Weights of principals by queue; 1 by default.
	Weights map[api.Name]map[api.Principal]int
}

// all returns the queues, including the default queue.
func (s orchestratorSettings) all() map[api.Name]int {
	all := map[api.Name]int{api.DefaultQueue: orchestrator.DefaultSlots}
	maps.Copy(all, s.Queues)
	return all
}

func (s orchestratorSettings) String() string {
	var words []string
	all := s.all()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words = append(words, fmt.Sprintf("%s (%d at once)", name, all[name]))
	}
	return strings.Join(words, ", ")
}

func (r *settingsReader) orchestrator(n *yaml.Node) {
	r.s.Orchestrator.On = true
	r.Fields(n, "orchestrator", map[string]func(*yaml.Node){"queues": r.queues})
}

func (r *settingsReader) queues(n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		r.Fields(n, "orchestrator.queues", nil) // reports the wrong kind
		return
	}
	if len(n.Content)/2 > maxQueues {
		r.At(n, "orchestrator.queues: %d queues, more than %d", len(n.Content)/2, maxQueues)
		return
	}
	seen := map[string]*yaml.Node{}
	r.s.Orchestrator.Queues, r.s.Orchestrator.Weights = map[api.Name]int{}, map[api.Name]map[api.Principal]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !r.Key(key, "orchestrator.queues", seen) {
			continue
		}
		if name := r.Name(key, "orchestrator.queues"); name != "" {
			r.queue(value, name)
		}
	}
}

func (r *settingsReader) queue(n *yaml.Node, name api.Name) {
	what, slots := "orchestrator.queues."+string(name), orchestrator.DefaultSlots
	r.Fields(n, what, map[string]func(*yaml.Node){
		"slots": func(n *yaml.Node) {
			if slots = r.Count(n, what+".slots"); slots > maxSlots {
				r.At(n, "%s.slots: %d is too many: at most %d", what, slots, maxSlots)
			}
		},
		"weights": func(n *yaml.Node) { r.s.Orchestrator.Weights[name] = r.weights(n, what+".weights") },
	})
	r.s.Orchestrator.Queues[name] = slots
}

// weights reads how many tasks of a principal start in one of its turns.
func (r *settingsReader) weights(n *yaml.Node, what string) map[api.Principal]int {
	if n.Kind != yaml.MappingNode {
		r.Fields(n, what, nil) // reports the wrong kind
		return nil
	}
	if len(n.Content)/2 > maxWeighted {
		r.At(n, "%s: %d principals, more than %d", what, len(n.Content)/2, maxWeighted)
		return nil
	}
	weights, seen := map[api.Principal]int{}, map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !r.Key(key, what, seen) {
			continue
		}
		p, err := api.ParsePrincipal(key.Value)
		if err != nil {
			r.At(key, "%s: %v", what, err)
			continue
		}
		if weights[p] = r.Count(value, what+"."+key.Value); weights[p] > maxWeight {
			r.At(value, "%s.%s: %d is too many: at most %d", what, key.Value, weights[p], maxWeight)
		}
	}
	return weights
}

// wantsRuns reports whether the service has an orchestrator. One that shuts down
// when idle never has: runs continue without requests.
func (t *tree) wantsRuns(set settings) bool {
	return t.idle == 0 && (t.orchestrator || set.Orchestrator.On)
}

// checkRuns refuses --orchestrator with --idle.
func (t *tree) checkRuns() error {
	if t.orchestrator && t.idle != 0 {
		return api.Errorf(api.CodeInvalid, "--orchestrator and --idle: a service that shuts down when idle cannot run plans").WithHint("leave out --idle")
	}
	return nil
}

// apiRuns returns the orchestrator for the API; a nil interface without one.
func apiRuns(runs *orchestrator.Orchestrator) server.Runs {
	if runs == nil {
		return nil
	}
	return runs
}

// runStatus returns the orchestrator's status; nil without one.
func runStatus(ctx context.Context, runs *orchestrator.Orchestrator) (*api.OrchestratorStatus, error) {
	if runs == nil {
		return nil, nil //nolint:nilnil // absent in the status
	}
	st := &api.OrchestratorStatus{}
	if err := runs.Err(); err != nil {
		st.Error = err.Error()
		return st, nil //nolint:nilerr // the status reports it
	}
	var err error
	if st.Queues, err = runs.Queues(ctx); err != nil {
		return nil, err
	}
	for i := range st.Queues {
		st.OpenRuns += st.Queues[i].Runs
	}
	st.Tasks, err = runs.Tasks(ctx)
	return st, err
}

// queueState returns the state of the queues for metrics.
func queueState(ctx context.Context, runs *orchestrator.Orchestrator) (list []telemetry.Queue) {
	if runs == nil || runs.Err() != nil {
		return nil
	}
	queues, err := runs.Queues(ctx)
	if err != nil {
		return nil // shutting down
	}
	for i := range queues {
		q := &queues[i]
		list = append(list, telemetry.Queue{Name: string(q.Name), Slots: q.Slots, Ready: q.Ready, Running: q.Running, Runs: q.Runs})
	}
	return list
}

// runsCheck is doctor's line about the orchestrator.
func runsCheck(s settings, err error) []check {
	switch {
	case err != nil:
		return nil // reported by configCheck
	case s.Orchestrator.On:
		return []check{{name: "orchestrator", ok: true, found: "on, with the queues " + s.Orchestrator.String()}}
	}
	return []check{{name: "orchestrator", ok: true, found: "not enabled in service.yaml; to enable it until the service stops: " + api.StartRuns(api.ModeSameUser)}}
}
