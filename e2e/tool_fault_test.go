package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// hostileTools is a server of every fault, in a world that has built it. Word names the
// file that says how it begins.
func hostileTools(w *world, name, word string) string {
	var allow strings.Builder
	for _, tool := range []string{"fine", "hang", "slow", "die", "flood", "huge", "line", "garbage", "duplicate", "twice", "other", "ask", "lie", "control", "rename", "change"} {
		fmt.Fprintf(&allow, "      - {tool: %s, roles: [tester], tier: observe}\n", tool)
	}
	return fmt.Sprintf("  - server: %s\n    stdio: {command: [%s, hostile, %s], readOnly: [%s]}\n    timeout: 2s\n    allow:\n%s", name, w.path("tools/toolserver"), w.path("tools", word), w.path("tools"), allow.String())
}

// Whatever an upstream does, the agent gets a clear tool error in bounded time, its next
// call works, and nothing that was not pinned can be called. The control: the honest
// tool of the same server answers before and after each fault.
//
// proves R-G7, R-G2
func TestFaultsOfToolServersAreClearErrors(t *testing.T) {
	t.Parallel()
	w := newCallWorld(t, 0, []string{"tester observe"}, "", "")
	w.buildFor("tools", "toolserver")
	for _, word := range []string{"good", "late"} {
		w.write("tools/"+word, "", 0o644)
	}
	w.toolManifest([]string{"tester observe"}, hostileTools(w.world, "bad", "good")+hostileTools(w.world, "late", "late"), "")
	w.pinned()
	w.up()
	faults := []string{"hang", "die", "flood", "huge", "line", "garbage", "duplicate", "twice", "other", "ask", "lie", "control"}
	d := w.do("tester", `
for fault in `+strings.Join(faults, " ")+`; do
	from=$EPOCHREALTIME
	call bad_$fault > outputs/$fault
	echo "$fault $(( (${EPOCHREALTIME/./} - ${from/./}) / 1000 ))" >> outputs/times
	for try in 1 2 3 4 5 6 7 8; do call bad_fine > outputs/after-$fault; grep -q 'fine, call' outputs/after-$fault && break; sleep 0.5; done
done`)
	for line := range strings.SplitSeq(strings.TrimSpace(w.output(d, "times")), "\n") {
		var name string
		var ms int
		if _, err := fmt.Sscan(line, &name, &ms); err != nil || ms > 10_000 {
			t.Errorf("a call takes too long: %s (%v)", line, err)
		}
	}
	failed := map[string]bool{"hang": true, "die": true, "flood": true, "huge": true, "line": true, "duplicate": true, "other": true, "lie": true}
	for _, fault := range faults {
		got := w.output(d, fault)
		if failed[fault] && !refusedCall(got) || len(got) > 1<<20 {
			t.Errorf("%s: %.500s", fault, got)
		}
		wantIn(t, "the honest tool after "+fault, w.output(d, "after-"+fault), "fine, call")
	}
	for _, answered := range []string{"sampling", "elicitation", "roots"} {
		if got := w.output(d, "ask"); strings.Contains(got, `"role":"assistant"`) || strings.Contains(got, `"action":"accept"`) || strings.Contains(got, `"roots":[`) {
			t.Errorf("a server's own request for %s is answered: %s", answered, got)
		}
	}
	if got := w.output(d, "twice"); strings.Contains(got, "twice") {
		t.Errorf("the second answer: %s", got)
	}
	for _, c := range w.calls(d.ID) {
		if c.State != "returned" || c.Decision != "allow" {
			t.Errorf("call %d of %s is %s %s", c.Number, c.Tool, c.State, c.Decision)
		}
	}

	// Another definition closes a tool, and no new name is open.
	d = w.do("tester", `
call bad_fine > outputs/before
call bad_rename > outputs/renamed
sleep 0.5
call bad_fine > outputs/fine
call bad_destroy > outputs/destroy
list > outputs/list
call bad_slow '{"ms": 1}' > outputs/slow`)
	wantIn(t, "before", w.output(d, "before"), "fine, call 1")
	for _, name := range []string{"fine", "destroy"} {
		if got := w.output(d, name); strings.Contains(got, name+", call") {
			t.Errorf("%s after the change: %s", name, got)
		}
	}
	if list := w.output(d, "list"); strings.Contains(list, "destroy") || strings.Contains(list, "bad_fine") || !strings.Contains(list, "bad_slow") {
		t.Errorf("the list has a name of no role, or a closed tool: %s", list)
	}
	w.refused(3, []string{"no: tester", "the tool is closed"}, "can", "role:tester", "call", "bad/fine")
	wantIn(t, "a tool that did not change", w.must("can", "role:tester", "call", "bad/slow"), "yes: tester")
	wantIn(t, "a tool that did not change", w.output(d, "slow"), "slow")
	d = w.do("tester", "call bad_change > outputs/changed; sleep 0.5; call bad_fine > outputs/fine")
	if got := w.output(d, "fine"); strings.Contains(got, "fine, call") {
		t.Errorf("a tool that says something else: %s", got)
	}
	wantIn(t, "the log", w.must("audit", "list", "--kind", "tool.changed", "-o", "jsonl"), `"found":"sha256:`, `"pinned":"sha256:`)

	// A server that no longer starts, says nothing, or only shouts.
	for _, word := range []string{"dead", "mute", "flood"} {
		w.write("tools/late", word, 0o644)
		from := time.Now()
		d := w.do("tester", "call late_fine > outputs/first; call late_fine > outputs/second; call bad_fine > outputs/other")
		for _, name := range []string{"first", "second"} {
			if got := w.output(d, name); !refusedCall(got) {
				t.Errorf("a %s server, %s call: %s", word, name, got)
			}
		}
		wantIn(t, "another server", w.output(d, "other"), "fine, call")
		if took := time.Since(from); took > time.Minute {
			t.Errorf("a %s server holds the agent for %s", word, took)
		}
		w.noProcess("toolserver")
	}
}

// noProcess waits until no process of the world's tool servers is left.
func (w *callWorld) noProcess(name string) {
	w.t.Helper()
	program := w.path("tools", name)
	var left []string
	for range polling(time.Minute) {
		if left = processes(w.t, program); len(left) == 0 {
			return
		}
	}
	w.t.Errorf("processes of %s are left: %q", program, left)
}

// A call that is out when the service is killed is not repeated: the agent hears that
// its effect is not known, the log says so, and the worker continues.
//
// proves R-G7
func TestKilledServiceLeavesACallUnknown(t *testing.T) {
	t.Parallel()
	host := newToolHost()
	reached, release := make(chan struct{}, 10), make(chan struct{})
	host.tool("long", "Takes long.", func(string) string { reached <- struct{}{}; <-release; return "long" })
	w := newCallWorld(t, 0, []string{"tester observe"}, fmt.Sprintf("  - server: web\n    http: {url: %q}\n    allow:\n      - {tool: long, roles: [tester], tier: observe}\n      - {tool: echo, roles: [tester], tier: observe}\n", host.serve(t)), "")
	w.pinned()
	w.up()
	t.Cleanup(func() { close(release) })
	id := w.detached("tester", "--source", "repo", "--set", `do=call web_long '{"text": "x"}' > outputs/long; for i in 1 2 3 4 5 6 7 8 9 10; do call web_echo '{"text": "again"}' > outputs/echo; grep -q again outputs/echo && break; sleep 0.5; done`)
	<-reached
	kill(t, w.status().PID)
	w.must("up")
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFinished, "")
	wantIn(t, "the call that was out", w.output(d, "long"), "not known whether the call took effect")
	wantIn(t, "the next call", w.output(d, "echo"), "again")
	if all := w.calls(d.ID); len(all) < 2 || all[0].State != "unknown" || all[len(all)-1].State != "returned" {
		t.Errorf("calls: %+v", all)
	}
	if n := len(w.entries("--kind", "tool.unknown")); n != 1 {
		t.Errorf("%d entries say unknown", n)
	}
	if n := len(host.called()); n < 2 || len(reached) != 0 {
		t.Errorf("the server was called %q", host.called())
	}
}

// A call whose entry the full disk of the log does not take has no effect: the agent gets
// an error, the server nothing. Once there is room the same agent calls again.
//
// proves R-G4, R-G7
func TestFullDiskStopsCallsBeforeTheirEffect(t *testing.T) {
	t.Parallel()
	host := newToolHost()
	w := newCallWorld(t, 0, []string{"tester observe"}, fmt.Sprintf("  - server: web\n    http: {url: %q}\n    allow: [{tool: echo, roles: [tester], tier: observe}]\n", host.serve(t)), "")
	w.mkdir("gate")
	w.replace(manifest, "{name: local, executor: jail, level: full, mode: open}", "{name: local, executor: jail, level: full, mode: open, readOnly: ["+w.path("gate")+"]}")
	w.pinned()
	w.write("config/bailiwick/service.yaml", "version: 1\n", 0o600)
	w.smallState("36m")
	w.up()
	id := w.detached("tester", "--source", "repo", "--set", `do=GATE=`+w.path("gate")+`
until_open() { until ls $GATE | grep -qx $1; do sleep 0.05; done; }
call web_echo '{"text": "before"}' > outputs/before; echo called
until_open full
for i in 1 2 3; do call web_echo '{"text": "while full"}' >> outputs/full; done; echo refused
until_open free
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do call web_echo '{"text": "after"}' > outputs/after; grep -q 'after' outputs/after && break; sleep 0.5; done`)
	w.awaitLog(id, "called")
	w.fillState()
	w.open("full")
	for late := range polling(2 * time.Minute) {
		if strings.Contains(w.try("dispatch", "logs", id).stdout, "refused") {
			break
		}
		if late {
			t.Fatal("the agent hangs while the disk is full")
		}
	}
	if got := host.called(); len(got) != 1 {
		t.Errorf("the server got %q while the disk was full", got)
	}
	w.freeState()
	w.open("free")
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFinished, "")
	wantIn(t, "after", w.output(d, "after"), "after")
	for line := range strings.Lines(w.output(d, "full")) {
		if !refusedCall(line) {
			t.Errorf("while the disk was full: %s", line)
		}
	}
	for _, c := range host.called() {
		if strings.Contains(c, "while full") {
			t.Errorf("the server got %q", c)
		}
	}
}
