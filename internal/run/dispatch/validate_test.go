package dispatch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
)

const vetManifest = `version: 1
subagents:
  - name: edit
    agent: command
    command: ["true"]
    role: transform
    tier: observe
    target: local
    input: {type: object, properties: {n: {type: integer}}, required: [n]}
    output: {type: object}
  - {name: plain, agent: command, command: ["true"], role: transform, tier: observe, target: local}
  - {name: hidden, agent: command, command: ["true"], role: transform, tier: observe, target: local}
envs:
  - {name: red, values: {COLOUR: red}}
  - {name: blue, values: {COLOUR: blue}}
  - {name: sealed, secrets: {COLOUR: {secret: colour, exposed: true}}}
secrets:
  - {name: colour, ref: "env:COLOUR"}
sources:
  - {name: repo, repo: %s}
  - {name: gone, repo: %s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [edit, plain], envs: [red, blue, sealed], sources: [repo, gone], targets: [local], ceiling: reversible}
`

// repository makes one with a commit, and returns where it is and the commit.
func repository(t *testing.T) (dir, commit string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "first")
	return dir, git("rev-parse", "HEAD")
}

func newVetGate(t *testing.T) (g gate, commit string) {
	t.Helper()
	dir, commit := repository(t)
	return newCatalogGate(t, fmt.Sprintf(vetManifest, dir, filepath.Join(t.TempDir(), "gone"))), commit
}

// Everything that would be refused is reported at once, each where it is, and
// nothing happens: nothing is logged, stored or started.
//
// proves R-O2
func TestValidateReportsEveryProblemAndChangesNothing(t *testing.T) {
	g, commit := newVetGate(t)
	before := len(g.kinds(t))
	repo := &api.SourceRequest{Name: "repo"}
	reqs := []api.DispatchRequest{
		0: {Subagent: "edit", Input: []byte(`{"n":1}`), Source: repo},
		1: {Subagent: "edit", Input: []byte(`{"n":"one"}`), Source: &api.SourceRequest{Name: "repo", Commit: "nowhere"}, Envs: []api.Name{"red", "blue"}},
		2: {Subagent: "hidden"},
		3: {Subagent: "absent"},
		4: {Subagent: "plain", Source: &api.SourceRequest{Name: "gone"}},
		5: {Subagent: "plain", Source: &api.SourceRequest{Name: "repo", Commit: "main"}},
		6: {Subagent: "plain", Input: []byte(`[]`)},
		7: {Subagent: "plain", Source: &api.SourceRequest{Name: "not-granted"}},
		8: {Subagent: "plain", Envs: []api.Name{"sealed", "red"}},
	}
	v, err := g.Validate(t.Context(), ann, reqs)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range v.Problems {
		got = append(got, fmt.Sprintf("%d %s", p.Index, p.Member))
	}
	want := []string{"1 input", "1 env[1]", "1 source", "2 ", "3 ", "4 source", "6 ", "7 ", "8 env[1]"}
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Errorf("%q", got)
	}
	if v.Number != 1 || v.Revision == "" || v.Commits[0] != commit || v.Commits[5] != commit || v.Commits[1]+v.Commits[2]+v.Commits[4] != "" {
		t.Errorf("%d %s %q", v.Number, v.Revision, v.Commits)
	}
	if !v.HasResult[0] || v.HasResult[5] || v.HasResult[2] {
		t.Errorf("%v", v.HasResult)
	}
	if !v.Denied.Valid() || v.Denied.Allowed() || v.Denied.Resource() != "hidden" {
		t.Errorf("%+v", v.Denied)
	}
	if after := len(g.kinds(t)); after != before || g.started(t) {
		t.Errorf("%d entries were written", after-before)
	}
	// The control: what is right has no problems, and what is denied is logged
	// when it is really submitted.
	if v, err := g.Validate(t.Context(), ann, reqs[:1]); err != nil || len(v.Problems) > 0 || v.Denied.Valid() {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := g.Submit(t.Context(), ann, reqs[2]); api.CodeOf(err) != api.CodeDenied || len(g.kinds(t)) != before+1 {
		t.Errorf("%v", err)
	}
}

// Who vets learns no name that it may not use.
//
// proves R-B6
func TestValidateTreatsForbiddenAndUnknownAlike(t *testing.T) {
	g, _ := newVetGate(t)
	bad := []byte(`{"n":"one"}`) // nothing is reported about an input either
	v, err := g.Validate(t.Context(), ann, []api.DispatchRequest{{Subagent: "hidden", Input: bad}, {Subagent: "absent", Input: bad}})
	if err != nil || len(v.Problems) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	said := func(i int, name string) string { return strings.ReplaceAll(v.Problems[i].Message, name, "NAME") }
	if said(0, "hidden") != said(1, "absent") {
		t.Errorf("%q\n%q", v.Problems[0].Message, v.Problems[1].Message)
	}
	stranger := Caller{Principal: "local:eve", Ceiling: api.Irreversible}
	if v, err := g.Validate(t.Context(), stranger, []api.DispatchRequest{{Subagent: "edit"}}); err != nil || !v.Denied.Valid() || v.Commits[0] != "" || v.HasResult[0] {
		t.Errorf("%+v, %v", v, err)
	}
}

// counted counts how often something is decided.
type counted struct {
	*operator.Registry
	n int
}

func (c *counted) StopsFor(w api.StopSubject) []string {
	c.n++
	return c.Registry.StopsFor(w)
}

// A plan of many equal tasks is decided once, and so is its source; each input
// is still validated against its schema.
//
// proves R-O2
func TestEqualRequestsAreDecidedOnce(t *testing.T) {
	g, commit := newVetGate(t)
	c := &counted{Registry: g.cfg.Registry.(*operator.Registry)}
	g.cfg.Registry = c
	var reqs []api.DispatchRequest
	for i := range 2000 {
		input := fmt.Sprintf(`{"n":%d}`, i)
		if i == 1234 {
			input = `{"n":"bad"}`
		}
		reqs = append(reqs, api.DispatchRequest{Subagent: "edit", Input: []byte(input), Source: &api.SourceRequest{Name: "repo"}, TimeoutSeconds: i % 1000})
	}
	v, err := g.Validate(t.Context(), ann, reqs)
	if err != nil || len(v.Problems) != 1 || v.Problems[0].Index != 1234 || v.Commits[1999] != commit {
		t.Fatalf("%+v, %v", v.Problems, err)
	}
	if c.n != 1 {
		t.Errorf("decided %d times", c.n)
	}
	reqs[0].Envs = []api.Name{"red"} // the control: another one is decided separately
	if c.n = 0; func() error { _, err := g.Validate(t.Context(), ann, reqs); return err }() != nil || c.n != 2 {
		t.Errorf("decided %d times", c.n)
	}
}

// A plan that names many commits, or many unknown names, is answered
// without looking for each.
//
// proves R-O2
func TestValidateBoundsTheCommits(t *testing.T) {
	g, commit := newVetGate(t)
	var reqs []api.DispatchRequest
	for i := range maxCommits + 5 {
		from := &api.SourceRequest{Name: "repo", Commit: fmt.Sprintf("%040x", i)}
		if i == maxCommits-1 {
			from.Commit = "HEAD"
		}
		reqs = append(reqs, api.DispatchRequest{Subagent: "plain", Source: from})
	}
	v, err := g.Validate(t.Context(), ann, reqs)
	if err != nil || len(v.Problems) != maxCommits+4 || v.Commits[maxCommits-1] != commit {
		t.Fatalf("%d problems, %v", len(v.Problems), err)
	}
	for _, p := range v.Problems {
		if p.Member != "source" || strings.Contains(p.Message, "different commits") != (p.Index >= maxCommits) {
			t.Errorf("%+v", p)
		}
	}
}

// BenchmarkValidateDenied is the cost of 10,000 tasks, each naming something
// else that is not there.
func BenchmarkValidateDenied(b *testing.B) {
	g := newCatalogGate(b, fmt.Sprintf(vetManifest, b.TempDir(), b.TempDir()))
	reqs := make([]api.DispatchRequest, 10_000)
	for i := range reqs {
		reqs[i] = api.DispatchRequest{Subagent: api.Name(fmt.Sprintf("n%d", i))}
	}
	for b.Loop() {
		if v, err := g.Validate(b.Context(), ann, reqs); err != nil || len(v.Problems) != len(reqs) {
			b.Fatal(err)
		}
	}
}

// BenchmarkValidate is what a plan of 10,000 tasks costs to vet, each with an input
// of its own.
func BenchmarkValidate(b *testing.B) {
	g := newCatalogGate(b, strings.ReplaceAll(fmt.Sprintf(vetManifest, b.TempDir(), b.TempDir()), "required: [n]", "required: [n, file]"))
	reqs := make([]api.DispatchRequest, 10_000)
	for i := range reqs {
		reqs[i] = api.DispatchRequest{Subagent: "edit", Input: fmt.Appendf(nil, `{"n":%d,"file":"internal/run/dispatch/vet_test.go"}`, i)}
	}
	for b.Loop() {
		if v, err := g.Validate(b.Context(), ann, reqs); err != nil || len(v.Problems) > 0 {
			b.Fatalf("%+v, %v", v.Problems, err)
		}
	}
}
