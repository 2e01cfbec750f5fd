package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Note says how Import translated a part of a document.
type Note struct {
	Path string
	Text string
}

func (n Note) String() string { return n.Path + ": " + n.Text }

// ImportOptions say what a Pangolin plan leaves to the machine that runs it.
type ImportOptions struct {
	Targets   map[string]api.Name        // by the name of an executor
	Approvers map[string][]api.Principal // people, by the role that an approval names
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
	if run, ok := im.schedule(doc); ok {
		if im.count > 0 {
			return nil, im.notes, im.problems()
		}
		p, notes, problems := Import(run, options)
		for i := range notes {
			notes[i].Path = "$.run" + strings.TrimPrefix(notes[i].Path, "$")
		}
		for i := range problems {
			problems[i].Path = "$.run" + strings.TrimPrefix(problems[i].Path, "$")
		}
		return p, append(im.notes, notes...), problems
	}
	im.plan(doc)
	for _, executor := range slices.Sorted(maps.Keys(options.Targets)) {
		if !im.mapped[executor] {
			im.sense("$.items", "no item has the executor %s of the options", clip(executor))
		}
	}
	for _, role := range slices.Sorted(maps.Keys(options.Approvers)) {
		if !im.mapped["role "+role] {
			im.sense("$.items", "no item has the role %s of the options", clip(role))
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
		problems[i].Path = im.importedPath(problem.Path)
	}
	return p, im.notes, problems
}

var taskPath = regexp.MustCompile(`^\$\.tasks(\[\d+\])?(?:\.(\w+))?`)

// importedPath is the path in the imported document of the part of the plan at path.
func (im *importer) importedPath(path string) string {
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
	n, err := strconv.Atoi(strings.Trim(found[1], "[]"))
	if err != nil || n >= len(im.paths) {
		return "$.items"
	}
	if from := im.paths[n]; strings.Contains(from, ".inputs.") { // it is not the item itself
		return from
	}
	return im.paths[n] + key + rest
}

type object = map[string]json.RawMessage

type importer struct {
	reader
	options ImportOptions
	ours    object
	ids     map[string]api.TaskID // of the items
	mapped  map[string]bool       // executors and roles of the options that items have
	taken   map[string]bool       // ids of tasks
	last    map[string]int        // numbers given to ids
	tasks   []object
	paths   []string // of what the tasks are from
	// patterns are translated after all items; subjects are those of the gates.
	patterns []pattern
	subjects map[string]string
	notes    []Note
}

// schedule reads the plan of a schedule, whose rest is a part of the catalog here.
func (im *importer) schedule(doc json.RawMessage) (json.RawMessage, bool) {
	var members object
	if json.Unmarshal(doc, &members) != nil || members["cronExpr"] == nil || members["items"] != nil {
		return nil, false
	}
	name, times, pause := "", "", ""
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value, at := members[key], member("$", key)
		switch key {
		case "id":
			id := im.text(at, value, api.MaxPlan)
			name = strings.Trim(invalidName.ReplaceAllString(strings.ToLower(id), "-"), "-._")
			if _, err := api.ParseName(name); err != nil {
				im.sense(at, "id %s: want text with a letter", clip(id))
			}
		case "cronExpr":
			if times = im.text(at, value, maxPath); !cronForm.MatchString(times) {
				im.sense(at, "%s: want five fields of a cron expression, such as \"0 2 * * 1-5\"", clip(times))
			}
		case "run":
			if value[0] != '{' {
				im.sense(at, "want the plan")
			}
		case "actor": // a claim
			im.note(at, "a schedule acts as a principal of kind ci, with a grant of its own")
		case "nextDueAt", "lastRunAt": // follow from the expression
			im.note(at, "the service computes it")
		case "enabled":
			switch string(value) {
			case "true":
			case "false":
				pause = ", pause: true"
			default:
				im.sense(at, "want true or false")
			}
		default:
			im.refuse("$", key)
		}
	}
	im.require("$", members, "id", "run")
	im.note("$", "a schedule is a part of the catalog here: put {name: %s, cron: %q, zone: UTC, plan: FILE, principal: \"ci:NAME\"%s} under schedules, with this plan as FILE", name, times, pause)
	return members["run"], true
}

var (
	cronForm    = regexp.MustCompile(`^[0-9A-Za-z*/,-]+( +[0-9A-Za-z*/,-]+){4}$`)
	invalidName = regexp.MustCompile(`[^a-z0-9._-]+`)
)

func (im *importer) note(path, format string, args ...any) {
	im.notes = append(im.notes, Note{Path: path, Text: fmt.Sprintf(format, args...)})
}

// pangolinAttempts is how often Pangolin's engine tries an item. No key says so.
const pangolinAttempts = 2

// instead says, for each key of Pangolin without a translation, how to write it here.
func instead() map[string]string {
	return map[string]string{
		"capabilities":  " replaces the capabilities of the subagent, and a task can only add to them; remove the key if it equals the subagent's, or name a subagent that has exactly these",
		"pipeline":      " is a fixed list of steps; make a subagent of it in the catalog and name that",
		"inputRefs":     " are stored inputs; take the product of another item by needs",
		"onBehalfOf":    " claims a principal; submit the plan with the token of that principal",
		"target":        ": the executor chooses the target; use --executor EXECUTOR=TARGET",
		"trigger":       ": a run starts when it is submitted; let whatever triggers it call bailiwick run submit",
		"schedule":      " is a part of the catalog here; put the plan under schedules, with its cron expression",
		"pattern":       " applies to a whole queue; write its tasks in the plan",
		"openEnded":     ": each run is open until its tasks have ended; add tasks with bailiwick run append",
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
			im.readGates(members[key])
			im.tasks = []object{}
			im.items("$.items", members[key], api.MaxPlanTasks, func(path string, raw json.RawMessage) {
				task := im.item(path, raw)
				task[isFrom] = im.value(path)
				im.tasks = append(im.tasks, task)
			})
			im.grow()
			im.ours["tasks"] = im.value(im.tasks)
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
	im.taken, im.last = map[string]bool{}, map[string]int{}
	for _, item := range items {
		if id := textOf(item.ID); id != "" && validID(id) == id {
			im.ids[id], im.taken[id] = api.TaskID(id), true
		}
	}
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
		id = im.free(id)
		im.ids[theirs] = api.TaskID(id)
		im.note(fmt.Sprintf("$.items[%d].id", i), "%s is written %s", clip(theirs), id)
	}
}

// free takes an id, with a number if it is taken.
func (im *importer) free(id string) string {
	for base := id; im.taken[id]; {
		im.last[base]++
		number := fmt.Sprintf("-%d", im.last[base]+1)
		id = base[:min(len(base), maxID-len(number))] + number
	}
	im.taken[id] = true
	return id
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

// dependsOn are the tasks of the items that an item depends on: of a gate, its subject.
func (im *importer) dependsOn(path string, raw json.RawMessage) []api.TaskID {
	all, merged := []api.TaskID{}, []api.TaskID{}
	im.items(path, raw, api.MaxPlanTasks, func(path string, raw json.RawMessage) {
		id := im.ref(path, raw)
		if im.isGate(textOf(raw)) {
			merged = append(merged, im.ids[im.subjects[textOf(raw)]])
		} else {
			all = append(all, id)
		}
	})
	for _, id := range merged {
		if id != "" && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

func (im *importer) locks(path string, raw json.RawMessage, task object) {
	task["locks"] = im.value(im.list(path, raw, api.MaxTaskLocks, func(at string, raw json.RawMessage) any {
		return im.visible(at, raw, api.MaxLockKey)
	}))
}
