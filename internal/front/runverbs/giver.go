package runverbs

import (
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// noWorker says why a task that is done has no products.
const noWorker = "it has no worker of its own"

// replacements names, for each task whose patch the fix of a gate replaced, the last fix:
// of the task that has the gate, and of the fixes before.
func replacements(tasks []api.RunTask) map[api.TaskID]api.TaskID {
	fixes := map[api.TaskID]int{} // the last of each task
	for i := range tasks {
		if n := fixOf(&tasks[i]); n > fixes[tasks[i].GrewFrom] {
			fixes[tasks[i].GrewFrom] = n
		}
	}
	by := map[api.TaskID]api.TaskID{}
	for i := range tasks {
		t := &tasks[i]
		if n := fixes[t.Task]; n > 0 {
			by[t.Task] = fixID(t.Task, n)
		}
		if n, last := fixOf(t), fixes[t.GrewFrom]; n > 0 && n < last {
			by[t.Task] = fixID(t.GrewFrom, last)
		}
	}
	return by
}

func fixID(of api.TaskID, n int) api.TaskID { return of + ".fix" + api.TaskID(strconv.Itoa(n)) }

// fixOf is the number of a fix, and 0 of every other task.
func fixOf(t *api.RunTask) int {
	if t.GrewFrom == "" {
		return 0
	}
	text, ok := strings.CutPrefix(string(t.Task), string(t.GrewFrom)+".fix")
	if n, err := strconv.Atoi(text); ok && err == nil {
		return n
	}
	return 0
}

// withGrown returns a task and all that grew from it.
func withGrown(tasks []api.RunTask, id api.TaskID) (list []api.RunTask) {
	in := map[api.TaskID]bool{id: true}
	for i := range tasks { // what grew comes after the task that it grew from
		if t := &tasks[i]; in[t.Task] || in[t.GrewFrom] {
			in[t.Task] = true
			list = append(list, *t)
		}
	}
	return list
}
