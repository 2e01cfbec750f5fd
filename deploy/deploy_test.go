package deploy

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
)

const goodManifest = `version: 1
capabilities:
  - {name: tools, description: Small tools, from: caps/tools, requires: [{exec: go}, {git: worktree}]}
subagents:
  - name: fixer
    agent: command
    command: [./fix.sh]
    system: fixer.md
    prompt: "Change {{.file}}"
    input: {type: object, required: [file], properties: {file: {type: string}}}
    role: transform
    tier: reversible
    capabilities: [tools]
    verify: {command: [go, test, ./...], timeout: 10m}
    limits: {timeout: 30m, memory: 4GiB, processes: 256, cpu: 1.5}
    target: local
envs:
  - {name: plain, values: {LOG_LEVEL: info}}
roles: [quality, transform]
sources:
  - {name: service, repo: ../service}
targets:
  - {name: local, executor: jail, level: full, mode: guarded, readOnly: [/usr/local/go], path: [/usr/local/go/bin]}
grants:
  - {principal: "agent:claude", subagents: [fixer], envs: [plain], sources: [service], targets: [local], ceiling: reversible}
`

// fixture is a directory with a manifest, and a catalog with some keys.
type fixture struct {
	t       *testing.T
	dir     string // of the manifest
	cfg     Config
	signers []Signer
}

func newFixture(t *testing.T, keys, threshold int) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Join(t.TempDir(), "manifest")}
	root := TrustRoot{V: 1, Threshold: threshold}
	for range keys {
		s, err := seal.NewEphemeral()
		if err != nil {
			t.Fatal(err)
		}
		f.signers = append(f.signers, s)
		root.Keys = append(root.Keys, seal.KeyOf(s, "tester"))
	}
	f.cfg = Config{Dir: filepath.Join(t.TempDir(), "catalog"), TrustRoot: root, Now: func() time.Time {
		return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	}}
	f.write("bailiwick.yaml", goodManifest)
	f.write("fixer.md", "Fix it.\nChange nothing else.\n")
	f.write("caps/tools/fix.sh", "#!/bin/sh\necho fixed >fixed\n")
	f.write("caps/tools/setup.sh", "#!/bin/sh\ntrue\n")
	f.write("caps/tools/doc/README.md", "hello\n")
	if err := os.Chmod(filepath.Join(f.dir, "caps/tools/fix.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	repository(t, filepath.Join(filepath.Dir(f.dir), "service"))
	c, err := Create(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

func repository(t *testing.T, dir string) {
	t.Helper()
	if b, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	p := filepath.Join(f.dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// edit replaces text in the manifest, which must exist.
func (f *fixture) edit(old, now string) {
	f.t.Helper()
	p := filepath.Join(f.dir, "bailiwick.yaml")
	b, err := os.ReadFile(p)
	if err != nil || !strings.Contains(string(b), old) {
		f.t.Fatalf("manifest has no %q (err %v)", old, err)
	}
	f.write("bailiwick.yaml", strings.Replace(string(b), old, now, 1))
}

func (f *fixture) open() *Catalog {
	f.t.Helper()
	c, err := Open(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f *fixture) load() (*Manifest, error) {
	return Load(f.t.Context(), filepath.Join(f.dir, "bailiwick.yaml"))
}

func (f *fixture) plan(opt Options) *Plan {
	f.t.Helper()
	m, err := f.load()
	if err != nil {
		f.t.Fatal(err)
	}
	p, err := f.open().Plan(f.t.Context(), m, opt)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *fixture) apply(signers ...Signer) *Applied {
	f.t.Helper()
	done, err := f.open().Apply(f.t.Context(), f.plan(Options{}), Approval{Author: "ann", Reason: "test", Signers: signers})
	if err != nil {
		f.t.Fatal(err)
	}
	return done
}

func (f *fixture) current() (*Revision, error) { return f.open().Reader().Current(f.t.Context()) }

// proves R-C1, R-C2, R-C4, R-C6
func TestApplyPublishesOneSignedRevision(t *testing.T) {
	f := newFixture(t, 1, 1)
	if _, err := f.current(); catalog.FaultOf(err) != catalog.FaultEmpty || api.CodeOf(err) != api.CodeNotFound {
		t.Fatalf("empty catalog: err = %v", err)
	}
	done := f.apply(f.signers[0])
	r, err := f.current()
	if err != nil {
		t.Fatal(err)
	}
	if r.Number() != 1 || r.Digest() != done.Digest || r.Author() != "ann" || len(r.Signers()) != 1 {
		t.Fatalf("revision %+v, applied %+v", r.Document(), done)
	}
	s, d, err := r.Subagent("fixer")
	if err != nil || d != r.Document().Artifacts["subagent/fixer"].Digest {
		t.Fatalf("digest %s, err %v", d, err)
	}
	if s.System != "Fix it.\nChange nothing else.\n" || s.Tier != api.Reversible || s.Limits.CPU != 1.5 || !slices.Equal(s.Capabilities, []api.Name{"tools"}) {
		t.Fatalf("subagent %+v", s)
	}
	c, _, err := r.Capability("tools")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, file := range c.Files {
		files = append(files, file.Path)
		if want := uint32(0o755); (file.Mode == want) != strings.HasSuffix(file.Path, ".sh") {
			t.Errorf("%s has mode %o", file.Path, file.Mode)
		}
	}
	if !slices.Equal(files, []string{"doc/README.md", "fix.sh", "setup.sh"}) || c.Setup != "setup.sh" {
		t.Fatalf("files %v, setup %q", files, c.Setup)
	}
	src, _, err := r.Source("service")
	if err != nil || src.Repo != filepath.Join(filepath.Dir(f.dir), "service") {
		t.Fatalf("source %+v, err %v", src, err)
	}
	if g := r.Grants(); len(g) != 1 || g[0].Name != "manifest-agent-claude" || g[0].Principal != "agent:claude" {
		t.Fatalf("grants %+v", g)
	}
	if _, _, err := r.Env("none"); api.CodeOf(err) != api.CodeNotFound {
		t.Fatalf("err = %v", err)
	}
}

// proves R-C6
func TestAnUnchangedManifestChangesNothing(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	before := snapshot(t, f.cfg.Dir)
	if p := f.plan(Options{}); !p.Empty() || len(p.Widens) != 0 {
		t.Fatalf("plan %+v", p)
	}
	if done := f.apply(f.signers[0]); !done.Unchanged || done.Number != 1 {
		t.Fatalf("applied %+v", done)
	}
	if !maps.Equal(before, snapshot(t, f.cfg.Dir)) {
		t.Fatal("the store changed")
	}
}

// snapshot maps every file to its content.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		all[p] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// proves R-C6
func TestOnlyPruneRemovesArtifacts(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	f.edit("  - {name: plain, values: {LOG_LEVEL: info}}\n", "  - {name: other, values: {LOG_LEVEL: info}}\n")
	f.edit("envs: [plain]", "envs: [other]")
	p := f.plan(Options{})
	if !slices.Equal(p.Stay, []api.Ref{"env/plain"}) {
		t.Fatalf("stay %v", p.Stay)
	}
	if _, _, removed := p.Count(); removed != 0 {
		t.Fatal("removed without prune")
	}
	f.edit("version: 1", "version: 1\nproject: manifest")
	p = f.plan(Options{Prune: true})
	if _, _, removed := p.Count(); removed != 1 || len(p.Stay) != 0 {
		t.Fatalf("plan %+v", p)
	}
	if _, err := f.open().Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers}); err != nil {
		t.Fatal(err)
	}
	r, err := f.current()
	if err != nil || r.Number() != 2 {
		t.Fatalf("revision %v, err %v", r, err)
	}
	if _, _, err := r.Env("plain"); err == nil {
		t.Fatal("env/plain still exists")
	}
}

func TestWideningIsReportedAndNarrowingIsNot(t *testing.T) {
	tests := []struct{ old, now, want string }{
		{"mode: guarded", "mode: open", "target/local: wider mode: open, was guarded"},
		{"mode: guarded", "mode: readonly", ""},
		{"tier: reversible", "tier: stateful", "subagent/fixer: higher tier: stateful, was reversible"},
		{"ceiling: reversible", "ceiling: irreversible", "grant/manifest-agent-claude: higher ceiling: irreversible, was reversible"},
		{"ceiling: reversible", "ceiling: observe", ""},
		{"command: [./fix.sh]", "command: [./other.sh]", "subagent/fixer: new command: ./other.sh, was ./fix.sh"},
		{"memory: 4GiB", "memory: 8GiB", "subagent/fixer: raised memory: 8GiB, was 4GiB"},
		{"memory: 4GiB", "memory: 1GiB", ""},
		{"processes: 256, ", "", "subagent/fixer: raised processes: 512, was 256"},
		{"role: transform", "role: quality", "subagent/fixer: new role: quality, was transform"},
		{"readOnly: [/usr/local/go]", "readOnly: [/usr/local/go, /opt]", "target/local: new read-only mount: jails can read /opt of the host"},
		{"    verify: {command: [go, test, ./...], timeout: 10m}\n", "", "subagent/fixer: verify command removed: was go test ./..."},
		{"[go, test, ./...], timeout: 10m", "[go, test, ./...], reportOnly: true", "subagent/fixer: a failed verify no longer fails the dispatch"},
		{"sources: [service]", "sources: []", ""},
		{"repo: ../service", "repo: /srv/other", "source/service: new repository: /srv/other"},
		{"LOG_LEVEL: info", "LD_PRELOAD: ./x.so", "env/plain: LD_PRELOAD=./x.so controls"},
		{"LOG_LEVEL: info", "LOG_LEVEL: debug", ""},
		{"subagents: [fixer], envs: [plain], sources", "subagents: [fixer], capabilities: [tools], sources", "grant/manifest-agent-claude: gains extra capability tools"},
		{"\"agent:claude\", sub", "\"agent:claude\", name: manifest-agent-claude, sub", ""},
		{"\"agent:claude\", sub", "\"agent:codex\", name: manifest-agent-claude, sub", "grant/manifest-agent-claude: new principal: agent:codex, was agent:claude"},
	}
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	for _, tt := range tests {
		f.write("bailiwick.yaml", goodManifest)
		f.edit(tt.old, tt.now)
		p := f.plan(Options{SourcesElsewhere: true})
		var got []string
		for _, w := range p.Widens {
			got = append(got, string(w.Ref)+": "+w.What)
		}
		switch {
		case tt.want == "" && len(got) != 0:
			t.Errorf("%s: widens %q", tt.now, got)
		case tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tt.want)):
			t.Errorf("%s: widens %q, want %q", tt.now, got, tt.want)
		}
	}
	f.write("bailiwick.yaml", goodManifest)
	f.write("caps/tools/setup.sh", "#!/bin/sh\nfalse\n")
	if p := f.plan(Options{}); len(p.Widens) != 1 || !strings.Contains(p.Widens[0].What, "changed setup script: setup.sh") {
		t.Errorf("changed setup script: %+v", p.Widens)
	}
}

// proves R-C6
func TestAPlanAppliesOnlyToItsBase(t *testing.T) {
	f := newFixture(t, 1, 1)
	stale := f.plan(Options{})
	encoded, err := stale.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.open().PlanAgain(t.Context(), encoded)
	if err != nil || len(again.Changes) != len(stale.Changes) {
		t.Fatalf("positive control: %v", err)
	}
	f.apply(f.signers[0])
	if _, err := f.open().Apply(t.Context(), stale, Approval{Author: "a", Signers: f.signers}); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("moved base: err = %v", err)
	}
	if _, err := f.open().PlanAgain(t.Context(), encoded); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("moved base, from file: err = %v", err)
	}
}

func TestAnAlteredOrStalePlanFileIsRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	encoded, err := f.plan(Options{}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"reversible", "irreversible"}, {`"prune":false`, `"prune":true`}, {`"v":1`, `"v":2`}, {"{", "{\"x\":1,"}} {
		if _, err := f.open().PlanAgain(t.Context(), []byte(strings.Replace(string(encoded), change[0], change[1], 1))); err == nil {
			t.Errorf("%q → %q: accepted", change[0], change[1])
		}
	}
	f.write("caps/tools/fix.sh", "#!/bin/sh\nrm -rf /\n")
	if _, err := f.open().PlanAgain(t.Context(), encoded); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("changed file: err = %v", err)
	}
}

func TestAFileThatChangesBetweenPlanAndApplyIsNotPublished(t *testing.T) {
	f := newFixture(t, 1, 1)
	p := f.plan(Options{})
	f.write("caps/tools/fix.sh", "#!/bin/sh\nevil\n")
	if _, err := f.open().Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers}); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("err = %v", err)
	}
	if _, err := f.current(); catalog.FaultOf(err) != catalog.FaultEmpty {
		t.Fatalf("err = %v", err)
	}
}

// takeover both modes, one deploy key: until define, widen, read a secret
//
// proves R-B5
func TestAProposalNeedsTheThresholdOfSignatures(t *testing.T) {
	f := newFixture(t, 3, 2)
	done := f.apply(f.signers[0])
	if !done.Proposal || done.Needed != 2 || len(done.Signers) != 1 {
		t.Fatalf("applied %+v", done)
	}
	if _, err := f.current(); catalog.FaultOf(err) != catalog.FaultEmpty {
		t.Fatalf("a proposal became current: err = %v", err)
	}
	c := f.open()
	if _, err := c.Sign(t.Context(), done.Digest, f.signers[0]); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("the same key again: err = %v", err)
	}
	if _, err := c.Sign(t.Context(), api.DigestOf(nil), f.signers[1]); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("a proposal other than the reviewed one: err = %v", err)
	}
	stranger, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sign(t.Context(), done.Digest, stranger); api.CodeOf(err) != api.CodeDenied {
		t.Fatalf("an unlisted key: err = %v", err)
	}
	p, err := c.Proposal(t.Context())
	if err != nil || p.Revision.Digest() != done.Digest || len(p.Widens) == 0 {
		t.Fatalf("proposal %+v, err %v", p, err)
	}
	signed, err := c.Sign(t.Context(), done.Digest, f.signers[1])
	if err != nil || signed.Proposal || len(signed.Signers) != 2 {
		t.Fatalf("signed %+v, err %v", signed, err)
	}
	r, err := f.current()
	if err != nil || r.Digest() != done.Digest || len(r.Signers()) != 2 {
		t.Fatalf("revision %v, err %v", r, err)
	}
	if p, err := c.Proposal(t.Context()); p != nil || err != nil {
		t.Fatalf("the proposal still exists: %v, err %v", p, err)
	}
	if _, err := c.Reader().Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.edit("tier: reversible", "tier: stateful")
	if done := f.apply(f.signers[1], f.signers[2]); done.Proposal || done.Number != 2 {
		t.Fatalf("two signers: %+v", done)
	}
}

func TestReplacingAProposalMustBeExplicit(t *testing.T) {
	f := newFixture(t, 2, 2)
	f.apply(f.signers[0])
	f.edit("tier: reversible", "tier: stateful")
	p, c := f.plan(Options{}), f.open()
	if _, err := c.Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers[:1]}); api.CodeOf(err) != api.CodeConflict {
		t.Fatalf("err = %v", err)
	}
	if _, err := c.Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers[1:], ReplaceProposal: true}); err != nil {
		t.Fatal(err)
	}
	if rows, err := c.Reader().Verify(t.Context()); err != nil {
		t.Fatalf("%v\n%+v", err, rows)
	}
}

func TestAnUnlistedSignerIsRefusedBeforeAnyWrite(t *testing.T) {
	f := newFixture(t, 1, 1)
	stranger, err := seal.NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, f.cfg.Dir)
	for _, signers := range [][]Signer{nil, {stranger}, {f.signers[0], stranger}} {
		if _, err := f.open().Apply(t.Context(), f.plan(Options{}), Approval{Signers: signers}); err == nil {
			t.Fatal("applied")
		}
	}
	if !maps.Equal(before, snapshot(t, f.cfg.Dir)) {
		t.Fatal("the store changed")
	}
}

func TestASecondWriterIsRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	p := f.plan(Options{})
	f.cfg.lockWait = time.Millisecond
	f.cfg.beforePublish = func() {
		other := *f
		other.cfg.beforePublish = nil
		if _, err := other.open().Apply(t.Context(), p, Approval{Author: "b", Signers: f.signers}); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("two applies at once: err = %v", err)
		}
	}
	if done := f.apply(f.signers[0]); done.Number != 1 {
		t.Fatalf("applied %+v", done)
	}
}

func TestOneOfManyConcurrentAppliesWins(t *testing.T) {
	f := newFixture(t, 1, 1)
	p := f.plan(Options{})
	results := make(chan error, 6)
	for range cap(results) {
		c := f.open()
		go func() {
			_, err := c.Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers})
			results <- err
		}()
	}
	won := 0
	for range cap(results) {
		if err := <-results; err == nil {
			won++
		} else if api.CodeOf(err) != api.CodeConflict {
			t.Errorf("err = %v", err)
		}
	}
	if won != 1 {
		t.Fatalf("%d applies of one plan succeeded", won)
	}
}

func TestAFailedWriteLeavesTheOldRevision(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.apply(f.signers[0])
	f.edit("tier: reversible", "tier: stateful")
	p, c := f.plan(Options{}), f.open()
	blobs := filepath.Join(f.cfg.Dir, "blobs", "sha256")
	if err := os.Rename(blobs, blobs+".gone"); err != nil {
		t.Fatal(err)
	}
	_, err := c.Apply(t.Context(), p, Approval{Author: "a", Signers: f.signers})
	if err == nil {
		t.Fatal("applied despite the failure")
	}
	if err := errors.Join(os.RemoveAll(blobs), os.Rename(blobs+".gone", blobs)); err != nil {
		t.Fatal(err)
	}
	if r, err := f.current(); err != nil || r.Number() != 1 {
		t.Fatalf("revision %v, err %v", r, err)
	}
}

func TestOrasReadsTheCatalogWithItsSignatures(t *testing.T) {
	f := newFixture(t, 1, 1)
	done := f.apply(f.signers[0])
	store, err := oci.NewFromFS(t.Context(), os.DirFS(f.cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	desc, err := store.Resolve(t.Context(), "current")
	if err != nil {
		t.Fatal(err)
	}
	below, err := content.Successors(t.Context(), store, desc)
	if err != nil || len(below) != 1+7+1+3 { // config, artifacts, second role, files
		t.Fatalf("%d successors, err %v", len(below), err)
	}
	for _, d := range append(below, desc) {
		if _, err := content.FetchAll(t.Context(), store, d); err != nil {
			t.Fatal(err)
		}
	}
	if below[0].Digest.String() != string(done.Digest) {
		t.Fatalf("config is %s", below[0].Digest)
	}
	signatures, err := store.Predecessors(t.Context(), ocispec.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size})
	if err != nil || len(signatures) != 1 {
		t.Fatalf("referrers %+v, err %v", signatures, err)
	}
	if b, err := content.FetchAll(t.Context(), store, signatures[0]); err != nil || !strings.Contains(string(b), catalog.SignatureType) {
		t.Fatalf("signature manifest %s, err %v", b, err)
	}
}

func TestHistoryAndAtReachEveryRevision(t *testing.T) {
	f := newFixture(t, 1, 1)
	first := f.apply(f.signers[0])
	f.edit("tier: reversible", "tier: stateful")
	second := f.apply(f.signers[0])
	r := f.open().Reader()
	all, err := r.History(t.Context(), 0)
	if err != nil || len(all) != 2 || all[0].Digest != second.Digest || all[1].Digest != first.Digest {
		t.Fatalf("history %+v, err %v", all, err)
	}
	old, err := r.At(t.Context(), first.Digest)
	if err != nil || old.Number() != 1 || old.Set().Subagents["fixer"].Tier != api.Reversible {
		t.Fatalf("at: %v, err %v", old, err)
	}
	before, err := r.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.edit("tier: stateful", "tier: reversible")
	f.apply(f.signers[0])
	if after, err := r.Version(t.Context()); err != nil || after == before {
		t.Fatalf("version %v → %v, err %v", before, after, err)
	}
}

func (f *fixture) read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}
