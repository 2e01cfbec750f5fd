package capture

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// edit makes a random change at a random path of few names, so that files,
// directories and links often replace each other.
func edit(rt *rapid.T, dir string) {
	name := rapid.SampledFrom([]string{"a", "b", "c d", "e\tf", "g\"h", "\xff", "-i", ".j", ":k", "ü", "l\\", "*"})
	p := dir
	for depth := rapid.IntRange(1, 3).Draw(rt, "depth"); depth > 0; depth-- {
		p = filepath.Join(p, name.Draw(rt, "name"))
	}
	content := rapid.OneOf(
		rapid.Just(""), rapid.Just("no newline"), rapid.Just("a\r\nb\r\n"), rapid.Just("\x00bin\xff"),
		rapid.StringMatching(`([a-c]{0,3}\n){0,40}[a-c]?`), rapid.StringN(0, 200, 400),
	)
	what := rapid.SampledFrom([]string{"file", "file", "file", "exec", "link", "delete", "mode", "dir", "append"}).Draw(rt, "what")
	st, err := os.Lstat(p)
	exists := err == nil
	switch what {
	case "delete":
		_ = os.RemoveAll(p)
		return
	case "mode", "append":
		if !exists || !st.Mode().IsRegular() {
			return
		}
		if what == "mode" {
			_ = os.Chmod(p, st.Mode().Perm()^0o111)
			return
		}
		f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, _ = f.WriteString(content.Draw(rt, "more"))
			_ = f.Close()
		}
		return
	}
	for q := filepath.Dir(p); q != dir; q = filepath.Dir(q) {
		if st, err := os.Lstat(q); err == nil && !st.IsDir() {
			_ = os.Remove(q)
		}
	}
	_ = os.RemoveAll(p)
	_ = os.MkdirAll(filepath.Dir(p), 0o755)
	switch what {
	case "file":
		err = os.WriteFile(p, []byte(content.Draw(rt, "content")), 0o644)
	case "exec":
		err = os.WriteFile(p, []byte(content.Draw(rt, "content")), 0o755)
	case "dir":
		err = os.Mkdir(p, 0o755)
	case "link":
		// No link that loops: git apply in a work tree cannot put a directory in
		// the place of one (see the package comment).
		err = os.Symlink(rapid.SampledFrom([]string{"nowhere", "../b", "/etc/shadow", ".", "a\nb"}).Draw(rt, "target"), p)
	}
	if err != nil {
		rt.Fatal(err)
	}
}

// git apply in a work tree looks through a link that the patch removes, and finds
// another: it refuses the file beyond it. With --index it applies.
func TestADirectoryInPlaceOfALinkToItsParentAppliesToTheIndex(t *testing.T) {
	s := newScene(t, "sha1", func(dir string) {
		must(t, os.Symlink(".", dir+"/here"))
		must(t, os.Symlink("nowhere", dir+"/b"))
	}).snapshot()
	must(t, os.Remove(s.work+"/here"))
	must(t, os.MkdirAll(s.work+"/here/b", 0o755))
	must(t, os.WriteFile(s.work+"/here/b/a", []byte("x\n"), 0o644))
	res := s.capture()
	clone := t.TempDir() + "/clone"
	git(t, s.src, "clone", "-q", ".", clone)
	if out, err := tryGit(clone, "apply", res.PatchFile); err == nil || !strings.Contains(out, "beyond a symbolic link") {
		t.Logf("git applies it to a work tree too: %v %s", err, out)
	}
	if out, err := tryGit(clone, "apply", "--index", res.PatchFile); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if got := describe(t, clone)["here/b/a"]; got != describe(t, s.work)["here/b/a"] || got == "" {
		t.Errorf("the file is %q", got)
	}
}

// proves R-D5
func TestAnyPatchAppliedToACloneGivesTheWorkspace(t *testing.T) {
	tmp := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		format := rapid.SampledFrom([]string{"sha1", "sha256"}).Draw(rt, "format")
		dir := filepath.Join(tmp, fmt.Sprint(n))
		must(t, os.Mkdir(dir, 0o755))
		defer os.RemoveAll(dir) //nolint:errcheck // a test's
		s := &scene{t: t, src: dir + "/src", work: dir + "/work"}
		must(t, os.Mkdir(s.work, 0o755))
		git(t, dir, "init", "-q", "--object-format="+format, "src")
		for range rapid.IntRange(0, 12).Draw(rt, "files") {
			edit(rt, s.src)
		}
		git(t, s.src, "add", "-A", "-f", ".")
		git(t, s.src, "commit", "-q", "--allow-empty", "-m", "base")
		s.commit = git(t, s.src, "rev-parse", "HEAD")
		s.checkout()
		fresh := describe(t, s.work)
		for p, v := range describe(t, s.src) {
			if fresh[p] != v {
				rt.Fatalf("checkout: %q is %q, want %q", p, fresh[p], v)
			}
		}
		s.snapshot()
		for range rapid.IntRange(0, 12).Draw(rt, "edits") {
			edit(rt, s.work)
		}
		res := s.capture()
		if len(res.LeftOut) != 0 {
			rt.Fatalf("left out: %v", res.LeftOut)
		}
		clone := dir + "/clone"
		git(t, dir, "clone", "-q", "src", "clone")
		if res.PatchFile != "" {
			out, err := tryGit(clone, "apply", "--whitespace=nowarn", res.PatchFile)
			if err != nil && strings.Contains(out, "beyond a symbolic link") {
				out, err = tryGit(clone, "apply", "--index", "--whitespace=nowarn", res.PatchFile) // see the package comment
			}
			if err != nil {
				rt.Fatalf("apply: %v %s; base:\n%s\npatched:\n%s", err, out, git(t, s.src, "ls-tree", "-r", "HEAD"), changes(res.Files))
			}
		}
		want, got := describe(t, s.work), describe(t, clone)
		if len(want) != len(got) {
			rt.Fatalf("%d files in the workspace, %d in the clone with the patch", len(want), len(got))
		}
		for p, v := range want {
			if got[p] != v {
				rt.Fatalf("%q is %q in the workspace and %q in the clone with the patch", p, v, got[p])
			}
		}
	})
}
