package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// remoteVerbs are the command lines that each caller types, in this order: an operator who
// logged in on another machine, a program with a token there, each under an account of its
// own, and the service's account at its socket. @ is the caller's name, words in capitals are files and ids of the caller's
// own, and after < is standard input. The service refuses to programs what begins with -,
// and hides from them what begins with !. What begins with ~ is about what such a line
// creates, so they do not type it.
const remoteVerbs = `
 whoami
 can
 can dispatch sh --source repo
 version
 man MANPAGES
 completion bash
 completion zsh
 completion fish
 completion powershell
 mcp tools
 mcp config --client codex --principal-token-file TOKEN
 subagent list
 subagent show sh
 model list
 model show none
 capability list
 capability show sh
 env list
 env show colours
 source list
 source show repo
 target list
 target show local
 grant list
 grant show none
 role list
 role show transform
 role matrix
 tool list
 dispatch run sh --source repo --set do=FAR --id @-1
 dispatch run sh --source /etc --set do=true --id @-path
 dispatch list
 dispatch show @-1
 dispatch logs @-1
 dispatch network @-1
 dispatch tools @-1
 dispatch transcript @-1
 dispatch patch @-1
 dispatch outputs @-1
 dispatch attestation @-1
 dispatch apply @-1 --repo CLONE
 dispatch pin @-1
 dispatch unpin @-1
 dispatch run asks --source repo --id @-asks
 dispatch answer @-asks --option 1
 dispatch run sh --source repo --set do=WAITS --id @-long --detach
 dispatch cancel @-long
 run schema
 run validate PLAN
 run render PLAN
 run import PANGOLIN
 run submit PLAN --id @-run --watch
 run list
 run show @-run
 run logs @-run
 run patch @-run
 run patch @-run --merge merged --repo CLONE
 run outputs @-run
 run wait @-run
 run watch @-run
 run render --run @-run
 run apply @-run --repo CLONE --branch applied
-run retry @-run --id @-again --from one
 run submit OPEN --id @-open
-run append @-open MORE --dry-run
-run append @-open MORE
-run pause @-open
-run resume @-open
-run cancel @-open
 run submit ASKS --id @-q
-run answer @-q blue
 waiting
 budget list
 budget show none
-queue list
-queue pause default
-queue resume default
-schedule list
-schedule show nightly
-schedule history nightly
-schedule next nightly
-schedule pause nightly
-schedule resume nightly
-schedule run nightly
 session list
 session end s-none
-status
-gc --dry-run
-principal list
-principal add agent:new-@
-principal show agent:new-@
-ceiling set agent:new-@ observe
-token create agent:new-@ --out NEWTOKEN
-token list
~token rotate TOKENID --out ROTATED
~token revoke ROTATEDID
~principal remove agent:new-@
-operators list
-operators add SPARE.pub --principal human:zoe-@
~operators rotate SPAREID OTHER.pub
~operators retire OTHERID
~operators assign none=human:zoe
~operators threshold 1
-operators invite human:zoe-@
-operators invitations
~operators admit human:zoe-@ none
-decision list
-decision show DECISION
-decision sign DECISION
-secret list
-secret set value-@ < of @
-secret check
~secret remove value-@
 approval list
 approval list --all
!approval show ASKED
!approval approve ASKED
!approval deny DENIED
-stop --dispatch @-1
-stop list
~stop lift STOPID
-audit list
-audit show 1
-audit verify --log
-audit trust
-audit key
-audit prove 1 --out PROOF
-audit tiles --to TILES
-audit export @-1 --dispatch --out BUNDLE
`

// sameRead are the reads whose answers are of the service alone: the operator on the other
// machine reads the same bytes as the service's account at the socket.
const sameRead = `subagent list|subagent show sh|env list|env show colours|source list|source show repo|target list|target show local|role list|role show transform|principal list|principal show agent:far|token list|operators list|secret list|stop list|queue list|schedule list|schedule show nightly|audit show 1|audit trust|audit key|dispatch show ann-1|dispatch patch ann-1|dispatch attestation ann-1|run show ann-run|run logs ann-run`

// remoteCaller is who types remoteVerbs.
type remoteCaller struct {
	*world
	name    string
	program bool
	words   map[string]string
	known   map[api.PendingID]bool // decisions that waited for a signature
}

// line types one line. Words that are of files are below the caller's own directory.
func (c *remoteCaller) line(text string) done {
	c.t.Helper()
	args, input := c.args(text)
	cmd := c.command(filepath.Join(bin, "bailiwick"), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	start := cmd.Start
	if c.net != nil {
		start = func() error { return c.net.start(cmd) }
	}
	must(c.t, start())
	_ = cmd.Wait() // the status says it
	return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// args returns the arguments that a line has for its caller, and its standard input.
func (c *remoteCaller) args(text string) (args []string, input string) {
	text, input, _ = strings.Cut(strings.ReplaceAll(text, "@", c.name), " < ")
	args = strings.Fields(text)
	for i, a := range args {
		stem, more, _ := strings.Cut(a, ".")
		key, value, set := strings.Cut(stem, "=")
		if to, ok := c.words[value]; set && ok {
			args[i] = key + "=" + to
		} else if to, ok := c.words[stem]; ok {
			args[i] = to
			if more != "" {
				args[i] += "." + more
			}
		}
	}
	return args, input
}

// watches types a line that watches until it is interrupted. It returns once the line has
// shown something with words.
func (c *remoteCaller) watches(words string, happen func(), args ...string) {
	c.t.Helper()
	cmd := c.command(filepath.Join(bin, "bailiwick"), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(c.t, err)
	start := cmd.Start
	if c.net != nil {
		start = func() error { return c.net.start(cmd) }
	}
	must(c.t, start())
	happen()
	lines, seen := bufio.NewScanner(out), false
	for !seen && lines.Scan() {
		seen = strings.Contains(lines.Text(), words)
	}
	_ = cmd.Process.Signal(unix.SIGINT) // it may have exited
	_ = cmd.Wait()
	if !seen {
		c.t.Errorf("%q as %s shows nothing with %q: %s", args, c.name, words, errs.String())
	}
}

// owns prepares the files of a caller.
func (c *remoteCaller) owns(repo string) {
	c.t.Helper()
	c.known, c.words = map[api.PendingID]bool{}, map[string]string{"FAR": "echo far >> a.txt", "WAITS": strings.TrimSpace(awaitGate("never"))}
	for _, name := range []string{"MANPAGES", "NEWTOKEN", "ROTATED", "SPARE", "OTHER", "PROOF", "TILES", "BUNDLE", "CLONE"} {
		c.words[name] = c.path("own-" + strings.ToLower(name))
	}
	for name, text := range map[string]string{
		"PLAN":     "source: {name: repo}\ntasks:\n  - {id: one, subagent: sh, input: {do: \"echo far >> a.txt\"}}\n",
		"OPEN":     "source: {name: repo}\ntasks:\n  - {id: one, subagent: sh, input: {do: \"" + c.words["WAITS"] + "\"}}\n",
		"MORE":     "tasks:\n  - {id: two, subagent: sh, input: {do: \"true\"}, depends_on: [one]}\n",
		"ASKS":     "source: {name: repo}\ntasks:\n  - {id: one, subagent: asks}\n",
		"PANGOLIN": `{"items": [{"id": "a", "executor": "dispatch", "inputs": {"subagent": "s"}, "resourceLocks": []}]}`,
	} {
		c.words[name] = c.path("own-" + strings.ToLower(name) + ".yaml")
		c.write("own-"+strings.ToLower(name)+".yaml", text, 0o644)
	}
	must(c.t, exec.Command("cp", "-r", repo, c.words["CLONE"]).Run()) // git clones no repository of another account
	must(c.t, exec.Command("chown", "-R", fmt.Sprint(c.uid), c.words["CLONE"]).Run())
	for _, key := range []string{"SPARE", "OTHER"} {
		c.words[key+"ID"] = strings.TrimSpace(c.must("operator", "keygen", "--key", c.words[key], "--name", strings.ToLower(key), "--insecure-unencrypted", "-o", "name"))
	}
}

// asksOnce is a subagent that asks, and changes a file once it was answered.
func asksOnce() subagent {
	return subagent{name: "asks", script: "if [ -f inputs/resume.json ]; then echo two >> a.txt; exit 0; fi\nmkdir -p .bailiwick\nprintf '{\"question\": \"Which?\", \"options\": [\"red\", \"blue\"]}' > .bailiwick/question.json\n"}
}

const nightlySchedule = "schedules:\n  - {name: nightly, cron: \"0 2 * * 1-5\", zone: UTC, plan: nightly.yaml, principal: \"ci:nightly\"}\n"

// verbGrants adds the grants of the callers that are programs, and more lines.
func (w *world) verbGrants(more string) {
	w.t.Helper()
	w.write("project/nightly.yaml", "source: {name: repo}\ntasks:\n  - {id: a, subagent: sh, input: {do: 'true'}}\n", 0o644)
	w.replace(manifest, "grants:\n", "grants:\n"+more+
		"  - {principal: \"agent:far\", subagents: [sh, asks], envs: [colours], sources: [repo], targets: [local], ceiling: reversible}\n"+
		"  - {principal: \"ci:nightly\", subagents: [sh], sources: [repo], targets: [local], ceiling: reversible}\n")
}

// verbPrincipals creates the programs, and a token of the one that types.
func (w *world) verbPrincipals() {
	w.t.Helper()
	w.must("principal", "add", "ci:nightly")
	w.must("ceiling", "set", "ci:nightly", "reversible")
	w.token("agent:far")
	w.must("ceiling", "set", "agent:far", "reversible")
}

// Every verb of bailiwick works from another machine as at the socket, for a person who
// logged in and for a program with a token: with the same status and, where it only reads,
// the same answer. An operator there signs with the key of the own device. A verb that acts
// on its own machine alone says why. A verb that is in no list fails the test.
//
// proves R-D8, R-P7
func TestEveryVerbWorksRemotely(t *testing.T) {
	t.Parallel()
	far, here := wire(t)
	w := newOffice(t, here, asksOnce())
	w.replace(manifest, "{group: dev, subagents: [sh], sources: [repo], targets: [local]", "{group: dev, subagents: [sh, typed, brief, checked, asks], envs: [colours], sources: [repo], targets: [local, looking]")
	w.verbGrants("")
	w.replace(manifest, "identities:\n", nightlySchedule+"identities:\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.verbPrincipals()
	_, public := w.operatorKey("ann")
	w.must("operators", "add", public, "--principal", "human:ann")

	// Accounts that may read nothing of the service, on a machine without its socket.
	ann := &remoteCaller{world: newWorld(t, ordinaryUID), name: "ann"}
	program := &remoteCaller{world: newWorld(t, ordinaryUID+1), name: "far", program: true}
	home := &remoteCaller{world: w.world, name: "home"}
	token := w.read("home/agent-far.token")
	for _, c := range []*remoteCaller{ann, program, home} {
		c.owns(w.path("repo"))
		c.write("home/some.token", token, 0o600)
		c.words["TOKEN"] = c.path("home/some.token")
	}
	ann.net, program.net = far, far
	if d := w.login(ann.world, "ann"); d.status != 0 {
		t.Fatalf("login: %s", d)
	}
	if d := program.try("login", w.service, "--ca", w.path("tls.pem"), "--token", program.words["TOKEN"]); d.status != 0 {
		t.Fatalf("login: %s", d)
	}
	ann.mkdir("config/bailiwick")
	ann.write("config/bailiwick/operator.key", w.read("home/ann.key"), 0o600)

	// What people decide about. Nobody approves an own run.
	for key, run := range map[string]string{"ASKED": "vote-", "DENIED": "deny-"} {
		ann.words[key] = home.asks(w.world, "human:ann", run+"ann")
		program.words[key] = ann.words[key]
		home.words[key] = ann.asks(w.world, w.me(), run+"home")
	}
	program.words["DECISION"] = "l-aaaaaaaaaaaa"

	worked := 0
	executed := map[string]bool{"login": true, "audit watch": true, "approval watch": true, "logout": true, "down": true}
	for line := range strings.Lines(remoteVerbs) {
		line = strings.TrimRight(line, "\n")
		if line == "" {
			continue
		}
		mark, line := line[:1], line[1:]
		results := map[string]done{}
		for _, c := range []*remoteCaller{program, ann, home} {
			if c.program && mark == "~" {
				continue
			}
			c.before(w.world, line)
			results[c.name] = c.line(line)
			c.after(w.world, line, results[c.name])
		}
		a, h, p := results["ann"], results["home"], results["far"]
		if a.status != h.status || ann.failure(a) != home.failure(h) {
			t.Errorf("%s: from the other machine %s\nat the socket %s", line, a, h)
		}
		if want, typed := map[string]int{" ": a.status, "-": 3, "!": 1}[mark]; typed && p.status != want {
			t.Errorf("%s: a program gets %s\nthe person %s", line, p, a)
		}
		if a.status == 0 {
			worked++
		}
		args := strings.Fields(line)
		executed[args[0]] = true
		executed[strings.Join(args[:min(2, len(args))], " ")] = true
	}
	for line := range strings.SplitSeq(sameRead, "|") {
		args := append(strings.Fields(line), "-o", "json")
		if a, h := ann.try(args...), home.try(args...); a.status != 0 || a.stdout != h.stdout {
			t.Errorf("%s: from the other machine %s\nat the socket %s", line, a, h)
		}
	}
	if worked < 100 {
		t.Errorf("%d lines worked", worked)
	}
	ann.watches("audit.read", func() { w.must("audit", "list") }, "audit", "watch")
	ann.watches("watched", func() { home.asks(w.world, "human:ann", "watched") }, "approval", "watch")

	w.listed(executed, ann)
	for _, c := range []*remoteCaller{ann, program} {
		if c.services() != nil {
			t.Errorf("a verb of %s started a service on the other machine", c.name)
		}
	}
	// A program may cancel no run, and a worker outlives its service.
	home.must("run", "cancel", "far-open")
	stop := func(c *remoteCaller) done { return c.plain(filepath.Join(bin, "bailiwick"), "down") } // no unit of its machine
	if d := stop(program); d.status != 3 {
		t.Errorf("a program stops the service: %s", d)
	}
	if d := stop(ann); d.status != 0 || !strings.Contains(d.stdout, "stopped") {
		t.Errorf("an operator stops the service: %s", d)
	}
	program.must("logout")
	ann.must("logout")
}

var (
	named  = regexp.MustCompile(`(human:ann|local:(?:root|alice|bob)|agent:far)\b|\b(ann|home|far|bob)(-[a-z]+|-1)(-[a-z0-9]{20})?\b`)
	failed = regexp.MustCompile(`(?m)^bailiwick: .*$`)
)

// failure returns the error of a line without the names of its caller.
func (c *remoteCaller) failure(d done) string {
	return named.ReplaceAllString(strings.ReplaceAll(failed.FindString(d.stderr), "zoe-"+c.name, "zoe"), "@$3")
}

// before makes a decision wait for a signature: it is stale after the next one.
func (c *remoteCaller) before(w *world, line string) {
	c.t.Helper()
	if c.program || !strings.HasSuffix(line, " DECISION") {
		return
	}
	waits := w.command(filepath.Join(bin, "bailiwick"), "principal", "add", fmt.Sprintf("agent:pending-%s-%d", c.name, len(c.known)), "--passkey")
	must(c.t, waits.Start())
	c.t.Cleanup(func() { _ = waits.Process.Kill(); _ = waits.Wait() })
	for range polling(time.Minute) {
		var list []api.PendingDecision
		decode(c.t, w.must("decision", "list", "-o", "json"), &list)
		for _, p := range list {
			if p.State == api.PendingOpen && !c.known[p.ID] {
				c.known[p.ID], c.words["DECISION"] = true, string(p.ID)
				return
			}
		}
	}
	c.t.Error("no decision is pending")
}

// after learns the ids that a line made, or waits for what the next line is about.
func (c *remoteCaller) after(w *world, line string, d done) {
	c.t.Helper()
	switch {
	case strings.HasPrefix(line, "run submit ASKS"):
		c.awaitTask(w, c.name+"-q", api.TaskWaiting)
	case c.program:
	case strings.HasPrefix(line, "schedule run"):
		if id := regexp.MustCompile(`nightly-[0-9a-z]+`).FindString(d.stdout); id != "" {
			w.awaitSettled(api.RunID(id))
		}
	case strings.HasPrefix(line, "token create"), strings.HasPrefix(line, "token rotate"):
		var list []api.TokenInfo
		decode(c.t, w.must("token", "list", "-o", "json"), &list)
		for _, i := range list {
			if i.Principal == api.Principal("agent:new-"+c.name) && i.EndedAt == nil {
				c.words["TOKENID"], c.words["ROTATEDID"] = string(i.ID), string(i.ID)
			}
		}
	case strings.HasPrefix(line, "stop --dispatch"):
		var list []api.Stop
		decode(c.t, w.must("stop", "list", "-o", "json"), &list)
		c.words["STOPID"] = string(list[len(list)-1].ID)
	}
}

func (c *remoteCaller) awaitTask(w *world, run string, state api.TaskState) {
	c.t.Helper()
	for range polling(time.Minute) {
		if w.run(api.RunID(run)).Tasks[0].State == state {
			return
		}
	}
	c.t.Errorf("run %s: %+v", run, w.run(api.RunID(run)).Tasks)
}

// asks submits a run that a voter is asked about, and returns the id of the request.
func (c *remoteCaller) asks(w *world, voter, run string) string {
	c.t.Helper()
	c.write("vote.yaml", "source: {name: repo}\ntasks:\n  - {id: ship, approval: {by: [\""+voter+"\"]}}\n", 0o644)
	c.must("run", "submit", c.path("vote.yaml"), "--id", run, "-q")
	return w.awaitAsked(api.RunID(run), "ship")
}

// listed fails unless every verb was executed from another machine, or says why it acts on
// its own alone.
func (w *office) listed(executed map[string]bool, c *remoteCaller) {
	w.t.Helper()
	const alone = "It acts on this machine alone: "
	pages, err := filepath.Glob(filepath.Join(c.words["MANPAGES"], "bailiwick-*.1"))
	must(w.t, err)
	local, all := 0, 0
	for _, page := range pages {
		b, err := os.ReadFile(page)
		must(w.t, err)
		text := strings.ReplaceAll(string(b), `\-`, "-")
		verb := strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(page), "bailiwick-"), ".1"), "-", " ")
		_, reason, isLocal := strings.Cut(text, alone)
		reason, _, _ = strings.Cut(reason, "\n")
		_, synopsis, _ := strings.Cut(text, "\n.B ")
		synopsis, _, _ = strings.Cut(synopsis, "\n")
		if !strings.HasPrefix(synopsis, "bailiwick "+verb) {
			continue // of another program, which no service answers
		}
		all++
		switch {
		case isLocal:
			local++
			d := c.try(append([]string{"--server", w.service}, strings.Fields(verb)...)...)
			if strings.HasPrefix(verb, "anchor ") {
				d = c.try("--server", w.service, "anchor", strings.Fields(verb)[1], "x")
			}
			if executed[verb] || d.status != 1 || !strings.Contains(d.stderr, strings.TrimSuffix(reason, ".")) {
				w.t.Errorf("%s, which acts on its machine alone: %s, want %q", verb, d, reason)
			}
		case strings.Contains(text, ".SH COMMANDS\n") && !executed[verb]: // a noun
		case !executed[verb]:
			w.t.Errorf("no line of this test executes %q from another machine", verb)
		}
	}
	if all < 120 || local < 10 {
		w.t.Errorf("%d pages, %d of verbs of one machine", all, local)
	}
}
