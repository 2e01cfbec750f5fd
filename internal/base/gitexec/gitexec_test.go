package gitexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--template=")
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(Identity("a", "a@invalid", ""), "PATH="+os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// proves R-S4 (no variable of this process reaches git)
func TestTheEnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("GIT_TRACE", "1")
	t.Setenv("GIT_CONFIG_GLOBAL", "/somewhere")
	t.Setenv("GIT_DIR", "/elsewhere")
	cmd, err := Git{Protocol: "file", Identity: Identity("a", "a@invalid", "")}.Command(t.Context(), "version")
	if err != nil {
		t.Fatal(err)
	}
	env := cmd.Environ()
	for _, kv := range []string{"HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ALLOW_PROTOCOL=file", "PATH=" + searchPath, "GIT_DIR=/nonexistent", "GIT_AUTHOR_NAME=a"} {
		if !slices.Contains(env, kv) {
			t.Errorf("%s is missing from %q", kv, env)
		}
	}
	for _, kv := range []string{"GIT_TRACE=1", "GIT_CONFIG_GLOBAL=/somewhere", "GIT_DIR=/elsewhere"} {
		if slices.Contains(env, kv) {
			t.Errorf("%s is in %q", kv, env)
		}
	}
}

// No field of Git names a directory with a configuration: only a Repo does, which has
// no field that another package can set. A new field fails here until it is
// listed.
//
// proves R-P9
func TestNoCallerCanNameARepositoryOfSomebodyElse(t *testing.T) {
	var fields []string
	for f := range reflect.TypeFor[Git]().Fields() {
		fields = append(fields, f.Name)
	}
	if want := []string{"Repo", "WorkTree", "Index", "Protocol", "Identity", "Stdin", "Stdout", "MaxOutput"}; !slices.Equal(fields, want) {
		t.Errorf("the fields of Git are %q, want %q", fields, want)
	}
	for f := range reflect.TypeFor[Repo]().Fields() {
		if f.IsExported() {
			t.Errorf("another package can set Repo.%s", f.Name)
		}
	}
	dir := repository(t)
	for _, g := range []struct {
		git  Git
		args []string
	}{
		{Git{}, []string{"-C", dir, "status"}},
		{Git{}, []string{"--git-dir=" + dir + "/.git", "log"}},
		{Git{Identity: []string{"GIT_DIR=" + dir + "/.git"}}, []string{"rev-parse", "--git-dir"}},
		{Git{Identity: []string{"GIT_CONFIG_COUNT=1"}}, []string{"version"}},
		{Git{WorkTree: dir}, []string{"rev-parse", "--git-dir"}}, // found by searching
	} {
		if out, err := g.git.Output(t.Context(), g.args...); err == nil {
			t.Errorf("git %v ran: %s", g.args, out)
		}
	}
	if out := git(t, dir, "rev-parse", "--git-dir"); out != ".git" {
		t.Errorf("control: git finds %s", out)
	}
}

// Writing through a view runs no hook. The control is git in the repository.
func TestHooksOfARepositoryDoNotRun(t *testing.T) {
	dir := repository(t)
	ran, hooks := filepath.Join(t.TempDir(), "ran"), filepath.Join(dir, ".git", "hooks")
	git(t, dir, "commit", "--quiet", "--allow-empty", "-m", "x")
	if err := errors.Join(os.MkdirAll(hooks, 0o755), os.WriteFile(filepath.Join(hooks, "reference-transaction"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	f, err := At(t.Context(), nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := f.View(filepath.Join(t.TempDir(), "view"))
	if err != nil {
		t.Fatal(err)
	}
	if err := (Git{Repo: v}).Run(t.Context(), "update-ref", "refs/heads/new", "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the hook ran")
	}
	if git(t, dir, "rev-parse", "new") != git(t, dir, "rev-parse", "HEAD") {
		t.Error("the branch is not in the repository")
	}
	git(t, dir, "update-ref", "refs/heads/control", "HEAD")
	if _, err := os.Stat(ran); err != nil {
		t.Error("the control did not run the hook")
	}
}

// Open takes nothing but what Create made.
//
// proves R-P9
func TestOpenRefusesAnotherConfiguration(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"control":   func(string) error { return nil },
		"a setting": func(dir string) error { return appendTo(dir+"/config", "[core]\n\tfsmonitor = /tmp/x\n") },
		"commondir": func(dir string) error { return os.WriteFile(dir+"/commondir", []byte("/tmp/x\n"), 0o600) },
		"another":   func(dir string) error { return os.WriteFile(dir+"/.git", []byte("gitdir: /tmp/x\n"), 0o600) },
	} {
		dir := filepath.Join(t.TempDir(), "own")
		if _, err := Create(dir, "sha1"); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir); (err == nil) != (name == "control") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func TestNoTransportIsAllowedUnlessNamed(t *testing.T) {
	dir := repository(t)
	own, err := Create(filepath.Join(t.TempDir(), "own"), "sha1")
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"https://127.0.0.1:1/x.git", "ssh://127.0.0.1/x", "ext::true", dir} {
		_, err := Git{Repo: own}.Output(t.Context(), "ls-remote", place)
		if err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %v", place, err)
		}
	}
	if _, err := (Git{Protocol: "file"}).Output(t.Context(), "ls-remote", dir); err != nil {
		t.Errorf("control: %v", err)
	}
}

// What a view has of the configuration are words that choose among what git does
// itself. The control is the setting that it does have.
//
// proves R-P9
func TestAViewHasNoSettingThatRunsAnything(t *testing.T) {
	dir := repository(t)
	git(t, dir, "commit", "--quiet", "--allow-empty", "-m", "x")
	for key, value := range map[string]string{
		"filter.x.clean": "touch x", "core.fsmonitor": "touch x", "core.sshCommand": "touch x", "core.hooksPath": "/tmp", "include.path": "/tmp/x", "remote.o.url": "ext::x",
		"core.eol": "crlf\n[core]\n\tfsmonitor = x", "core.autocrlf": "input", "core.worktree": "/tmp",
	} {
		git(t, dir, "config", key, value)
	}
	f, err := At(t.Context(), nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := f.View(filepath.Join(t.TempDir(), "view"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := ReadFile(filepath.Join(v.Dir(), "config"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(repoConfig, "sha1") + "[core]\n\tautocrlf = input\n[core]\n\tfilemode = true\n[core]\n\tlogAllRefUpdates = true\n"
	if string(own) != want {
		t.Errorf("the view's configuration is\n%s\nwant\n%s", own, want)
	}
	if head, err := (Git{Repo: v}).Output(t.Context(), "rev-parse", "HEAD"); err != nil || head != git(t, dir, "rev-parse", "HEAD") {
		t.Errorf("HEAD of the view is %s, %v", head, err)
	}
}

// Values are those that git itself finds, from every place where it looks.
func TestSettingsAreThoseOfGit(t *testing.T) {
	home := t.TempDir()
	repo := filepath.Join(home, "work", "repo")
	if err := os.MkdirAll(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "--quiet", "--template=", "-b", "night")
	files := map[string]string{
		"system":             "[user]\n\tname = System\n\temail = s@example\n",
		".gitconfig":         "[include]\n\tpath = ~/more\n[includeIf \"gitdir:~/work/\"]\n\tpath = work.inc\n[includeIf \"gitdir:~/play/\"]\n\tpath = play.inc\n[core]\n\tautocrlf\n",
		"more":               "[user]\n\tname = \"Ann \\\"A\\\" Müller\" ; a comment\n[author]\n\tname = More\n",
		"work.inc":           "[user]\n\temail = work@example\n[includeIf \"onbranch:ni*\"]\n\tpath = branch.inc\n",
		"branch.inc":         "[author]\n\temail = night@example\n",
		"play.inc":           "[user]\n\temail = play@example\n",
		".config/git/config": "[user]\n\tname = Xdg\n[committer]\n\tname = Xdg\n",
		"global":             "[user]\n\tname = Global\n",
	}
	for name, text := range files {
		name = filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	base := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_SYSTEM=" + home + "/system"}
	for name, env := range map[string][]string{
		"home":        base,
		"no system":   append(base[:3:3], "GIT_CONFIG_NOSYSTEM=1"),
		"global":      append(base[:3:3], "GIT_CONFIG_GLOBAL="+home+"/global"),
		"xdg":         append(base[:3:3], "XDG_CONFIG_HOME="+home+"/.config"),
		"environment": append(base[:3:3], "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=User.Name", "GIT_CONFIG_VALUE_0=Env"),
		"no global":   append(base[:3:3], "GIT_CONFIG_GLOBAL="),
	} {
		f, err := Discover(t.Context(), env, repo)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"user.name", "user.email", "author.name", "author.email", "committer.name", "core.autocrlf"} {
			control := exec.Command("git", "-C", repo, "config", "--get", key)
			control.Env = env
			out, _ := control.Output()
			want := strings.TrimSpace(string(out))
			if key == "core.autocrlf" && name != "global" && name != "no global" {
				want = "true" // git prints an empty line for a name alone
			}
			if got := f.Setting(key); got != want {
				t.Errorf("%s: %s is %q, git says %q", name, key, got, want)
			}
		}
	}
}

// A configuration that includes itself, or very many files, is an error.
func TestIncludesAreBounded(t *testing.T) {
	for name, text := range map[string]string{"itself": "[include]\n\tpath = config\n", "many": strings.Repeat("[include]\n\tpath = empty\n", 100)} {
		dir := repository(t)
		if err := errors.Join(appendTo(dir+"/.git/config", text), os.WriteFile(dir+"/.git/empty", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := At(t.Context(), nil, dir); err == nil || !strings.Contains(err.Error(), "includes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	if out, err := (Git{MaxOutput: 5}).Output(t.Context(), "version"); err == nil || out != "git v" {
		t.Errorf("%q, %v", out, err)
	}
	if out, _, _, err := Version(t.Context()); err != nil || !strings.HasPrefix(out, "git version") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAFailureHasItsStatusAndOnePrintableLine(t *testing.T) {
	_, err := Git{}.Output(t.Context(), "no\x1bsuch\nverb")
	var e *Error
	if !errors.As(err, &e) || !Exited(err, 1) || strings.ContainsAny(e.Message, "\n\x1b") {
		t.Errorf("%q", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := (Git{}).Output(ctx, "version"); !errors.Is(err, enough) {
		t.Errorf("after the context ended: %v", err)
	}
}

func TestAFaultOfTheMachineIsToldFromOtherFailures(t *testing.T) {
	exit := errors.New("exit status 128")
	for said, want := range map[string]error{
		"fatal: write error: No space left on device":                     syscall.ENOSPC,
		"fatal: sha1 file 'tmp_pack_a' write error. Out of diskspace":     syscall.ENOSPC,
		"error: unable to create 'a': Read-only file system":              syscall.EROFS,
		"fatal: Out of memory, malloc failed (tried to allocate 9 bytes)": syscall.ENOMEM,
	} {
		if err := (&Error{"fetch", said, exit}); !errors.Is(err, want) || !errors.Is(err, exit) {
			t.Errorf("%s is not %v", said, want)
		}
	}
	if err := (&Error{"fetch", "fatal: not a git repository", exit}); errors.Is(err, syscall.ENOSPC) {
		t.Error("any failure is a fault")
	}
}

func TestFindNamesTheDirectoriesOfARepository(t *testing.T) {
	repo := repository(t)
	linked, bare, none := filepath.Join(t.TempDir(), "linked"), filepath.Join(t.TempDir(), "bare"), t.TempDir()
	for _, args := range [][]string{{"-C", repo, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty", "-m", "first"}, {"-C", repo, "worktree", "add", "-q", "--detach", linked}, {"clone", "-q", "--bare", repo, bare}} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for path, want := range map[string][2]string{
		repo:   {filepath.Join(repo, ".git"), filepath.Join(repo, ".git")},
		bare:   {bare, bare},
		linked: {filepath.Join(repo, ".git", "worktrees", "linked"), filepath.Join(repo, ".git")},
	} {
		if dir, common, err := Find(path); err != nil || dir != want[0] || common != want[1] {
			t.Errorf("%s: %s and %s, err %v", path, dir, common, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(repo, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(none, ".git"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{none, filepath.Join(repo, "below"), filepath.Join(none, "absent")} {
		if dir, _, err := Find(path); err == nil {
			t.Errorf("%s: found %s", path, dir)
		}
	}
}
