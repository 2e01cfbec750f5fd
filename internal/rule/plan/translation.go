package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// translation reads a document of Pangolin, and notes what became of its parts or what
// has no translation.
type translation struct {
	reader
	notes []Note
}

func (t *translation) note(path, format string, args ...any) {
	t.notes = append(t.notes, Note{Path: path, Text: fmt.Sprintf(format, args...)})
}

// refuse reports a key without a translation.
func (t *translation) refuse(path, key string) {
	if way, known := instead()[key]; known {
		t.sense(member(path, key), "%q%s", key, way)
		return
	}
	if strings.HasSuffix(path, ".inputs") {
		t.sense(member(path, key), "%s has no translation; the input of a worker is workerInput", clip(key))
		return
	}
	t.sense(member(path, key), "%s has no translation; remove it to import without it", clip(key))
}

// value encodes v as JSON.
func (t *translation) value(v any) json.RawMessage {
	b, err := canon.Marshal(v)
	if err != nil {
		t.sense("$", "%v", err)
	}
	return b
}

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
