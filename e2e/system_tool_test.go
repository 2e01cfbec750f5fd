package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// tapped returns the standard input of a tool host that carries what the service writes to
// in, as changed. It ends with in.
func (c *courier) tapped(s *team, in *os.File) *os.File {
	var r, w *os.File
	var err error
	asUser(machine.Service, func() { r, w, err = os.Pipe() }) // the service's own, as the launcher verifies
	must(s.t, err)
	c.streams.Go(func() {
		defer in.Close()
		defer w.Close()
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return // the service closed it
			}
			var q record.ToolRequest
			if err := canon.DecodeExact(line[:len(line)-1], &q); err != nil {
				s.t.Errorf("a request to a tool host: %v", err)
				return
			}
			c.mu.Lock()
			if c.call != nil {
				c.call(&q)
			}
			c.mu.Unlock()
			if line, err = canon.Marshal(q); err == nil {
				_, err = w.Write(append(line, '\n'))
			}
			if err != nil {
				return // the tool host ended
			}
		}
	})
	return r
}

// toolHosts lists the uid blocks that tool hosts of the machine have.
func (s *team) toolHosts() (blocks []int) {
	for _, p := range s.blockProcesses() {
		if filepath.Base(p.args[0]) == "bailiwick-toolhost" && !slices.Contains(blocks, p.block) {
			blocks = append(blocks, p.block)
		}
	}
	return blocks
}

// The tools of a team: each upstream has a tool host with a uid block of its own, the only
// holder of its credential, over HTTP and for a program. A call that people approve reaches
// the server after Bob's vote, not after what Alice says about her own; a service that
// changes an approved call, or holds Bob's vote back, is refused by the tool host. Control:
// the same call unchanged.
//
// proves R-G5, R-G6, R-S2, R-P3, R-P6
func TestToolHostsOfATeamHoldCredentialsAndVerifyVotes(t *testing.T) {
	t.Parallel()
	key := newKey()
	host := newToolHost()
	for _, name := range []string{"query", "change"} {
		host.tool(name, name+" of the warehouse", func(text string) string { return name + " did " + text })
	}
	host.admits = func(h http.Header) bool { return h.Get("X-Api-Key") == key }
	at := host.serve(t)
	s := newTeam(t)
	lie := s.between()
	w, bob := &callWorld{s.world(machine.Alice)}, &callWorld{s.world(machine.Bob)}
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.buildFor("tools", "toolserver")
	w.toolManifest([]string{"keeper stateful"}, fmt.Sprintf(`
  - server: warehouse
    http: {url: %q}
    credential: {header: X-Api-Key, secret: key}
    allow:
      - {tool: query, roles: [keeper], tier: observe}
      - {tool: change, roles: [keeper], tier: stateful, approval: {wait: 2s}}
  - server: program
    stdio: {command: [%s, "2025-11-25"], readOnly: [%s]}
    allow: [{tool: echo, roles: [keeper], tier: observe}]
  - {command: who, description: "Who it is.", run: [bash, -c, 'echo "has ${#KEY} bytes as $(id -u)"'], credential: {env: {KEY: key}}, roles: [keeper], tier: observe, trust: trusted}
`, at, w.path("tools/toolserver"), w.path("tools")), "")
	w.replace(manifest, "\nenvs:\n", "\nsecrets:\n  - {name: key, ref: \"file:key\"}\nenvs:\n")
	w.approvedBy("local:bob", false, "keeper")
	w.pinned("key", key)
	w.must("ceiling", "set", w.me(), "stateful")
	if d := w.setSecret("key", key); d.status != 0 {
		t.Fatal(d)
	}
	s.ok(machine.Root, "cp /home/bob/.config/bailiwick/operator.key.pub "+w.path("tmp/bob.pub")+" && chmod a+r "+w.path("tmp/bob.pub"))
	w.must("operators", "add", w.path("tmp/bob.pub"), "--principal", "local:bob")

	vote := func(done int) {
		t.Helper()
		a := bob.awaitApproval()
		if n := count(host.called(), "change"); n != done {
			t.Fatalf("%d calls before anybody approved, want %d", n, done)
		}
		w.refused(3, nil, "approval", "approve", string(a.Action.ID))
		bob.must("approval", "approve", string(a.Action.ID))
	}
	run := func(script string) string {
		t.Helper()
		return w.detached("keeper", "--source", "repo", "--set", "do="+script+`
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	call warehouse_change '{"text": "add a column"}' > outputs/changed
	grep -q 'wait\|pending\|approv.*again' outputs/changed || break
done
cat outputs/changed`)
	}
	id := run(`
call warehouse_query '{"text": "orders"}' > outputs/query
call program_echo '{"text": "hello"}' > outputs/echo
call who > outputs/who
env > outputs/env
echo begun
`)
	w.awaitLog(id, "begun")
	if blocks := s.toolHosts(); len(blocks) < 2 {
		t.Errorf("uid blocks of tool hosts: %v", blocks)
	}
	for name, uid := range map[string]int{"service": machine.Service, "alice": machine.Alice, "bob": machine.Bob} {
		if found := w.readable(uid, key); found != "" {
			t.Errorf("%s can read the credential in %s", name, found)
		}
	}
	vote(0)
	d := w.awaitEnd(id)
	wantEnd(t, d, api.EventFinished, "")
	wantIn(t, "query", w.output(d, "query"), "query did orders")
	wantIn(t, "echo", w.output(d, "echo"), "hello")
	wantIn(t, "who", w.output(d, "who"), fmt.Sprintf("has %d bytes", len(key)))
	wantIn(t, "changed", w.output(d, "changed"), "change did add a column")
	if env := w.output(d, "env"); strings.Contains(env, key) {
		t.Errorf("the agent has the credential: %s", env)
	}
	w.verifyEvidence(id)

	for _, lies := range []struct {
		what, why string
		change    func(*record.ToolRequest)
	}{
		{"changes the call", "it is for another call", func(q *record.ToolRequest) {
			if q.Call != nil && q.Call.Approved != nil {
				q.Call.Arguments = []byte(`{"text":"drop orders"}`)
			}
		}},
		{"leaves the approval out", "the service has sent no approval", func(q *record.ToolRequest) {
			if q.Call != nil {
				q.Call.Approved = nil
			}
		}},
		{"holds the vote back", "keeps back decisions of operators", func(q *record.ToolRequest) { q.Records = nil }},
	} {
		id := run("")
		lie.setCall(lies.change)
		vote(1)
		d := w.awaitEnd(id)
		lie.setCall(nil)
		changed := w.output(d, "changed")
		if calls := host.called(); count(calls, "change") != 1 || !refusedCall(changed) || !strings.Contains(changed, lies.why) {
			t.Errorf("a service that %s: %s; the server was called: %q", lies.what, changed, calls)
		}
	}
}

// count counts the calls of a tool.
func count(calls []string, tool string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, tool+" ") {
			n++
		}
	}
	return n
}
