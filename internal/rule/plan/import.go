package plan

import (
	"encoding/json"
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
	t := &translation{reader: reader{&list{}}}
	im := &importer{translation: t, options: options, ids: taskIDs{translation: t}, mapped: map[string]bool{}}
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
	*translation
	options ImportOptions
	ours    object
	ids     taskIDs
	mapped  map[string]bool // executors and roles of the options that items have
	tasks   []object
	paths   []string // of what the tasks are from
	// patterns are translated after all items; subjects are those of the gates.
	patterns []pattern
	subjects map[string]string
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

// pangolinAttempts is how often Pangolin's engine tries an item. No key says so.
const pangolinAttempts = 2

func (im *importer) plan(doc json.RawMessage) {
	members := im.members("$", doc)
	im.ours = object{}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch key {
		case "items":
			im.ids.read(members[key])
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
			im.ours[key] = im.ids.rewritten("$.id", textOf(members[key]), strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(textOf(members[key]))))
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

// dependsOn are the tasks of the items that an item depends on: of a gate, its subject.
func (im *importer) dependsOn(path string, raw json.RawMessage) []api.TaskID {
	all, merged := []api.TaskID{}, []api.TaskID{}
	im.items(path, raw, api.MaxPlanTasks, func(path string, raw json.RawMessage) {
		id := im.ids.ref(path, raw)
		if im.isGate(textOf(raw)) {
			merged = append(merged, im.ids.of[im.subjects[textOf(raw)]])
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
