package gitexec

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := (Git{}).Run(t.Context(), "init", "--quiet", "--template=", dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// proves R-S4 (no variable of this process reaches git)
func TestTheEnvironmentIsBuiltFromNothing(t *testing.T) {
	t.Setenv("GIT_TRACE", "1")
	t.Setenv("GIT_CONFIG_GLOBAL", "/somewhere")
	user := []string{"HOME=/home/ann", "GIT_DIR=/elsewhere", "LD_PRELOAD=x.so", "PATH=/bin"}
	for _, c := range []struct {
		git          Git
		want, refuse []string
	}{
		{Git{}, []string{"HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ALLOW_PROTOCOL=none", "PATH=" + searchPath}, []string{"GIT_TRACE=1"}},
		{Git{User: user, Protocol: "file"}, []string{"HOME=/home/ann", "PATH=/bin", "GIT_ALLOW_PROTOCOL=file"}, []string{"GIT_DIR=/elsewhere", "LD_PRELOAD=x.so", "GIT_CONFIG_GLOBAL=/dev/null"}},
	} {
		cmd, err := c.git.Command(t.Context(), "version")
		if err != nil {
			t.Fatal(err)
		}
		env := cmd.Environ()
		for _, kv := range c.want {
			if !slices.Contains(env, kv) {
				t.Errorf("%s is missing from %q", kv, env)
			}
		}
		for _, kv := range c.refuse {
			if slices.Contains(env, kv) {
				t.Errorf("%s is in %q", kv, env)
			}
		}
	}
}

func TestHooksOfARepositoryDoNotRun(t *testing.T) {
	dir := repository(t)
	ran := filepath.Join(t.TempDir(), "ran")
	hooks := filepath.Join(dir, ".git", "hooks")
	if err := errors.Join(os.MkdirAll(hooks, 0o755), os.WriteFile(filepath.Join(hooks, "pre-commit"), []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	git := Git{Dir: dir, Env: Identity("a", "a@invalid", "")}
	if err := git.Run(t.Context(), "commit", "--quiet", "--allow-empty", "-m", "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the hook ran")
	}
	control, err := git.Command(t.Context(), "commit", "--quiet", "--allow-empty", "-m", "y")
	if err != nil {
		t.Fatal(err)
	}
	control.Args = slices.DeleteFunc(control.Args, func(a string) bool {
		return strings.HasPrefix(a, "core.hooksPath") || a == "-c" || strings.Contains(a, "=")
	})
	if err := control.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Error("the control did not run the hook")
	}
}

func TestNoTransportIsAllowedUnlessNamed(t *testing.T) {
	dir := repository(t)
	for _, place := range []string{"https://127.0.0.1:1/x.git", "ssh://127.0.0.1/x", "ext::true", dir} {
		_, err := Git{GitDir: filepath.Join(dir, ".git")}.Output(t.Context(), "ls-remote", place)
		if err == nil || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %v", place, err)
		}
	}
	if _, err := (Git{Protocol: "file"}).Output(t.Context(), "ls-remote", dir); err != nil {
		t.Errorf("control: %v", err)
	}
}

func TestOutputIsBounded(t *testing.T) {
	if out, err := (Git{MaxOutput: 5}).Output(t.Context(), "version"); err == nil || out != "git v" {
		t.Errorf("%q, %v", out, err)
	}
	if out, _, _, err := Version(t.Context(), nil); err != nil || !strings.HasPrefix(out, "git version") {
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
