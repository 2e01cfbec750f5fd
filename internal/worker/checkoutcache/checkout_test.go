package checkoutcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// builderEnv makes this program a process that uses a checkout until its
// standard input ends: the arguments are store, source and commit.
const (
	builderEnv = "CHECKOUT_TEST_BUILDER"
	readOnly   = "read-only" // its value for a process that only sees the store
)

func TestMain(m *testing.M) {
	if os.Getenv(builderEnv) != "" {
		if err := builder(os.Args[1], os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func builder(store, source, commit string) error {
	if os.Getenv(builderEnv) == readOnly {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(store, store, "", unix.MS_BIND, ""),
			unix.Mount("", store, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "builder")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a test's
	repo, err := capture.CreateRepo(context.Background(), dir+"/git", source)
	if err != nil {
		return err
	}
	c, err := New(store).Acquire(context.Background(), repo, source, commit)
	if err != nil {
		return err
	}
	if _, err := c.Worktree(context.Background(), repo); err != nil && os.Getenv(builderEnv) != readOnly {
		return err
	}
	fmt.Println("holds")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return c.Close()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@invalid", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@invalid",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// scene is a repository and a store.
type scene struct {
	t              testing.TB
	source, commit string
	store          *Store
}

func newScene(t testing.TB, files int) *scene {
	t.Helper()
	s := &scene{t: t, source: filepath.Join(t.TempDir(), "src"), store: New(filepath.Join(t.TempDir(), "checkouts"))}
	must(t, os.Mkdir(s.source, 0o755))
	git(t, s.source, "init", "-q", "-b", "main")
	for i := range files {
		p := fmt.Sprintf("%s/dir%d/file%d", s.source, i%7, i)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, fmt.Appendf(nil, "content of %d\n", i), 0o644))
	}
	must(t, os.Symlink("dir0/file0", s.source+"/link"))
	git(t, s.source, "add", "-A")
	git(t, s.source, "commit", "-qm", "first")
	s.commit = git(t, s.source, "rev-parse", "HEAD")
	return s
}

func (s *scene) repo() *capture.Repo {
	s.t.Helper()
	r, err := capture.CreateRepo(context.Background(), filepath.Join(s.t.TempDir(), "repo"), s.source)
	must(s.t, err)
	return r
}

func (s *scene) use() *Checkout {
	s.t.Helper()
	c, err := s.store.Acquire(context.Background(), s.repo(), s.source, s.commit)
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	s.same(c.Tree)
	return c
}

// same fails unless dir is a checkout of the commit.
func (s *scene) same(tree string) {
	s.t.Helper()
	if out, err := exec.Command("diff", "-r", "--no-dereference", "-x", ".git", s.source, tree).CombinedOutput(); err != nil {
		s.t.Fatalf("the checkout is not the commit: %v\n%s", err, out)
	}
}

func (s *scene) one() Entry {
	s.t.Helper()
	list, err := s.store.List()
	if err != nil || len(list) != 1 {
		s.t.Fatalf("%d checkouts, %v", len(list), err)
	}
	return list[0]
}

// names lists the store.
func (s *scene) names() string {
	s.t.Helper()
	list, err := os.ReadDir(s.store.dir)
	must(s.t, err)
	var out []string
	for _, d := range list {
		_, rest, _ := strings.Cut(d.Name(), ".")
		rest, _, _ = strings.Cut(rest, "-")
		out = append(out, "."+rest)
	}
	return strings.Join(out, " ")
}

func inode(t testing.TB, name string) uint64 {
	t.Helper()
	st, err := os.Lstat(name)
	must(t, err)
	return st.Sys().(*syscall.Stat_t).Ino
}

func TestConcurrentAcquiresCreateACheckoutOnce(t *testing.T) {
	s := newScene(t, 50)
	trees := make([]uint64, 8)
	var wg sync.WaitGroup
	for i := range trees {
		repo := s.repo()
		wg.Go(func() {
			c, err := s.store.Acquire(t.Context(), repo, s.source, s.commit)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.Worktree(t.Context(), repo); err != nil {
				t.Error(err)
			}
			trees[i] = inode(t, c.Tree)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, n := range trees {
		if n != trees[0] {
			t.Errorf("created more than once: %v", trees)
		}
	}
	if got := s.names(); got != ". .lock" {
		t.Errorf("left in the store: %s", got)
	}
	e := s.one()
	if e.Source != s.source || e.Commit != s.commit || e.Bytes < 50*4096 || time.Since(e.LastUsed) > time.Minute {
		t.Errorf("entry %+v", e)
	}
}

// damages are ways to change a finished checkout.
func damages() map[string]func(entry string) error {
	file := func(entry string) string { return entry + "/tree/dir3/file3" }
	return map[string]func(entry string) error{
		"flipped byte": func(e string) error { return rewrite(file(e), func(b []byte) []byte { b[3] ^= 1; return b }) },
		"replaced file": func(e string) error {
			return errors.Join(os.WriteFile(file(e)+".new", []byte("content of X\n"), 0o644), os.Rename(file(e)+".new", file(e)))
		},
		"emptied file":      func(e string) error { return os.Truncate(file(e), 0) },
		"added file":        func(e string) error { return os.WriteFile(e+"/tree/dir2/added", []byte("x"), 0o644) },
		"added at the top":  func(e string) error { return os.WriteFile(e+"/tree/Makefile", []byte("x"), 0o644) },
		"removed file":      func(e string) error { return os.Remove(file(e)) },
		"removed directory": func(e string) error { return os.RemoveAll(e + "/tree/dir4") },
		"other mode":        func(e string) error { return os.Chmod(file(e), 0o755) },
		"link to elsewhere": func(e string) error {
			return errors.Join(os.Remove(e+"/tree/link"), os.Symlink("/etc/passwd", e+"/tree/link"))
		},
		"directory as link": func(e string) error {
			return errors.Join(os.RemoveAll(e+"/tree/dir1"), os.Symlink("/etc", e+"/tree/dir1"))
		},
		"no tree":             func(e string) error { return os.RemoveAll(e + "/tree") },
		"no index":            func(e string) error { return os.Remove(e + "/index") },
		"flipped index":       func(e string) error { return rewrite(e+"/index", func(b []byte) []byte { b[len(b)/2] ^= 4; return b }) },
		"cut index":           func(e string) error { return rewrite(e+"/index", func(b []byte) []byte { return b[:len(b)-40] }) },
		"a file in its place": func(e string) error { return errors.Join(os.RemoveAll(e), os.WriteFile(e, nil, 0o600)) },
		"removed":             os.RemoveAll,
	}
}

// rewrite changes a file in place and restores the times that a program can set.
func rewrite(name string, change func([]byte) []byte) error {
	st, err := os.Stat(name)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(name, change(b), 0), os.Chtimes(name, st.ModTime(), st.ModTime()))
}

// The control is an unchanged checkout, which is reused.
//
// proves R-S4
func TestAChangedCheckoutIsRecreatedAndNeverUsed(t *testing.T) {
	for what, damage := range damages() {
		t.Run(what, func(t *testing.T) {
			s := newScene(t, 20)
			c := s.use()
			before := inode(t, c.Tree)
			must(t, c.Close())
			c = s.use()
			if inode(t, c.Tree) != before {
				t.Error("control: recreated")
			}
			must(t, c.Close())
			must(t, damage(filepath.Dir(c.Tree)))
			s.use()
			if got := s.names(); got != ". .lock" {
				t.Errorf("left in the store: %s", got)
			}
		})
	}
}

func TestADamagedCheckoutInUseIsReplacedAndRemovedAfterUse(t *testing.T) {
	s := newScene(t, 20)
	old := s.use()
	dir, err := old.Worktree(t.Context(), s.repo())
	must(t, err)
	must(t, os.WriteFile(old.Tree+"/added", nil, 0o644))
	held, err := os.Open(old.Tree)
	must(t, err)
	defer held.Close()
	s.use()
	if got := s.names(); got != ". .gone .lock" {
		t.Errorf("in the store: %s", got)
	}
	if n, err := s.store.Sweep(); n != 0 || err != nil {
		t.Errorf("swept %d while it was in use, %v", n, err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/dir0/file0", held.Fd())); err != nil {
		t.Errorf("removed while in use: %v", err)
	}
	must(t, old.Close())
	if n, err := s.store.Sweep(); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if got := s.names(); got != ". .lock" {
		t.Errorf("in the store: %s", got)
	}
	_ = dir
}

// After a power cut a file may have its size and time but not its content. The
// control is the same boot, where metadata is enough and this forged index
// passes.
func TestContentIsVerifiedAfterAReboot(t *testing.T) {
	s := newScene(t, 20)
	c := s.use()
	must(t, rewrite(c.Tree+"/dir3/file3", func(b []byte) []byte { b[0] ^= 1; return b }))
	forged, err := s.repo().IndexCheckout(t.Context(), s.commit, c.Tree)
	must(t, err)
	must(t, os.WriteFile(filepath.Dir(c.Tree)+"/index", forged.Encode(), 0o600))
	must(t, c.Close())
	again, err := s.store.Acquire(t.Context(), s.repo(), s.source, s.commit)
	must(t, err)
	if b, err := os.ReadFile(again.Tree + "/dir3/file3"); err != nil || bytes.HasPrefix(b, []byte("content")) {
		t.Errorf("control: %q %v", b, err)
	}
	must(t, again.Close())

	s.store.boot = "another"
	c = s.use()
	before := inode(t, c.Tree)
	must(t, c.Close())
	s.store.boot = "a third"
	c = s.use()
	if inode(t, c.Tree) != before {
		t.Error("recreated")
	}
	if b, err := os.ReadFile(filepath.Dir(c.Tree) + "/boot"); err != nil || string(b) != "a third" {
		t.Errorf("boot %q %v", b, err)
	}
}

func TestAWorktreeIsCreatedOnceAndRecreatedWhenChanged(t *testing.T) {
	s := newScene(t, 20)
	c := s.use()
	made := func() (string, uint64) {
		dir, err := c.Worktree(t.Context(), s.repo())
		must(t, err)
		if got := git(t, dir, "rev-parse", "HEAD"); got != s.commit {
			t.Errorf("HEAD is %s", got)
		}
		return dir, inode(t, dir)
	}
	dir, first := made()
	if _, again := made(); again != first {
		t.Error("created twice")
	}
	must(t, rewrite(dir+"/.git/config", func(b []byte) []byte { return append(b, "[core]\n\tfsmonitor = /tmp/x\n"...) }))
	if _, after := made(); after == first {
		t.Error("a changed worktree was used")
	}
	if b, err := os.ReadFile(dir + "/.git/config"); err != nil || bytes.Contains(b, []byte("fsmonitor")) {
		t.Errorf("config %q %v", b, err)
	}
	alone := s.one().Bytes
	must(t, c.Close())
	must(t, s.store.Remove(s.one()))
	if c := s.use(); s.one().Bytes >= alone {
		t.Errorf("the size of %s does not include its .git: %d, without %d", c.Tree, alone, s.one().Bytes)
	}
}

// proves R-A2
func TestACheckoutInUseIsNeverRemoved(t *testing.T) {
	s := newScene(t, 20)
	c, second := s.use(), s.use()
	must(t, c.Close())
	if err := s.store.Remove(s.one()); !errors.Is(err, ErrInUse) {
		t.Errorf("in use: %v", err)
	}
	old := s.one()
	must(t, second.Close())
	must(t, s.use().Close())
	if err := s.store.Remove(old); !errors.Is(err, ErrInUse) {
		t.Errorf("used since it was listed: %v", err)
	}
	lock, err := s.store.tryLock(old.Key, 0)
	must(t, err)
	if err := s.store.Remove(s.one()); !errors.Is(err, ErrInUse) {
		t.Errorf("while being created: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	must(t, os.WriteFile(c.Tree+"/added", nil, 0o644))
	if _, err := s.store.Acquire(stopped, s.repo(), s.source, s.commit); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while waiting: %v", err)
	}
	must(t, lock.Close())
	must(t, s.store.Remove(s.one()))
	if got := s.names(); got != "" {
		t.Errorf("in the store: %s", got)
	}
	for _, key := range []string{"..", "../x", "", old.Key + ".lock"} {
		if err := s.store.Remove(Entry{Key: key}); err == nil {
			t.Errorf("%q was removed", key)
		}
	}
	for _, commit := range []string{"", "HEAD", "../x", s.commit[:39], strings.ToUpper(s.commit)} {
		if _, err := s.store.Acquire(t.Context(), s.repo(), s.source, commit); err == nil {
			t.Errorf("there is a checkout of %q", commit)
		}
	}
	if list, err := s.store.List(); err != nil || len(list) > 0 {
		t.Errorf("listed: %v %v", list, err)
	}
}

// A creator killed at any instant leaves a complete checkout, or garbage that the
// next creator or Sweep removes, and no lock.
//
// proves R-A2
func TestAKilledCreatorLeavesOnlyGarbageForSweep(t *testing.T) {
	s := newScene(t, 200)
	rubbish, whole := 0, 0
	// kill starts a creator and kills it after wait, or when it has the checkout.
	kill := func(wait time.Duration) time.Duration {
		cmd := exec.Command("/proc/self/exe", s.store.dir, s.source, s.commit)
		cmd.Env = append(os.Environ(), builderEnv+"=1", "TMPDIR="+t.TempDir())
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		start := time.Now()
		must(t, cmd.Start())
		if wait > 0 {
			<-time.NewTimer(wait).C
		} else if n, err := out.Read(make([]byte, 16)); n == 0 {
			t.Fatalf("the creator has no checkout: %v", err)
		}
		took := time.Since(start)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		_ = in.Close()
		return took
	}
	// How long a creation takes depends on the machine, so the kills fall within
	// the time of a whole one.
	creation := kill(0)
	must(t, s.store.Remove(s.one()))
	for i := 0; i < 20 || rubbish == 0 && i < 200; i++ {
		kill(1 + rand.N(creation))
		names := ""
		if _, err := os.Stat(s.store.dir); err == nil {
			names = s.names()
		}
		if strings.Contains(names, ".new") {
			rubbish++
		} else if strings.HasPrefix(names, ". ") {
			whole++
		}
		if i%2 == 0 {
			// A child of the maker has its lock between fork and exec, and Sweep
			// skips what is locked.
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
				if _, err := s.store.Sweep(); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(s.store.dir); err != nil || !strings.Contains(s.names(), ".new") || time.Now().After(end) {
					break
				}
			}
		} else { // the next maker
			c := s.use()
			_, err := c.Worktree(t.Context(), s.repo())
			must(t, errors.Join(err, c.Close()))
		}
		if _, err := os.Stat(s.store.dir); err == nil {
			if got := s.names(); got != "" && got != ". .lock" {
				t.Fatalf("after kill %d: %s", i, got)
			}
		}
		if list, err := s.store.List(); err == nil && len(list) == 1 {
			must(t, s.use().Close())
			must(t, s.store.Remove(s.one()))
		}
	}
	t.Logf("%d kills left half a checkout, %d a whole one", rubbish, whole)
	if rubbish == 0 {
		t.Error("no kill hit the creation of a checkout")
	}
}

// The control is the same process while it lives.
func TestAKilledUserReleasesItsCheckout(t *testing.T) {
	s := newScene(t, 20)
	cmd := exec.Command("/proc/self/exe", s.store.dir, s.source, s.commit)
	cmd.Env = append(os.Environ(), builderEnv+"=1", "TMPDIR="+t.TempDir())
	in, err := cmd.StdinPipe()
	must(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if n, err := out.Read(make([]byte, 16)); n == 0 || err != nil {
		t.Fatalf("removing it: %v", err)
	}
	if err := s.store.Remove(s.one()); !errors.Is(err, ErrInUse) {
		t.Errorf("control: %v", err)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	must(t, s.store.Remove(s.one()))
}

func TestSweepRemovesOnlyGarbage(t *testing.T) {
	s := newScene(t, 5)
	c := s.use()
	key := s.one().Key
	for _, d := range []string{key + ".new-1", key + ".gone-2", "notes", "x.new-1"} {
		must(t, os.MkdirAll(filepath.Join(s.store.dir, d, "tree"), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(s.store.dir, strings.Repeat("0", 16)+"-"+s.commit+".lock"), nil, 0o600))
	if n, err := s.store.Sweep(); n != 3 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	s.same(c.Tree)
	if got := s.names(); got != ". .lock . .new" {
		t.Errorf("in the store: %s", got)
	}
	if n, err := New(filepath.Join(t.TempDir(), "none")).Sweep(); n != 0 || err != nil {
		t.Errorf("swept %d in a missing store, %v", n, err)
	}
}

// reader is a process to which the store is shown read-only, in a mount namespace of its own.
func (s *scene) reader() (output string, err error) {
	s.t.Helper()
	self, err := os.Executable()
	must(s.t, err)
	cmd := exec.Command(self, s.store.dir, s.source, s.commit)
	cmd.Env = []string{builderEnv + "=" + readOnly, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// proves R-S4
func TestAReaderOfTheStoreUsesWhatIsReadyAndAddsNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the mount takes root
	}
	s := newScene(t, 20)
	must(t, os.MkdirAll(s.store.dir, 0o700))
	if out, err := s.reader(); err == nil || !strings.Contains(out, ErrReadOnly.Error()) || s.names() != "" {
		t.Errorf("without a checkout: %v %s; the store has %q", err, out, s.names())
	}
	scratch := filepath.Join(t.TempDir(), "scratch")
	src, err := capture.OpenSource(t.Context(), s.source)
	must(t, err)
	must(t, s.store.Prepare(t.Context(), src, s.source, s.commit, scratch, 0))
	if _, err := os.Lstat(scratch); err == nil {
		t.Error("scratch is left")
	}
	if out, err := s.reader(); err != nil {
		t.Errorf("a checkout that is ready: %v %s", err, out)
	}
	before := s.one()
	old := before.LastUsed.Add(-time.Hour)
	must(t, os.Chtimes(s.store.path(before.Key), old, old))
	must(t, s.store.Prepare(t.Context(), src, s.source, s.commit, scratch, 0)) // it is there, and only marked as used
	if _, err := os.Stat(filepath.Join(s.store.path(before.Key), gitDir)); err == nil {
		t.Error("control: a repository that lies at its path is copied")
	}
	if used := s.one().LastUsed; !used.After(old) {
		t.Errorf("used at %v, prepared again after %v", used, old)
	}
	must(t, os.WriteFile(filepath.Join(s.store.path(before.Key), treeDir, "dir0", "file0"), []byte("another"), 0o644))
	if out, err := s.reader(); err == nil || !strings.Contains(out, ErrReadOnly.Error()) {
		t.Errorf("a changed checkout: %v %s", err, out)
	}
	must(t, s.store.Prepare(t.Context(), src, s.source, s.commit, scratch, 0)) // it was checked a moment ago
	if out, err := s.reader(); err == nil {
		t.Errorf("control: still changed: %s", out)
	}
	must(t, os.Chtimes(filepath.Join(s.store.path(before.Key), bootFile), old, old))
	must(t, s.store.Prepare(t.Context(), src, s.source, s.commit, scratch, 0))
	if out, err := s.reader(); err != nil {
		t.Errorf("made again: %v %s", err, out)
	}
}

// A reader needs no source: what Prepare made of a linked work tree has all objects of the commit.
//
// proves R-S4
func TestAReaderHasTheObjectsOfASourceThatLiesElsewhere(t *testing.T) {
	s := newScene(t, 20)
	linked := filepath.Join(t.TempDir(), "Größe und Maß")
	git(t, s.source, "worktree", "add", "-q", "--detach", linked)
	src, err := capture.OpenSource(t.Context(), linked)
	must(t, err)
	for range 2 { // the second finds it
		must(t, s.store.Prepare(t.Context(), src, linked, s.commit, filepath.Join(t.TempDir(), "scratch"), 0))
	}
	if got := s.store.Repository(linked, s.commit); got != "" {
		t.Errorf("control: the owner of the store is sent to %s", got)
	}
	s.store.readOnly = true
	if got := s.store.Repository(s.source, s.commit); got != "" {
		t.Errorf("control: another source is at %s", got)
	}
	must(t, os.RemoveAll(s.source+"/.git"))
	repo, err := capture.CreateRepo(t.Context(), filepath.Join(t.TempDir(), "repo"), s.store.Repository(linked, s.commit))
	must(t, err)
	c, err := s.store.Acquire(t.Context(), repo, linked, s.commit)
	must(t, err)
	defer c.Close()
	out := t.TempDir()
	must(t, repo.Checkout(t.Context(), s.commit, out))
	s.same(out)
}
