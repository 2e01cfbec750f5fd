package e2e

import (
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// Text from outside that decides, rather than being handed on, taints what runs because of
// it: by the result that a condition reads, the verdict of a gate and that of a quorum, and
// one task later. The dispatch names who decided, a person approves its call, and the
// evidence verifies. The control is the same run whose deciding task reads no such text.
//
// proves R-G6, R-A7
func TestTaintFollowsDecisionsOfRuns(t *testing.T) {
	t.Parallel()
	const tools = `  - {command: web, description: Reads a page., run: [cat], input: {type: object}, roles: [quality], tier: observe}
  - {command: change, description: Changes it., run: [cat], input: {type: object}, roles: [transform], tier: stateful, trust: trusted}`
	w := &callWorld{newWorld(t, 0)}
	must(t, os.Chmod(w.dir, 0o755))
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.coldInit()
	w.consent(w.me(), "irreversible")
	calls, _, _ := strings.Cut(postsCalls, "eval ")
	decides := func(verdict string) string {
		return `printf '{"verdict":"` + verdict + `","go":true}\n' > outputs/result.json`
	}
	const typed = "    output: {type: object}\n"
	w.manifest(
		subagent{name: "plain", role: "quality", script: "true"},
		subagent{name: "clean", role: "quality", script: calls + decides("approve"), more: typed},
		subagent{name: "reader", role: "quality", script: calls + "call web\n" + decides("approve"), more: typed},
		subagent{name: "green", role: "quality", script: calls + decides("green"), more: typed},
		subagent{name: "green-reader", role: "quality", script: calls + "call web\n" + decides("green"), more: typed},
		subagent{name: "changer", role: "transform", tier: "stateful", script: calls + "call change > outputs/answer"},
	)
	for _, c := range [][2]string{{"\nroles: [transform, quality]", "\nroles: [transform, quality]\ntools:\n" + tools}, {"ceiling: reversible}", "ceiling: irreversible}"}, {"mode: guarded}", "mode: open}"}} {
		w.replace(manifest, c[0], c[1])
	}
	w.approvedBy(w.me(), true, "transform")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()

	for name, c := range map[string]struct {
		tasks         string // with TAINTED where the deciding subagent is
		reads, clean  string // subagents there
		by            api.TaskID
		changer, more api.TaskID // what runs because of it
	}{
		"condition": {`{"id":"a","subagent":"TAINTED"},{"id":"b","subagent":"changer","when":{"task":"a","result":"$.go","is":true}}`, "reader", "clean", "a", "b", ""},
		"later":     {`{"id":"a","subagent":"TAINTED"},{"id":"m","subagent":"plain","when":{"task":"a","result":"$.go","is":true}},{"id":"b","subagent":"changer","depends_on":["m"]}`, "reader", "clean", "a", "b", "m"},
		"gate":      {`{"id":"a","subagent":"plain","gate":{"verify":"TAINTED","fix":"plain","attempts":1}},{"id":"b","subagent":"changer","depends_on":["a"]}`, "green-reader", "green", "a.gate1", "b", ""},
		"quorum":    {`{"id":"a","quorum":{"of":["clean","TAINTED"],"approve":2}},{"id":"b","subagent":"changer","depends_on":["a"]}`, "reader", "clean", "a.vote2", "b", ""},
	} {
		for _, tainted := range []bool{true, false} {
			id, decider := api.RunID(name+"-clean"), c.clean
			if tainted {
				id, decider = api.RunID(name), c.reads
			}
			var p api.Plan
			must(t, json.Unmarshal([]byte(`{"id":"`+string(id)+`","source":{"name":"repo"},"tasks":[`+strings.ReplaceAll(c.tasks, "TAINTED", decider)+`]}`), &p))
			w.submit(p)
			if tainted {
				a := w.awaitApproval()
				by := task(t, w.run(id), c.by).DispatchID
				if k := a.Action.Call.Taint; a.Action.Task != c.changer || k == nil || k.Dispatch != by || k.Tool != "web" {
					t.Errorf("%s: approved is %+v with %+v, want the taint of %s", name, a.Action.ActionHead, k, by)
				}
				wantIn(t, name, w.must("approval", "show", string(a.Action.ID)), "text from outside since call 1 of web in dispatch "+string(by))
				w.must("approval", "approve", string(a.Action.ID))
			}
			run := w.awaitSettled(id)
			if run.State != api.RunDone {
				t.Errorf("run %s is %s: %+v", id, run.State, run.Tasks)
			}
			w.verifyEvidence(string(id))
			signed := w.signedIn(string(id))
			said := `"decidedBy":"` + string(task(t, run, c.by).DispatchID) + `"`
			want := 0
			for _, runs := range []api.TaskID{c.changer, c.more} {
				if runs == "" {
					continue
				}
				if want++; (task(t, run, runs).Taint != nil) != tainted {
					t.Errorf("run %s: task %s has the taint %+v", id, runs, task(t, run, runs).Taint)
				}
			}
			if !tainted {
				want = 0
			}
			if n := strings.Count(signed, said); n != want || strings.Count(signed, `"decidedBy"`) != want {
				t.Errorf("run %s: %d manifests of its evidence have %s, want %d", id, n, said, want)
			}
		}
	}
}

// envelopePayload matches what an envelope signs.
var envelopePayload = regexp.MustCompile(`"payload":"([A-Za-z0-9+/=]+)"`)

// signedIn returns all that the exported evidence about a run has in envelopes.
func (w *world) signedIn(run string) string {
	w.t.Helper()
	bundle, err := os.ReadFile(w.path("tmp", run+".evidence"))
	must(w.t, err)
	var all strings.Builder
	for _, m := range envelopePayload.FindAllSubmatch(bundle, -1) {
		b, err := base64.StdEncoding.DecodeString(string(m[1]))
		must(w.t, err)
		all.Write(append(b, '\n'))
	}
	if !strings.Contains(all.String(), `"dispatchId"`) {
		w.t.Fatalf("the evidence about %s has no signed manifests", run)
	}
	return all.String()
}

// A tool that the model's provider runs, such as a web search, taints no dispatch, as
// decision 101 says: it is in the catalog, as a line that widens authority. The control is a
// dispatch that reads the same text by a tool of the gateway.
//
// proves R-G6
func TestToolsOfAModelTaintNothing(t *testing.T) {
	t.Parallel()
	const found = "Text from outside."
	model := &scriptmodel.Server{Script: scriptmodel.Say(found)}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	const tools = `  - {command: web, description: Reads a page., run: [echo, ` + found + `], input: {type: object}, roles: [transform], tier: observe}
  - {command: change, description: Changes it., run: [echo, changed], input: {type: object}, roles: [transform], tier: stateful, trust: trusted}`
	w := newCallWorld(t, 0, []string{"transform stateful"}, tools, "    model: searches/small\n")
	w.replace(manifest, "sources:\n", `models:
  - {name: searches, api: anthropic-messages, endpoint: "`+server.URL+`", levels: {small: tiny-1}, serverTools: [web_search_20250305]}
sources:
`)
	w.approvedBy(w.me(), true, "transform")
	wantIn(t, "catalog apply", w.try("catalog", "apply", "-f", w.path(manifest)).stderr, "! model/searches: agents can have the provider run web_search_20250305")
	w.upRuns()
	w.downAtEnd()
	t.Cleanup(func() { w.try("stop", "--all") }) // an agent that waits would outlive the service
	const search = `curl -sS -m 60 -H "x-api-key: $BAILIWICK_MODEL_KEY" -H 'anthropic-version: 2023-06-01' -H 'content-type: application/json' --data '{"model":"tiny-1","max_tokens":50,"tools":[{"type":"web_search_20250305","name":"web_search"}],"messages":[{"role":"user","content":"search"}]}' http://127.0.0.1:19514/model/searches/v1/messages > outputs/found
`
	d := w.do("transform", search+"call change > outputs/answer")
	wantIn(t, "what the model found", w.output(d, "found"), found)
	wantIn(t, "the answer", w.output(d, "answer"), "changed")
	if d = w.show(string(d.ID)); d.Taint != nil {
		t.Errorf("the dispatch is tainted: %+v", d.Taint)
	}
	w.submit(planned("control", shellTask("a", "call web; call change > outputs/answer", as("transform"))))
	a := w.awaitApproval()
	if k := a.Action.Call.Taint; k == nil || k.Tool != "web" {
		t.Errorf("the control: %+v", a.Action)
	}
	w.must("approval", "deny", string(a.Action.ID))
	w.awaitSettled("control")
}
