package runverbs

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// peopleService has a run whose task, and a call of whose task, wait for people.
func peopleService() *runService {
	s := newRunService(
		api.RunTask{Task: "ship", State: api.TaskWaiting, Message: "for approval by human:ann, human:bob; see: bailiwick approval list"},
		api.RunTask{Task: "build", State: api.TaskRunning, Subagent: "edit", DispatchID: "d-build", Attempt: 1, Attempts: 1},
	)
	s.run.State = api.RunRunning
	two := api.Electorate{By: []api.Principal{"human:ann", "human:bob"}, Needs: 2, Approved: 1}
	s.run.Approvals = []api.OpenApproval{
		{ID: "a-aaaaaaaaaaaa", Task: "ship", Electorate: two, Expires: testStart.Add(time.Hour)},
		{ID: "a-bbbbbbbbbbbb", Task: "build", DispatchID: "d-build", Tool: "db/drop\x1b[2J", Electorate: api.Electorate{By: []api.Principal{"human:eve"}, Needs: 1}, Expires: testStart.Add(2 * time.Hour)},
	}
	return s
}

// Who looks at a run learns what waits for people, whom, until when, and the commands.
//
// proves R-O9, R-D7
func TestARunSaysWhomItWaitsFor(t *testing.T) {
	status, out, errs := do(t, peopleService().serve(t), "run", "show", "r-one")
	for _, want := range []string{
		"bailiwick approval show a-aaaaaaaaaaaa: human:ann, human:bob (1 of 2 have approved), expires in ",
		"approval    of task ship, by human:ann, human:bob (1 of 2 have approved)\n            expires 2026-01-02T04:04:05Z\n            see: bailiwick approval show a-aaaaaaaaaaaa\n            approve: bailiwick approval approve a-aaaaaaaaaaaa\n",
		`approval    of a call of db/drop\x1b[2J by task build, by human:eve` + "\n",
		"next        bailiwick approval show a-aaaaaaaaaaaa\n",
	} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d, %s, no %q in\n%s", status, errs, want, out)
		}
	}
	s := peopleService()
	s.waiting = []api.Waiting{{
		Kind: api.WaitingApproval, Since: testStart, Principal: "local:ann", RunID: "r-one", Task: "build", DispatchID: "d-build", Tool: "db/drop", Approval: "a-bbbbbbbbbbbb",
		Electorate: api.Electorate{By: []api.Principal{"human:eve", "human:fay"}, Needs: 2},
	}}
	socket := s.serve(t)
	want := `approval    task build of run r-one, of local:ann, since 2026-01-02T03:04:05Z
            to call db/drop
            by human:eve, human:fay (0 of 2 have approved)
            bailiwick approval show a-bbbbbbbbbbbb
            bailiwick approval approve a-bbbbbbbbbbbb
`
	if _, out, _ := do(t, socket, "waiting"); out != want {
		t.Errorf("waiting:\n%s", out)
	}
	var list []waitingItem
	if _, out, _ := do(t, socket, "waiting", "-o", "json"); json.Unmarshal([]byte(out), &list) != nil || list[0].Approve != "bailiwick approval approve a-bbbbbbbbbbbb" || list[0].Needs != 2 {
		t.Errorf("%s", out)
	}
	run := peopleService().run
	lines := strings.Join(newRunTree(run.Tasks).draw(&run, frame{width: 160, height: 24, now: testStart}), "\n")
	for _, want := range []string{"bailiwick approval show a-aaaaaaaaaaaa: human:ann", "bailiwick approval show a-bbbbbbbbbbbb: human:eve, expires in 2h00m"} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in the tree\n%s", want, lines)
		}
	}
	if few := strings.Join(newRunTree(run.Tasks).draw(&run, frame{width: 160, height: 3, now: testStart}), "\n"); strings.Contains(few, "running   build") && !strings.Contains(few, "approval show") {
		t.Errorf("a small terminal hides what waits:\n%s", few)
	}
}

// Who waits for a run, or watches it in a script, is told once of each approval, also of
// one that is requested later; a task that waits for people does not ask a question.
//
// proves R-O9
func TestWhoWaitsIsToldOfApprovals(t *testing.T) {
	for _, verb := range []string{"wait", "watch"} {
		s := peopleService()
		all := s.run.Approvals
		first := all[:1]
		s.open.Store(&first)
		s.events = []api.RunEvent{event(1, "run.submitted", "", "", 0), event(2, "task.waiting", "ship", "", 0), event(3, "approval.requested", "ship", "", 0)}
		waits := 0
		s.waits = func(w http.ResponseWriter, _ *http.Request) {
			page := api.RunEvents{Next: "3", Events: []api.RunEvent{event(4, "approval.requested", "build", "d-build", 1)}}
			switch waits++; waits {
			case 1:
				time.Sleep(lineInterval / 4)
				s.open.Store(&all)
			default:
				time.Sleep(5 * lineInterval / 4)
				page.Events, page.Done = []api.RunEvent{event(5, "run.settled", "", "", 0)}, true
			}
			_ = json.NewEncoder(w).Encode(page)
		}
		_, _, errs := do(t, s.serve(t), "run", verb, "r-one")
		for _, want := range []string{
			"task ship of run r-one waits for approval by human:ann, human:bob (1 of 2 have approved) until 2026-01-02T04:04:05Z; see: bailiwick approval show a-aaaaaaaaaaaa, approve with: bailiwick approval approve a-aaaaaaaaaaaa\n",
			`a call of db/drop\x1b[2J by task build of run r-one waits for approval by human:eve until 2026-01-02T05:04:05Z; see: bailiwick approval show a-bbbbbbbbbbbb`,
		} {
			if strings.Count(errs, want) != 1 {
				t.Errorf("%s: not once %q in\n%s", verb, want, errs)
			}
		}
		if strings.Contains(errs, "run answer") || controls(errs) {
			t.Errorf("%s: %q", verb, errs)
		}
	}
}
