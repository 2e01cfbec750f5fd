package capture

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe" //nolint:depguard // an argument of a system call, in a test

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// whole describes everything below dir: types, permissions and content.
func whole(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what += " " + string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			what += " " + to
		}
		m[strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")] = what
		return nil
	}))
	return m
}

// differs returns the difference of two descriptions.
func differs(got, want map[string]string) string {
	var out strings.Builder
	for p, v := range want {
		if got[p] != v {
			fmt.Fprintf(&out, "%q is %.60q, want %.60q\n", p, got[p], v)
		}
	}
	for p, v := range got {
		if _, ok := want[p]; !ok {
			fmt.Fprintf(&out, "%q is %.60q, and should not be there\n", p, v)
		}
	}
	return out.String()
}

// inJail describes the merged lower directories in a jail.
func inJail(t testing.TB, forced bool, lower ...string) map[string]string {
	t.Helper()
	j, err := jail.Start(t.Context(), jail.Spec{Lower: lower, Copy: forced})
	must(t, err)
	defer j.Close() //nolint:errcheck // a test's
	return whole(t, fmt.Sprintf("/proc/self/fd/%d/", j.Workspace().Fd()))
}

// proves R-D10
func TestALayerOverItsBaseShowsTheCheckout(t *testing.T) {
	tmp := t.TempDir()
	n, hidden := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; n > 40 && !t.Failed() {
			return // each is two commits and two jails
		}
		dir := filepath.Join(tmp, fmt.Sprint(n))
		for _, d := range []string{"", "/src", "/base", "/layer", "/plain"} {
			must(t, os.Mkdir(dir+d, 0o755))
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a test's
		src := dir + "/src"
		git(t, src, "init", "-q", "-b", "main", "--object-format="+rapid.SampledFrom([]string{"sha1", "sha256"}).Draw(rt, "format"))
		commit := func(label string) string {
			for range rapid.IntRange(0, 14).Draw(rt, label) {
				edit(rt, src)
			}
			git(t, src, "add", "-A", "-f")
			if rapid.Bool().Draw(rt, "submodule") {
				head := strings.Repeat("1", len(git(t, src, "write-tree")))
				_, _ = tryGit(src, "update-index", "--add", "--cacheinfo", "160000,"+head+","+rapid.SampledFrom([]string{"a", "b/a", ".j/.j/a"}).Draw(rt, "at"))
			}
			git(t, src, "commit", "-q", "--allow-empty", "-m", label)
			return git(t, src, "rev-parse", "HEAD")
		}
		base, top := commit("before"), commit("after")
		r, err := CreateRepo(t.Context(), dir+"/repo", src)
		must(t, err)
		err = r.Checkout(t.Context(), base, dir+"/base")
		must(t, err)
		err = r.Checkout(t.Context(), top, dir+"/plain")
		must(t, err)
		must(t, r.Layer(t.Context(), base, top, dir+"/layer"))
		for p, v := range whole(t, dir+"/layer") {
			if strings.HasPrefix(v, "Dc") {
				hidden++
				if _, err := os.Lstat(dir + "/base/" + p); err != nil {
					rt.Errorf("%q has a whiteout, but is not in the base", p)
				}
			}
		}
		want := whole(t, dir+"/plain")
		for _, forced := range []bool{false, true} {
			if d := differs(inJail(t, forced, dir+"/layer", dir+"/base"), want); d != "" {
				rt.Fatalf("copy %v: %sbase:\n%s\ntop:\n%s", forced, d, git(t, src, "ls-tree", "-r", base), git(t, src, "ls-tree", "-r", top))
			}
		}
	})
	if hidden == 0 {
		t.Error("no layer had a whiteout")
	}
	asOrdinaryUser(t)
}

func TestARemovedDirectoryNeedsOneWhiteout(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		write(t, d+"/keep/x", "x\n")
		for i := range 20 {
			write(t, fmt.Sprintf("%s/keep/gone/%d/f", d, i), "f\n")
		}
	})
	git(t, s.src, "rm", "-rq", "keep/gone")
	git(t, s.src, "commit", "-qm", "less")
	layer := t.TempDir()
	must(t, s.repo.Layer(t.Context(), s.commit, git(t, s.src, "rev-parse", "HEAD"), layer))
	if got := whole(t, layer); len(got) != 2 || !strings.HasPrefix(got["keep/gone"], "Dc") {
		t.Errorf("the layer holds %v", got)
	}
}

// The control is the same layer while whiteouts are allowed.
func TestLayerReturnsErrNoWhiteout(t *testing.T) {
	s := newScene(t, "sha1", small)
	git(t, s.src, "rm", "-q", "a.txt")
	git(t, s.src, "commit", "-qm", "less")
	top := git(t, s.src, "rev-parse", "HEAD")
	must(t, s.repo.Layer(t.Context(), s.commit, top, t.TempDir()))
	refused := make(chan error)
	into := t.TempDir()
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its restriction
		if err := forbidDevices(); err != nil {
			refused <- err
			return
		}
		refused <- s.repo.Layer(t.Context(), s.commit, top, into)
	}()
	if err := <-refused; !errors.Is(err, ErrNoWhiteout) {
		t.Errorf("where whiteouts are refused: %v", err)
	}
}

// forbidDevices takes the right to make character devices from this thread.
func forbidDevices() error {
	handled := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_CHAR)
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)), 8, 0)
	if errno != 0 {
		return errno
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func TestApplyPatchIsExact(t *testing.T) {
	s := newScene(t, "sha1", small).snapshot()
	write(t, s.work+"/a.txt", "changed\n")
	must(t, os.RemoveAll(s.work+"/dir"))
	write(t, s.work+"/bin", "\x00\xff")
	write(t, s.work+"/.gitattributes", "* text eol=crlf filter=x\n")
	res := s.capture()
	apply := func(base string, patch io.Reader) (string, error) { return s.repo.ApplyPatch(t.Context(), base, patch) }
	f, err := os.Open(res.PatchFile)
	must(t, err)
	defer f.Close()
	if tree, err := apply(s.commit, f); err != nil || tree != res.Tree {
		t.Errorf("applied it gives %s, %v; it was %s", tree, err, res.Tree)
	}
	if tree, err := apply(s.commit, strings.NewReader("")); err != nil || tree != res.Base {
		t.Errorf("an empty patch gives %s, %v", tree, err)
	}
	_, err = f.Seek(0, io.SeekStart)
	must(t, err)
	for what, patch := range map[string]io.Reader{
		"of another base": f,
		"no patch":        strings.NewReader("hello\n"),
	} {
		base := s.commit
		if what == "of another base" {
			base = res.Tree
		}
		if tree, err := apply(base, patch); err == nil {
			t.Errorf("%s: applied, and gives %s", what, tree)
		}
	}
	for _, evil := range []string{"../out", ".git/config", "dir/../../x", "/etc/x"} {
		patch := "diff --git a/" + evil + " b/" + evil + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + evil + "\n@@ -0,0 +1 @@\n+x\n"
		if tree, err := apply(s.commit, strings.NewReader(patch)); err == nil {
			t.Errorf("%s: applied, and gives %s", evil, tree)
		}
	}
	good := "diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n"
	for _, base := range []string{s.commit, ""} { // the control of the paths above
		if _, err := apply(base, strings.NewReader(good)); err != nil {
			t.Errorf("a good path on %q: %v", base, err)
		}
	}
	if left, _ := filepath.Glob(s.repo.dir + "/apply-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// proves R-D6
func TestAResumedAttemptsPatchHasTheEarlierWork(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		for _, p := range []string{"untouched", "kept", "again", "reverted", "gone", "back", "file-to-dir", "dir-to-file/x", "setup"} {
			write(t, d+"/"+p, "base\n")
		}
	})
	s.snapshot()
	for _, p := range []string{"kept", "again", "reverted", "new", "new-then-gone"} {
		write(t, s.work+"/"+p, "first\n")
	}
	for _, p := range []string{"gone", "back", "file-to-dir", "dir-to-file"} {
		must(t, os.RemoveAll(s.work+"/"+p))
	}
	write(t, s.work+"/file-to-dir/y", "first\n")
	write(t, s.work+"/dir-to-file", "first\n")
	first := s.capture()

	s.work = t.TempDir()
	err := s.repo.Checkout(t.Context(), first.Tree, s.work)
	must(t, err)
	write(t, s.work+"/setup", "setup\n")
	s.cfg.Resumed = first.Tree
	s.snapshot()
	if res := s.capture(); changes(res.Files) != changes(first.Files) || res.Tree != first.Tree {
		t.Errorf("an idle attempt has the patch\n%swant\n%s", changes(res.Files), changes(first.Files))
	}
	write(t, s.work+"/again", "second\n")
	write(t, s.work+"/reverted", "base\n")
	write(t, s.work+"/back", "base\n")
	must(t, os.Remove(s.work+"/new-then-gone"))
	write(t, s.work+"/second", "second\n")
	res := s.capture()
	want := "m again\nd dir-to-file/x\na dir-to-file\nd file-to-dir\na file-to-dir/y\nd gone\nm kept\na new\na second\n"
	if sorted(changes(res.Files)) != sorted(want) || res.Base != first.Base {
		t.Errorf("files:\n%swant:\n%s", changes(res.Files), want)
	}
	s.applied(res)

	s.cfg.Resumed = "" // the control: without being told, the earlier work is lost
	s.snapshot()
	if res := s.capture(); res.PatchFile != "" {
		t.Errorf("control: %s", changes(res.Files))
	}
}

func sorted(lines string) string {
	list := strings.Split(lines, "\n")
	slices.Sort(list)
	return strings.Join(list, "\n")
}
