package record

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

func digestOf(s string) api.Digest { return api.DigestOf([]byte(s)) }

// endedDispatch is a dispatch of a task that finished in its second attempt.
func endedDispatch() (d api.Dispatch, earlier []api.Dispatch, m Manifest, r Result) {
	began, end := time.Unix(1000, 5).UTC(), time.Unix(1010, 0).UTC()
	m = Manifest{
		V: 1, ID: "d-1234", Attempt: 2, Principal: "local:ann", Policies: []string{"grant:ann"}, Revision: 4, RevisionDigest: digestOf("revision"),
		Artifacts: []Pin{{Ref: "subagent/edit", Digest: digestOf("edit")}, {Ref: "role/transform", Digest: digestOf("role")}},
		Subagent:  "edit", Agent: "command", Role: "transform", Target: "local", Level: "full", Limits: api.DefaultLimits(), Egress: []string{}, Input: digestOf("input"),
		Source: &api.PinnedSource{Name: "service", Commit: strings.Repeat("1f", 20)},
		Resume: &Resume{Attempt: 1, Answer: digestOf("answer"), Patch: digestOf("patch so far")},
		Run:    "r-1", Task: "t-1", Fence: 3,
		Needs: []Need{{Name: "a", Task: "up", Dispatch: "d-upup", Kind: NeedOutput, Path: "x", Digest: digestOf("need"), Size: 4}},
	}
	sum := api.ResultSummary{
		Captured: true, Patch: &api.Artifact{Digest: digestOf("patch"), Size: 5}, Outputs: []api.Artifact{{Path: "a/b.txt", Digest: digestOf("out"), Size: 3}, {Path: "patch", Digest: digestOf("out"), Size: 3}},
		Verify: &api.VerifyReport{Passed: true}, Isolation: api.Isolation{Level: "full", Layers: []string{"user"}}, Log: []api.LogPart{{Digest: digestOf("log"), Size: 3}},
	}
	d = api.Dispatch{
		ID: m.ID, State: api.EventFinished, Attempt: 2, Principal: m.Principal, Manifest: digestOf("manifest"), Result: digestOf("result"),
		AcceptedAt: began, StartedAt: &began, EndedAt: &end, Outcome: &sum, Mode: "same-user",
	}
	r = Result{V: 1, ID: m.ID, Attempt: 2, Fence: 3, Manifest: d.Manifest, Outcome: api.EventFinished, Summary: sum}
	return d, []api.Dispatch{{Attempt: 1, Manifest: digestOf("manifest 1"), Result: digestOf("result 1")}}, m, r
}

func sampleStatement(t testing.TB) Statement {
	t.Helper()
	d, earlier, m, _ := endedDispatch()
	s, err := NewStatement(ServiceIdentity{ID: "ed25519:00", Version: "1"}, &d, earlier, &m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func findResource(list []Resource, name string) *Resource {
	if i := slices.IndexFunc(list, func(r Resource) bool { return r.Name == name }); i >= 0 {
		return &list[i]
	}
	return &Resource{}
}

// proves R-A8
func TestStatementNamesSubjectsAndDependencies(t *testing.T) {
	s := sampleStatement(t)
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Name   string            `json:"name"`
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		Predicate struct {
			BuildDefinition struct {
				BuildType string `json:"buildType"`
			} `json:"buildDefinition"`
			RunDetails struct {
				Builder  struct{ ID string }
				Metadata struct{ InvocationID, StartedOn, FinishedOn string }
			} `json:"runDetails"`
		} `json:"predicate"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	meta := doc.Predicate.RunDetails.Metadata
	if doc.Type != "https://in-toto.io/Statement/v1" || doc.PredicateType != "https://slsa.dev/provenance/v1" || len(doc.Subject) != 3 ||
		doc.Subject[0].Name != "patch" || doc.Subject[0].Digest["sha256"] != digestOf("patch").Hex() || doc.Subject[1].Name != "outputs/a/b.txt" || doc.Subject[2].Name != "outputs/patch" ||
		doc.Predicate.RunDetails.Builder.ID != "https://bailiwick.dev/service/ed25519:00" ||
		meta.InvocationID != "https://bailiwick.dev/service/ed25519:00/dispatch/d-1234/2" || meta.StartedOn != "1970-01-01T00:16:40.000000005Z" || meta.FinishedOn != "1970-01-01T00:16:50Z" {
		t.Errorf("%s", b)
	}
	deps := s.Predicate.BuildDefinition.ResolvedDependencies
	for name, want := range map[string]api.Digest{
		"manifest": digestOf("manifest"), "revision": digestOf("revision"), "subagent/edit": digestOf("edit"), "role/transform": digestOf("role"), "input": digestOf("input"),
		"resume/answer": digestOf("answer"), "resume/patch": digestOf("patch so far"), "inputs/a": digestOf("need"),
	} {
		if got, err := findResource(deps, name).SHA256(); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if got := findResource(deps, "source"); got.Digest["gitCommit"] != strings.Repeat("1f", 20) || got.URI != "bailiwick:source/service" {
		t.Errorf("%+v", got)
	}
	if got := findResource(deps, "inputs/a").Annotations; got["dispatch"] != "d-upup" || got["path"] != "x" {
		t.Errorf("%v", got)
	}
	if o := s.Predicate.Dispatch; o.Outcome != api.EventFinished || o.Verify != "passed" || o.Partial || len(o.Earlier) != 1 || o.Earlier[0].Manifest != digestOf("manifest 1") {
		t.Errorf("%+v", o)
	}
}

// Every end has its statement, and it says what kind of end it was. What an
// agent wrote is in none.
//
// proves R-A8
func TestStatementOfFailedDispatchSaysSo(t *testing.T) {
	const secret = "words of an agent"
	for name, c := range map[string]struct {
		change  func(*api.Dispatch)
		subject string
	}{
		"failed with a patch": {func(d *api.Dispatch) { d.State, d.Reason, d.Outcome.Partial = api.EventFailed, api.ReasonTimeout, true }, "patch"},
		"failed without one": {func(d *api.Dispatch) {
			d.State, d.Reason, d.Outcome = api.EventFailed, api.ReasonAgent, &api.ResultSummary{}
		}, "result"},
		"lost": {func(d *api.Dispatch) {
			d.State, d.Reason, d.Outcome, d.Result = api.EventFailed, api.ReasonLost, nil, ""
		}, "manifest"},
		"cancelled": {func(d *api.Dispatch) {
			d.State, d.CancelBy, d.CancelReason, d.Outcome, d.Result, d.StartedAt = api.EventCancelled, "local:bob", secret, nil, "", nil
		}, "manifest"},
	} {
		d, earlier, m, _ := endedDispatch()
		d.Message = secret
		c.change(&d)
		s, err := NewStatement(ServiceIdentity{ID: "x"}, &d, earlier, &m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b, err := s.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if o := s.Predicate.Dispatch; o.Outcome != d.State || o.Reason != d.Reason || o.CancelledBy != d.CancelBy || s.Subject[0].Name != c.subject || len(s.Subject) == 0 {
			t.Errorf("%s: %s", name, b)
		}
		if strings.Contains(string(b), secret) {
			t.Errorf("%s: says what an agent or a caller wrote", name)
		}
		if d.Outcome != nil && s.Predicate.Dispatch.Partial != d.Outcome.Partial {
			t.Errorf("%s: partial", name)
		}
	}
	for name, change := range map[string]func(*api.Dispatch){
		"not ended":              func(d *api.Dispatch) { d.State = api.EventStarted },
		"waits for an answer":    func(d *api.Dispatch) { d.State = api.EventNeedsInput },
		"no time of its end":     func(d *api.Dispatch) { d.EndedAt = nil },
		"another attempt":        func(d *api.Dispatch) { d.Attempt = 1 },
		"failed without reason":  func(d *api.Dispatch) { d.State = api.EventFailed },
		"finished with a reason": func(d *api.Dispatch) { d.Reason = api.ReasonAgent },
		"finished and cancelled": func(d *api.Dispatch) { d.CancelBy = "local:bob" },
		"one output twice":       func(d *api.Dispatch) { d.Outcome.Outputs[1].Path = "a/b.txt" },
	} {
		d, earlier, m, _ := endedDispatch()
		change(&d)
		if s, err := NewStatement(ServiceIdentity{ID: "x"}, &d, earlier, &m); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// proves R-A8
func TestStatementBindsManifestAndResult(t *testing.T) {
	s := sampleStatement(t)
	d, _, m, r := endedDispatch()
	if err := s.Binds(&m, d.Manifest, &r, d.Result, ""); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	other := m
	other.Egress = []string{"example.org"}
	if s.Binds(&other, d.Manifest, &r, d.Result, "") == nil {
		t.Error("another manifest")
	}
	if s.Binds(&m, digestOf("other"), &r, d.Result, "") == nil {
		t.Error("another manifest's digest")
	}
	if s.Binds(&m, d.Manifest, &r, digestOf("other"), "") == nil {
		t.Error("another result's digest")
	}
	if s.Binds(&m, d.Manifest, nil, "", "") == nil {
		t.Error("no result")
	}
	for name, change := range map[string]func(*Result){
		"another patch":  func(r *Result) { r.Summary.Patch = &api.Artifact{Digest: digestOf("x")} },
		"no patch":       func(r *Result) { r.Summary.Patch = nil },
		"another output": func(r *Result) { r.Summary.Outputs = r.Summary.Outputs[:1] },
		"it failed":      func(r *Result) { r.Outcome = api.EventFailed },
		"partial":        func(r *Result) { r.Summary.Partial = true },
	} {
		_, _, _, r := endedDispatch()
		change(&r)
		if s.Binds(&m, d.Manifest, &r, d.Result, "") == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	m.ID = "d-other"
	if s.Binds(&m, d.Manifest, &r, d.Result, "") == nil {
		t.Error("another dispatch")
	}
	d, _, m, _ = endedDispatch()
	d.Outcome, d.Result, d.State, d.Reason = nil, "", api.EventFailed, api.ReasonLost
	lost, err := NewStatement(ServiceIdentity{ID: "x"}, &d, nil, &m)
	if err != nil {
		t.Fatal(err)
	}
	if err := lost.Binds(&m, d.Manifest, nil, "", ""); err != nil {
		t.Errorf("one whose worker left nothing: %v", err)
	}
	if lost.Binds(&m, d.Manifest, &r, digestOf("result"), "") == nil {
		t.Error("a result that the statement does not know")
	}
}

// proves R-A8
func TestParseStatementIsStrict(t *testing.T) {
	s := sampleStatement(t)
	good, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseStatement(good); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	swap := func(old, fresh string) string {
		out := strings.Replace(string(good), old, fresh, 1)
		if out == string(good) {
			t.Fatalf("%s is not there", old)
		}
		return out
	}
	for name, text := range map[string]string{
		"empty":                  "",
		"white space":            " " + string(good),
		"a member more":          swap(`"subject":`, `"sane":true,"subject":`),
		"a member twice":         swap(`"subject":`, `"subject":[],"subject":`),
		"another type":           swap("Statement/v1", "Statement/v2"),
		"another predicate":      swap("provenance/v1", "provenance/v9"),
		"another build type":     swap("dispatch/v1", "dispatch/v9"),
		"an unknown outcome":     swap(`"outcome":"finished"`, `"outcome":"splendid"`),
		"a subject without name": swap(`"name":"patch"`, `"name":""`),
		"a short digest":         swap(digestOf("patch").Hex(), digestOf("patch").Hex()[1:]),
		"another digest":         swap(`"sha256":"`+digestOf("patch").Hex(), `"md5":"`+digestOf("patch").Hex()),
		"attempt 0":              swap(`"attempt":2`, `"attempt":0`),
	} {
		if _, err := ParseStatement([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzParseStatement(f *testing.F) {
	s := sampleStatement(f)
	good, err := s.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"_type":"https://in-toto.io/Statement/v1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStatement(b)
		if err != nil {
			return
		}
		if again, err := s.Encode(); err != nil || string(again) != string(b) {
			t.Fatalf("accepted %q, encodes to %q, %v", b, again, err)
		}
	})
}
