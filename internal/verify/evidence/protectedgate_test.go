package evidence

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// A protected gate refuses a patch that changes what verify runs, and passes any other one;
// a run that says otherwise is found.
//
// proves R-A7, R-O9
func TestAProtectedGateInEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		protected bool
		file      string
		end       record.Kind // of the task; empty: another fix grows
		failed    string
	}{
		"not protected":              {false, "check.sh", record.KindTaskDone, ""},
		"another file":               {true, "one.txt", record.KindTaskDone, ""},
		"the check":                  {true, "check.sh", record.KindTaskFailed, ""},
		"the check, passed":          {true, "check.sh", record.KindTaskDone, "the gate of task a is protected"},
		"the check, given to a fix":  {true, "check.sh", "", "the gate of task a is protected"},
		"another file, refused":      {true, "one.txt", record.KindTaskFailed, "failed, but its last check is green"},
		"not protected, and refused": {false, "check.sh", record.KindTaskFailed, "failed, but its last check is green"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.verifying(api.DefaultVerifyTime)
			s.editEntry = func(_ uint64, e *record.Entry) {
				if ask, ok := e.Detail.(record.RunRequest); ok {
					ask.Rules = 5
					e.Detail = ask
				}
			}
			gate := `a ,"gate":{"verify":"code","fix":"code"}`
			if c.protected {
				gate = `a ,"gate":{"verify":"code","fix":"code","protected":true}`
			}
			s.submit(plannedAs("", gate), "", 0)
			s.editEntry = nil
			a := of("a", 1)
			var changed []string
			if c.file == "check.sh" {
				changed = []string{c.file}
			}
			s.patched(c.file, changed...)
			s.fire(a, 1)
			s.finish(a, api.EventFinished, "")
			s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 1}, 1, 2)
			verdict := green
			if c.end == "" {
				verdict = red
			}
			s.check(1, 2, a, verdict)
			end := record.RunEnd{State: "done", Done: 2}
			switch c.end {
			case record.KindTaskDone:
				s.step(c.end, a, 1, record.TaskStep{})
			case record.KindTaskFailed:
				s.step(c.end, a, 1, record.TaskStep{Reason: string(api.ReasonVerify), Message: "the patch changes check.sh"})
				end = record.RunEnd{State: "failed", Done: 1, Failed: 1}
			default:
				s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 2}, 2, 4)
			}
			s.settle("r1", end)
			r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
			if r.Failed() != (c.failed != "") || !strings.Contains(r.Text(), c.failed) {
				t.Errorf("want %q:\n%s", c.failed, r.Text())
			}
		})
	}
}
