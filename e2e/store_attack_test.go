package e2e

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// copyTree makes what is in to a copy of from. to itself stays: a service may have it mounted.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o755))
	list, err := os.ReadDir(to)
	must(t, err)
	for _, e := range list {
		must(t, os.RemoveAll(filepath.Join(to, e.Name())))
	}
	must(t, os.CopyFS(to, os.DirFS(from)))
}

// substitute replaces a blob, and every document that refers to it, up to the
// index: the most that an attacker with write access but without a key can do.
func substitute(t testing.TB, store string, old api.Digest, content []byte) {
	t.Helper()
	fresh := api.DigestOf(content)
	must(t, os.WriteFile(filepath.Join(store, "blobs/sha256", fresh.Hex()), content, 0o644))
	var naming []string
	must(t, filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(b), string(old)) {
			naming = append(naming, path)
		}
		return err
	}))
	for _, path := range naming {
		b, err := os.ReadFile(path)
		must(t, err)
		var doc any
		if json.Unmarshal(b, &doc) != nil {
			continue
		}
		doc = replaceDigest(doc, string(old), string(fresh), len(content))
		changed, err := json.Marshal(doc)
		must(t, err)
		if filepath.Base(path) == "index.json" {
			must(t, os.WriteFile(path, changed, 0o644))
		} else {
			substitute(t, store, api.Digest("sha256:"+filepath.Base(path)), changed)
		}
	}
}

// replaceDigest replaces a digest in a document, and the size beside it.
func replaceDigest(v any, old, fresh string, size int) any {
	switch v := v.(type) {
	case map[string]any:
		if v["digest"] == old && v["size"] != nil {
			v["size"] = size
		}
		for k, m := range v {
			v[k] = replaceDigest(m, old, fresh, size)
		}
	case []any:
		for i, m := range v {
			v[i] = replaceDigest(m, old, fresh, size)
		}
	case string:
		return strings.ReplaceAll(v, old, fresh)
	}
	return v
}

// blobWith finds the only blob of a store that contains words.
func blobWith(t testing.TB, store, words string) (api.Digest, []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "blobs/sha256/*"))
	must(t, err)
	var found string
	var content []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		if strings.Contains(string(b), words) {
			if found != "" {
				t.Fatalf("%q is in two blobs", words)
			}
			found, content = f, b
		}
	}
	if found == "" {
		t.Fatalf("no blob contains %q", words)
	}
	return api.Digest("sha256:" + filepath.Base(found)), content
}

// attack is a change to the catalog's directory by an attacker with write
// access.
type attack struct {
	name  string
	do    func()
	words []string
	whole bool // detected only by what the service has seen before
	trust bool // removes or spoils the trust root, which on a machine is root's
}

// refusesAll carries out each attack on a running service, which must refuse to
// dispatch, log that once, and work again once the genuine store is restored.
func refusesAll(t *testing.T, w *world, attacks []attack) {
	t.Helper()
	genuine := t.TempDir()
	copyTree(t, w.path("data/bailiwick"), genuine)
	for _, a := range attacks {
		if a.trust && w.unit != nil {
			continue
		}
		before, dispatches := len(w.entries("--kind", "catalog.refused")), len(w.list())
		a.do()
		for range 3 {
			w.refused(1, append([]string{"the catalog is refused"}, a.words...), "dispatch", "run", "edit", "--source", "repo")
		}
		if d := w.try("catalog", "verify"); (d.status == 0) != a.whole {
			t.Errorf("%s: catalog verify: %s", a.name, d)
		}
		if s := w.status(); s.CatalogError == "" {
			t.Errorf("%s: the status is without an error: %+v", a.name, s)
		}
		if n := len(w.entries("--kind", "catalog.refused")) - before; n != 1 {
			t.Errorf("%s: %d entries about a refused catalog, want 1", a.name, n)
		}
		if n := len(w.list()) - dispatches; n != 0 {
			t.Errorf("%s: %d dispatches were made", a.name, n)
		}
		copyTree(t, genuine, w.path("data/bailiwick"))
		d := w.dispatch("edit", "--source", "repo")
		wantEnd(t, d, api.EventFinished, "")
		if got := w.must("dispatch", "logs", string(d.ID)); got != "GENUINE two\n" {
			t.Errorf("%s: after the attack the agent prints %q", a.name, got)
		}
	}
}

// takeover both modes, database: no define
// takeover both modes, backup: no define, start
//
// proves R-B5
func TestForgedStoreDispatchesNothing(t *testing.T) {
	t.Parallel()
	w, foreign := newWorld(t, 0), newWorld(t, 0)
	for _, each := range []*world{w, foreign} {
		each.repository("repo", map[string]string{"a.txt": "one\n"})
		each.catalog(subagent{name: "edit", script: "echo GENUINE one"})
	}
	w.up()
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	yesterday := t.TempDir()
	copyTree(t, w.path("data/bailiwick"), yesterday)
	for _, each := range []*world{w, foreign} {
		each.replace("project/capabilities/edit/edit.sh", "one", "two")
		each.must("catalog", "apply", "-f", each.path(manifest))
	}
	wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
	// The foreign catalog is two revisions ahead.
	for _, step := range []string{"three", "four"} {
		foreign.replace("project/capabilities/edit/edit.sh", "echo", "echo "+step)
		foreign.must("catalog", "apply", "-f", foreign.path(manifest))
	}
	store := w.path("data/bailiwick/catalog")
	plant := func(words, old, fresh string) func() {
		return func() {
			digest, b := blobWith(t, store, words)
			substitute(t, store, digest, []byte(strings.ReplaceAll(string(b), old, fresh)))
		}
	}
	index := func(change func(m []any) []any) func() {
		return func() {
			var doc map[string]any
			must(t, json.Unmarshal([]byte(w.read("data/bailiwick/catalog/index.json")), &doc))
			doc["manifests"] = change(doc["manifests"].([]any))
			b, err := json.Marshal(doc)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(store, "index.json"), b, 0o644))
		}
	}
	refusesAll(t, w, []attack{
		{"yesterday's catalog", func() { copyTree(t, filepath.Join(yesterday, "catalog"), store) }, []string{"revision 1 is older than revision 2"}, true, false},
		{"yesterday's trust root and catalog", func() { copyTree(t, yesterday, w.path("data/bailiwick")) }, []string{"revision 1 is older than revision 2"}, true, false},
		{"a catalog signed by another key", func() { copyTree(t, foreign.path("data/bailiwick/catalog"), store) }, []string{"key"}, false, false},
		{"a foreign trust root and catalog", func() { copyTree(t, foreign.path("data/bailiwick"), w.path("data/bailiwick")) }, []string{"was seen before"}, true, false},
		{"a foreign trust root", func() {
			must(t, os.WriteFile(w.path("data/bailiwick/trust.json"), []byte(foreign.read("data/bailiwick/trust.json")), 0o644))
		}, []string{"key"}, false, false},
		{"no trust root", func() { must(t, os.Remove(w.path("data/bailiwick/trust.json"))) }, []string{"trust.json", "from a backup"}, false, true},
		{"an empty trust root", func() { must(t, os.WriteFile(w.path("data/bailiwick/trust.json"), nil, 0o644)) }, []string{"trust.json"}, false, true},
		{"no catalog", func() { must(t, os.RemoveAll(store)) }, nil, false, false},
		{"an empty catalog", func() { must(t, os.RemoveAll(store)); w.mkdir("data/bailiwick/catalog") }, nil, false, false},
		{"a replaced script", plant("GENUINE two", "GENUINE two", "PLANTED"), nil, false, false},
		{"a different tier", plant(`"command":["./edit.sh"]`, `"reversible"`, `"stateful"`), nil, false, false},
		{"a wider grant", plant(`"principal":"`+w.me()+`"`, `"ceiling":"reversible"`, `"ceiling":"irreversible"`), nil, false, false},
		{"a different target", plant(`"name":"local"`, `"guarded"`, `"open"`), nil, false, false},
		{"no signature", index(func(m []any) []any {
			var kept []any
			for _, d := range m {
				if d.(map[string]any)["artifactType"] != "application/vnd.bailiwick.signature.v1" {
					kept = append(kept, d)
				}
			}
			return kept
		}), []string{"sign"}, false, false},
		{"envelopes without signatures", func() { stripSignatures(t, store) }, []string{"sign"}, false, false},
		{"the tag of the newest revision on an older one", index(func(m []any) []any {
			var first any
			for _, d := range m {
				if a, _ := d.(map[string]any)["annotations"].(map[string]any); a["org.opencontainers.image.ref.name"] == "r1" {
					first = d.(map[string]any)["digest"]
				}
			}
			for _, d := range m {
				if a, _ := d.(map[string]any)["annotations"].(map[string]any); a["org.opencontainers.image.ref.name"] == "current" {
					d.(map[string]any)["digest"] = first
				}
			}
			return m
		}), nil, false, false},
		{"an index that is not JSON", func() { must(t, os.WriteFile(filepath.Join(store, "index.json"), []byte("{"), 0o644)) }, []string{"index"}, false, false},
		{"a truncated index", func() { must(t, os.Truncate(filepath.Join(store, "index.json"), 1<<40)) }, []string{"index"}, false, false},
	})
}

// stripSignatures removes the signatures of every revision.
func stripSignatures(t testing.TB, store string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "blobs/sha256/*"))
	must(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		must(t, err)
		var env struct {
			Payload     string           `json:"payload"`
			PayloadType string           `json:"payloadType"`
			Signatures  []map[string]any `json:"signatures"`
		}
		if json.Unmarshal(b, &env) != nil || len(env.Signatures) == 0 {
			continue
		}
		env.Signatures[0]["sig"] = base64.StdEncoding.EncodeToString(make([]byte, 64))
		b, err = json.Marshal(env)
		must(t, err)
		substitute(t, store, api.Digest("sha256:"+filepath.Base(f)), b)
	}
}

// One flipped bit anywhere in the store, with the service running and after a
// restart: either the signed content runs, or nothing.
//
// proves R-B5, R-C4
func TestFlippedStoreBitsRunNothingUnsigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.catalog(subagent{name: "edit", script: "echo GENUINE two"})
	w.up()
	refused := map[string]int{}
	flip := func(how string) {
		for file := range snapshot(t, w.path("data/bailiwick")) {
			b, err := os.ReadFile(file)
			must(t, err)
			if len(b) == 0 {
				continue
			}
			spoilt := append([]byte(nil), b...)
			spoilt[len(b)/2] ^= 4
			must(t, os.WriteFile(file, spoilt, 0o644))
			if how == "restarted" {
				w.must("down")
				if up := w.try("up"); strings.HasSuffix(file, "operators.json") && up.status == 1 && strings.Contains(up.stderr, filepath.Base(file)) {
					must(t, os.WriteFile(file, b, 0o644)) // no decision of an operator could be verified
					w.must("up")
				} else if up.status != 0 {
					t.Fatalf("%s: up: %s", file, up)
				}
			}
			got := w.try("dispatch", "run", "edit", "--source", "repo", "-o", "json")
			var d api.Dispatch
			switch {
			case got.status == 0:
				if !strings.Contains(got.stderr, "GENUINE two\n") {
					t.Errorf("%s, %s: the agent prints %s", file, how, got.stderr)
				}
			case got.stdout == "" && strings.Contains(got.stderr, "the catalog is refused"):
				refused[how]++
			case json.Unmarshal([]byte(got.stdout), &d) == nil && d.State == api.EventFailed && d.Reason == api.ReasonIntegrity && !strings.Contains(got.stderr, "GENUINE"):
				refused[how]++
			default:
				t.Errorf("%s, %s: %s", file, how, got)
			}
			must(t, os.WriteFile(file, b, 0o644))
			wantEnd(t, w.dispatch("edit", "--source", "repo"), api.EventFinished, "")
		}
	}
	flip("running")
	flip("restarted")
	// The control: most flips hit files that a dispatch needs.
	if refused["running"] < 5 || refused["restarted"] < 8 {
		t.Errorf("refused: %v", refused)
	}
}
