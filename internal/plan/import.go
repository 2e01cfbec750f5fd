package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
)

// Note says how Import translated a part of a document.
type Note struct {
	Path string
	Text string
	Lost bool // it is dropped
}

func (n Note) String() string { return n.Path + ": " + n.Text }

// Import translates a Pangolin plan: an object whose items have the executor
// dispatch. Nothing is dropped silently: a key without a translation is a problem,
// unless it is text for readers, which is noted as lost.
func Import(raw []byte) (*Plan, []Note, []api.Problem) {
	im := &importer{reader: reader{&list{}}}
	doc, ok := im.document(raw)
	if !ok {
		return nil, nil, im.problems()
	}
	im.plan(doc)
	if im.count > 0 {
		return nil, im.notes, im.problems()
	}
	ours, err := canon.Marshal(im.ours)
	if err != nil {
		im.sense("$", "%v", err)
		return nil, im.notes, im.problems()
	}
	p, problems := Parse(ours)
	for i, problem := range problems {
		problems[i].Path = importedPath(problem.Path)
	}
	return p, im.notes, problems
}

// importedPath is the path in the imported document of the task at path.
func importedPath(path string) string {
	rest, ok := strings.CutPrefix(path, "$.tasks")
	if !ok {
		return path
	}
	return "$.items" + rest
}

type object = map[string]json.RawMessage

type importer struct {
	reader
	ours  object
	notes []Note
}

// note notes the translation of a key.
func (im *importer) note(path, format string, args ...any) {
	im.notes = append(im.notes, Note{Path: path, Text: fmt.Sprintf(format, args...)})
}

// prose are the keys that are text for readers.
func prose() []string {
	return []string{"$schema", "title", "name", "description", "summary", "comment", "notes", "labels"}
}

// other notes or refuses a key without a translation.
func (im *importer) other(path, key string, value json.RawMessage) {
	if slices.Contains(prose(), key) {
		im.notes = append(im.notes, Note{Path: member(path, key), Text: "dropped, text for readers: " + clip(string(value)), Lost: true})
		return
	}
	im.sense(member(path, key), "%s has no translation; remove it to import without it", clip(key))
}

// copied reports whether key is one of keys, which are copied unchanged.
func copied(key string, keys ...string) bool { return slices.Contains(keys, key) }

func (im *importer) plan(doc json.RawMessage) {
	members := im.members("$", doc)
	im.ours = object{}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch {
		case key == "items":
			tasks := []json.RawMessage{}
			im.items("$.items", members[key], api.MaxPlanTasks, func(path string, raw json.RawMessage) {
				tasks = append(tasks, im.item(path, raw))
			})
			im.ours["tasks"] = im.value(tasks)
		case copied(key, "id", "queue", "source", "limits"):
			im.ours[key] = members[key]
			im.note(member("$", key), "copied")
		default:
			im.other("$", key, members[key])
		}
	}
	im.require("$", members, "items")
}

// value encodes v as JSON.
func (im *importer) value(v any) json.RawMessage {
	b, err := canon.Marshal(v)
	if err != nil {
		im.sense("$", "%v", err)
	}
	return b
}

// item translates one item.
func (im *importer) item(path string, raw json.RawMessage) json.RawMessage {
	members := im.members(path, raw)
	task := object{}
	var said []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := members[key]
		switch {
		case key == "executor":
			if string(value) != `"dispatch"` {
				im.sense(path+".executor", "%s: only an item of the executor dispatch is a task", kind(value))
			}
		case key == "inputs":
			said = append(said, im.inputs(path, value, members, task)...)
		case key == "resourceLocks":
			task["locks"] = im.locks(path+".resourceLocks", value)
			said = append(said, "resourceLocks as locks")
		case key == "needs":
			task["needs"] = im.needs(path+".needs", value)
			said = append(said, "needs")
		case copied(key, "id", "subagent", "source", "target", "env", "capabilities", "timeout", "retry", "depends_on", "priority"):
			task[key] = value
			said = append(said, key)
		default:
			im.other(path, key, value)
		}
	}
	im.require(path, members, "id", "executor", "inputs")
	im.note(path, "task %s: %s", clip(textOf(members["id"])), strings.Join(said, ", "))
	return im.value(task)
}

// textOf is the text of a JSON string, or "".
func textOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // "" unless it is a string
	return s
}

// inputs translates the inputs of a dispatch. If the item names the subagent, they
// are its input; otherwise they name it, and the keys that are no arguments of a
// dispatch are its input.
func (im *importer) inputs(path string, raw json.RawMessage, item, task object) []string {
	at := path + ".inputs"
	members := im.members(at, raw)
	if _, named := item["subagent"]; named {
		task["input"] = raw
		return []string{"inputs as input"}
	}
	im.require(at, members, "subagent")
	input := object{}
	var said, rest []string
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch _, duplicate := item[key]; {
		case copied(key, "subagent", "source", "target", "env", "capabilities", "timeout") && duplicate:
			im.sense(member(at, key), "the item has %s as well", key)
		case copied(key, "subagent", "source", "target", "env", "capabilities", "timeout"):
			task[key] = members[key]
			said = append(said, "inputs."+key+" as "+key)
		case key == "input":
			task["input"] = members[key]
			said = append(said, "inputs.input as input")
		default:
			input[key] = members[key]
			rest = append(rest, key)
		}
	}
	switch {
	case len(rest) == 0:
		return said
	case task["input"] != nil:
		im.sense(at, "has an input and also %s, which are no arguments of a dispatch", clip(strings.Join(rest, ", ")))
		return said
	}
	task["input"] = im.value(input)
	return append(said, "of inputs "+strictyaml.Clip(strings.Join(rest, ", "))+" as input")
}

// locks translates keys, and keys with a mode.
func (im *importer) locks(path string, raw json.RawMessage) json.RawMessage {
	all := []api.Lock{}
	im.items(path, raw, api.MaxTaskLocks, func(path string, raw json.RawMessage) {
		if raw[0] == '"' {
			all = append(all, api.Lock{Key: textOf(raw)})
			return
		}
		lock, mode := api.Lock{}, "exclusive"
		members := im.object(path, raw, readers{
			"key":  func(path string, raw json.RawMessage) { lock.Key = im.visible(path, raw, api.MaxLockKey) },
			"mode": func(path string, raw json.RawMessage) { mode = im.text(path, raw, maxTime) },
		})
		im.require(path, members, "key")
		if lock.Shared = mode == "shared"; !lock.Shared && mode != "exclusive" {
			im.sense(path+".mode", "%s: want exclusive or shared", clip(mode))
		}
		all = append(all, lock)
	})
	return im.value(all)
}

// needs translates a list, whose items name their input, or an object.
func (im *importer) needs(path string, raw json.RawMessage) json.RawMessage {
	if raw[0] != '[' {
		return raw // Parse reads it
	}
	all := object{}
	im.items(path, raw, api.MaxTaskNeeds, func(path string, raw json.RawMessage) {
		if raw[0] == '"' {
			im.sense(path, "%s names no product; use depends_on, or name patch, output or result", kind(raw))
			return
		}
		members := im.members(path, raw)
		name := textOf(members["as"])
		if _, duplicate := all[name]; name == "" || duplicate {
			im.sense(path, `missing key "as", a name below inputs/ that no other need has`)
			return
		}
		delete(members, "as")
		all[name] = im.value(members)
	})
	return im.value(all)
}
