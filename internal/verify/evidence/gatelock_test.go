package evidence

import (
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
)

// A task with a gate holds its lock until the gate is settled: another task that starts
// before, or a fix that takes the lock itself, is found. Under the rules before, the
// lock was free between the two, and the fix took it.
//
// proves R-A7, R-O9
func TestALockBetweenATaskAndItsFix(t *testing.T) {
	for name, c := range map[string]struct {
		rules  int64
		early  bool     // another task with the lock runs before the fix
		fix    []string // locks of the fix
		failed string
	}{
		"the other task waits":                      {5, false, nil, ""},
		"the other task starts before the fix":      {5, true, nil, `started while task a held the lock "k"`},
		"the fix takes the lock":                    {5, false, []string{"k"}, "started with other locks than the plan's"},
		"rules before: between":                     {4, true, []string{"k"}, ""},
		"rules before: the fix without a lock":      {4, false, nil, "started with other locks than the plan's"},
		"rules before: the other waits all the way": {4, false, []string{"k"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.earlier5 = c.rules < 5
			s.editEntry = func(_ uint64, e *record.Entry) {
				if ask, ok := e.Detail.(record.RunRequest); ok {
					ask.Rules = c.rules
					e.Detail = ask
				}
			}
			s.submit(plannedAs("", `a ,"locks":["k"],"gate":{"verify":"code","fix":"code","attempts":1}`, `b ,"locks":["k"]`), "", 0)
			s.editEntry = nil
			a, fence := of("a", 1), uint64(2)
			next := func() uint64 { fence++; return fence - 1 }
			other := func() {
				b := of("b", next())
				s.holding(b, "k")
				s.done(b, 1)
			}
			s.holding(a, "k")
			s.finish(a, api.EventFinished, "")
			s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 1}, 1, 3)
			g := s.check(1, next(), a, red)
			if c.early {
				other()
			}
			s.sprout(a, 1, plan.Growth{Cause: plan.CauseGate, Task: "a", Round: 2}, 2, 5)
			f := child("a.fix1", next(), "")
			v := s.results[string(g.id)+"/1"].Summary.Outputs[1]
			f.needs = []record.Need{s.patchOf("change", a), {Name: "verdict", Task: g.task, Dispatch: g.id, Kind: record.NeedResult, Digest: v.Digest, Size: v.Size}}
			s.holding(f, c.fix...)
			s.done(f, 1)
			s.check(2, next(), f, green)
			s.step(record.KindTaskDone, a, 1, record.TaskStep{})
			if !c.early {
				other()
			}
			s.settle("r1", record.RunEnd{State: "done", Done: 5})
			r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
			if r.Failed() != (c.failed != "") || !strings.Contains(r.Text(), c.failed) {
				t.Errorf("want %q:\n%s", c.failed, r.Text())
			}
		})
	}
}
