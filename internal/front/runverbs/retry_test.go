package runverbs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// The flags of retry become one request; a change of an input keeps its other
// members, and the longest task id that the plan has counts.
//
// proves R-O4
func TestRetryFlagsBecomeARequest(t *testing.T) {
	s := newRunService(api.RunTask{Task: "a", Subagent: "x", State: api.TaskDone})
	s.plan = `{"id":"r-one","tasks":[{"id":"a","subagent":"x","input":{"n":1,"text":"old"}},{"id":"a.b","subagent":"x"}]}`
	var req api.RunRetry
	s.steer = func(_ string, body []byte) (any, error) {
		req = api.RunRetry{}
		if err := json.Unmarshal(body, &req); err != nil {
			t.Error(err)
		}
		return s.run, nil
	}
	socket := s.serve(t)
	file := writePlan(t, `{"whole": true}`)
	for line, want := range map[string]string{
		"--from a --from a.b":                       `{"from":["a","a.b"]}`,
		"--source app@main --source lib":            `{"sources":[{"name":"app","commit":"main"},{"name":"lib"}]}`,
		"--set a.n:=2":                              `{"inputs":{"a":{"n":2,"text":"old"}}}`,
		"--set a.text=new --set a.b.key=v":          `{"inputs":{"a":{"n":1,"text":"new"},"a.b":{"key":"v"}}}`,
		"--input a=" + file:                         `{"inputs":{"a":{"whole":true}}}`,
		"--input a=" + file + " --set a.part=false": `{"inputs":{"a":{"part":"false","whole":true}}}`,
	} {
		status, _, errs := at(t, socket, "run retry r-one "+line)
		if status != 0 || req.RunID == "" || req.Key == "" {
			t.Errorf("%s: exit status %d, %s", line, status, errs)
		}
		req.RunID, req.Key = "", ""
		if got, _ := json.Marshal(req); string(got) != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		"--from ../x":      "task id",
		"--source app@":    "want NAME@COMMIT",
		"--source HEAD":    "want NAME@COMMIT",
		"--source A@x":     "name",
		"--set c.n=1":      "with a task of run r-one",
		"--set n=1":        "with a task of run r-one",
		"--set a.=1":       "with a task of run r-one",
		"--set a.n:=two":   "not valid JSON",
		"--input c=x":      "no task",
		"--input a=x-gone": "no such file",
	} {
		req.RunID = ""
		if status, _, errs := at(t, socket, "run retry r-one "+line); status != 1 || req.RunID != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status %d, %s", line, status, errs)
		}
	}
}
