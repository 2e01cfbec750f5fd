package plan

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// humanApproval is the executor of Pangolin that asks a person.
const humanApproval = "human-approval"

// pattern is a part of the inputs of an item that makes further items.
type pattern struct {
	kind string // gate, mapReduce, quorum
	path string
	raw  json.RawMessage
	task object // of the item
}

// readGates finds the items that are gates: they become a part of their subject, and
// what depends on one depends on the subject.
func (im *importer) readGates(raw json.RawMessage) {
	var items []struct {
		ID     json.RawMessage
		Inputs struct {
			Gate struct{ OnRed, Subject json.RawMessage }
		}
	}
	_ = json.Unmarshal(raw, &items) // item reports what is wrong
	im.subjects = map[string]string{}
	for _, item := range items {
		if g := item.Inputs.Gate; textOf(g.OnRed) == "spawn-fix" {
			im.subjects[textOf(item.ID)] = textOf(g.Subject)
		}
	}
}

// grow translates the patterns, after all items.
func (im *importer) grow() {
	for _, p := range im.patterns {
		switch p.kind {
		case "gate":
			im.gate(p)
		case "mapReduce":
			im.mapReduce(p)
		case "quorum":
			im.quorum(p)
		}
	}
	im.tasks = slices.DeleteFunc(im.tasks, func(t object) bool { return t[isGate] != nil })
	for _, t := range im.tasks {
		im.paths = append(im.paths, textOf(t[isFrom]))
		delete(t, isFrom)
	}
}

// The notes about a task beside its members.
const (
	isFrom = " from" // the path of the item or pattern that it is from
	isGate = " gate" // it became a part of its subject
)

// template translates what Pangolin makes items of. Keys that its caller reads are in own.
func (im *importer) template(path string, raw json.RawMessage, own ...string) (object, map[string]json.RawMessage) {
	t, members := object{}, im.members(path, raw)
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch at := member(path, key); {
		case key == "executor":
			im.executor(at, members[key], t)
		case key == "inputs" && textOf(members["executor"]) != humanApproval:
			n := len(im.patterns)
			im.inputs(at, members[key], t)
			for _, p := range im.patterns[n:] {
				im.sense(p.path, "%q of an item that another pattern makes has no translation", p.kind)
			}
			im.patterns = im.patterns[:n]
		case key == "resourceLocks":
			im.locks(at, members[key], t)
		case key != "inputs" && !slices.Contains(own, key):
			im.refuse(path, key)
		}
	}
	im.require(path, members, "executor", "inputs")
	return t, members
}

func (im *importer) mapReduce(p pattern) {
	members := im.members(p.path, p.raw)
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if key != "map" && key != "reduce" {
			im.refuse(p.path, key)
		}
	}
	if im.require(p.path, members, "map", "reduce"); members["map"] == nil || members["reduce"] == nil {
		return
	}
	text := func(members object, key, absent string) string {
		if s := textOf(members[key]); s != "" {
			return s
		}
		return absent
	}
	from := api.TaskID(textOf(p.task["id"]))
	each, own := im.template(p.path+".map", members["map"], "needsKey", "outputPath")
	reduce, ownReduce := im.template(p.path+".reduce", members["reduce"], "keyPrefix")
	id, prefix := im.ids.fresh(p.path, "map"), text(ownReduce, "keyPrefix", "part")
	each["id"], reduce["id"] = im.value(id), im.value(im.ids.fresh(p.path, "reduce"))
	each["for_each"] = im.value(api.ForEach{From: from, Outputs: "*", Max: api.MaxForEach})
	each["needs"] = im.value(map[string]api.Need{text(own, "needsKey", "input"): {From: from, Output: "{{each.path}}"}})
	reduce["needs"] = im.value(map[string]api.Need{prefix: {From: id, Output: text(own, "outputPath", "result")}})
	im.add(p.path, each, reduce)
	im.note(p.path, "becomes tasks %s and %s: one %[1]s[NAME] for each file directly below outputs/, and %[2]s has what they leave at inputs/%s/NAME", id, textOf(reduce["id"]), prefix)
}

// add adds tasks that no item is.
func (im *importer) add(path string, tasks ...object) {
	for _, t := range tasks {
		t[isFrom] = im.value(path)
		t["retry"] = im.value(map[string]int{"attempts": pangolinAttempts})
		im.tasks = append(im.tasks, t)
	}
}

// gate makes a gate of a task out of the item that checks it.
func (im *importer) gate(p pattern) {
	members := im.object(p.path, p.raw, readers{
		"onRed": func(string, json.RawMessage) {}, "subject": func(string, json.RawMessage) {}, "fixTemplate": func(string, json.RawMessage) {},
		"maxFixAttempts": func(path string, raw json.RawMessage) { im.whole(path, raw, 1, api.MaxFixes) },
	})
	switch onRed := textOf(members["onRed"]); {
	case members == nil:
		return
	case onRed == "advance":
		im.note(p.path, "the task checks, and others continue whatever it finds, as with onRed advance")
		return
	case onRed != "spawn-fix":
		im.sense(member(p.path, "onRed"), "%s: want advance or spawn-fix", clip(onRed))
		return
	}
	if im.require(p.path, members, "subject", "fixTemplate"); members["subject"] == nil || members["fixTemplate"] == nil {
		return
	}
	id := im.ids.of[textOf(members["subject"])]
	at := slices.IndexFunc(im.tasks, func(t object) bool { return textOf(t["id"]) == string(id) })
	switch {
	case id == "" || at < 0:
		im.sense(member(p.path, "subject"), "no such item %s", clip(textOf(members["subject"])))
		return
	case im.tasks[at]["gate"] != nil || im.tasks[at]["approval"] != nil || im.isGate(textOf(members["subject"])):
		im.sense(member(p.path, "subject"), "item %s cannot have this gate: it has one, or is a gate or an approval", clip(textOf(members["subject"])))
		return
	}
	subject := im.tasks[at]
	fix, _ := im.template(p.path+".fixTemplate", members["fixTemplate"])
	im.gateFits(p, subject, fix)
	attempts := 1
	_ = json.Unmarshal(members["maxFixAttempts"], &attempts) // reported above
	step := func(t object) api.GateStep {
		return api.GateStep{Subagent: api.Name(textOf(t["subagent"])), Input: t["input"]}
	}
	subject["gate"] = im.value(api.Gate{Verify: step(p.task), Fix: step(fix), Attempts: attempts})
	p.task[isGate] = json.RawMessage("true")
	im.note(p.path, "becomes the gate of task %s: its checks are %[1]s.gate1, …; the patch is at inputs/change, and the result of %s needs a verdict of green or red", id, textOf(p.task["subagent"]))
}

// isGate reports whether an item becomes the gate of another.
func (im *importer) isGate(item string) bool { _, yes := im.subjects[item]; return yes }

// gateFits reports what the check and the fix of a gate cannot have here.
func (im *importer) gateFits(p pattern, subject, fix object) {
	item := strings.TrimSuffix(p.path, ".inputs.gate")
	for _, key := range []string{"target", "env", "capabilities"} {
		if !bytes.Equal(p.task[key], subject[key]) || !bytes.Equal(fix[key], subject[key]) {
			im.sense(p.path, "the gate and its fix have the %s of the subject here; give all three the same", key)
		}
	}
	if none(p.task["locks"]) != "" {
		im.sense(item+".resourceLocks", "the check of a gate holds no locks here; remove them")
	}
	if none(fix["locks"]) != none(subject["locks"]) {
		im.sense(p.path+".fixTemplate.resourceLocks", "the fix of a gate holds the locks of its subject here; give both the same")
	}
	var needs map[string]api.Need
	_ = json.Unmarshal(p.task["needs"], &needs) // reported before
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if n := needs[name]; string(n.From) != textOf(subject["id"]) || !n.Patch {
			im.sense(member(item+".needs", name), "the check of a gate has the patch of its subject only; let the subject leave what it needs")
		}
	}
	var deps []string
	_ = json.Unmarshal(p.task["depends_on"], &deps) // likewise
	for _, d := range deps {
		if d != textOf(subject["id"]) {
			im.sense(item+".depends_on", "the check of a gate depends on its subject only; let the subject depend on %s", d)
		}
	}
}

// none is the text of a list, "" of an empty one.
func none(raw json.RawMessage) string {
	if string(raw) == "[]" {
		return ""
	}
	return string(raw)
}

// quorum makes a vote about an item, and the task that follows it.
func (im *importer) quorum(p pattern) {
	threshold, reject := 0, "spawn-fix"
	var voters []object
	members := im.object(p.path, p.raw, readers{
		"reviewers": func(path string, raw json.RawMessage) {
			im.items(path, raw, api.MaxVoters, func(path string, raw json.RawMessage) { voters = append(voters, im.voter(path, raw)) })
		},
		"threshold":   func(path string, raw json.RawMessage) { threshold = im.whole(path, raw, 1, api.MaxVoters) },
		"onReject":    func(_ string, raw json.RawMessage) { reject = textOf(raw) },
		"commit":      func(string, json.RawMessage) {},
		"fixTemplate": func(string, json.RawMessage) {}, // of spawn-fix
		"maxRounds":   func(string, json.RawMessage) {}, // likewise
	})
	if im.require(p.path, members, "reviewers", "threshold", "commit"); members["commit"] == nil {
		return
	}
	if reject != "block" {
		im.sense(p.path, `"onReject": %s has no translation: a rejected task is not reviewed again; write "block", and give the task a gate for what is to be fixed`, clip(reject))
		return
	}
	subject := api.TaskID(textOf(p.task["id"]))
	review := im.reviewers(p.path, voters, threshold)
	work := im.value(map[string]api.Need{"work": {From: subject, Patch: true}})
	id := im.ids.fresh(p.path, validID(string(subject)+"-review"))
	review["id"], review["needs"] = im.value(id), work
	commit, _ := im.template(p.path+".commit", members["commit"])
	commit["id"], commit["needs"], commit["depends_on"] = im.value(im.ids.fresh(p.path, validID(string(subject)+"-commit"))), work, im.value([]api.TaskID{id})
	im.add(p.path, review, commit)
	im.note(p.path, "becomes tasks %s and %s: the result of each reviewer needs a verdict of approve or reject", id, textOf(commit["id"]))
}

// reviewers is the task of a vote. The voters share everything but their subagents.
func (im *importer) reviewers(path string, voters []object, threshold int) object {
	review, q := object{}, api.Quorum{Approve: threshold}
	first := true
	for i, v := range voters {
		if person := v["person"]; person != nil {
			q.Of = append(q.Of, textOf(person))
			continue
		}
		q.Of = append(q.Of, textOf(v["subagent"]))
		delete(v, "subagent")
		if none(v["locks"]) != "" {
			im.sense(item(path+".reviewers", i)+".resourceLocks", "voters hold no locks here; remove them")
		}
		delete(v, "locks")
		if first {
			review, first = v, false
		} else if !maps.EqualFunc(review, v, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			im.sense(item(path+".reviewers", i), "the voters of a quorum have the same input, env, capabilities and target here; write what differs in their subagents")
		}
	}
	review["quorum"] = im.value(q)
	return review
}

func (im *importer) voter(path string, raw json.RawMessage) object {
	v, members := im.template(path, raw)
	if textOf(members["executor"]) == humanApproval {
		people := im.people(path+".inputs", members["inputs"])
		if len(people) > 1 {
			im.sense(path+".inputs", "one person votes; name one with --approver")
		}
		if len(people) > 0 {
			v["person"] = im.value(people[0])
		}
	}
	return v
}

// people are those whom the options name for the role of an approval.
func (im *importer) people(path string, raw json.RawMessage) []api.Principal {
	role := "approver" // Pangolin's default
	im.object(path, raw, readers{"approverRole": func(path string, raw json.RawMessage) { role = im.text(path, raw, maxPath) }})
	people := im.options.Approvers[role]
	im.mapped["role "+role] = true
	if len(people) == 0 {
		im.sense(path, "no person for the role %s; use --approver %s=human:NAME", clip(role), strictyaml.Clip(role))
	}
	return people
}

// approvalItem translates an item that a person decides.
func (im *importer) approvalItem(path string, members object) object {
	a := api.TaskApproval{}
	t := object{}
	deps := []api.TaskID{}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value, at := members[key], member(path, key)
		switch key {
		case "id", "executor":
		case "inputs":
			a.By = im.people(at, value)
		case "depends_on":
			deps = append(deps, im.dependsOn(at, value)...)
		case "needs":
			var needs map[string]api.Need
			_ = json.Unmarshal(im.needs(at, value), &needs) // just made
			for _, name := range slices.Sorted(maps.Keys(needs)) {
				if from := needs[name].From; !slices.Contains(a.Show, from) {
					a.Show = append(a.Show, from)
				}
			}
		case "resourceLocks":
			if none(value) != "" {
				im.sense(at, "an approval holds no locks here; remove them")
			}
		default:
			im.refuse(path, key)
		}
	}
	t["approval"], t["depends_on"] = im.value(a), im.value(deps)
	im.note(path, "becomes an approval: the task is denied, and not done, if a person rejects it")
	return t
}
