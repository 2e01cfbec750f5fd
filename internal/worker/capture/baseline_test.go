package capture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// proves R-D5
func TestThePatchHasTheChangesSinceTheBaselineRelativeToTheBase(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		small(d)
		for _, p := range []string{"setup-only", "both", "restored", "setup-deletes", "setup-then-agent-deletes", "agent-deletes"} {
			write(t, d+"/"+p, "base\n")
		}
		write(t, d+"/setup-turns-to-dir", "base\n")
		write(t, d+"/outputs/tracked", "base\n")
	})
	for _, p := range []string{"setup-only", "both", "restored", "setup-then-agent-deletes"} {
		write(t, s.work+"/"+p, "setup\n")
	}
	must(t, os.Remove(s.work+"/setup-deletes"))
	must(t, os.Remove(s.work+"/setup-turns-to-dir"))
	write(t, s.work+"/setup-turns-to-dir/x", "setup\n")
	write(t, s.work+"/skills/overlay.md", "overlay\n")
	write(t, s.work+"/skills/second.md", "overlay\n")
	write(t, s.work+"/setup-made", "setup\n")
	s.cfg.Overlay = []string{"skills/overlay.md", "skills/second.md"}
	s.snapshot()
	if res := s.capture(); res.PatchFile != "" || len(res.LeftOut) != 0 || res.Tree != res.Base {
		t.Fatalf("result without changes: %+v", res)
	}
	write(t, s.work+"/both", "agent\n")
	write(t, s.work+"/restored", "base\n")
	must(t, os.Remove(s.work+"/setup-then-agent-deletes"))
	must(t, os.Remove(s.work+"/agent-deletes"))
	write(t, s.work+"/setup-turns-to-dir/y", "agent\n")
	write(t, s.work+"/skills/overlay.md", "agent\n")
	must(t, os.Remove(s.work+"/skills/second.md"))
	write(t, s.work+"/outputs/result.json", "{}")
	write(t, s.work+"/outputs/tracked", "agent\n")
	write(t, s.work+"/inputs/x", "x")
	write(t, s.work+"/outputsx", "agent\n")
	res := s.capture()
	dir := s.applied(res)
	want := "d agent-deletes\nm both\na outputsx\nd setup-then-agent-deletes\nd setup-turns-to-dir\na setup-turns-to-dir/y\n"
	if got := changes(res.Files); got != want {
		t.Errorf("files:\n%swant:\n%s", got, want)
	}
	if got := describe(t, dir); got["both"] != "file agent\n" || got["setup-only"] != "file base\n" || got["setup-deletes"] != "file base\n" {
		t.Errorf("clone: %v", got)
	}
	if got := leftOut(res.LeftOut); strings.Count(got, "capability's file") != 2 || strings.Count(got, "\n") != 2 {
		t.Errorf("left out:\n%s", got)
	}
	verify := t.TempDir()
	err := s.repo.Checkout(t.Context(), res.Tree, verify)
	must(t, err)
	sameTrees(t, dir, verify)
}

// A .gitignore of the agent has no effect.
func TestUntrackedFilesThatTheBaseIgnoresAreLeftOutAndCounted(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		small(d)
		write(t, d+"/.gitignore", "node_modules/\n*.o\n!keep.o\n")
		write(t, d+"/dir/.gitignore", "/local\n")
		write(t, d+"/tracked.o", "base\n")
	})
	write(t, s.work+"/node_modules/setup", "x")
	write(t, s.work+"/node_modules/.bin/skill", "overlay")
	s.cfg.Overlay = []string{"node_modules/.bin/skill"}
	s.snapshot()
	if res := s.capture(); len(res.LeftOut) != 0 {
		t.Errorf("untouched, and left out:\n%s", leftOut(res.LeftOut))
	}
	write(t, s.work+"/node_modules/.bin/skill", "agent")
	for _, p := range []string{
		"node_modules/a/b", "node_modules/:(top)x", "node_modules/:/y", "node_modules/-q", "x/y.o", "keep.o", "dir/local", "local", "hidden.txt", "tracked.o",
		"node_modules/back\\slash", "node_modules/new\nline",
	} {
		write(t, s.work+"/"+p, "agent\n")
	}
	write(t, s.work+"/.gitignore", "*\n")
	res := s.capture()
	s.applied(res)
	if got := changes(res.Files); got != "m .gitignore\na hidden.txt\na keep.o\na local\nm tracked.o\n" {
		t.Errorf("files:\n%s", got)
	}
	got := leftOut(res.LeftOut)
	if !strings.Contains(got, "node_modules: 6 untracked") || !strings.Contains(got, "skill: a capability's file") || !strings.Contains(got, "x: 1 untracked") || !strings.Contains(got, "dir: 1 untracked") {
		t.Errorf("left out:\n%s", got)
	}
}

func TestWithoutASourceTheBaseIsTheEmptyTree(t *testing.T) {
	r, err := CreateRepo(t.Context(), filepath.Join(t.TempDir(), "repo"), "")
	must(t, err)
	s := &scene{t: t, repo: r, work: t.TempDir()}
	if err := r.Checkout(t.Context(), "", s.work); err != nil {
		t.Fatal(err)
	}
	s.snapshot()
	if res := s.capture(); res.PatchFile != "" {
		t.Errorf("empty: %+v", res)
	}
	write(t, s.work+"/x/y", "new\n")
	res := s.capture()
	clone := t.TempDir()
	git(t, clone, "init", "-q")
	git(t, clone, "apply", "--index", res.PatchFile)
	if got := git(t, clone, "write-tree"); got != res.Tree || changes(res.Files) != "a x/y\n" {
		t.Errorf("tree %s, result %+v", got, res)
	}
}

// Control: without the bound the same change makes a patch.
func TestAPatchBeyondItsBoundIsRefused(t *testing.T) {
	s := newScene(t, "sha1", small)
	s.cfg.MaxPatch = 1000
	s.snapshot()
	write(t, s.work+"/a.txt", strings.Repeat("line\n", 1000))
	if _, err := s.repo.Capture(t.Context(), s.root(), s.baseline); err == nil || !strings.Contains(err.Error(), "1000 bytes of patch") {
		t.Errorf("error: %v", err)
	}
	s.cfg.MaxPatch = 0
	s.baseline.cfg = s.cfg.withDefaults()
	s.applied(s.capture())
}

func TestALargeTextAndALargeBinaryRoundTrip(t *testing.T) {
	s := newScene(t, "sha1", func(d string) {
		write(t, d+"/text", strings.Repeat("a line of text\n", 1<<20))
		write(t, d+"/bin", strings.Repeat("\x00\x01binary", 1<<18))
	}).snapshot()
	write(t, s.work+"/text", strings.Repeat("a line of text\n", 1<<19)+"changed\n"+strings.Repeat("a line of text\n", 1<<19))
	write(t, s.work+"/bin", strings.Repeat("\x00\x02binary", 1<<19))
	dir := s.applied(s.capture())
	sameTrees(t, s.work, dir)
}

func TestAPatchCanDeleteEverything(t *testing.T) {
	s := newScene(t, "sha1", small).snapshot()
	must(t, os.RemoveAll(s.work+"/dir"))
	must(t, os.Remove(s.work+"/a.txt"))
	res := s.capture()
	s.applied(res)
	if got := changes(res.Files); got != "d a.txt\nd dir/b.txt\n" {
		t.Errorf("files:\n%s", got)
	}
	if err := s.repo.Checkout(t.Context(), res.Tree, t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestCaptureWorksThroughAnOPathDescriptor(t *testing.T) {
	s := newScene(t, "sha1", small).snapshot()
	write(t, s.work+"/a.txt", "changed\n")
	fd, err := unix.Open(s.work, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	root := os.NewFile(uintptr(fd), "workspace")
	defer root.Close() //nolint:errcheck // a test's
	res, err := s.repo.Capture(t.Context(), root, s.baseline)
	must(t, err)
	s.applied(res)
	if changes(res.Files) != "m a.txt\n" {
		t.Errorf("files: %v", res.Files)
	}
}
