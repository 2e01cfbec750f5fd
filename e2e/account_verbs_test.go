package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// verbTeam is a machine on which accounts type remoteVerbs: alice is an operator, bob has
// the grants that she has, a program has bob's account and a token, carol has nothing.
type verbTeam struct {
	*team
	alice, bob, program, carol *remoteCaller
}

func newVerbTeam(t *testing.T) *verbTeam {
	t.Helper()
	s := newTeam(t)
	account := func(uid int, name string) *remoteCaller { return &remoteCaller{world: s.world(uid), name: name} }
	v := &verbTeam{s, account(machine.Alice, "home"), account(machine.Bob, "bob"), account(machine.Bob, "far"), account(machine.Carol, "carol")}
	w := v.alice.world
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "two\n", "dir/c.txt": "three\n"})
	address := "127.0.0.1:" + portAt(t, "127.0.0.1")
	w.certificate("127.0.0.1", time.Now().Add(time.Hour))
	for _, name := range []string{"tls.pem", "tls.key"} {
		s.Write("/etc/bailiwick/"+name, w.read(name), machine.Service, machine.Service, 0o600)
	}
	s.Write("/etc/bailiwick/service.yaml", "version: 1\norchestrator: {}\nserver: {listen: \""+address+"\", certificate: /etc/bailiwick/tls.pem, key: /etc/bailiwick/tls.key}\n", 0, 0, 0o644)
	s.restart(false)
	w.runManifest(asksOnce())
	w.verbGrants("  - {principal: \"local:bob\", subagents: [sh, typed, brief, checked, asks], envs: [colours], sources: [repo], targets: [local, looking], ceiling: reversible}\n")
	w.replace(manifest, "roles: [", nightlySchedule+"roles: [")
	w.publish("reversible")
	w.must("ceiling", "set", "local:bob", "reversible")
	w.verbPrincipals()
	_, public := w.operatorKey("ann")
	w.must("principal", "add", "human:ann")
	w.must("operators", "add", public, "--principal", "human:ann")

	v.program.program = true
	v.program.env = append(v.program.env, "HOME="+v.program.path("home")) // where its login is kept
	for _, c := range []*remoteCaller{v.alice, v.bob, v.program, v.carol} {
		c.owns(w.path("repo"))
		c.write("home/some.token", w.read("home/agent-far.token"), 0o600)
		c.words["TOKEN"] = c.path("home/some.token")
	}
	if d := v.program.try("login", "https://"+address, "--ca", w.path("tls.pem"), "--token", v.program.words["TOKEN"]); d.status != 0 {
		t.Fatalf("login: %s", d)
	}
	return v
}

// openToAll are the lines that an account without a grant may type: they act on its own
// files, or list nothing.
const openToAll = "whoami|version|man |completion |mcp |run schema|run validate PLAN|run render PLAN|run import PANGOLIN|waiting|" + emptyToAll

const emptyToAll = "subagent list|model list|capability list|env list|source list|target list|grant list|role list|role matrix|tool list|dispatch list|run list|budget list|session list|approval list"

func beginsWithOneOf(line, list string) bool {
	return slices.ContainsFunc(strings.Split(list, "|"), func(p string) bool { return strings.HasPrefix(line, p) })
}

// said is what a caller got for a line, without what the caller typed.
func (c *remoteCaller) said(line string, d done) string {
	args, _ := c.args(line)
	text := d.stdout + d.stderr
	for _, a := range args {
		if len(a) > 12 { // an id or a path
			text = strings.ReplaceAll(text, a, "")
		}
	}
	return text
}

// knows returns a caller whose lines are about what another one made, with its ids.
func (c *remoteCaller) knows(other *remoteCaller) *remoteCaller {
	c.t.Helper()
	spy := *c
	spy.name, spy.words = other.name, maps.Clone(c.words)
	for _, word := range []string{"TOKENID", "ROTATEDID", "STOPID", "DECISION", "SPAREID", "OTHERID"} {
		spy.words[word] = other.words[word]
	}
	for _, id := range other.ids() {
		if i := strings.LastIndexByte(id, '-'); len(id)-i == 21 { // what makes an id its caller's
			spy.words[id[:i]] = id
		}
	}
	return &spy
}

// ids lists the ids of what a caller submitted.
func (c *remoteCaller) ids() []string {
	c.t.Helper()
	return strings.Fields(c.must("dispatch", "list", "-o", "name") + c.must("run", "list", "-o", "name"))
}

// namesEarlier reports whether a line is about a dispatch or run that an earlier line created.
func namesEarlier(line string) bool {
	fields := strings.Fields(line)
	for i, f := range fields {
		if strings.HasPrefix(f, "@-") && fields[i-1] != "--id" {
			return true
		}
	}
	return false
}

// A second account of a machine types every verb, as a person with grants and as a program
// with a token. Each gives the answer that an operator gets, or its refusal: what operators
// do is denied, what others are asked is not found, and a program steers no run. What another
// account submitted is not found, by its whole id too. An account without a grant gets
// nothing. Control: the operator is shown what the others are not.
// TestEveryVerbWorksRemotely fails for a verb in no line.
//
// proves R-D8, R-P7, R-T4
func TestEveryVerbAsASecondAccount(t *testing.T) {
	t.Parallel()
	v := newVerbTeam(t)
	w := v.alice.world
	for key, run := range map[string]string{"ASKED": "vote-", "DENIED": "deny-"} {
		id := v.alice.asks(w, "human:ann", run+"ann")
		v.bob.words[key], v.program.words[key], v.carol.words[key] = id, id, id
		v.alice.words[key] = v.bob.asks(w, w.me(), run+"home")
	}
	var lines []string
	var shown strings.Builder
	worked := 0
	for marked := range strings.Lines(remoteVerbs) {
		marked = strings.TrimRight(marked, "\n")
		if marked == "" {
			continue
		}
		mark, line := marked[:1], marked[1:]
		lines = append(lines, line)
		v.alice.before(w, line)
		results := map[*remoteCaller]done{}
		for _, c := range []*remoteCaller{v.program, v.bob, v.alice} {
			if c != v.alice && mark == "~" {
				continue
			}
			if id := v.alice.words["DECISION"]; c != v.alice && id != "" {
				c.words["DECISION"] = id
			}
			d := c.line(line)
			if c == v.alice || strings.HasPrefix(line, "run submit ASKS") {
				c.after(w, line, d)
			}
			results[c] = d
		}
		a, b, p := results[v.alice], results[v.bob], results[v.program]
		shown.WriteString(v.alice.said(line, a))
		if a.status == 0 {
			worked++
		}
		same := mark == " " || strings.HasPrefix(line, "run ") // as for the operator
		want := map[string]int{" ": a.status, "-": 3, "!": 1, "~": 0}[mark]
		if p.status != want {
			t.Errorf("%s: a program gets %s\nan operator %s", line, p, a)
		}
		if same {
			want = a.status
		}
		if b.status != want || same && v.bob.failure(b) != v.alice.failure(a) {
			t.Errorf("%s: a second account gets %s\nan operator %s", line, b, a)
		}
	}
	if worked < 100 {
		t.Errorf("%d lines worked", worked)
	}

	hidden := append(v.alice.ids(), "local:alice", strings.TrimSpace(w.git("repo", "rev-parse", "HEAD")))
	for _, m := range hidden {
		if !strings.Contains(shown.String(), m) {
			t.Errorf("control: the operator is not shown %q", m)
		}
	}
	before, own := len(v.alice.ids()), v.alice.knows(v.alice)
	for _, line := range []string{"dispatch show @-1", "run show @-run"} {
		if d := own.line(line); d.status != 0 || !strings.Contains(d.stdout, "local:alice") {
			t.Errorf("control: %s by the whole id: %s", line, d)
		}
	}
	for _, c := range []*remoteCaller{v.carol, v.bob, v.program} {
		spy := c.knows(v.alice)
		for _, line := range lines {
			if c != v.carol && !namesEarlier(line) {
				continue
			}
			d := spy.line(line)
			for _, m := range hidden {
				if strings.Contains(spy.said(line, d), m) {
					t.Errorf("%s: uid %d is shown %q of another account: %s", line, c.uid, m, d)
				}
			}
			open := c == v.carol && beginsWithOneOf(line, openToAll)
			if open != (d.status == 0) || !open && d.status != 1 && d.status != 3 {
				t.Errorf("%s: uid %d, about what alice made: %s", line, c.uid, d)
			}
			if open && beginsWithOneOf(line, emptyToAll) && strings.Count(d.stdout, "\n") > 1 {
				t.Errorf("%s lists for an account without a grant: %s", line, d)
			}
		}
	}
	if after := len(v.alice.ids()); after != before || len(v.carol.ids()) != 0 {
		t.Errorf("%d dispatches and runs are listed, there were %d; of the account without a grant: %v", after, before, v.carol.ids())
	}
}
