package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
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
}

func (n Note) String() string { return n.Path + ": " + n.Text }

// ImportOptions say what a Pangolin plan leaves to the machine that runs it.
type ImportOptions struct {
	Targets map[string]api.Name // by the name of an executor
}

// Import translates a Pangolin plan. Every key has a translation or is a problem
// that says how to write it here: none is dropped, and none becomes input of a
// worker. Ids that are invalid here are rewritten, with a note.
func Import(raw []byte, options ImportOptions) (*Plan, []Note, []api.Problem) {
	im := &importer{reader: reader{&list{}}, options: options, mapped: map[string]bool{}}
	doc, ok := im.document(raw)
	if !ok {
		return nil, nil, im.problems()
	}
	im.plan(doc)
	for _, executor := range slices.Sorted(maps.Keys(options.Targets)) {
		if !im.mapped[executor] {
			im.sense("$.items", "no item has the executor %s of the options", clip(executor))
		}
	}
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

var taskPath = regexp.MustCompile(`^\$\.tasks(\[\d+\])?(?:\.(\w+))?`)

// importedPath is the path in the imported document of the part of the plan at path.
func importedPath(path string) string {
	found := taskPath.FindStringSubmatch(path)
	if found == nil {
		return path
	}
	key := map[string]string{
		"target": "executor", "locks": "resourceLocks",
		"subagent": "inputs.subagent", "input": "inputs.workerInput", "env": "inputs.env", "capabilities": "inputs.addCapabilities",
	}[found[2]]
	if key == "" {
		key = found[2]
	}
	rest := strings.TrimPrefix(path, found[0])
	if key == "needs" {
		rest = strings.Replace(rest, ".output", ".select.path", 1)
	}
	if key != "" {
		key = "." + key
	}
	return "$.items" + found[1] + key + rest
}

type object = map[string]json.RawMessage

type importer struct {
	reader
	options ImportOptions
	ours    object
	ids     map[string]api.TaskID // of the items
	mapped  map[string]bool       // executors of the options that items have
	notes   []Note
}

func (im *importer) note(path, format string, args ...any) {
	im.notes = append(im.notes, Note{Path: path, Text: fmt.Sprintf(format, args...)})
}

// pangolinAttempts is how often Pangolin's engine tries an item. No key says so.
const pangolinAttempts = 2

// instead says, for each key of Pangolin without a translation, how to write it here.
func instead() map[string]string {
	const growth = " is not supported by this version of bailiwick; "
	return map[string]string{
		"gate":          growth + "give the subagent of its subject a verify command, and submit the fix as a plan of its own",
		"mapReduce":     growth + "write one task for each part, and a task that needs the output of each",
		"quorum":        growth + "write the reviewers as tasks that need the patch, and merge it after reading their results",
		"capabilities":  " replaces the capabilities of the subagent, and a task can only add to them; remove the key if it equals the subagent's, or name a subagent that has exactly these",
		"pipeline":      " is a fixed list of steps; make a subagent of it in the catalog and name that",
		"inputRefs":     " are stored inputs; take the product of another item by needs",
		"onBehalfOf":    " claims a principal; submit the plan with the token of that principal",
		"target":        ": the executor chooses the target; use --executor EXECUTOR=TARGET",
		"trigger":       ": a run starts when it is submitted; let whatever triggers it call bailiwick run submit",
		"schedule":      growth + "let a timer call bailiwick run submit",
		"pattern":       " applies to a whole queue; write its tasks in the plan",
		"openEnded":     growth + "submit further tasks as a plan of their own",
		"subagentShape": " names a schema of the inputs; give the subagent an input schema in the catalog",
	}
}

// refuse reports a key without a translation.
func (im *importer) refuse(path, key string) {
	if way, known := instead()[key]; known {
		im.sense(member(path, key), "%q%s", key, way)
		return
	}
	if strings.HasSuffix(path, ".inputs") {
		im.sense(member(path, key), "%s has no translation; the input of a worker is workerInput", clip(key))
		return
	}
	im.sense(member(path, key), "%s has no translation; remove it to import without it", clip(key))
}

func (im *importer) plan(doc json.RawMessage) {
	members := im.members("$", doc)
	im.ours = object{}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch key {
		case "items":
			im.readIDs(members[key])
			tasks := []json.RawMessage{}
			im.items("$.items", members[key], api.MaxPlanTasks, func(path string, raw json.RawMessage) {
				tasks = append(tasks, im.item(path, raw))
			})
			im.ours["tasks"] = im.value(tasks)
		case "id":
			im.ours[key] = im.rewritten("$.id", textOf(members[key]), strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(textOf(members[key]))))
		case "queue":
			im.ours[key] = members[key]
		default:
			im.refuse("$", key)
		}
	}
	im.require("$", members, "items")
	if len(members["items"]) > 0 {
		im.note("$.items", "each task gets retry: {attempts: %d}, the default of Pangolin's engine", pangolinAttempts)
	}
}

// value encodes v as JSON.
func (im *importer) value(v any) json.RawMessage {
	b, err := canon.Marshal(v)
	if err != nil {
		im.sense("$", "%v", err)
	}
	return b
}

// rewritten is the id base in the alphabet of ids here. It notes a change.
func (im *importer) rewritten(path, theirs, base string) json.RawMessage {
	id := validID(base)
	switch {
	case id == "":
		im.sense(path, "id %s: want text with a letter or digit", clip(theirs))
	case id != theirs:
		im.note(path, "%s is written %s", clip(theirs), id)
	}
	return im.value(id)
}

// validID replaces the characters of s that no id has.
func validID(s string) string {
	s = invalidID.ReplaceAllString(s, "-")
	if len(s) > maxID {
		s = s[:maxID]
	}
	return strings.Trim(s, "-._")
}

// maxID is the length of the longest id.
const maxID = 64

var invalidID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// readIDs chooses the ids of the tasks. A valid id stays, two that would become
// equal get a number.
func (im *importer) readIDs(raw json.RawMessage) {
	im.ids = map[string]api.TaskID{}
	var items []struct{ ID json.RawMessage }
	if json.Unmarshal(raw, &items) != nil {
		return // item reports it
	}
	taken := map[string]bool{}
	for _, item := range items {
		if id := textOf(item.ID); id != "" && validID(id) == id {
			im.ids[id], taken[id] = api.TaskID(id), true
		}
	}
	last := map[string]int{} // number given to an id
	for i, item := range items {
		theirs := textOf(item.ID)
		if _, known := im.ids[theirs]; known {
			continue
		}
		id := validID(theirs)
		if id == "" {
			im.sense(fmt.Sprintf("$.items[%d].id", i), "id %s: want text with a letter or digit", clip(theirs))
			continue
		}
		for base := id; taken[id]; {
			last[base]++
			number := fmt.Sprintf("-%d", last[base]+1)
			id = base[:min(len(base), maxID-len(number))] + number
		}
		im.ids[theirs], taken[id] = api.TaskID(id), true
		im.note(fmt.Sprintf("$.items[%d].id", i), "%s is written %s", clip(theirs), id)
	}
}

// ref is the id of the task that an item refers to.
func (im *importer) ref(path string, raw json.RawMessage) api.TaskID {
	theirs := im.text(path, raw, api.MaxPlan)
	id, known := im.ids[theirs]
	if theirs != "" && !known {
		im.sense(path, "no such item %s", clip(theirs))
	}
	return id
}

// item translates one item.
func (im *importer) item(path string, raw json.RawMessage) json.RawMessage {
	members := im.members(path, raw)
	task := object{"retry": im.value(map[string]int{"attempts": pangolinAttempts})}
	if id, known := im.ids[textOf(members["id"])]; known {
		task["id"] = im.value(id)
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
			task["locks"] = im.value(im.list(at, value, api.MaxTaskLocks, func(at string, raw json.RawMessage) any {
				return im.visible(at, raw, api.MaxLockKey)
			}))
		case key == "depends_on":
			task[key] = im.value(im.list(at, value, api.MaxPlanTasks, func(at string, raw json.RawMessage) any { return im.ref(at, raw) }))
		case key == "needs":
			task[key] = im.needs(at, value)
		case key == "trigger" && textOf(value) == "manual": // starts when it is submitted, as here
		default:
			im.refuse(path, key)
		}
	}
	im.require(path, members, "id", "executor", "inputs")
	return im.value(task)
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
	case name == "human-approval":
		im.sense(path, "%q is not supported by this version of bailiwick; submit what follows it as a plan of its own after a person approved", name)
	case name != "dispatch" && name != "":
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
			"from":   func(path string, raw json.RawMessage) { need.From = im.ref(path, raw) },
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
