package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The bounds that package api does not define.
const (
	maxNames  = 64   // envs and capabilities of a task
	maxCommit = 256  // characters
	maxPath   = 1024 // characters
	maxTime   = 64   // characters of a duration
)

// elsewhere says where that is which a plan does not have.
func elsewhere() map[string]string {
	return map[string]string{
		"append":   "bailiwick run append adds tasks to an open run",
		"schedule": "a schedule is a part of the catalog, under schedules, and names the plan",
		"cost":     "not supported by this version of bailiwick",
	}
}

// draft is the part of a plan that can be read.
type draft struct {
	plan  api.Plan
	needs [][]need // of each task, by name
}

// need is a task's need with its name and path.
type need struct {
	name string
	path string
	api.Need
}

// read reads the members of a plan. Nil: raw is no JSON object.
func read(raw []byte, values map[string]json.RawMessage, found *list) *draft {
	r := &reader{found}
	doc, ok := r.document(raw)
	if !ok {
		return nil
	}
	doc = resolve(doc, values, found)
	d := &draft{}
	members := r.object("$", doc, readers{
		"id":         func(path string, raw json.RawMessage) { d.plan.ID = parsed(r, path, raw, api.ParseRunID) },
		"queue":      func(path string, raw json.RawMessage) { d.plan.Queue = parsed(r, path, raw, api.ParseName) },
		"source":     func(path string, raw json.RawMessage) { d.plan.Source = readSource(r, path, raw) },
		"labels":     func(path string, raw json.RawMessage) { d.plan.Labels = readLabels(r, path, raw) },
		"parameters": func(path string, raw json.RawMessage) { r.members(path, raw) },
		"limits":     func(path string, raw json.RawMessage) { d.plan.Limits = readLimits(r, path, raw) },
		"budget":     func(path string, raw json.RawMessage) { d.plan.Budget = readBudget(r, path, raw) },
		"tasks": func(path string, raw json.RawMessage) {
			r.items(path, raw, api.MaxPlanTasks, func(path string, raw json.RawMessage) { readTask(r, path, raw, d) })
			if string(raw) == "[]" {
				r.shape(path, "is empty: want at least one task")
			}
		},
	})
	r.require("$", members, "tasks")
	return d
}

func readSource(r *reader, path string, raw json.RawMessage) *api.SourceRequest {
	s := &api.SourceRequest{}
	members := r.object(path, raw, readers{
		"name":   func(path string, raw json.RawMessage) { s.Name = parsed(r, path, raw, api.ParseName) },
		"commit": func(path string, raw json.RawMessage) { s.Commit = r.visible(path, raw, maxCommit) },
	})
	r.require(path, members, "name")
	return s
}

func readLabels(r *reader, path string, raw json.RawMessage) map[api.Name]string {
	members := r.members(path, raw)
	if len(members) > api.MaxLabels {
		r.shape(path, "%d labels: at most %d", len(members), api.MaxLabels)
		return nil
	}
	var all map[api.Name]string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := member(path, name)
		if _, err := api.ParseName(name); err != nil {
			r.shape(at, "label %s: want 1 to 64 of a-z 0-9 . _ - beginning and ending with a letter or digit", clip(name))
		}
		if all == nil {
			all = map[api.Name]string{}
		}
		all[api.Name(name)] = r.visible(at, members[name], api.MaxLabel)
	}
	return all
}

func readLimits(r *reader, path string, raw json.RawMessage) api.PlanLimits {
	var l api.PlanLimits
	r.object(path, raw, readers{
		"wall":  func(path string, raw json.RawMessage) { l.Wall = r.duration(path, raw) },
		"tasks": func(path string, raw json.RawMessage) { l.Tasks = r.whole(path, raw, 1, api.MaxRunTasks) },
	})
	return l
}

func readTask(r *reader, path string, raw json.RawMessage, d *draft) {
	var t api.PlanTask
	var needs []need
	members := r.object(path, raw, readers{
		"id":           func(path string, raw json.RawMessage) { t.ID = parsed(r, path, raw, api.ParseTaskID) },
		"subagent":     func(path string, raw json.RawMessage) { t.Subagent = parsed(r, path, raw, api.ParseName) },
		"input":        func(path string, raw json.RawMessage) { t.Input = readInput(r, path, raw) },
		"source":       func(path string, raw json.RawMessage) { t.Source = readSource(r, path, raw) },
		"target":       func(path string, raw json.RawMessage) { t.Target = parsed(r, path, raw, api.ParseName) },
		"env":          func(path string, raw json.RawMessage) { t.Envs = texts(r, path, raw, maxNames, api.ParseName) },
		"capabilities": func(path string, raw json.RawMessage) { t.Capabilities = texts(r, path, raw, maxNames, api.ParseName) },
		"timeout":      func(path string, raw json.RawMessage) { t.Timeout = r.duration(path, raw) },
		"locks":        func(path string, raw json.RawMessage) { t.Locks = readLocks(r, path, raw) },
		"retry":        func(path string, raw json.RawMessage) { t.Retry = readRetry(r, path, raw) },
		"reuse":        func(path string, raw json.RawMessage) { t.Reuse = readReuse(r, path, raw) },
		"depends_on": func(path string, raw json.RawMessage) {
			t.DependsOn = texts(r, path, raw, api.MaxPlanTasks, api.ParseTaskID)
		},
		"needs": func(path string, raw json.RawMessage) { needs = readNeeds(r, path, raw) },
		"priority": func(path string, raw json.RawMessage) {
			t.Priority = r.whole(path, raw, -api.MaxPriority, api.MaxPriority)
		},
		"when":     func(path string, raw json.RawMessage) { t.When = readWhen(r, path, raw) },
		"after":    func(path string, raw json.RawMessage) { t.After = readAfter(r, path, raw) },
		"for_each": func(path string, raw json.RawMessage) { t.ForEach = readForEach(r, path, raw) },
		"gate":     func(path string, raw json.RawMessage) { t.Gate = readGate(r, path, raw) },
		"quorum":   func(path string, raw json.RawMessage) { t.Quorum = readQuorum(r, path, raw) },
		"approval": func(path string, raw json.RawMessage) { t.Approval = readApproval(r, path, raw) },
	})
	checkKindOfTask(r, path, members)
	if len(needs) > 0 {
		t.Needs = make(map[api.Name]api.Need, len(needs))
		for _, n := range needs {
			t.Needs[api.Name(n.name)] = n.Need
		}
	}
	d.plan.Tasks = append(d.plan.Tasks, t)
	d.needs = append(d.needs, needs)
}

// checkKindOfTask refuses members that do not go together: a task has a subagent, or is a
// quorum or an approval.
func checkKindOfTask(r *reader, path string, members map[string]json.RawMessage) {
	has := func(key string) bool { _, ok := members[key]; return ok }
	r.require(path, members, "id")
	switch {
	case has("quorum"):
		r.without(path, members, "quorum", "subagent", "for_each", "gate", "approval", "locks")
	case has("approval"):
		r.without(path, members, "approval", "subagent", "for_each", "gate", "input", "source", "target", "env", "capabilities", "timeout", "locks", "retry", "needs", "priority")
	default:
		r.require(path, members, "subagent")
	}
}

// without refuses keys beside one of a task.
func (r *reader) without(path string, members map[string]json.RawMessage, beside string, keys ...string) {
	for _, key := range keys {
		if _, ok := members[key]; ok {
			r.shape(member(path, key), "a task with %s has no %s", beside, key)
		}
	}
}

// readInput keeps an object as it is: the subagent's schema validates it.
func readInput(r *reader, path string, raw json.RawMessage) json.RawMessage {
	if raw[0] != '{' {
		r.shape(path, "want an object, got %s", kind(raw))
		return nil
	}
	return slices.Clone(raw)
}

// durationForm is the syntax of a duration. Its range is checked later.
var durationForm = regexp.MustCompile(`^([0-9]{1,9}[hms])+$`)

// bareNumber is a duration without its unit, in quotes or not.
var bareNumber = regexp.MustCompile(`^"?([0-9]{1,9})"?$`)

func (r *reader) duration(path string, raw json.RawMessage) api.Duration {
	if m := bareNumber.FindSubmatch(raw); m != nil {
		r.shape(path, "duration %s has no unit: write %[1]ss for seconds, %[1]sm for minutes or %[1]sh for hours", m[1])
		return 0
	}
	s := r.text(path, raw, maxTime)
	if s == "" {
		return 0
	}
	if !durationForm.MatchString(s) {
		r.shape(path, "duration %s: want whole hours, minutes and seconds such as 90s, 20m or 1h30m", clip(s))
		return 0
	}
	var v api.Duration
	if err := v.UnmarshalText([]byte(s)); err != nil {
		r.sense(path, "%v", err)
	}
	return v
}

func readLocks(r *reader, path string, raw json.RawMessage) []api.Lock {
	var all []api.Lock
	r.items(path, raw, api.MaxTaskLocks, func(path string, raw json.RawMessage) {
		switch raw[0] {
		case '{':
			l := api.Lock{Shared: true}
			members := r.object(path, raw, readers{"shared": func(path string, raw json.RawMessage) { l.Key = r.visible(path, raw, api.MaxLockKey) }})
			r.require(path, members, "shared")
			all = append(all, l)
		case '"':
			all = append(all, api.Lock{Key: r.visible(path, raw, api.MaxLockKey)})
		default:
			r.shape(path, `lock: want a key, or {"shared": key}, got %s`, kind(raw))
			all = append(all, api.Lock{})
		}
	})
	return all
}

var backoffForm = regexp.MustCompile(`^([0-9]{1,9}(\.[0-9]{1,9})?(h|m|s|ms))+\.\.([0-9]{1,9}(\.[0-9]{1,9})?(h|m|s|ms))+$`)

func readRetry(r *reader, path string, raw json.RawMessage) api.Retry {
	var v api.Retry
	members := r.object(path, raw, readers{
		"attempts": func(path string, raw json.RawMessage) { v.Attempts = r.whole(path, raw, 1, api.MaxAttempts) },
		"backoff":  func(path string, raw json.RawMessage) { v.Backoff = readBackoff(r, path, raw) },
		"on": func(path string, raw json.RawMessage) {
			v.On = texts(r, path, raw, len(api.Reasons()), parseReason)
			if string(raw) == "[]" {
				r.shape(path, "is empty: omit it for the default reasons")
			}
		},
	})
	r.require(path, members, "attempts")
	return v
}

func readBackoff(r *reader, path string, raw json.RawMessage) api.Backoff {
	var v api.Backoff
	s := r.text(path, raw, 2*maxTime)
	if s == "" {
		return v
	}
	if !backoffForm.MatchString(s) {
		r.shape(path, "backoff %s: want MIN..MAX such as 2s..2m", clip(s))
		return v
	}
	if err := v.UnmarshalText([]byte(s)); err != nil {
		r.sense(path, "%v", err)
	}
	return v
}

func parseReason(s string) (api.Reason, error) {
	if !slices.Contains(api.Reasons(), api.Reason(s)) {
		return "", fmt.Errorf("reason %s: want one of %s", clip(s), api.OneOf(api.Reasons()))
	}
	return api.Reason(s), nil
}

func readNeeds(r *reader, path string, raw json.RawMessage) []need {
	members := r.members(path, raw)
	if len(members) > api.MaxTaskNeeds {
		r.shape(path, "%d needs: at most %d", len(members), api.MaxTaskNeeds)
		return nil
	}
	var all []need
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := member(path, name)
		if _, err := api.ParseName(name); err != nil {
			r.shape(at, "need %s: want 1 to 64 of a-z 0-9 . _ - beginning and ending with a letter or digit", clip(name))
		}
		all = append(all, need{name, at, readNeed(r, at, members[name])})
	}
	return all
}

func readNeed(r *reader, path string, raw json.RawMessage) api.Need {
	var n api.Need
	members := r.object(path, raw, readers{
		"from":   func(path string, raw json.RawMessage) { n.From = parsed(r, path, raw, api.ParseTaskID) },
		"patch":  func(path string, raw json.RawMessage) { n.Patch = r.yes(path, raw) },
		"output": func(path string, raw json.RawMessage) { n.Output = r.visible(path, raw, maxPath) },
		"result": func(path string, raw json.RawMessage) { n.Result = r.yes(path, raw) },

		"allow_failed": func(path string, raw json.RawMessage) { n.AllowFailed = r.yes(path, raw) },
	})
	r.require(path, members, "from")
	products := 0
	for _, key := range []string{"patch", "output", "result"} {
		if _, ok := members[key]; ok {
			products++
		}
	}
	if members != nil && products != 1 {
		r.shape(path, "%d products: want exactly one of patch, output and result", products)
	}
	return n
}
