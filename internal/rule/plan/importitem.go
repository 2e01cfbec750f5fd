package plan

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// item translates one item.
func (im *importer) item(path string, raw json.RawMessage) object {
	members := im.members(path, raw)
	task := object{"retry": im.value(map[string]int{"attempts": pangolinAttempts})}
	if textOf(members["executor"]) == humanApproval {
		task = im.approvalItem(path, members)
		members = maps.Clone(members)
		maps.DeleteFunc(members, func(key string, _ json.RawMessage) bool { return key != "id" && key != "executor" && key != "inputs" })
	}
	if id, known := im.ids.of[textOf(members["id"])]; known {
		task["id"] = im.value(id)
	}
	im.require(path, members, "id", "executor", "inputs")
	if task["approval"] != nil {
		return task
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value, at := members[key], member(path, key)
		switch {
		case key == "id": // above
		case key == "executor":
			im.executor(at, value, task)
		case key == "inputs":
			im.inputs(at, value, task)
		case key == "resourceLocks":
			im.locks(at, value, task)
		case key == "depends_on":
			task[key] = im.value(im.dependsOn(at, value))
		case key == "needs":
			task[key] = im.needs(at, value)
		case key == "trigger" && textOf(value) == "manual": // starts when it is submitted, as here
		default:
			im.refuse(path, key)
		}
	}
	return task
}

// list translates each item of a list.
func (im *importer) list(path string, raw json.RawMessage, most int, translate func(path string, raw json.RawMessage) any) []any {
	all := []any{}
	im.items(path, raw, most, func(path string, raw json.RawMessage) { all = append(all, translate(path, raw)) })
	return all
}

// textOf is the text of a JSON string, or "".
func textOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // "" unless it is a string
	return s
}

// executor translates the name of an executor into a target.
func (im *importer) executor(path string, raw json.RawMessage, task object) {
	name := im.text(path, raw, maxPath)
	target, mapped := im.options.Targets[name]
	switch {
	case mapped:
		im.mapped[name] = true
		task["target"] = im.value(target)
	case name != "dispatch" && name != humanApproval && name != "":
		im.sense(path, "executor %s: name its target; use --executor %s=TARGET", clip(name), strictyaml.Clip(name))
	}
}

// inputs translates the inputs of a dispatch.
func (im *importer) inputs(path string, raw json.RawMessage, task object) {
	members := im.members(path, raw)
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := members[key]
		switch key {
		case "subagent":
			task["subagent"] = value
		case "workerInput":
			task["input"] = value
		case "addCapabilities":
			task["capabilities"] = im.value(im.list(member(path, key), value, maxNames, im.capability))
		case "env":
			if task["env"] = value; value[0] == '"' {
				task["env"] = im.value([]json.RawMessage{value})
			}
		case "gate", "mapReduce", "quorum":
			im.patterns = append(im.patterns, pattern{key, member(path, key), value, task})
		default:
			im.refuse(path, key)
		}
	}
	im.require(path, members, "subagent")
}

// capability translates the name of a capability.
func (im *importer) capability(path string, raw json.RawMessage) any {
	name := im.text(path, raw, maxPath)
	if _, version, pinned := strings.Cut(name, "@"); pinned {
		im.sense(path, "%s pins version %s; a run pins the versions of its catalog revision, so name the capability alone", clip(name), clip(version))
	}
	return name
}

// needs translates the products that an item needs.
func (im *importer) needs(path string, raw json.RawMessage) json.RawMessage {
	all := map[string]api.Need{}
	needs := im.members(path, raw)
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		need, at := api.Need{}, member(path, name)
		members := im.object(at, needs[name], readers{
			"from": func(path string, raw json.RawMessage) {
				if need.From = im.ids.ref(path, raw); im.isGate(textOf(raw)) {
					im.sense(path, "item %s is a gate, which leaves nothing here; take the patch of its subject", clip(textOf(raw)))
				}
			},
			"select": func(path string, raw json.RawMessage) { im.product(path, raw, &need) },
		})
		im.require(at, members, "from", "select")
		all[name] = need
	}
	return im.value(all)
}

// product translates the choice of a product.
func (im *importer) product(path string, raw json.RawMessage, need *api.Need) {
	kind := ""
	members := im.object(path, raw, readers{
		"kind": func(path string, raw json.RawMessage) { kind = im.text(path, raw, maxPath) },
		"path": func(path string, raw json.RawMessage) { need.Output = im.text(path, raw, maxPath) },
	})
	switch _, hasPath := members["path"]; {
	case members == nil || kind == "output" && hasPath:
	case kind == "output":
		im.require(path, members, "path")
	case kind != "patch":
		im.sense(member(path, "kind"), "%s: want patch or output", clip(kind))
	case hasPath:
		im.sense(member(path, "path"), "a patch has no path")
	default:
		need.Patch = true
	}
}
