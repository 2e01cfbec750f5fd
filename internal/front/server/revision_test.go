package server

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/deploy"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

const revisionManifest = `version: 1
project: test
subagents:
  - {name: edit, agent: command, command: ["true"], role: transform, tier: observe, target: local}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
envs:
  - {name: plain, values: {LEVEL: info}}
roles: [transform]
grants:
  - {principal: "local:ann", subagents: [edit], targets: [local], ceiling: observe}
`

// publisher publishes manifests in the catalog of a house.
func (h *house) publisher() func(manifest, reason string) {
	h.t.Helper()
	dirs := api.Dirs{Data: h.dir}
	key := must[seal.Signer](h.t)(seal.NewEphemeral())
	root := seal.RootOf(seal.KeyOf(key, "ann"))
	if err := seal.CreateTrustRoot(dirs.TrustRoot(), root); err != nil {
		h.t.Fatal(err)
	}
	cat := must[*deploy.Catalog](h.t)(deploy.Create(deploy.Config{Dir: dirs.Catalog(), TrustRoot: root, Now: h.now}))
	h.t.Cleanup(func() { _ = cat.Close() })
	file := filepath.Join(h.t.TempDir(), "bailiwick.yaml")
	return func(manifest, reason string) {
		h.t.Helper()
		if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
			h.t.Fatal(err)
		}
		plan := must[*deploy.Plan](h.t)(cat.Plan(h.t.Context(), must[*deploy.Manifest](h.t)(deploy.Load(h.t.Context(), file)), deploy.Options{}))
		must[*deploy.Applied](h.t)(cat.Apply(h.t.Context(), plan, deploy.Approval{Author: "ann", Reason: reason, Signers: []deploy.Signer{key}}))
	}
}

// decoded is an answer of status 200.
func decoded[T any](t *testing.T, a reply) (v T) {
	t.Helper()
	if a.status != http.StatusOK {
		t.Fatalf("%+v", a)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The operator is shown what a revision changed, with the lines of the plan, and nobody
// else is.
//
// proves R-B5
func TestTheOperatorIsShownWhatARevisionChanged(t *testing.T) {
	h := newHouse(t)
	if a := h.call("GET", "/v1/operator/revisions", ""); a.body != "[]" {
		t.Errorf("without a catalog: %+v", a)
	}
	if a := h.call("GET", "/v1/operator/revisions/1", ""); a.status != http.StatusNotFound {
		t.Errorf("without a catalog: %+v", a)
	}
	publish := h.publisher()
	publish(revisionManifest, "first")
	publish(strings.NewReplacer("tier: observe", "tier: stateful", "LEVEL: info", "LEVEL: debug", `["true"]`, `["false"]`).Replace(revisionManifest), "more")
	publish(strings.ReplaceAll(revisionManifest, "mode: guarded", "mode: readonly"), "less")
	list := decoded[[]api.CatalogRevision](t, h.call("GET", "/v1/operator/revisions?limit=2", ""))
	if len(list) != 2 || list[0].Number != 3 || list[1].Number != 2 || list[1].Author != "ann" || list[1].Reason != "more" || list[1].Artifacts != 5 {
		t.Errorf("history %+v", list)
	}
	if list := decoded[[]api.CatalogRevision](t, h.call("GET", "/v1/operator/revisions?before=2", "")); len(list) != 1 || list[0].Number != 1 {
		t.Errorf("before revision 2: %+v", list)
	}
	second := decoded[api.RevisionChanges](t, h.call("GET", "/v1/operator/revisions/2", ""))
	if second.CatalogRevision != list[1] || len(second.Keys) != 1 || second.Current != 3 || second.Omitted != nil || len(second.Narrows) != 0 {
		t.Errorf("revision 2: %+v", second)
	}
	if want := []api.AuthorityChange{{Ref: "subagent/edit", What: "new command: false, was true"}, {Ref: "subagent/edit", What: "higher tier: stateful, was observe"}}; !slices.Equal(second.Widens, want) {
		t.Errorf("it widens %q", second.Widens)
	}
	if c := second.Changes; len(c) != 2 || c[1].Ref != "env/plain" || c[1].Fields[0] != (api.FieldChange{Op: api.OpChange, Field: "values.LEVEL", Old: "info", New: "debug"}) {
		t.Errorf("it changes %+v", c)
	}
	if first := decoded[api.RevisionChanges](t, h.call("GET", "/v1/operator/revisions/1", "")); len(first.Changes) != 5 || first.Changes[0].Op != api.OpAdd || len(first.Widens) == 0 {
		t.Errorf("revision 1: %+v", first)
	}
	if third := decoded[api.RevisionChanges](t, h.call("GET", "/v1/operator/revisions/3", "")); len(third.Narrows) != 2 {
		t.Errorf("revision 3: %+v", third)
	}
	for path, status := range map[string]int{"/4": http.StatusNotFound, "/0": http.StatusBadRequest, "/x": http.StatusBadRequest, "/-1": http.StatusBadRequest, "?limit=0": http.StatusBadRequest, "?before=x": http.StatusBadRequest} {
		if a := h.call("GET", "/v1/operator/revisions"+path, ""); a.status != status {
			t.Errorf("%s: %+v", path, a)
		}
	}
	for _, path := range []string{"/v1/operator/revisions", "/v1/operator/revisions/2"} {
		if a := h.elsewhere(64321, "GET", path, ""); a.status != http.StatusForbidden {
			t.Errorf("%s of another account: %+v", path, a)
		}
	}
}

// A revision of the past that does not verify is an error that names it, though the one
// in force verifies.
//
// proves R-B5
func TestAPastThatDoesNotVerifyIsAnError(t *testing.T) {
	h := newHouse(t)
	publish := h.publisher()
	publish(revisionManifest, "")
	publish(strings.ReplaceAll(revisionManifest, "LEVEL: info", "LEVEL: debug"), "")
	publish(strings.ReplaceAll(revisionManifest, "LEVEL: info", "LEVEL: warn"), "")
	second := decoded[api.RevisionChanges](t, h.call("GET", "/v1/operator/revisions/2", ""))
	env := ""
	if err := filepath.WalkDir(filepath.Join(h.dir, "catalog"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), `"LEVEL":"debug"`) && !strings.Contains(string(b), "artifacts") {
				env = path
			}
		}
		return err
	}); err != nil || env == "" {
		t.Fatalf("the catalog has no env of revision 2: %v", err)
	}
	b := must[[]byte](t)(os.ReadFile(env))
	if err := os.Chmod(env, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(env, []byte(strings.Replace(string(b), "debug", "trace", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"2", "3"} {
		a := h.call("GET", "/v1/operator/revisions/"+path, "")
		if e := a.err(t); e.Code != api.CodeIntegrity || !strings.Contains(e.Message, "revision 2: env/plain") {
			t.Errorf("revision %s: %+v", path, a)
		}
	}
	if err := os.WriteFile(env, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if again := decoded[api.RevisionChanges](t, h.call("GET", "/v1/operator/revisions/2", "")); again.Digest != second.Digest {
		t.Errorf("positive control: %+v", again)
	}
}
