// Package e2e tests the built programs together, the way people use them: real
// repositories, real workers in real jails, as root and as an ordinary user.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/prebuilt"
)

// bin is where TestMain puts the programs.
var bin string

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	flag.Parse()
	if prebuilt.Dir() != "" {
		bin = filepath.Join(prebuilt.Dir(), "bin")
		return runTests(m)
	}
	if err := readSources(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "bailiwick-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	// Ordinary users run the programs too.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = filepath.Join(dir, "bin")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", bin+"/", "../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return runTests(m)
}

// readSources stats every file of the module. go test caches a pass by what the
// test binary itself reads, but a child process builds the programs: the stat
// makes a change to any source invalidate the cache.
func readSources() error {
	return filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepath.SkipDir
		}
		_, err = os.Stat(name)
		return err
	})
}

// ordinaryUID is an account that has no name and owns nothing.
const ordinaryUID = 64321

// world is one installation: its own directories, a git repository and a
// manifest.
type world struct {
	t   testing.TB
	uid int // account that runs the programs
	dir string
	env []string
	net *island // where the commands run; nil: the network of the test
	on  *team   // the machine that the commands run on; nil: the test's

	unit *unit                           // on a machine, of a world that the suite runs in mode system
	bash func(context.Context) *exec.Cmd // the shell of a document, unless it is one of this machine
}

// newWorld creates the directories. The programs run as uid; as machine.Alice, on a machine
// in mode system.
func newWorld(t testing.TB, uid int) *world {
	t.Helper()
	// Not t.TempDir: its parents are closed to other accounts.
	dir, err := os.MkdirTemp("", "bailiwick-world-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, uid: uid, dir: dir}
	t.Cleanup(func() {
		// A process may end shortly after its test and create again what was removed:
		// a service that yields, or the git of one that was killed.
		_ = settled(w.processes) // the suite reports those that stay
		if wrong := settled(func() (wrong []string) {
			if err := os.RemoveAll(dir); err != nil {
				wrong = append(wrong, err.Error())
			}
			return wrong
		}); wrong != nil {
			t.Error(wrong)
		}
	})
	onMachine := systemMode || uid == machine.Alice
	if onMachine {
		w.uid = machine.Alice
	}
	for _, d := range []string{"data", "state", "config", "run", "home", "tmp"} {
		w.mkdir(d)
	}
	w.own(".")
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"), "LC_ALL=C.UTF-8", "NO_COLOR=1",
		"XDG_DATA_HOME=" + w.path("data"), "XDG_STATE_HOME=" + w.path("state"), "XDG_CONFIG_HOME=" + w.path("config"), "XDG_RUNTIME_DIR=" + w.path("run"),
	}
	if onMachine {
		newMachine(t, w)
	}
	return w
}

// processes lists the processes that have the world's directory in their arguments or
// their environment.
func (w *world) processes() (list []string) {
	for _, file := range slices.Concat(procFiles("environ"), procFiles("cmdline")) {
		if b, err := os.ReadFile(file); err == nil && bytes.Contains(b, []byte(w.dir+"/")) {
			list = append(list, filepath.Dir(file))
		}
	}
	return list
}

func (w *world) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func (w *world) own(name string) {
	w.t.Helper()
	uid, gid := w.uid, w.uid
	if w.unit != nil {
		uid, gid = w.unit.owner(name)
	}
	if err := os.Chown(w.path(name), uid, gid); err != nil {
		w.t.Fatal(err)
	}
}

// serviceUID is the account of the service.
func (w *world) serviceUID() int {
	if w.on != nil {
		return machine.Service
	}
	return w.uid
}

func (w *world) mkdir(name string) {
	w.t.Helper()
	if err := os.MkdirAll(w.path(name), 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.own(name)
}

// write creates a file that the world's account owns.
func (w *world) write(name, content string, mode os.FileMode) {
	w.t.Helper()
	w.mkdir(filepath.Dir(name))
	must(w.t, writeFile(w.path(name), []byte(content), mode))
	if err := os.Chmod(w.path(name), mode); err != nil {
		w.t.Fatal(err)
	}
	w.own(name)
}

// writeFile writes a file that may be executed at once. No process is forked
// meanwhile: a child of another test would hold the file open for writing until
// it executes, and the kernel refuses to run such a file.
func writeFile(path string, content []byte, mode os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, mode)
}

// done is the result of a command.
type done struct {
	status         int
	stdout, stderr string
}

func (d done) String() string {
	return fmt.Sprintf("exit status %d\nstdout: %s\nstderr: %s", d.status, d.stdout, d.stderr)
}

// command prepares a program that runs as the world's account, in its
// environment.
func (w *world) command(program string, args ...string) *exec.Cmd {
	if w.on != nil {
		ctx := context.Background() //nolint:usetesting // what cleans up runs after the test's context has ended
		cmd := w.on.Command(ctx, w.uid, append([]string{program}, args...)...)
		cmd.Dir, cmd.Env, cmd.SysProcAttr = w.dir, append(cmd.Env, w.env...), &syscall.SysProcAttr{}
		return cmd
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	if w.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}}
	}
	return cmd
}

func (w *world) exec(program string, args ...string) done {
	w.t.Helper()
	if w.unit != nil && program == filepath.Join(bin, "bailiwick") {
		return w.unit.try(args)
	}
	if w.unit != nil && filepath.Base(program) == "bailiwickd" { // as its administrator runs it
		w.unit.sync()
		w.unit.handOver()
		return w.finish(w.unit.program(machine.Service, append([]string{program}, args...)...))
	}
	return w.plain(program, args...)
}

// plain runs a program to its end, as it is given.
func (w *world) plain(program string, args ...string) done {
	w.t.Helper()
	return w.finish(w.command(program, args...))
}

// finish runs a command to its end.
func (w *world) finish(cmd *exec.Cmd) done {
	w.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := cmd.Start
	if w.net != nil {
		start = func() error { return w.net.start(cmd) }
	}
	err := start()
	if err == nil {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%s: %v", cmd, err)
	}
	return done{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// try runs bailiwick.
func (w *world) try(args ...string) done {
	w.t.Helper()
	return w.exec(filepath.Join(bin, "bailiwick"), args...)
}

// must runs bailiwick and fails the test unless it succeeds.
func (w *world) must(args ...string) string {
	w.t.Helper()
	d := w.try(args...)
	if d.status != 0 {
		w.t.Fatalf("bailiwick %s: %s", strings.Join(args, " "), d)
	}
	return d.stdout
}

// fullDoctor runs doctor as who can check what the settings name.
func (w *world) fullDoctor() done {
	w.t.Helper()
	program := "bailiwick"
	if w.unit != nil {
		program = "bailiwickd" // under the service's account; see exec
	}
	return w.exec(filepath.Join(bin, program), "doctor")
}

// refused runs bailiwick and fails the test unless it exits with status and its
// output contains every one of words.
func (w *world) refused(status int, words []string, args ...string) done {
	w.t.Helper()
	d := w.try(args...)
	if d.status != status {
		w.t.Fatalf("bailiwick %s: want exit status %d, got %s", strings.Join(args, " "), status, d)
	}
	for _, word := range words {
		if text := d.stdout + d.stderr; !strings.Contains(text, word) && !strings.Contains(w.chosen(text), word) {
			w.t.Errorf("bailiwick %s: output lacks %q: %s", strings.Join(args, " "), word, d)
		}
	}
	return d
}

// me is the principal of the account that the programs run as.
func (w *world) me() string {
	switch {
	case w.uid == 0:
		return "local:root"
	case w.on != nil:
		return "local:" + map[int]string{machine.Alice: "alice", machine.Bob: "bob", machine.Carol: "carol"}[w.uid]
	}
	return fmt.Sprintf("local:uid:%d", w.uid)
}

// names reports whether an id that the service returned is that which the world's account
// chose. In mode system people share a service, so it adds what makes it theirs.
func (w *world) names(got, id string) bool {
	return got == id || w.on != nil && strings.HasPrefix(got, id+"-")
}

// named is how the service names a file of the world.
func (w *world) named(path string) string {
	if w.unit == nil {
		return path
	}
	for from, at := range map[string]string{"state/bailiwick": "/var/lib/bailiwick", "data/bailiwick": "/var/lib/bailiwick-catalog", "run/bailiwick": "/run/bailiwick"} {
		path = strings.Replace(path, w.path(from), at, 1)
	}
	return path
}

// starts is what a hint says that starts the service.
func (w *world) starts() string {
	return api.StartService(w.serviceMode())
}

// startsRuns is what a hint says that starts an orchestrator.
func (w *world) startsRuns() string {
	return api.StartRuns(w.serviceMode())
}

// serviceMode is the mode of the world's service.
func (w *world) serviceMode() string {
	if w.on != nil {
		return api.ModeSystem
	}
	return api.ModeSameUser
}

// chosen returns a text with ids as the world's account chose them; see names.
func (w *world) chosen(text string) string {
	if w.on == nil {
		return text
	}
	return regexp.MustCompile(`-[0-9a-v]{20}\b`).ReplaceAllString(text, "")
}

// repository creates a git repository with one commit, owned by the world's
// account.
func (w *world) repository(name string, files map[string]string) {
	w.t.Helper()
	w.mkdir(name)
	for path, content := range files {
		w.write(filepath.Join(name, path), content, 0o644)
	}
	w.git(name, "init", "-q")
	w.commit(name, "first")
}

func (w *world) git(repo string, args ...string) string {
	w.t.Helper()
	args = append([]string{"-C", w.path(repo), "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"}, args...)
	d := done{}
	if st, err := os.Stat(w.path(repo)); err == nil && w.unit != nil && st.Sys().(*syscall.Stat_t).Uid == machine.Service {
		d = w.finish(w.unit.program(machine.Service, append([]string{"git"}, args...)...))
	} else {
		d = w.exec("git", args...)
	}
	if d.status != 0 {
		w.t.Fatalf("git %s: %s", strings.Join(args, " "), d)
	}
	return strings.TrimSpace(d.stdout)
}

func (w *world) commit(repo, message string) {
	w.t.Helper()
	w.git(repo, "add", "-A")
	w.git(repo, "commit", "-qm", message)
}

// subagent is one worker of a test's manifest: a shell script.
type subagent struct {
	name, script, role, tier, more string // more: additional manifest lines, indented by four
}

// catalog creates keys and a catalog with the given subagents, all granted to
// the world's account up to reversible on the source repo and target local.
func (w *world) catalog(subagents ...subagent) {
	w.t.Helper()
	w.init()
	w.manifest(subagents...)
	w.must("catalog", "apply", "-f", w.path("project/bailiwick.yaml"))
}

// init creates the keys and sets the ceiling of the world's account to
// reversible. Without that consent only observing is allowed.
func (w *world) init() {
	w.t.Helper()
	w.coldInit()
	w.consent(w.me(), "reversible")
}

// coldInit is init without the consent, on a machine where no service has run.
func (w *world) coldInit() {
	w.t.Helper()
	w.must("init", "--insecure-unencrypted", w.path("project"))
}

// setUp makes the first keys where no service starts without them: on a machine.
func (w *world) setUp() {
	w.t.Helper()
	if w.unit != nil {
		w.coldInit()
	}
}

// consent sets a ceiling as an operator does. It stops the service that this
// starts, if none was running before.
func (w *world) consent(principal, tier string) {
	w.t.Helper()
	running := w.try("status", "-o", "json").status == 0
	w.must("ceiling", "set", principal, tier)
	if !running {
		w.must("down")
		// A test may have moved the state elsewhere.
		if err := os.Remove(w.path("state/bailiwick/service.log")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) manifest(subagents ...subagent) {
	w.t.Helper()
	if _, err := os.Stat(w.path("repo")); errors.Is(err, fs.ErrNotExist) { // a source must be a repository
		w.mkdir("repo")
		w.git("repo", "init", "-q")
	}
	var caps, subs, names strings.Builder
	for _, s := range subagents {
		if s.role == "" {
			s.role = "transform"
		}
		if s.tier == "" {
			s.tier = "reversible"
		}
		w.write("project/capabilities/"+s.name+"/"+s.name+".sh", "#!/bin/bash\n"+s.script+"\n", 0o755)
		fmt.Fprintf(&caps, "  - {name: %s, from: capabilities/%s}\n", s.name, s.name)
		fmt.Fprintf(&subs, "  - name: %s\n    agent: command\n    command: [./%s.sh]\n    role: %s\n    tier: %s\n    capabilities: [%s]\n    target: local\n%s", s.name, s.name, s.role, s.tier, s.name, s.more)
		fmt.Fprintf(&names, "%s,", s.name)
	}
	w.write("project/bailiwick.yaml", fmt.Sprintf(`version: 1
capabilities:
%ssubagents:
%senvs:
  - {name: colours, values: {COLOUR: blue}}
sources:
  - {name: repo, repo: %s}
targets:
  - {name: local, executor: jail, level: full, mode: guarded}
  - {name: looking, executor: jail, level: full, mode: readonly}
roles: [transform, quality]
grants:
  - {principal: "%s", subagents: [%s], envs: [colours], sources: [repo], targets: [local, looking], ceiling: reversible}
`, caps.String(), subs.String(), w.path("repo"), w.me(), strings.TrimSuffix(names.String(), ",")), 0o644)
}

// up starts a service that stops when the test ends.
func (w *world) up() {
	w.t.Helper()
	w.must("up")
	w.downAtEnd()
}

// downAtEnd stops the service, if one is running, when the test ends.
func (w *world) downAtEnd() {
	w.t.Helper()
	w.t.Cleanup(func() {
		d := w.try("down")
		// A service may be on its way out.
		if d.status != 0 && !strings.Contains(d.stderr, "no service answers") {
			w.t.Errorf("down: %s", d)
		}
		if w.t.Failed() {
			log, _ := os.ReadFile(w.path("state/bailiwick/service.log"))
			w.t.Logf("service log:\n%s", log)
		}
	})
}

// dispatch runs a subagent until it ends and returns its record.
func (w *world) dispatch(args ...string) api.Dispatch {
	w.t.Helper()
	d := w.try(append([]string{"dispatch", "run", "-o", "json", "-q"}, args...)...)
	var rec api.Dispatch
	if err := json.Unmarshal([]byte(d.stdout), &rec); err != nil {
		w.t.Fatalf("dispatch run %s: %v: %s", strings.Join(args, " "), err, d)
	}
	return rec
}

func (w *world) show(id string) (rec api.Dispatch) {
	w.t.Helper()
	out := w.must("dispatch", "show", id, "-o", "json")
	if err := json.Unmarshal([]byte(out), &rec); err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// asBoth runs a test as root and as an ordinary user.
func asBoth(t *testing.T, test func(t *testing.T, uid int)) {
	t.Helper()
	if systemMode { // the person of a machine
		t.Run("user", func(t *testing.T) { test(t, machine.Alice) })
		return
	}
	t.Run("root", func(t *testing.T) { test(t, 0) })
	t.Run("user", func(t *testing.T) { test(t, ordinaryUID) })
}

// inEachMode runs a proof in mode same-user, as an account, and in mode system.
func inEachMode(t *testing.T, uid int, proof func(t *testing.T, uid int)) {
	t.Helper()
	if !systemMode {
		t.Run(api.ModeSameUser, func(t *testing.T) {
			t.Parallel()
			proof(t, uid)
		})
	}
	t.Run(api.ModeSystem, func(t *testing.T) {
		t.Parallel()
		proof(t, machine.Alice)
	})
}

// wantEnd fails the test unless a dispatch ended with state and reason.
func wantEnd(t testing.TB, d api.Dispatch, state api.Event, reason api.Reason) {
	t.Helper()
	if d.State != state || d.Reason != reason {
		t.Errorf("dispatch %s is %s %s (%s), want %s %s", d.ID, d.State, d.Reason, d.Message, state, reason)
	}
}

// decode reads JSON that a command printed.
func decode(t testing.TB, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}
