package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// A report begins with what ran, for whom, from which commit, and which statements there
// are and are not; then the tasks with their outcome, and who decided what.
//
// proves R-A7
func TestReportsBeginWithWhatRan(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	tell(s)
	r := Verify(reread(t, s.bundle(bundle.Case{Run: "r1"})), s.trust(), Options{})
	text := r.Text()
	for _, want := range []string{
		"run        r1: cancelled, 4 tasks on queue ", "\nfor        local:ann, under catalog revision 1\ncommit     " + strings.Repeat("a1", 20) + " of source app\nstatement  3 for 4 tasks: a, b, c; none for d (skipped because of task c)\nplan       sha256:", "claimed ",
		"task       a: done; subagent code; ", "dispatch t-a2; attempt 2; patch sha256:", "task       b: done; ", "task       c: cancelled", "task       d: skipped because of task c; subagent code\n",
		" submitted run r1: allowed by ", "local:ann cancelled task c of run r1\n", "local:ann answered task b of run r1\n", "catalog revision ", "claimed    times: by the service's clock",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if before, rows, ok := strings.Cut(text, "\n\n"); !ok || strings.Contains(before, "pass  ") || !strings.HasPrefix(rows, "run r1: ") {
		t.Error("what ran does not stand before the rows")
	}
	if t.Failed() {
		t.Log(text)
	}
	one := Verify(reread(t, s.bundle(bundle.Case{Dispatch: "d-01"})), s.trust(), Options{})
	if text := one.Text(); !strings.HasPrefix(text, "dispatch   d-01: finished\nfor        local:ann\ncommit     "+strings.Repeat("a1", 20)+" of source app\nstatement  1 for 1 dispatch: d-01\ndid        subagent code; patch sha256:") || !strings.Contains(text, "requested dispatch d-01: allowed by ") {
		t.Error(text)
	}
}

// A report says how many of the blobs that it names are in the file: none, one or all.
func TestAReportCountsWithheldContent(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	blob := func(text string) bundle.Content {
		return bundle.Content{Digest: api.DigestOf([]byte(text)), Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	verify := func(content ...bundle.Content) report.Report {
		b := s.bundle(bundle.Case{Dispatch: "d-01"})
		b.Content = content
		return Verify(reread(t, b), s.trust(), Options{})
	}
	without := verify()
	named := without.Ran.Content.Named
	if named < 2 || without.Ran.Content.Here != 0 || !strings.Contains(without.Text(), fmt.Sprintf("\ncontent    0 of %d named blobs are here; ", named)) {
		t.Errorf("without content:\n%s", without.Text())
	}
	if one := verify(blob("{}")); one.Failed() || one.Ran.Content != (report.RanContent{Named: named, Here: 1}) || !strings.Contains(one.Text(), fmt.Sprintf("\ncontent    1 of %d named blobs are here; ", named)) {
		t.Errorf("with the input:\n%s", one.Text())
	}
	var page bytes.Buffer
	s.must(without.HTML(&page))
	if !strings.Contains(page.String(), fmt.Sprintf("0 of %d named blobs are here", named)) {
		t.Error(page.String())
	}
	// What nothing names does not count: it is refused.
	if other := verify(blob("other")); !other.Failed() || other.Ran.Content.Here != 0 {
		t.Errorf("with other content:\n%s", other.Text())
	}
}

// A report says who engaged the stop that cancelled what ran. Control: a stop that
// cancelled nothing here is left out.
func TestAReportNamesTheStopThatCancelled(t *testing.T) {
	s := newStory(t)
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	engage := func(stop, scope, name string) {
		s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Detail: record.StopEngaged{Stop: stop, Scope: scope, Name: name}})
	}
	engage("s-1", "principal", "local:eve")
	engage("s-2", "principal", "local:ann")
	s.finish(w, api.EventCancelled, "")
	r := Verify(reread(t, s.bundle(bundle.Case{Dispatch: "d-01"})), s.trust(), Options{})
	if text := r.Text(); r.Failed() || !strings.Contains(text, "local:op engaged stop s-2 on principal local:ann\n") || strings.Contains(text, "stop s-1") {
		t.Error(text)
	}
}

// Who cancelled is in the message that the worker sealed, too. Control: the same with
// a message that names who did.
func TestTheWorkerSaysWhoCancelledIt(t *testing.T) {
	for message, accepted := range map[string]bool{
		"cancelled: by local:op: emergency stop s-1": true, "cancelled: by local:op": true, "cancelled": true, "": true,
		"cancelled: by local:eve: emergency stop s-1": false, "cancelled: by local:o": false, "cancelled: by local:ops": false,
	} {
		s := newStory(t)
		w := &work{id: "d-01"}
		s.admit(w)
		s.start(w)
		s.write(record.Entry{Kind: record.KindStopEngaged, Principal: "local:op", Detail: record.StopEngaged{Stop: "s-1", Scope: "all"}})
		s.editResult = func(r *record.Result) { r.Message = message }
		s.editEntry = func(_ uint64, e *record.Entry) {
			if d, ok := e.Detail.(record.DispatchEnd); ok {
				d.Message = message
				e.Detail = d
			}
		}
		s.finish(w, api.EventCancelled, "")
		r := Verify(reread(t, s.bundle(bundle.Case{Dispatch: "d-01"})), s.trust(), Options{})
		if r.Failed() == accepted {
			t.Errorf("%q: accepted %v, want %v:\n%s", message, !accepted, accepted, r.Text())
		}
	}
}

// Nothing of what ran is proved if a row fails, and the report says so in each
// form. Control: an honest one has the claim of the times alone.
func TestAFailedReportProvesNothingOfWhatRan(t *testing.T) {
	for name, l := range map[string]lie{
		"nothing": {},
		"proof":   {bundle: func(_ *story, b *bundle.Bundle) { b.Proof[0][0] ^= 1 }},
		"catalog": {bundle: foreignRevision},
		"entries": {bundle: func(s *story, b *bundle.Bundle) { drop(s, b, record.KindDispatchRecovered) }},
		"manifest": {before: func(s *story) {
			s.editManifest = func(m *record.Manifest) { m.Source.Commit = strings.Repeat("ab", 20) }
		}, after: func(s *story) { s.editManifest = nil }},
	} {
		_, r := judge(t, bundle.Case{Dispatch: "d-01"}, l)
		var page strings.Builder
		if err := r.HTML(&page); err != nil {
			t.Fatal(err)
		}
		want := []string{claimedTimes, claimedCallers}
		if name != "nothing" {
			want = []string{claimedAll}
		}
		if fmt.Sprint(r.Ran.Claimed) != fmt.Sprint(want) || strings.Contains(page.String(), "NOT VERIFIED") != (name != "nothing") || strings.Contains(r.Text(), claimedAll) != (name != "nothing") {
			t.Errorf("%s: claimed %q:\n%s", name, r.Ran.Claimed, r.Text())
		}
	}
}

// A policy is shown as claimed where no decision was repeated.
func TestPoliciesAreClaimedWithoutTheirRow(t *testing.T) {
	v := newVerification(&bundle.Bundle{}, Trust{}, Options{}, newMeter(0))
	r := report.Report{}
	for _, name := range report.RowNames() {
		r.Rows = append(r.Rows, report.Row{Row: name, Status: report.Pass})
		if name == report.RowAuthorisation {
			r.Rows[len(r.Rows)-1].Status = report.NA
		}
	}
	if got := v.ran(&r).Claimed; len(got) != 3 || got[2] != claimedPolicies {
		t.Errorf("claimed %q", got)
	}
}

const hostileText = "</td><script>alert(1)</script><img src=http://x.test/a onerror=x> &amp; ' \" \u202egnp.exe \x1b[2J \u0000 \u2028 {{.Root}} Müller für 日本語, a < 5 && b > 3"

// No text of a bundle can leave its place in the page: the page has no script, no
// address of another place and no character that hides or commands something. What people
// write is readable in the text and on the page.
func TestHostileTextStaysTextInThePage(t *testing.T) {
	r := report.Report{V: 1, Run: hostileText, Log: hostileText, Root: hostileText, Claim: report.ClaimNone, Time: hostileText, Authorisation: hostileText, Ran: &report.Ran{
		Claimed: []string{hostileText}, Decided: []report.Decided{{By: hostileText, What: hostileText}},
		Runs: []report.RanRun{{Run: hostileText, State: hostileText, Plan: hostileText, Queue: hostileText, Submitter: hostileText, RetryOf: hostileText}},
		Work: []report.RanWork{{Task: hostileText, State: hostileText, Because: hostileText, Dispatch: hostileText, Subagent: hostileText, Source: hostileText, Commit: hostileText, Policies: []string{hostileText}, Patch: hostileText, Verify: hostileText, Changed: []string{hostileText}, Tier: hostileText}},
	}}
	for _, name := range report.RowNames() {
		r.Rows = append(r.Rows, report.Row{Row: name, Status: report.Fail, Why: hostileText})
	}
	var page strings.Builder
	if err := r.HTML(&page); err != nil {
		t.Fatal(err)
	}
	unsafe := regexp.MustCompile(`(?i)<(script|img|a|link|iframe|object|svg)\b|<[^>]*\b(src|href|on\w+)=|url\(|@import|[^\n -~ü日本語]`)
	if found := unsafe.FindString(page.String()); found != "" {
		t.Errorf("the page has %q", found)
	}
	if !unsafe.MatchString(hostileText) {
		t.Error("control: hostile text passes")
	}
	if !strings.Contains(page.String(), "&lt;script&gt;") || !strings.Contains(page.String(), "default-src 'none'") {
		t.Error("the page lacks the text, or its policy")
	}
	if found := regexp.MustCompile(`[^\n -~ü日本語]`).FindString(r.Text()); found != "" {
		t.Errorf("the text has %q", found)
	}
	const readable = "Müller für 日本語, a < 5 && b > 3"
	if !strings.Contains(r.Text(), readable) || !strings.Contains(html.UnescapeString(page.String()), readable) || !strings.Contains(r.Text(), `\u202egnp.exe \u001b[2J`) {
		t.Errorf("the text is not readable: %s", r.Text())
	}
}

func TestHTMLGoesToANewFile(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	trust, err := s.trust().Encode()
	s.must(err)
	in := map[string][]byte{"bundle": file(t, s.bundle(bundle.Case{Dispatch: "d-01"})), "trust": trust}
	out := filepath.Join(t.TempDir(), "report.html")
	files := Files{
		Open: func(name string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(in[name])), nil },
		Create: func(name string) (io.WriteCloser, error) {
			return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		},
	}
	for want, args := range []string{"-o json", "-o text"} {
		var stdout, stderr strings.Builder
		status := Command(append([]string{"bundle", "--trust", "trust", "--html", out}, strings.Fields(args)...), &stdout, &stderr, files)
		page, err := os.ReadFile(out)
		if status != want || err != nil || !strings.HasPrefix(string(page), "<!DOCTYPE html>") || !strings.HasSuffix(string(page), "</html>\n") {
			t.Errorf("%s: status %d, %s, %v", args, status, &stderr, err)
		}
		var r report.Report
		if want == 0 && (json.Unmarshal([]byte(stdout.String()), &r) != nil || r.Ran == nil || len(r.Ran.Work) != 1 || len(r.Ran.Decided) == 0) {
			t.Errorf("%s", &stdout)
		}
	}
}
