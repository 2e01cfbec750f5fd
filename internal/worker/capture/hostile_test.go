package capture

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func small(d string) {
	t := &testing.T{} // a failure shows in the commit that follows
	write(t, d+"/a.txt", "a\n")
	write(t, d+"/dir/b.txt", "b\n")
}

// poison creates a git directory whose configuration runs a program, which leaves a
// marker, when git reads a file.
func poison(t testing.TB, dir, marker string) {
	t.Helper()
	script := filepath.Join(dir, ".git", "evil.sh")
	write(t, script, "#!/bin/sh\necho ran >> '"+marker+"'\ncat\n")
	must(t, os.Chmod(script, 0o755))
	for _, kv := range [][2]string{
		{"core.fsmonitor", script},
		{"core.hooksPath", filepath.Join(dir, ".git/hooks")},
		{"filter.evil.clean", script},
		{"filter.evil.smudge", script},
		{"filter.evil.process", ""},
		{"diff.evil.command", script},
		{"diff.evil.textconv", script},
		{"core.sshCommand", script},
		{"core.pager", script},
		{"core.editor", script},
		{"diff.external", script},
		{"core.attributesFile", "/etc/passwd"},
	} {
		git(t, dir, "config", kv[0], kv[1])
	}
	write(t, dir+"/.gitattributes", "[attr]mac filter=evil diff=evil\n* mac filter=evil diff=evil text eol=crlf ident working-tree-encoding=UTF-16 export-subst\n")
	for _, hook := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change", "pre-applypatch"} {
		write(t, dir+"/.git/hooks/"+hook, "#!/bin/sh\necho hook >> '"+marker+"'\n")
		must(t, os.Chmod(dir+"/.git/hooks/"+hook, 0o755))
	}
}

// The control is git with hardened flags in the same workspace, which runs the
// planted program.
//
// proves R-S4
func TestNothingPlantedInAWorkspaceRuns(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	s := newScene(t, "sha1", small).snapshot()
	git(t, s.work, "init", "-q")
	write(t, s.work+"/a.txt", "changed $Id$\r\n")
	poison(t, s.work, marker)
	write(t, s.work+"/nested/in.txt", "nested\n")
	git(t, s.work+"/nested", "init", "-q")
	poison(t, s.work+"/nested", marker)
	write(t, s.work+"/.gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=touch\n")

	res := s.capture()
	dir := s.applied(res)
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("something planted ran")
	}
	if got := changes(res.Files); got != "a .gitattributes\na .gitmodules\nm a.txt\na nested/.gitattributes\na nested/in.txt\n" {
		t.Errorf("files:\n%s", got)
	}
	if got := leftOut(res.LeftOut); strings.Count(got, "\n") != 2 || !strings.Contains(got, ".git: ") || !strings.Contains(got, "nested/.git: ") {
		t.Errorf("left out:\n%s", got)
	}
	if got := git(t, dir, "cat-file", "blob", ":a.txt"); got != strings.TrimSpace("changed $Id$\r\n") {
		t.Errorf("content %q is not what the agent wrote", got)
	}

	out, err := tryGit(s.work, "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "-c", "core.pager=cat", "add", "-A")
	if _, statErr := os.Stat(marker); statErr != nil {
		t.Errorf("control: git add ran nothing (%v, %s); the control is void", err, out)
	}
}

// The control is git add, which fails beside .GIT/x.
//
// proves R-S4
func TestPathsThatGitRefusesAreLeftOutAlone(t *testing.T) {
	s := newScene(t, "sha1", small).snapshot()
	write(t, s.work+"/a.txt", "changed\n")
	bad := []string{".GIT/x", "dir/.git /x", "git~1", ".git\u200c", ".git::$INDEX_ALLOCATION/x", "deep/er/.Git", `x\.git`, "sub/.git./config"}
	for _, p := range bad {
		write(t, s.work+"/"+p, "x\n")
	}
	must(t, os.Symlink("a.txt", s.work+"/.gitmodules"))
	must(t, os.Symlink("/etc", s.work+"/sub/.git"))
	res := s.capture()
	s.applied(res)
	if got := changes(res.Files); got != "m a.txt\n" {
		t.Errorf("files:\n%s", got)
	}
	if len(res.LeftOut) != len(bad)+2 {
		t.Errorf("left out:\n%s", leftOut(res.LeftOut))
	}

	clone := filepath.Join(t.TempDir(), "control")
	git(t, "/", "clone", "-q", s.src, clone)
	write(t, clone+"/a.txt", "changed\n")
	write(t, clone+"/.GIT/x", "x\n")
	_, err := tryGit(clone, "add", "-A")
	if diff := git(t, clone, "diff", "--cached"); err == nil || diff != "" {
		t.Errorf("control: git add -A made a patch beside .GIT/x: %v %s", err, diff)
	}
}

// proves R-S4
func TestSpecialFilesAreLeftOutWithoutBlocking(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		small(d)
		write(t, d+"/was-file", "x\n")
		write(t, d+"/was-dir/f", "x\n")
	}).snapshot()
	w := s.work
	must(t, unix.Mkfifo(w+"/fifo", 0o644))
	must(t, os.Remove(w+"/was-file"))
	must(t, unix.Mkfifo(w+"/was-file", 0o644))
	must(t, os.RemoveAll(w+"/was-dir"))
	must(t, unix.Mkfifo(w+"/was-dir", 0o644))
	l, err := net.Listen("unix", w+"/sock")
	must(t, err)
	defer l.Close() //nolint:errcheck // a test's
	wantDevice := unix.Mknod(w+"/dev", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) == nil
	sparse, err := os.Create(w + "/sparse")
	must(t, err)
	must(t, sparse.Truncate(1<<40))
	must(t, sparse.Close())
	must(t, os.Symlink("/etc/shadow", w+"/shadow"))
	must(t, os.RemoveAll(w+"/dir"))
	must(t, os.Symlink("/etc", w+"/dir"))
	must(t, os.Link(w+"/a.txt", w+"/hard"))
	write(t, w+"/ok.txt", "ok\n")

	done := make(chan Result, 1)
	go func() { done <- s.capture() }()
	var res Result
	select {
	case res = <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("capture blocks")
	}
	s.applied(res)
	if got := changes(res.Files); got != "a dir\nd dir/b.txt\na hard\na ok.txt\na shadow\n" {
		t.Errorf("files:\n%s", got)
	}
	for _, want := range []string{"fifo: a fifo", "was-file: a fifo", "was-dir: a fifo", "sock: a socket", "sparse: a file of more than"} {
		if !strings.Contains(leftOut(res.LeftOut), want) {
			t.Errorf("no %q in\n%s", want, leftOut(res.LeftOut))
		}
	}
	if got := strings.Contains(leftOut(res.LeftOut), "dev: a device"); got != wantDevice {
		t.Errorf("device reported: %v, made: %v", got, wantDevice)
	}
	patch, err := os.ReadFile(res.PatchFile)
	must(t, err)
	if strings.Contains(string(patch), "root:") {
		t.Error("the content of a file outside is in the patch")
	}
	if strings.Join(res.LinksOut, " ") != "dir shadow" {
		t.Errorf("links out: %v", res.LinksOut)
	}
}

// proves R-S4
func TestADirectoryChainBeyondPathMaxIsBounded(t *testing.T) {
	s := newScene(t, "sha1", small).snapshot()
	fd, err := unix.Open(s.work, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	name := strings.Repeat("d", 200)
	for range 1000 {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		_ = unix.Close(fd)
		fd = next
	}
	_ = unix.Close(fd)
	t.Cleanup(func() { _ = exec.Command("rm", "-rf", s.work+"/"+name).Run() })
	short := filepath.Join(s.work, strings.Repeat("e/", 140))
	must(t, os.MkdirAll(short, 0o755))
	write(t, s.work+"/a.txt", "changed\n")
	res := s.capture()
	s.applied(res)
	if got := leftOut(res.LeftOut); len(res.LeftOut) != 2 || !strings.Contains(got, "a path of more than") || !strings.Contains(got, "deeper than") {
		t.Errorf("left out:\n%s", got)
	}
	if changes(res.Files) != "m a.txt\n" {
		t.Errorf("files:\n%s", changes(res.Files))
	}
}

// proves R-S4
func TestExceedingAWorkspaceLimitGivesALimitErrorAndNoPatch(t *testing.T) {
	s := newScene(t, "sha1", small)
	s.cfg.MaxChanged, s.cfg.MaxEntries, s.cfg.MaxTotal = 100, 1000, 10_000
	s.snapshot()
	var limit *LimitError
	try := func(what string) {
		t.Helper()
		res, err := s.repo.Capture(t.Context(), s.root(), s.baseline)
		if !errors.As(err, &limit) || limit.What != what || res.PatchFile != "" {
			t.Errorf("error %v, patch %q; want a limit of %s", err, res.PatchFile, what)
		}
	}
	write(t, s.work+"/big", strings.Repeat("x", 10_001))
	try("bytes of changed files")
	for i := range 101 {
		write(t, fmt.Sprintf("%s/f%d", s.work, i), "x")
	}
	try("changed paths")
	for i := range 1000 {
		write(t, fmt.Sprintf("%s/g%d", s.work, i), "x")
	}
	try("files and directories")
}

// proves R-S4
func TestAHundredThousandFilesAreBounded(t *testing.T) {
	s := newScene(t, "sha1", small).snapshot()
	fd, err := unix.Open(s.work, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(fd) //nolint:errcheck // a test's
	for i := range 100_000 {
		f, err := unix.Openat(fd, fmt.Sprintf("f%d", i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(t, err)
		_ = unix.Close(f)
	}
	_, err = s.repo.Capture(t.Context(), s.root(), s.baseline)
	var limit *LimitError
	if !errors.As(err, &limit) || limit.What != "changed paths" {
		t.Errorf("error: %v", err)
	}
}

// The ordinary user owns the files, so that mode 000 makes them unreadable.
//
// proves R-S4
func TestUnreadableFilesAreLeftOutForAnOrdinaryUser(t *testing.T) {
	const uid = 65530
	if os.Getuid() == 0 {
		dir := t.TempDir()
		bin := filepath.Join(dir, "capture.test")
		self, err := os.ReadFile("/proc/self/exe")
		must(t, err)
		must(t, os.WriteFile(bin, self, 0o755))
		for p := dir; p != "/"; p = filepath.Dir(p) {
			_ = os.Chmod(p, 0o755|os.ModeSticky)
			if p == os.TempDir() {
				must(t, os.Chmod(p, 0o777|os.ModeSticky))
				break
			}
		}
		home := filepath.Join(dir, "home")
		must(t, os.Mkdir(home, 0o700))
		must(t, os.Chown(home, uid, uid))
		cmd := exec.Command(bin, "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Dir, cmd.Env = home, append(testEnv(), "TMPDIR="+home)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Fatalf("as an ordinary user: %v\n%s", err, out)
		}
		return
	}
	s := newScene(t, "sha1", func(d string) {
		small(d)
		write(t, d+"/secret.txt", "old\n")
		write(t, d+"/closed/f.txt", "old\n")
	}).snapshot()
	write(t, s.work+"/a.txt", "changed\n")
	write(t, s.work+"/dir/new", "new\n")
	must(t, os.Chmod(s.work+"/secret.txt", 0))
	must(t, os.Chmod(s.work+"/closed", 0))
	must(t, os.Chmod(s.work+"/dir", 0o444)) // can be listed, not entered
	t.Cleanup(func() { _ = os.Chmod(s.work+"/closed", 0o755); _ = os.Chmod(s.work+"/dir", 0o755) })
	res := s.capture()
	s.applied(res)
	if got := changes(res.Files); got != "m a.txt\n" {
		t.Errorf("files:\n%s", got)
	}
	for _, p := range []string{"secret.txt", "closed", "dir/new", "dir/b.txt"} {
		if !strings.Contains(leftOut(res.LeftOut), p+": "+whyUnreadable) {
			t.Errorf("%s is not reported:\n%s", p, leftOut(res.LeftOut))
		}
	}
}
