package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// taskIDs chooses the ids of tasks. An item's id stays if it is valid here.
type taskIDs struct {
	*translation
	of    map[string]api.TaskID // by the id of an item
	taken map[string]bool
	last  map[string]int // numbers given to ids
}

// rewritten is the id base in the alphabet of ids here. It notes a change.
func (d *taskIDs) rewritten(path, theirs, base string) json.RawMessage {
	id := validID(base)
	switch {
	case id == "":
		d.sense(path, "id %s: want text with a letter or digit", clip(theirs))
	case id != theirs:
		d.note(path, "%s is written %s", clip(theirs), id)
	}
	return d.value(id)
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

// read chooses the ids of the tasks. A valid id stays, two that would become
// equal get a number.
func (d *taskIDs) read(raw json.RawMessage) {
	d.of = map[string]api.TaskID{}
	var items []struct{ ID json.RawMessage }
	if json.Unmarshal(raw, &items) != nil {
		return // item reports it
	}
	d.taken, d.last = map[string]bool{}, map[string]int{}
	for _, item := range items {
		if id := textOf(item.ID); id != "" && validID(id) == id {
			d.of[id], d.taken[id] = api.TaskID(id), true
		}
	}
	for i, item := range items {
		theirs := textOf(item.ID)
		if _, known := d.of[theirs]; known {
			continue
		}
		id := validID(theirs)
		if id == "" {
			d.sense(fmt.Sprintf("$.items[%d].id", i), "id %s: want text with a letter or digit", clip(theirs))
			continue
		}
		id = d.free(id)
		d.of[theirs] = api.TaskID(id)
		d.note(fmt.Sprintf("$.items[%d].id", i), "%s is written %s", clip(theirs), id)
	}
}

// free takes an id, with a number if it is taken.
func (d *taskIDs) free(id string) string {
	for base := id; d.taken[id]; {
		d.last[base]++
		number := fmt.Sprintf("-%d", d.last[base]+1)
		id = base[:min(len(base), maxID-len(number))] + number
	}
	d.taken[id] = true
	return id
}

// fresh is an unused id of a task that no item is.
func (d *taskIDs) fresh(path, base string) api.TaskID {
	id := d.free(base)
	if id != base {
		d.note(path, "the task %s is written %s", base, id)
	}
	return api.TaskID(id)
}

// ref is the id of the task that an item refers to.
func (d *taskIDs) ref(path string, raw json.RawMessage) api.TaskID {
	theirs := d.text(path, raw, api.MaxPlan)
	id, known := d.of[theirs]
	if theirs != "" && !known {
		d.sense(path, "no such item %s", clip(theirs))
	}
	return id
}
