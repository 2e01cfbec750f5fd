package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// registry is a registry of packages with one agent program: a script in the place of
// Codex, at a version that does not exist and at the pinned one.
type registry struct {
	url     string
	version string // another than the pinned one
	tarball []byte
}

// newRegistry serves a program.
func newRegistry(t *testing.T, script string) *registry {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	out := tar.NewWriter(z)
	for name, content := range map[string]string{
		"package/package.json":                               `{"name":"@openai/codex","version":"9.9.9-linux-x64","scripts":{"install":"touch /tmp/a-script-of-a-package-ran"}}`,
		"package/vendor/x86_64-unknown-linux-musl/bin/codex": script,
	} {
		must(t, out.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
		_, err := out.Write([]byte(content))
		must(t, err)
	}
	must(t, out.Close())
	must(t, z.Close())
	r := &registry{version: "9.9.9", tarball: packed.Bytes()}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *registry) integrity() string {
	sum := sha512.Sum512(r.tarball)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// ServeHTTP answers as a registry does: the document of a package, and its content.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if strings.HasSuffix(q.URL.Path, ".tgz") {
		_, _ = w.Write(r.tarball)
		return
	}
	if q.URL.Path != "/@openai/codex" {
		http.NotFound(w, q)
		return
	}
	versions := map[string]any{}
	for _, v := range []string{r.version + "-linux-x64", "0.169.0-linux-x64"} {
		versions[v] = map[string]any{
			"name": "@openai/codex", "version": v, "os": []string{"linux"}, "cpu": []string{"x64"},
			"dist": map[string]any{"tarball": r.url + "/@openai/codex/-/codex-" + v + ".tgz", "integrity": r.integrity()},
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": "@openai/codex", "dist-tags": map[string]string{"latest": r.version + "-linux-x64"}, "versions": versions})
}

// A person installs an agent program, and a worker runs it, as root and as an ordinary
// user. What a registry serves in the place of the pinned program is refused, and leaves
// nothing behind.
//
// proves R-D2
func TestInstalledAgentRunsAsWorker(t *testing.T) {
	t.Parallel()
	for name, uid := range map[string]int{"root": 0, "user": ordinaryUID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t, `#!/bin/sh
mkdir -p outputs
env >outputs/environment
cat /proc/$$/cmdline | tr '\0' ' ' >outputs/arguments
cat >outputs/turn
cat "$CODEX_HOME/config.toml" >outputs/config
echo '{"type":"thread.started","thread_id":"t-1"}'
echo '{"type":"item.started","item":{"type":"command_execution","command":"echo two"}}'
echo two >a.txt
echo '{"type":"item.completed","item":{"type":"agent_message","text":"All done."}}'
echo '{"type":"turn.completed"}'
`)
			says := func(text string, words ...string) {
				t.Helper()
				for _, word := range words {
					if !strings.Contains(text, word) {
						t.Errorf("no %q in: %s", word, text)
					}
				}
			}
			w := newWorld(t, uid)
			w.env = append(w.env, "npm_config_registry="+r.url, "npm_config_cache="+w.path("tmp/npm"), "npm_config_fetch_retries=0")
			w.repository("repo", map[string]string{"a.txt": "one\n"})
			w.init()
			w.write("project/system.md", "SYSTEM {words}", 0o644)
			w.write(manifest, fmt.Sprintf(`version: 1
models:
  - {name: local, api: openai-responses, endpoint: "http://127.0.0.1:9", levels: {small: model-1}}
subagents:
  - {name: code, agent: codex, model: local/small, system: system.md, prompt: "TASK {{.do}}", role: transform, tier: reversible, target: local}
  - {name: asks, agent: codex, model: local/small, requireModel: true, role: transform, tier: reversible, target: local}
sources:
  - {name: repo, repo: %s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
roles: [transform]
grants:
  - {principal: "%s", subagents: [code, asks], sources: [repo], targets: [local], ceiling: reversible}
`, w.path("repo"), w.me()), 0o644)
			w.must("catalog", "apply", "-f", w.path(manifest))
			w.up()

			d := w.dispatch("code", "--source", "repo", "--set", "do=this")
			if wantEnd(t, d, api.EventFailed, api.ReasonSetup); !strings.Contains(d.Message, "bailiwick agent install codex") {
				t.Errorf("without the program: %s", d.Message)
			}
			w.refusesAnotherProgram()
			w.must("agent", "install", "codex", "--version", r.version)
			place := w.path("data/bailiwick")
			if w.unit != nil {
				place = "/var/lib/bailiwick-catalog"
			}
			if list := w.must("agent", "list"); !strings.Contains(list, r.version) || !strings.Contains(list, filepath.Join(place, "agents/codex", r.version)) {
				t.Errorf("agent list: %s", list)
			}
			if _, err := os.Stat("/tmp/a-script-of-a-package-ran"); err == nil {
				t.Error("a script of a package ran")
			}

			d = w.dispatch("code", "--source", "repo", "--set", "do=this")
			wantEnd(t, d, api.EventFinished, "")
			if a := d.Outcome.Agent; a == nil || *a != (api.AgentReport{Adapter: "codex", Version: r.version, Integrity: r.integrity()}) {
				t.Errorf("agent: %+v", a)
			}
			if d.Outcome.Text != "All done." || d.Outcome.Transcript == nil || d.Outcome.Usage.Model == nil || d.Outcome.Usage.Model.Requests != 0 {
				t.Errorf("outcome: %+v", d.Outcome)
			}
			says(w.must("dispatch", "logs", string(d.ID)), "> shell echo two", "All done.")
			output := func(name string) string { return w.must("dispatch", "outputs", string(d.ID), name) }
			if turn := output("turn"); turn != "TASK this" {
				t.Errorf("standard input: %q", turn)
			}
			says(output("config"), "SYSTEM {words}", `model = "model-1"`, "127.0.0.1", ".bailiwick/question.json")
			says(output("environment"), "BAILIWICK_MODEL_KEY=", "HOME=/home/agent")
			if args := output("arguments"); strings.Contains(args, "TASK") || strings.Contains(args, "SYSTEM") || !strings.Contains(args, "/opt/bailiwick/agent/") {
				t.Errorf("arguments: %q", args)
			}
			says(w.must("dispatch", "patch", string(d.ID)), "+two")

			// The program exits with 0 and says that it is done, but has not asked its model.
			d = w.dispatch("asks", "--source", "repo")
			if wantEnd(t, d, api.EventFailed, api.ReasonAgent); !strings.Contains(d.Message, "model") {
				t.Errorf("without a request: %s", d.Message)
			}
		})
	}
}

// refusesAnotherProgram installs the pinned version from a registry that has another
// program under its name.
func (w *world) refusesAnotherProgram() {
	w.t.Helper()
	w.refused(1, []string{"left out the package of agent codex", "another content"}, "agent", "install", "codex")
	left, err := filepath.Glob(w.path("data/bailiwick/agents/codex/*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != ".lock" {
		w.t.Errorf("left behind: %q %v", left, err)
	}
	w.refused(1, []string{"exact version"}, "agent", "install", "codex", "--version", "latest")
}
