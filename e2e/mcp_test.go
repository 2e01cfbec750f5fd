package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// mcpStanding is a dispatch as the tools return it.
type mcpStanding struct {
	DispatchID string
	State      api.Event
	Ended      bool
	Attempt    int
	Reason     api.Reason
	Advice     string
	Record     *struct {
		Principal api.Principal
		Subagent  string
		Outcome   *struct {
			Files   []api.FileChange
			Outputs []api.Artifact
		}
	}
	Patch    *mcpContent
	Outputs  []mcpContent
	Log      *mcpContent
	Question *api.Question
	Asked    *mcpContent `json:"questionDocument"`
	Next     string
}

// mcpContent is a part of a worker's content.
type mcpContent struct {
	Path, Text, Base64 string
	Offset, Size       int64
}

func (c *mcpContent) bytes(t testing.TB) []byte {
	t.Helper()
	if c.Base64 == "" {
		return []byte(c.Text)
	}
	b, err := base64.StdEncoding.DecodeString(c.Base64)
	must(t, err)
	return b
}

// pages reads all pages of a view of a dispatch. Each response must be short
// enough for a client to show to a model.
func (s *mcpSession) pages(id, view string, each func(mcpStanding)) (n int) {
	s.t.Helper()
	for in := (members{"dispatchId": id, "include": view}); ; n++ {
		r := s.call("bailiwick_dispatch_describe", in)
		if r.IsError {
			s.t.Fatalf("%s of %s: %s", view, id, r.text())
		}
		if len(r.Value) > 200<<10 {
			s.t.Errorf("a page of %s has %d bytes", view, len(r.Value))
		}
		var d mcpStanding
		decode(s.t, string(r.Value), &d)
		each(d)
		if d.Next == "" {
			return n + 1
		}
		in["cursor"] = d.Next
	}
}

// works is an agent that leaves some of each kind of content: a patch of
// several pages, text and binary outputs, and a log.
const works = `
set -e
for i in $(seq 1 3000); do echo "zeile $i für é✓"; done > a.txt
printf 'x\000\377y' > outputs/raw.bin
printf 'done' > outputs/note.txt
: > outputs/empty
head -c 60000 /dev/zero | tr '\0' 'z' > outputs/long.txt
for i in $(seq 1 2000); do echo "Zeile $i ✓ des Protokolls"; done
`

// An AI client lists what it may use, dispatches, waits, and reads the whole
// result, in each revision; a person sees the same on the command line.
//
// takeover both modes, AI client: yes start
//
// proves R-T8, R-T9
func TestClientDispatchesAndReadsTheResult(t *testing.T) {
	t.Parallel()
	inEachMode(t, ordinaryUID, clientDispatchesAndReadsTheResult)
}

func clientDispatchesAndReadsTheResult(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "works", script: works}, subagent{name: "sleeps", script: "sleep 300"})
	w.up()
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		var list struct{ Items []api.Listing }
		s.ok("bailiwick_subagents_list", members{}, &list)
		if len(list.Items) != 2 || list.Items[1].Name != "works" || list.Items[1].Sources[0] != "repo" {
			t.Fatalf("%s: the list is %+v", revision, list.Items)
		}
		id := "works-" + revision
		var d mcpStanding
		ask := members{"subagent": "works", "source": members{"name": "repo"}, "dispatchId": id, "env": []string{"colours"}, "input": members{"n": 1}}
		s.ok("bailiwick_dispatch", ask, &d)
		if !w.names(d.DispatchID, id) || d.Record != nil || d.Advice == "" {
			t.Errorf("%s: without waiting it returns %+v", revision, d)
		}
		ask["wait"] = 50
		s.ok("bailiwick_dispatch", ask, &d, members{"_meta": members{"progressToken": "p"}})
		if d.State != api.EventFinished || !d.Ended || d.Record == nil || string(d.Record.Principal) != w.me() || len(d.Record.Outcome.Outputs) != 4 {
			t.Fatalf("%s: repeated with a wait it returns %+v", revision, d)
		}
		if n := len(w.entries("--dispatch", id, "--kind", "dispatch.accepted")); n != 1 {
			t.Errorf("%s: it was accepted %d times", revision, n)
		}
		sameAsCommandLine(t, w, s, id)
		var c mcpStanding
		s.ok("bailiwick_dispatch", members{"subagent": "sleeps", "source": members{"name": "repo"}, "wait": 1}, &c, members{"_meta": members{"progressToken": 7}})
		if c.Ended || c.State != api.EventAccepted && c.State != api.EventStarted {
			t.Errorf("%s: the running dispatch is %+v", revision, c)
		}
		// The advice says how to keep waiting, and following it works.
		var on mcpStanding
		s.ok("bailiwick_dispatch", members{"subagent": "sleeps", "source": members{"name": "repo"}, "dispatchId": c.DispatchID, "wait": 1}, &on)
		if on.DispatchID != c.DispatchID || on.Ended || !strings.Contains(c.Advice, "repeat this call with dispatchId "+c.DispatchID+" and wait") {
			t.Errorf("%s: the advice is %q, following it returns %+v", revision, c.Advice, on)
		}
		if n := len(s.notes); n == 0 || s.notes[n-1].Method != "notifications/progress" || !strings.Contains(string(s.notes[n-1].Params), `"progressToken":7`) {
			t.Errorf("%s: the progress notifications are %+v", revision, s.notes)
		}
		s.ok("bailiwick_dispatch_cancel", members{"dispatchId": c.DispatchID, "reason": "enough"}, &c)
		w.must("dispatch", "logs", "-f", c.DispatchID) // until it has ended
		s.ok("bailiwick_dispatch_describe", members{"dispatchId": c.DispatchID}, &c)
		if c.State != api.EventCancelled {
			t.Errorf("%s: the cancelled dispatch is %+v", revision, c)
		}
	}
}

func sameAsCommandLine(t *testing.T, w *world, s *mcpSession, id string) {
	t.Helper()
	var patch, log []byte
	outputs := map[string][]byte{}
	if n := s.pages(id, "patch", func(d mcpStanding) { patch = append(patch, d.Patch.bytes(t)...) }); n < 2 {
		t.Errorf("the patch has %d page", n)
	}
	s.pages(id, "logs", func(d mcpStanding) { log = append(log, d.Log.bytes(t)...) })
	s.pages(id, "outputs", func(d mcpStanding) {
		for _, o := range d.Outputs {
			outputs[o.Path] = append(outputs[o.Path], o.bytes(t)...)
		}
	})
	if want := w.must("dispatch", "patch", id); string(patch) != want {
		t.Errorf("the patch has %d bytes, through the command line %d", len(patch), len(want))
	}
	if want := w.must("dispatch", "logs", id); string(log) != want {
		t.Errorf("the log has %d bytes, through the command line %d", len(log), len(want))
	}
	for name, want := range map[string]string{"raw.bin": "x\x00\xffy", "note.txt": "done", "empty": "", "long.txt": strings.Repeat("z", 60000)} {
		if got, ok := outputs[name]; !ok || string(got) != want {
			t.Errorf("the output %s is %.40q (%v), want %.40q", name, got, ok, want)
		}
	}
	must(t, os.WriteFile(w.path("p.patch"), patch, 0o644))
	w.git("repo", "apply", "--check", w.path("p.patch"))
}

// A question is answered by a dispatch that resumes it, and an answer to an
// earlier question never reaches a later one.
//
// proves R-D6
func TestAClientAnswersAQuestion(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, aClientAnswersAQuestion)
}

func aClientAnswersAQuestion(t *testing.T, uid int) {
	w := asking(t, uid)
	s := w.mcp(mcpNovember)
	var d mcpStanding
	s.ok("bailiwick_dispatch", members{"subagent": "asks", "source": members{"name": "repo"}, "wait": 50}, &d)
	if d.State != api.EventNeedsInput || !strings.Contains(d.Advice, "question") {
		t.Fatalf("its state is %+v", d)
	}
	s.ok("bailiwick_dispatch_describe", members{"dispatchId": d.DispatchID, "include": "question"}, &d)
	if d.Question == nil || len(d.Question.Options) != 2 || len(d.Question.Context) == 0 {
		t.Fatalf("it asks %+v", d.Question)
	}
	s.refused(api.CodeInvalid, []string{"answer"}, "bailiwick_dispatch", members{"resume": d.DispatchID})
	s.refused(api.CodeInvalid, []string{"resume"}, "bailiwick_dispatch", members{"answer": members{"text": "x"}})
	s.refused(api.CodeInvalid, []string{"target"}, "bailiwick_dispatch", members{"resume": d.DispatchID, "answer": members{"option": 2}, "target": "local"})
	s.refused(api.CodeConflict, nil, "bailiwick_dispatch", members{"resume": d.DispatchID, "answer": members{"option": 2, "attempt": 7}})
	s.ok("bailiwick_dispatch", members{"resume": d.DispatchID, "answer": members{"option": 2, "attempt": 1}, "wait": 50}, &d)
	if d.State != api.EventFinished || d.Attempt != 2 {
		t.Errorf("after the answer: %+v", d)
	}
	if log := w.must("audit", "list", "--dispatch", d.DispatchID); !strings.Contains(log, " (attempt 1)") {
		t.Errorf("the log is %s", log)
	}
}

// Without an orchestrator no plan can be submitted, which its tool says; the others
// read stored runs. They validate their arguments all the same.
func TestOrchestratorToolsExplainAMissingOrchestrator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo two > a.txt"})
	w.up()
	s := w.mcp(mcpJuly)
	s.refused(api.CodeNotConfigured, []string{"orchestrator", "bailiwick_dispatch"}, "bailiwick_orchestrator_submit", members{"plan": members{"tasks": []any{}}})
	s.refused(api.CodeNotFound, nil, "bailiwick_orchestrator_status", members{"runId": "r-1"})
	s.refused(api.CodeNotFound, nil, "bailiwick_orchestrator_watch", members{"runId": "r-1", "timeoutSeconds": 50})
	s.refused(api.CodeInvalid, []string{"plan"}, "bailiwick_orchestrator_submit", members{"plan": "x"})
	s.refused(api.CodeInvalid, []string{"timeoutSeconds"}, "bailiwick_orchestrator_watch", members{"runId": "r-1", "timeoutSeconds": 51})
}

// A list shows what its caller may use, as metadata: never a prompt, a file or
// a value. The control: the catalog contains all of them.
//
// takeover both modes, AI client; database; one operator key: no read a secret
//
// proves R-B6
func TestListsShowMetadataOfUsableArtifacts(t *testing.T) {
	t.Parallel()
	inEachMode(t, 0, listsShowMetadataOfUsableArtifacts)
}

func listsShowMetadataOfUsableArtifacts(t *testing.T, uid int) {
	w := newWorld(t, uid)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.init()
	w.write("project/capabilities/granted/run.sh", "#!/bin/sh\n# marker-file\n", 0o755)
	w.write("project/capabilities/hidden/run.sh", "#!/bin/sh\n", 0o755)
	w.write("project/system.md", "marker-system\n", 0o644)
	w.write("project/bailiwick.yaml", fmt.Sprintf(`version: 1
capabilities:
  - {name: granted, from: capabilities/granted, description: what is granted}
  - {name: hidden, from: capabilities/hidden, description: marker-hidden}
subagents:
  - name: seen
    description: does what it should
    agent: command
    command: [./run.sh, marker-argv]
    prompt: "marker-prompt {{.n}}"
    input: {type: object, properties: {n: {type: integer}}, required: [n]}
    output: {type: object, required: [total], properties: {total: {type: integer}}}
    role: transform
    tier: reversible
    capabilities: [granted]
    target: local
  - {name: higher, agent: command, command: [./run.sh], role: transform, tier: stateful, capabilities: [granted], target: local}
  - {name: notmine, description: marker-notmine, agent: command, command: [./run.sh], role: transform, tier: observe, capabilities: [granted], target: local}
envs:
  - {name: colours, description: colours for all, values: {COLOUR: marker-value}, secrets: {TOKEN: {secret: token, exposed: true}}}
  - {name: others, values: {A: b}}
secrets:
  - {name: token, ref: "file:marker-ref"}
sources:
  - {name: repo, repo: %s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
  - {name: looking, executor: jail, level: full, mode: readonly}
  - {name: elsewhere, executor: jail, level: full, mode: open}
roles: [transform, quality]
grants:
  - {principal: "%s", subagents: [seen, higher], envs: [colours], sources: [repo], targets: [local, looking], capabilities: [granted], ceiling: stateful}
  - {principal: "agent:other", subagents: [notmine], envs: [others], sources: [repo], targets: [elsewhere], capabilities: [hidden], ceiling: stateful}
`, w.path("repo"), w.me()), 0o644)
	w.must("catalog", "apply", "-f", w.path(manifest))
	// Times in the catalog have a resolution of a second.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	w.replace(manifest, "does what it should", "does what it shall")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	// The control: the catalog contains the markers that lists must not show.
	held := w.must("catalog", "show", "subagent/seen") + w.must("catalog", "show", "env/colours") + w.must("catalog", "show", "secret/token") + w.must("catalog", "show", "capability/hidden") + w.must("catalog", "list")
	for _, marker := range []string{"marker-prompt", "marker-argv", "marker-value", "marker-ref", "notmine", "hidden", "others"} {
		if !strings.Contains(held, marker) {
			t.Errorf("the control: the catalog lacks %s", marker)
		}
	}
	for _, revision := range mcpRevisions() {
		s := w.mcp(revision)
		var all strings.Builder
		list := func(name string) (items []api.Listing, advice string) {
			r := s.call(name, members{})
			all.Write(r.Value)
			all.WriteString(r.text())
			var v struct {
				Items  []api.Listing
				Advice string
			}
			decode(t, string(r.Value), &v)
			return v.Items, v.Advice
		}
		subagents, advice := list("bailiwick_subagents_list")
		capabilities, _ := list("bailiwick_capabilities_list")
		envs, _ := list("bailiwick_envs_list")
		if strings.Contains(all.String(), "marker-") || strings.Contains(all.String(), "elsewhere") || strings.Contains(all.String(), "notmine") || strings.Contains(all.String(), "run.sh") {
			t.Errorf("%s: the lists show %s", revision, all.String())
		}
		if len(subagents) != 1 || len(capabilities) != 1 || len(envs) != 1 || !strings.HasPrefix(advice, "1 more") {
			t.Fatalf("%s: the lists are %+v %+v %+v, and %q", revision, subagents, capabilities, envs, advice)
		}
		seen := subagents[0]
		if seen.Name != "seen" || seen.Kind != api.KindSubagent || seen.Role != "transform" || seen.Tier == nil || *seen.Tier != api.Reversible || seen.Target != "local" ||
			fmt.Sprint(seen.Targets, seen.Sources, seen.Envs, seen.Capabilities) != "[local] [repo] [colours] [granted]" || !json.Valid(seen.Input) || !strings.Contains(string(seen.Input), "integer") ||
			!strings.Contains(string(seen.Output), "total") {
			t.Errorf("%s: the subagent is %+v", revision, seen)
		}
		for _, item := range []api.Listing{seen, capabilities[0], envs[0]} {
			if item.Revision != 2 || item.Digest == "" || item.RegisteredAt.IsZero() || item.Description == "" {
				t.Errorf("%s: %+v lacks a member", revision, item)
			}
		}
		// The env is unchanged since revision 1, the subagent came with
		// revision 2.
		if !envs[0].RegisteredAt.Before(seen.RegisteredAt) {
			t.Errorf("%s: the env was registered at %s, the subagent at %s", revision, envs[0].RegisteredAt, seen.RegisteredAt)
		}
	}
}

// A long list comes in pages, each name once.
func TestLongListsArePaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	var many []subagent
	for i := range 120 {
		many = append(many, subagent{name: fmt.Sprintf("n%03d", i), script: "true"})
	}
	w.catalog(many...)
	w.up()
	s := w.mcp(mcpNovember)
	var got []string
	pages := 0
	for in := (members{}); ; pages++ {
		var v struct {
			Items []api.Listing
			Next  string
		}
		s.ok("bailiwick_subagents_list", in, &v)
		for _, item := range v.Items {
			got = append(got, string(item.Name))
		}
		if v.Next == "" {
			break
		}
		in["cursor"] = v.Next
	}
	if len(got) != 120 || got[0] != "n000" || got[119] != "n119" || pages < 2 {
		t.Errorf("%d names in %d pages", len(got), pages+1)
	}
	s.refused(api.CodeInvalid, []string{"cursor"}, "bailiwick_subagents_list", members{"cursor": "../../x"})
	s.refused(api.CodeInvalid, []string{"cursor"}, "bailiwick_dispatch_describe", members{"dispatchId": "d-1234", "cursor": "AAAA"})
}

// A log that is kept in part is shown with its gap, and a growing log always
// has a next page.
func TestLogsAreReadAsFarAsTheyAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(
		subagent{name: "talks", script: "for i in $(seq 1 40000); do echo \"line $i\"; done", more: "    limits: {log: 64KiB}\n"},
		subagent{name: "waits", script: "echo begun; sleep 300"},
	)
	w.up()
	s := w.mcp(mcpJuly)
	d := w.dispatch("talks", "--source", "repo")
	var log strings.Builder
	end, gaps := int64(0), 0
	s.pages(string(d.ID), "logs", func(m mcpStanding) {
		b := m.Log.bytes(t)
		if m.Log.Offset > end {
			gaps++
		}
		end = m.Log.Offset + int64(len(b))
		log.Write(b)
	})
	if want := w.must("dispatch", "logs", string(d.ID)); log.String() != want || gaps != 1 || end != d.Outcome.LogBytes {
		t.Errorf("it has %d bytes up to %d with %d gaps; through the command line %d up to %d", log.Len(), end, gaps, len(want), d.Outcome.LogBytes)
	}
	w.must("dispatch", "run", "waits", "--source", "repo", "--id", "long", "-d")
	in := members{"dispatchId": "long", "include": "logs"}
	var got strings.Builder
	for !strings.Contains(got.String(), "begun") {
		var m mcpStanding
		s.ok("bailiwick_dispatch_describe", in, &m)
		if m.Ended || m.Next == "" {
			t.Fatalf("the running dispatch is %+v", m)
		}
		got.Write(m.Log.bytes(t))
		in["cursor"] = m.Next
	}
	if got.String() != "begun\n" {
		t.Errorf("the log so far is %q", got.String())
	}
	w.must("dispatch", "cancel", "long")
}
