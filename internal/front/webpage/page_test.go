package webpage

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

const hostileText = "<script>alert(1)</script>\u202e"

// furnish has the service answer every call of the pages, with hostile text wherever
// text of others can be.
func (w *world) furnish() {
	w.t.Helper()
	at, seq := time.Now().Add(-time.Minute), uint64(7)
	tier, d := api.Observe, api.DigestOf(nil)
	question := &api.Question{Question: hostileText, Options: []string{"yes", hostileText}, Context: json.RawMessage(`{"a":"<script>"}`)}
	dispatch := api.Dispatch{
		ID: "d-one", State: api.EventNeedsInput, Attempt: 2, Statement: d, Principal: "local:ann", Run: "r-one", Task: "build", Subagent: "fixer", Role: "quality", Tier: tier, Target: "local",
		Manifest: d, AcceptedAt: at, EndedAt: &at, Message: hostileText, Question: question, Mode: "same-user",
		Outcome: &api.ResultSummary{Captured: true, Patch: &api.Artifact{Size: 9, Digest: d}, Files: []api.FileChange{{Path: "a", Change: "modified"}}, Text: hostileText, Outputs: []api.Artifact{{Path: "out/" + hostileText + ".html", Size: 9, Digest: d}}, LeftOut: []api.LeftOut{{Path: hostileText, Why: "x"}}, Value: json.RawMessage(`{"a":"<script>"}`)},
	}
	run := api.Run{
		RunID: "r-one", State: api.RunRunning, Queue: "q", Principal: "local:ann", Plan: d, SubmittedAt: at, Total: 2, Counts: map[api.TaskState]int{api.TaskDone: 1},
		Approvals: []api.OpenApproval{{ID: "a-aaaaaaaaaaaa", Task: "build", Tool: hostileText, Expires: at}},
		Tasks:     []api.RunTask{{Task: "build", State: api.TaskWaiting, Subagent: "fixer", DispatchID: "d-one", Message: hostileText, StartedAt: &at}},
	}
	budget := api.BudgetStatus{Grant: "g", Principal: "local:ann", Period: "2026-11-23", Budget: api.Budget{Dispatches: 5}}
	action := api.ToolAction{V: 1, ID: "a-aaaaaaaaaaaa", Tool: "warehouse/drop", Arguments: json.RawMessage(`{"q":"<script>"}`), Definition: d, Tier: tier, Dispatch: "d-one", Subagent: "fixer", Role: "quality", Target: "local", Principal: "local:ann", Revision: d, Needs: 1, Expires: at}.Action()
	widening := api.RevisionChanges{
		CatalogRevision: api.CatalogRevision{Number: 2, Digest: d, CreatedAt: at, Author: hostileText, Reason: hostileText, Artifacts: 3}, Keys: []string{hostileText}, Current: 2,
		CatalogDiff: api.CatalogDiff{
			Changes: []api.ArtifactChange{
				{Op: api.OpChange, Ref: "subagent/fixer", Fields: []api.FieldChange{
					{Op: api.OpChange, Field: "command", Old: hostileText, New: hostileText + "2"},
					{Op: api.OpAdd, Field: hostileText, New: hostileText},
					{Op: api.OpRemove, Field: "model", Old: hostileText},
					{Op: api.OpChange, Field: "system", Old: "same\nold\nend\n", New: "same\n" + hostileText + "\nend\n"},
				}},
				{Op: api.OpAdd, Ref: "env/new", Fields: []api.FieldChange{{Op: api.OpAdd, Field: "values.A", New: hostileText}}},
				{Op: api.OpRemove, Ref: "role/gone", Fields: []api.FieldChange{{Op: api.OpRemove, Field: "description", Old: hostileText}}},
			},
			Widens:  []api.AuthorityChange{{Ref: "subagent/fixer", What: hostileText}, {Ref: "tool/elsewhere", What: "runs changed files of capability x"}},
			Narrows: []api.AuthorityChange{{Ref: "role/gone", What: hostileText}},
		},
	}
	decision := api.Decision{
		OperatorReceipt: api.OperatorReceipt{Number: 1, AuditEntry: seq}, Record: api.OperatorRecord{Verb: api.VerbApprove, Reason: hostileText}, Payload: []byte(`{"reason":"` + hostileText + `"}`), Digest: d, Text: hostileText,
		Signatures: []api.DecisionSignature{{Key: "k", Name: hostileText, Assertion: &api.Assertion{ClientDataJSON: []byte(hostileText)}}, {Key: "f"}},
	}
	line := func(seq uint64) string {
		b, err := json.Marshal(api.LogLine{Seq: seq, Text: hostileText, Leaf: []byte(`{"kind":"task.done","run":"r-one","dispatch":"d-one"}`)})
		if err != nil {
			w.t.Fatal(err)
		}
		return string(b) + "\n"
	}
	lines := func(list ...any) string {
		var b strings.Builder
		for _, v := range list {
			text, err := json.Marshal(v)
			if err != nil {
				w.t.Fatal(err)
			}
			b.Write(append(text, '\n'))
		}
		return b.String()
	}
	artifacts := func(kind api.Kind) api.ArtifactPage {
		return api.ArtifactPage{Items: []api.ArtifactInfo{{Listing: api.Listing{Name: "one", Kind: kind, Description: hostileText, Digest: d, Tier: &tier}, Repo: hostileText}}}
	}
	for call, answer := range map[string]any{
		runList: []api.Run{run}, "GET /v1/runtime/dispatches": []api.Dispatch{dispatch, {ID: "d-two", State: api.EventFailed, Reason: api.ReasonVerify, Subagent: "fixer", Principal: "local:ann", Role: "quality", Target: "local", Manifest: d, AcceptedAt: at}}, "GET /v1/runtime/runs/r-one": run, "GET /v1/runtime/budgets": []api.BudgetStatus{budget},
		"GET /v1/runtime/waiting": []api.Waiting{
			{Kind: api.WaitingQuestion, Since: at, Principal: "local:ann", RunID: "r-one", Task: "build", DispatchID: "d-one", Attempt: 2, Text: hostileText},
			{Kind: api.WaitingApproval, Since: at, Principal: "local:ann", RunID: "r-one", Task: "build", DispatchID: "d-one", Approval: "a-aaaaaaaaaaaa", Tool: hostileText},
			{Kind: api.WaitingFailed, Since: at, Principal: "local:ann", RunID: "r-one", Counts: map[api.TaskState]int{api.TaskFailed: 1}},
		},
		"GET /v1/runtime/approvals/a-aaaaaaaaaaaa":   api.ApprovalView{Approval: api.Approval{Action: action, Digest: d, State: api.ApprovalOpen, RequestedAt: at, Words: hostileText}, WhyNot: hostileText},
		"GET /v1/runtime/dispatches/d-one":           dispatch,
		"GET /v1/runtime/dispatches/d-two":           dispatch,
		"GET /v1/runtime/dispatches/d-one/tools":     lines(api.ToolCallLine{Attempt: 2, Number: 1, At: at, Tool: hostileText, Tier: tier, Decision: "deny", Reasons: []string{hostileText}, State: "denied", Entry: seq, Arguments: json.RawMessage(`{"a":"<script>"}`)}),
		"GET /v1/runtime/dispatches/d-one/network":   lines(api.NetworkLine{Number: 1, At: at, Form: "connect", Host: hostileText, Path: hostileText, Refused: hostileText}),
		"GET /v1/runtime/dispatches/d-one/statement": `{"payload":"` + base64.StdEncoding.EncodeToString([]byte(`{"a":"<script>"}`)) + `","signatures":[{"keyid":"k"}]}`,
		"GET /v1/runtime/dispatches/d-one/output":    hostileText,
		"GET /v1/runtime/catalog/roles/one/tools":    api.RoleTools{Role: "one", Tools: []api.RoleTool{{Tool: hostileText, Tier: tier, Definition: d}}},
		"GET /v1/runtime/who":                        api.Who{Principal: "local:ann", Auth: api.AuthAccount, Operator: true},
		"GET /v1/operator/status":                    api.ServiceStatus{Ready: true, Anchors: []api.AnchorStatus{{Name: "a", Kind: "file", Error: hostileText, Entries: 9}}, CatalogError: hostileText, RevisionID: d},
		"GET /v1/operator/grants":                    artifacts(api.KindGrant).Items,
		"GET /v1/operator/revisions":                 []api.CatalogRevision{{Number: 2, Digest: d, CreatedAt: at, Author: hostileText, Reason: hostileText, Artifacts: 3}, {Number: 1, Digest: d, CreatedAt: at}},
		"GET /v1/operator/revisions/1":               api.RevisionChanges{CatalogRevision: api.CatalogRevision{Number: 1, Digest: d, CreatedAt: at}, Current: 2},
		"GET /v1/operator/revisions/2":               widening,
		"GET /v1/operator/principals":                []api.PrincipalInfo{{Principal: "agent:claude", Grants: []api.Name{"one"}}},
		"GET /v1/operator/tokens":                    []api.TokenInfo{{ID: "t-aaaaaaaaaaaa", Principal: "agent:claude", State: api.TokenActive, CreatedAt: at, ExpiresAt: at}},
		"GET /v1/operator/stops":                     []api.Stop{{ID: "s-1", Scope: api.StopAll, Reason: hostileText, By: "local:ann", At: at}},
		"GET /v1/operator/schedules":                 []api.ScheduleInfo{{Schedule: api.Schedule{Name: "nightly", Principal: "ci:main"}, Digest: d, Error: hostileText}},
		"GET /v1/operator/schedules/nightly":         api.ScheduleInfo{Schedule: api.Schedule{Name: "nightly", Principal: "ci:main"}, Digest: d, Next: []time.Time{at}},
		"GET /v1/operator/schedules/nightly/slots":   []api.Slot{{Schedule: "nightly", Slot: at, State: api.SlotSkipped, Message: hostileText, At: at}},
		"GET /v1/operator/keys":                      api.OperatorKeys{Set: 2, Digest: d, Threshold: 1, Keys: []api.OperatorKey{{ID: "k", Name: hostileText, Added: &api.OperatorKeyChange{Set: 2, Decision: 2}}}},
		"GET /v1/operator/records/head":              api.OperatorHead{Number: 2},
		"GET /v1/operator/records/1":                 decision,
		"GET /v1/operator/records/2":                 decision,
		"GET /v1/operator/log":                       line(7),
		"GET /v1/runtime/dispatches/d-one/log":       lines(api.Chunk{Data: []byte(hostileText + "\n")}, api.Chunk{Offset: int64(len(hostileText)) + 1, Ended: true}),
		"GET /v1/runtime/dispatches/d-one/patch":     "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+" + hostileText + "\n",
		"GET /v1/operator/log/proof":                 "c2sp.org/tlog-proof@v1\n",
		"GET /v1/runtime/catalog/artifacts/subagent": artifacts(api.KindSubagent), "GET /v1/runtime/catalog/artifacts/capability": artifacts(api.KindCapability),
		"GET /v1/runtime/catalog/artifacts/env": artifacts(api.KindEnv), "GET /v1/runtime/catalog/artifacts/model": artifacts(api.KindModel),
		"GET /v1/runtime/catalog/artifacts/source": artifacts(api.KindSource), "GET /v1/runtime/catalog/artifacts/target": artifacts(api.KindTarget),
		"GET /v1/runtime/catalog/artifacts/role": artifacts(api.KindRole),
	} {
		w.service.answer(call, answer)
	}
}

// Every page shows what the service answers as text, needs no inline script or style,
// and links only to pages that exist.
func TestEveryPageIsTextAndItsLinksLead(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Steer = true })
	w.furnish()
	links := regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	seen, todo := map[string]bool{}, []string{
		"/", "/inbox", "/runs", "/schedules", "/budgets", "/log", "/catalog", "/who", "/log/7", "/search?q=one", "/search?q=%237", "/search?q=agent:claude", "/search?q=warehouse/*",
		"/dispatches/d-one/tools?number=1", "/dispatches/d-one/network?refused=true", "/log?run=r-one&since=7d",
	}
	for len(todo) > 0 {
		path := todo[0]
		if todo = todo[1:]; seen[path] {
			continue
		}
		seen[path] = true
		got := w.want(path, sent{path: path}, 200)
		if got.header.Get("Content-Type") != "text/html; charset=utf-8" {
			continue
		}
		for _, bad := range []string{"<script>", "alert(1)</", "\u202e", " style=", " onclick", "<style", "ZgotmplZ"} {
			if strings.Contains(got.body, bad) {
				t.Errorf("%s contains %q", path, bad)
			}
		}
		if strings.Contains(got.body, `role="note"`) {
			t.Errorf("%s: a part cannot be read: %.3000s", path, got.body)
		}
		for _, m := range links.FindAllStringSubmatch(got.body, -1) {
			link := strings.ReplaceAll(m[1], "&amp;", "&")
			to, err := url.Parse(link)
			if err != nil || to.Host != "" {
				t.Errorf("%s: link %q", path, link)
				continue
			}
			base, err := url.Parse(path)
			if err != nil {
				t.Fatal(err)
			}
			if to = base.ResolveReference(to); strings.Contains(m[0], "action") && to.Path != "/search" && to.Path != "/runs" && to.Path != "/dispatches" && to.Path != "/log" {
				if _, pattern := w.muxOf(t).Handler(&http.Request{Method: "POST", URL: to, Host: w.url.Host}); pattern == "/" {
					t.Errorf("%s: no such form as %s", path, to)
				}
				continue
			}
			to.Fragment = ""
			if len(seen) < 200 {
				todo = append(todo, to.RequestURI())
			}
		}
	}
	for _, page := range []string{"/dispatches", "/runs/r-one", "/catalog/1", "/catalog/2", "/dispatches/d-one", "/dispatches/d-one/statement", "/static/live.js"} {
		if !seen[page] {
			t.Errorf("nothing links to %s", page)
		}
	}
}

// The page of a revision says in words what widens authority, and at which artifact; what
// it omits it counts.
//
// proves R-B5
func TestThePageOfARevisionNamesWhatWidens(t *testing.T) {
	w := newWorld(t, nil)
	w.furnish()
	words := func(name, body string, want ...string) {
		t.Helper()
		text := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, " ")), " ")
		text = html.UnescapeString(text)
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("%s does not say %q: %s", name, part, text)
			}
		}
	}
	page := w.want("revision 2", sent{path: "/catalog/2"}, 200, `<a rel="prev" href="/catalog/1">`, `<a href="#change-1"><code>subagent/fixer</code></a>`).body
	words("revision 2", page, "State in force", "Widens authority: 2", "Widens subagent/fixer : <script>alert(1)</script>U+202E", "Widens tool/elsewhere : runs changed files of capability x", "Takes authority away: 1", "Takes away role/gone :",
		"~ changed subagent/fixer widens authority", "− removed role/gone takes authority away", "+ added env/new", "~ changed; lines that have not changed: 1 before, 1 after old <script>", "bailiwick catalog diff 1 2")
	if strings.Contains(page, `rel="next"`) || strings.Contains(page, "too large") {
		t.Errorf("revision 2: %s", page)
	}
	words("revision 1", w.want("revision 1", sent{path: "/catalog/1"}, 200, `<a rel="next" href="/catalog/2">`).body, "replaced; revision 2 is in force", "No line widens authority.", "No artifact differs.")
	w.want("the entry of a revision", sent{path: "/log/7"}, 200)
	w.service.answer("GET /v1/operator/log", `{"seq":7,"leaf":"`+base64.StdEncoding.EncodeToString([]byte(`{"kind":"catalog.revision","detail":{"number":2}}`))+`"}`)
	w.want("the entry of a revision", sent{path: "/log/7"}, 200, `<a href="/catalog/2">What revision 2 changed</a>`)
	w.service.answer("GET /v1/operator/revisions/2", api.RevisionChanges{
		CatalogRevision: api.CatalogRevision{Number: 2, Digest: api.DigestOf(nil)}, Current: 3, CatalogDiff: api.CatalogDiff{Widens: []api.AuthorityChange{{Ref: "env/a", What: "x"}}}, Omitted: &api.DiffOmitted{Changes: 1, Fields: 2, Widens: 3, Texts: 4, Bytes: 5},
	})
	words("a large revision", w.want("a large revision", sent{path: "/catalog/2"}, 200).body, "Widens authority: 1, and 3 more", "0 artifacts, and 1 more", "Omitted: 3 lines that widen authority, 1 artifact, 2 fields, the ends of 4 texts. All of it: bailiwick catalog diff 1 2")
	w.service.answer("GET /v1/operator/revisions/2", api.RevisionChanges{CatalogRevision: api.CatalogRevision{Number: 2, Digest: api.DigestOf(nil)}, Current: 2, CatalogDiff: api.CatalogDiff{Changes: []api.ArtifactChange{{Op: api.OpChange, Ref: "capability/x", Fields: []api.FieldChange{
		{Op: api.OpChange, Field: "files/check.sh", Old: "0755 1 bytes", New: "0755 2 bytes", Text: "@@ -1,1 +1,1 @@\n-für\n+<script>\u202e\r\n"}, {Op: api.OpChange, Field: "files/tool", Unshown: "it is binary"},
	}}}}})
	words("a changed program", w.want("a changed program", sent{path: "/catalog/2"}, 200).body, "files/check.sh @@ -1,1 +1,1 @@ -für +<script>U+202EU+000D", "files/tool Not shown: it is binary.")
	if got := pretty(json.RawMessage(`{"a":"M\u00fcller \u003c 5\u202e"}`)); got != "{\n  \"a\": \"Müller < 5\\u202e\"\n}" {
		t.Errorf("%s", got)
	}
	w.service.answer("GET /v1/operator/revisions/2", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(http.StatusBadGateway)
		_ = json.NewEncoder(rw).Encode(&api.Error{Code: api.CodeIntegrity, Message: "revision 1: env/plain does not verify"})
	}))
	w.want("a revision that does not verify", sent{path: "/catalog/2"}, api.Table()[api.CodeIntegrity].HTTP, "revision 1: env/plain does not verify")
	w.service.calls("")
	for _, path := range []string{"/catalog/0", "/catalog/x", "/catalog/-1", "/catalog?before=x"} {
		w.want(path, sent{path: path}, 400)
	}
	if got := w.service.calls("/revisions"); got != nil {
		t.Errorf("%q", got)
	}
}

// muxOf is the routes of a page that steers.
func (w *world) muxOf(t *testing.T) *http.ServeMux {
	t.Helper()
	s, err := newSite(Config{Now: time.Now, Steer: true})
	if err != nil {
		t.Fatal(err)
	}
	return s.mux
}

func TestOutputsAreAttachments(t *testing.T) {
	w := newWorld(t, nil)
	w.furnish()
	path := "/dispatches/d-one/output?path=" + url.QueryEscape("out/"+hostileText+".html")
	got := w.want("an output", sent{path: path}, 200, hostileText)
	if h := got.header; h.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox;") ||
		h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Disposition") != `attachment; filename="script__.html"` {
		t.Errorf("%v", h)
	}
	w.service.calls("")
	w.want("a path that it does not have", sent{path: "/dispatches/d-one/output?path=../../etc/passwd"}, 404)
	if got := w.service.calls("/output"); got != nil {
		t.Errorf("%q", got)
	}
	w.service.answer("GET /v1/runtime/dispatches/d-one/output", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "a part")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	}))
	if got := w.send(sent{path: path, header: []string{"Connection: close"}}); strings.HasSuffix(got.body, "a part") && got.status == 200 {
		t.Error("a part of an output is taken for the whole")
	}
	for name, want := range map[string]string{"": "output", "..": "output", ".bashrc": "bashrc", "a b\"\r\n.exe": "a_b___.exe", strings.Repeat("a", 300): strings.Repeat("a", 100), "\u202egpj.exe": "_gpj.exe"} {
		if got := fileName(name); got != want {
			t.Errorf("%q is saved as %q, want %q", name, got, want)
		}
	}
}

// The filters of the page are those of audit list, by the same names.
func TestTheLogHasTheFiltersOfAuditList(t *testing.T) {
	w := newWorld(t, nil)
	w.furnish()
	for query, want := range map[string]string{
		"":                                    "follow=false&last=100",
		"after=5":                             "after=5&first=100&follow=false",
		"before=5&last=3":                     "before=5&follow=false&last=3",
		"first=2":                             "first=2&follow=false",
		"principal=agent:a&decision=deny":     "decision=deny&follow=false&last=100&principal=agent%3Aa",
		"run=r-one&task=build&dispatch=d-one": "dispatch=d-one&follow=false&last=100&run=r-one&task=build",
		"role=r&tool=w/*&kind=a&kind=b":       "follow=false&kind=a&kind=b&last=100&role=r&tool=w%2F%2A",
		"since=2026-11-20&until=2026-11-20":   "follow=false&last=100&since=2026-11-20T00%3A00%3A00Z&until=2026-11-21T00%3A00%3A00Z",
		"run=&kind=&x=1":                      "follow=false&last=100",
	} {
		w.service.calls("")
		w.want(query, sent{path: "/log?" + query}, 200)
		if got := w.service.calls("/operator/log"); len(got) != 1 || got[0] != "GET /v1/operator/log?"+want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"after=x", "first=1&last=1", "last=1001", "run=A", "task=A!", "dispatch=-", "role=R", "tool=a%20b", "principal=x", "decision=maybe", "since=soon", "until=-1h"} {
		w.want(query, sent{path: "/log?" + query}, 400)
	}
}

// steerForms are the forms with a call of the service for each.
func steerForms() map[string]struct {
	form url.Values
	call string
} {
	return map[string]struct {
		form url.Values
		call string
	}{
		"/runs/r-one/cancel":       {url.Values{"reason": {"x"}, "task": {"build"}}, `POST /v1/operator/runs/r-one/cancel {"task":"build","reason":"x"}`},
		"/runs/r-one/pause":        {nil, `POST /v1/operator/runs/r-one/pause`},
		"/runs/r-one/resume":       {nil, `POST /v1/operator/runs/r-one/resume`},
		"/runs/r-one/retry":        {url.Values{"key": {"k"}}, `POST /v1/operator/runs/r-one/retry {"key":"k"}`},
		"/runs/r-one/answer":       {url.Values{"task": {"build"}, "dispatch": {"d-one"}, "attempt": {"2"}, "option": {"1"}}, `POST /v1/operator/runs/r-one/answer {"task":"build","dispatchId":"d-one","option":1,"attempt":2}`},
		"/dispatches/d-one/cancel": {url.Values{"reason": {"x"}, "injected": {"y"}}, `POST /v1/runtime/dispatches/d-one/cancel {"reason":"x"}`},
		"/dispatches/d-one/answer": {url.Values{"text": {"yes"}, "attempt": {"2"}}, `POST /v1/runtime/dispatches/d-one/answer {"text":"yes","attempt":2}`},
	}
}

func TestFormsExistOnlyWithSteer(t *testing.T) {
	for _, steer := range []bool{false, true} {
		w := newWorld(t, func(c *Config) { c.Steer = steer })
		w.furnish()
		for path, f := range steerForms() {
			call, _, _ := strings.Cut(f.call, " {")
			w.service.answer(call, map[string]any{})
			switch call {
			case "POST /v1/operator/runs/r-one/retry":
				w.service.answer(call, api.Run{RunID: "r-two", Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil)})
			case "POST /v1/operator/runs/r-one/cancel", "POST /v1/operator/runs/r-one/pause", "POST /v1/operator/runs/r-one/resume", "POST /v1/operator/runs/r-one/answer":
				w.service.answer(call, api.Run{RunID: "r-one", Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil)})
			default:
				w.service.answer(call, api.Dispatch{ID: "d-one", Principal: "local:ann", Subagent: "a", Role: "r", Target: "t", Manifest: api.DigestOf(nil)})
			}
			w.service.calls("")
			got := w.send(sent{method: "POST", path: path, form: f.form})
			calls := w.service.calls("POST ")
			if !steer {
				if got.status != 404 && got.status != 405 || calls != nil {
					t.Errorf("%s without --steer: %d, %q", path, got.status, calls)
				}
				continue
			}
			if got.status != 303 || len(calls) == 0 || !strings.HasPrefix(calls[0], f.call) {
				t.Errorf("%s: %d %s, %q, want %q", path, got.status, got.body, calls, f.call)
			}
		}
		if page := w.want("inbox", sent{path: "/inbox"}, 200).body; strings.Contains(page, "/answer") != steer {
			t.Errorf("the inbox has a form to answer: %v, want %v", !steer, steer)
		}
	}
}

// A session of the page never decides: it has no form for it, with or without Steer.
func TestNoFormDecides(t *testing.T) {
	s, err := newSite(Config{Now: time.Now, Steer: true})
	if err != nil {
		t.Fatal(err)
	}
	var posts []string
	for _, rt := range s.routes() {
		if method, path, _ := strings.Cut(rt.pattern, " "); method != "GET" {
			posts = append(posts, path)
		}
	}
	slices.Sort(posts)
	want := []string{"/dispatches/{id}/answer", "/dispatches/{id}/cancel", "/login", "/logout", "/runs/{id}/answer", "/runs/{id}/cancel", "/runs/{id}/pause", "/runs/{id}/resume", "/runs/{id}/retry"}
	if !slices.Equal(posts, want) {
		t.Errorf("the forms are %q, want %q", posts, want)
	}
}

// An answer on an old page must not reach another question.
func TestAnAnswerNamesItsQuestion(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Steer = true })
	w.furnish()
	w.service.calls("")
	w.want("no attempt", sent{method: "POST", path: "/dispatches/d-one/answer", form: url.Values{"text": {"yes"}}}, 400, "attempt")
	w.want("a wrong number", sent{method: "POST", path: "/runs/r-one/answer", form: url.Values{"task": {"build"}, "attempt": {"2"}, "option": {"x"}}}, 400, "option")
	w.want("too much", sent{method: "POST", path: "/dispatches/d-one/answer", form: url.Values{"text": {strings.Repeat("a", maxForm)}, "attempt": {"2"}}}, 400)
	if got := w.service.calls("POST"); got != nil {
		t.Errorf("%q", got)
	}
}

func TestEventsFollowTheLog(t *testing.T) {
	w := newWorld(t, nil)
	w.furnish()
	hostile, err := json.Marshal(api.LogLine{Seq: 8, Leaf: []byte(`{"kind":"task.done","run":"r\n\ndata: forged","dispatch":"d"}`)})
	if err != nil {
		t.Fatal(err)
	}
	w.service.answer("GET /v1/operator/log", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("follow") == "false" {
			_, _ = fmt.Fprintln(rw, `{"seq":7,"leaf":"e30="}`)
			return
		}
		_, _ = rw.Write(append(hostile, '\n'))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}))
	read := func(path string, header ...string) (text string) {
		c, err := net.Dial("tcp", w.url.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, w.text(sent{path: path, header: header})); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("%v", resp.Header)
		}
		lines := bufio.NewReader(resp.Body)
		for !strings.Contains(text, "\nid: ") || !strings.HasSuffix(text, "\n\n") {
			line, err := lines.ReadString('\n')
			if text += line; err != nil {
				t.Fatal(text, err)
			}
		}
		_ = c.Close() // closing the body would wait for its end
		return text
	}
	const want = "event: newest\ndata: 7\n\nid: 8\ndata: {\"kind\":\"task.done\",\"run\":\"r\\n\\ndata: forged\",\"dispatch\":\"d\"}\n\n"
	for after, got := range map[string]string{"7": read("/events"), "3": read("/events?after=3"), "5": read("/events?after=3", "Last-Event-ID: 5"), "99": read("/events?after=99")} {
		if got != want {
			t.Errorf("after %s: %q", after, got)
		}
	}
	var asked []string
	for _, call := range w.service.calls("follow=true") {
		u, _ := url.Parse(strings.Fields(call)[1])
		asked = append(asked, u.Query().Get("after"))
	}
	if slices.Sort(asked); !slices.Equal(asked, []string{"3", "5", "7", "7"}) {
		t.Errorf("followed after %q", asked)
	}
	w.want("no number", sent{path: "/events?after=x"}, 400)
	if err := w.stop(); err != nil { // streams must not hold up the end
		t.Error(err)
	}
}

// A form of a page is one retry, however often it is sent. A form without a key retries nothing.
func TestARepeatedFormIsOneRetry(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Steer = true })
	w.furnish()
	settled := api.Run{RunID: "r-one", State: api.RunFailed, Queue: "q", Principal: "local:ann", Plan: api.DigestOf(nil), SubmittedAt: time.Now()}
	w.service.answer("GET /v1/runtime/runs/r-one", settled)
	keys := regexp.MustCompile(`name="key" value="([^"]+)"`)
	key := func() string {
		m := keys.FindStringSubmatch(w.want("the run", sent{path: "/runs/r-one"}, 200).body)
		if m == nil {
			t.Fatal("the form has no key")
		}
		return m[1]
	}
	if one, other := key(), key(); one == other || len(one) < 20 {
		t.Errorf("two forms have the keys %q and %q", one, other)
	}
	w.service.calls("")
	w.want("no key", sent{method: "POST", path: "/runs/r-one/retry"}, 400, "key of the form")
	if calls := w.service.calls("POST "); calls != nil {
		t.Errorf("without a key: %q", calls)
	}
}

// The first page lists failed dispatches that belong to no run. A dispatch of a run is in
// the run's row.
func TestTheFirstPageListsDispatchesOutsideRuns(t *testing.T) {
	w := newWorld(t, nil)
	w.furnish()
	w.service.answer(runList, []api.Run{})
	body := w.want("the first page", sent{path: "/"}, 200, `data-dispatch="d-two"`).body
	if strings.Contains(body, `data-dispatch="d-one"`) || strings.Contains(body, "failed.</p>") {
		t.Errorf("%s", body)
	}
	w.service.answer("GET /v1/runtime/dispatches", []api.Dispatch{}) // the control
	w.want("nothing", sent{path: "/"}, 200, "No run and no dispatch failed.")
}
