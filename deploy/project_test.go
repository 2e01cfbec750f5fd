package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// beside returns a fixture of another directory on the same catalog.
func (f *fixture) beside(name, manifest string) *fixture {
	f.t.Helper()
	o := &fixture{t: f.t, dir: filepath.Join(filepath.Dir(f.dir), name), cfg: f.cfg, signers: f.signers}
	o.write("bailiwick.yaml", manifest)
	return o
}

// refused returns the error of planning.
func (f *fixture) refused(opt Options) error {
	f.t.Helper()
	m, err := f.load()
	if err == nil {
		_, err = f.open().Plan(f.t.Context(), m, opt)
	}
	if err == nil {
		f.t.Fatal("the plan is accepted")
	}
	return err
}

const otherManifest = `version: 1
project: other
subagents:
  - {name: looker, agent: command, command: [look.sh], role: transform, tier: observe, target: local}
grants:
  - {principal: "agent:claude", subagents: [looker, fixer], targets: [local]}
`

// Two projects grant to one principal, use each other's artifacts, and neither
// changes or removes what the other has.
//
// proves R-C6
func TestProjectsOfOneCatalogKeepTheirArtifacts(t *testing.T) {
	first := newFixture(t, 1, 1)
	first.edit("version: 1", "version: 1\nproject: first")
	first.apply(first.signers[0])
	other := first.beside("elsewhere", otherManifest)
	if p := other.plan(Options{Prune: true}); len(p.Stay) != 0 || p.Others["first"] != 8 || slices.ContainsFunc(p.Changes, func(c api.ArtifactChange) bool { return c.Op != api.OpAdd }) {
		t.Fatalf("plan %+v", p)
	}
	other.apply(other.signers[0])
	if p := first.plan(Options{Prune: true}); !p.Empty() || p.Others["other"] != 2 {
		t.Fatalf("the first project would change the other: %+v", p.Changes)
	}
	r, err := first.current()
	if err != nil {
		t.Fatal(err)
	}
	set := r.Set()
	for ref, want := range map[api.Ref]api.Name{"grant/first-agent-claude": "first", "grant/other-agent-claude": "other", "subagent/looker": "other", "role/transform": "first"} {
		if got := set.Project(ref); got != want || set.Document(ref) == nil {
			t.Errorf("%s belongs to %q, want %q", ref, got, want)
		}
	}
	// Both grants hold, each for the requests that it covers.
	engine, err := policy.New(policy.RulesOf(set.Grants, set.Targets))
	if err != nil || len(engine.Grants("agent:claude")) != 2 {
		t.Fatalf("grants %v, err %v", engine.Grants("agent:claude"), err)
	}
	// The other project still needs what the first would remove.
	first.write("bailiwick.yaml", "version: 1\nproject: first\n")
	if err := first.refused(Options{Prune: true}); !strings.Contains(err.Error(), `subagent/looker of project other, which stays in the catalog: role: no such role "transform"; keep what it needs`) {
		t.Fatalf("err = %v", err)
	}
}

func TestANameOfAnotherProjectIsRefused(t *testing.T) {
	first := newFixture(t, 1, 1)
	first.apply(first.signers[0])
	other := first.beside("elsewhere", otherManifest+"roles: [transform]\n")
	err := other.refused(Options{})
	if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "bailiwick.yaml:7:9: role/transform: belongs to project manifest, and this is the manifest of project other") ||
		!strings.Contains(err.Error(), "bailiwick catalog move KIND/NAME --to other") {
		t.Fatalf("err = %v", err)
	}
	// A manifest without a project may be that project's, in another checkout.
	checkout := first.beside("checkout", goodManifest)
	checkout.edit("from: caps/tools", "from: .")
	checkout.edit("    system: fixer.md\n", "")
	if err := checkout.refused(Options{}); !strings.Contains(err.Error(), "if this manifest belongs to project manifest, add to it: project: manifest") {
		t.Fatalf("err = %v", err)
	}
	checkout.edit("version: 1", "version: 1\nproject: manifest")
	checkout.plan(Options{}) // the control
}

// Revisions made before there were projects verify, and their artifacts become those
// of the manifest that declares them, as a visible change. A grant named after its
// principal keeps its name.
func TestArtifactsWithoutAProjectAreAdopted(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.edit("version: 1", "version: 1\nproject: first")
	p := f.plan(Options{})
	old := p.Artifacts["grant/first-agent-claude"]
	doc := []byte(strings.Replace(string(p.set.Document("grant/first-agent-claude")), "first-agent-claude", "agent-claude", 1))
	set := catalog.NewSet()
	before := map[api.Ref]api.Entry{"grant/agent-claude": {Digest: api.DigestOf(doc)}}
	for _, ref := range p.set.Refs() {
		if ref != "grant/first-agent-claude" {
			before[ref] = api.Entry{Digest: p.Artifacts[ref].Digest, Description: p.Artifacts[ref].Description}
			if err := set.Add(ref, p.set.Document(ref)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := set.Add("grant/agent-claude", doc); err != nil || old.Digest == "" {
		t.Fatal(err)
	}
	p.Artifacts, p.set = before, set
	if _, err := f.open().Apply(t.Context(), p, Approval{Author: "old", Signers: f.signers}); err != nil {
		t.Fatal(err)
	}
	r, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := json.Marshal(r.Document()); strings.Contains(string(b), "project") {
		t.Fatalf("the control is not an old revision: %s", b)
	}
	// A manifest that never made that grant does not take it.
	other := f.beside("other", otherManifest)
	if p := other.plan(Options{}); len(p.Changes) != 2 || len(p.Narrows) != 0 || p.Changes[1].Ref != "grant/other-agent-claude" {
		t.Fatalf("another project takes a grant: %+v", p.Changes)
	}
	p = f.plan(Options{Prune: true})
	if len(p.Changes) != 8 || len(p.Widens)+len(p.Narrows) != 0 {
		t.Fatalf("plan %+v", p)
	}
	for _, c := range p.Changes {
		if c.Op != api.OpChange || len(c.Fields) != 1 || c.Fields[0] != (api.FieldChange{Op: api.OpChange, Field: api.FieldProject, New: "first"}) {
			t.Errorf("change %+v", c)
		}
	}
	f.apply(f.signers[0])
	if p := f.plan(Options{Prune: true}); !p.Empty() {
		t.Fatalf("adopted twice: %+v", p.Changes)
	}
	f.edit("ceiling: reversible", "ceiling: observe")
	if p := f.plan(Options{}); len(p.Changes) != 1 || p.Changes[0].Ref != "grant/agent-claude" {
		t.Fatalf("the manifest no longer governs its grant: %+v", p.Changes)
	}
	// Nothing of no project is pruned.
	if p := f.beside("elsewhere", "version: 1\nproject: other\n").plan(Options{Prune: true}); !p.Empty() {
		t.Fatalf("changes %+v", p.Changes)
	}
}

func TestMoveChangesTheOwnerAndNothingElse(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	c := f.open()
	for _, bad := range []struct {
		ref  api.Ref
		to   api.Name
		want string
	}{
		{"role/none", "other", `role "none": not in the catalog`},
		{"role", "other", `want KIND/NAME`},
		{"role/quality", "Other One", `project: name "Other One"`},
		{"role/quality", "", `project: name ""`},
	} {
		if _, err := c.Move(t.Context(), []api.Ref{bad.ref}, bad.to); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s to %q: err = %v", bad.ref, bad.to, err)
		}
	}
	p, err := c.Move(t.Context(), []api.Ref{"role/quality"}, "other")
	if err != nil || len(p.Changes) != 1 || p.Changes[0].Fields[0] != (api.FieldChange{Op: api.OpChange, Field: api.FieldProject, Old: "manifest", New: "other"}) || len(p.Widens)+len(p.Narrows) != 0 {
		t.Fatalf("plan %+v, err %v", p, err)
	}
	if _, err := c.Apply(t.Context(), p, Approval{Author: "ann", Signers: f.signers}); err != nil {
		t.Fatal(err)
	}
	if err := f.refused(Options{}); !strings.Contains(err.Error(), "role/quality: belongs to project other") {
		t.Fatalf("err = %v", err)
	}
	if p, err := c.Move(t.Context(), []api.Ref{"role/quality"}, "other"); err != nil || !p.Empty() {
		t.Fatalf("moved again: %+v, err %v", p, err)
	}
}

func TestPruneNeedsAProjectThatIsWrittenDown(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	if err := f.refused(Options{Prune: true}); !strings.Contains(err.Error(), "add to it: project: manifest") {
		t.Fatalf("err = %v", err)
	}
}

func TestProjectIsDerivedFromTheDirectory(t *testing.T) {
	for dir, want := range map[string]api.Name{
		"/srv/words": "words", "/srv/My Words": "my-words", "/srv/.dotfiles": "dotfiles", "/": "", "/srv/日本": "",
		"/srv/" + strings.Repeat("x", 200): api.Name(strings.Repeat("x", maxDerived)), "/srv/a__-": "a",
	} {
		if got := ProjectOf(dir); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	f := newFixture(t, 1, 1)
	if err := f.beside("日本", "version: 1\n").refused(Options{}); !strings.Contains(err.Error(), `add "project: NAME"`) {
		t.Fatalf("err = %v", err)
	}
	if p := f.plan(Options{}); p.Project != "manifest" || !p.Derived {
		t.Fatalf("plan of project %q", p.Project)
	}
}

func TestGrantNamesOfLongProjectsDiffer(t *testing.T) {
	project, seen := api.Name(strings.Repeat("p", 64)), map[api.Name]bool{}
	for i := range 3 {
		name := grantName(project, api.Principal(fmt.Sprintf("agent:a%d", i)))
		if _, err := api.ParseName(string(name)); err != nil || seen[name] {
			t.Errorf("%s: err = %v", name, err)
		}
		seen[name] = true
	}
}

// proves R-T4
func TestConfusablePrincipalsAreNotGranted(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	other := f.beside("elsewhere", otherManifest)
	for _, who := range []string{"agent:Claude", "agent:c1aude", "agent:cIaude", "AGENT:claude"} {
		other.write("bailiwick.yaml", strings.Replace(otherManifest, "agent:claude", who, 1))
		if err := other.refused(Options{}); !strings.Contains(err.Error(), who) {
			t.Errorf("%s: err = %v", who, err)
		}
	}
	for _, who := range []string{"agent:claude", "human:claude", "agent:claude2"} {
		other.write("bailiwick.yaml", strings.Replace(otherManifest, "agent:claude", who, 1))
		other.plan(Options{}) // the control
	}
	// Correcting the spelling of the only grant is no confusion.
	f.edit("agent:claude\"", "agent:Claude\", name: manifest-agent-claude")
	f.plan(Options{})
}

func TestASourceThatTheServiceCannotOpenIsRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.write("../plain/file", "x")
	for repo, want := range map[string]string{
		"../none":       "does not exist on this machine; clone it there, or plan with --sources-elsewhere",
		"../plain":      "is not a git repository; make it one with: git -C ",
		"../plain/file": "is a regular file, want the directory of a git repository",
	} {
		f.write("bailiwick.yaml", goodManifest)
		f.edit("../service", repo)
		if err := f.refused(Options{}); !strings.Contains(err.Error(), ":21:27: source/service: repo: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v", repo, err)
		}
		f.plan(Options{SourcesElsewhere: true})
	}
	if err := os.RemoveAll(filepath.Join(f.dir, "../plain")); err != nil {
		t.Fatal(err)
	}
	f.write("bailiwick.yaml", goodManifest)
	f.plan(Options{}) // the control
}
