package e2e

import (
	"fmt"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A call that waits for a person outlives its service, whether that is stopped or killed:
// nothing was decided, so the next service gets the message again, the person approves the
// request that they saw before, and the server gets the call once. An agent whose service
// does not return in time reads that the call was not made. The control is
// TestKilledServiceLeavesACallUnknown: a call that was made is not repeated.
//
// proves R-G6, R-G7
func TestACallThatWaitsForAPersonOutlivesTheService(t *testing.T) {
	t.Parallel()
	host := newToolHost()
	w := newCallWorld(t, 0, []string{"tester stateful"}, fmt.Sprintf("  - server: web\n    http: {url: %q}\n    allow: [{tool: echo, roles: [tester], tier: stateful, approval: {wait: 10m}}]\n", host.serve(t)), "")
	w.approvedBy(w.me(), true, "tester")
	w.pinned()
	w.up()
	w.must("ceiling", "set", w.me(), "stateful")
	ask := func(name string) (string, api.Approval) {
		id := w.detached("tester", "--source", "repo", "--set", `do=call web_echo '{"text": "`+name+`"}' > outputs/answer`)
		return id, w.awaitApproval()
	}
	for name, end := range map[string]func(){
		"stopped": func() { w.must("down") },
		"killed":  func() { kill(t, w.status().PID) },
	} {
		id, asked := ask(name)
		end()
		w.must("up")
		if again := w.awaitApproval(); again.Action.ID != asked.Action.ID {
			t.Errorf("%s: the person is asked twice: %s, %s", name, asked.Action.ID, again.Action.ID)
		}
		w.must("approval", "approve", string(asked.Action.ID))
		d := w.awaitEnd(id)
		wantEnd(t, d, api.EventFinished, "")
		wantIn(t, name, w.output(d, "answer"), name)
		if all := w.calls(d.ID); len(all) != 1 || all[0].State != "returned" {
			t.Errorf("%s: calls %+v", name, all)
		}
	}
	id, asked := ask("away")
	w.must("down")
	if len(processes(t, id)) == 0 {
		t.Error("the worker ended with its service")
	}
	eventually(t, "the worker ends", func() bool { return len(processes(t, id)) == 0 })
	w.must("up")
	d := w.awaitEnd(id)
	wantIn(t, "no service", w.output(d, "answer"), "the call was not made")
	w.refused(1, nil, "approval", "approve", string(asked.Action.ID))
	if got := host.called(); len(got) != 2 {
		t.Errorf("the server got %q", got)
	}
}
