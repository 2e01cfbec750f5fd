package capture

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// testEnv keeps the machine's git configuration out of the tests.
func testEnv() []string {
	return []string{
		"PATH=" + "/usr/bin:/bin", "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@invalid", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@invalid",
		"GIT_AUTHOR_DATE=@1 +0000", "GIT_COMMITTER_DATE=@1 +0000",
	}
}

func tryGit(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, testEnv()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	b, err := cmd.Output()
	if err != nil {
		return errs.String(), err
	}
	return strings.TrimSpace(string(b)), nil
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scene is a source with one commit, a Repo on it and a checked-out workspace.
type scene struct {
	t         testing.TB
	src, work string
	commit    string
	repo      *Repo
	cfg       Config
	baseline  *Snapshot
}

// newScene commits what fill makes.
func newScene(t testing.TB, format string, fill func(dir string)) *scene {
	t.Helper()
	s := &scene{t: t, src: filepath.Join(t.TempDir(), "src"), work: t.TempDir()}
	must(t, os.Mkdir(s.src, 0o755))
	git(t, s.src, "init", "-q", "-b", "main", "--object-format="+format)
	fill(s.src)
	git(t, s.src, "add", "-A", "-f")
	git(t, s.src, "commit", "-q", "--allow-empty", "-m", "base")
	s.commit = git(t, s.src, "rev-parse", "HEAD")
	return s.checkout()
}

func (s *scene) checkout() *scene {
	s.t.Helper()
	var err error
	s.repo, err = CreateRepo(context.Background(), filepath.Join(s.t.TempDir(), "repo"), s.src)
	must(s.t, err)
	err = s.repo.Checkout(context.Background(), s.commit, s.work)
	must(s.t, err)
	s.cfg.Exclude = []string{"outputs", "inputs", ".bailiwick"}
	return s
}

func (s *scene) root() *os.File {
	s.t.Helper()
	f, err := os.Open(s.work)
	must(s.t, err)
	s.t.Cleanup(func() { _ = f.Close() })
	return f
}

func (s *scene) snapshot() *scene {
	s.t.Helper()
	var err error
	s.baseline, err = s.repo.Snapshot(context.Background(), s.root(), s.commit, s.cfg)
	must(s.t, err)
	return s
}

func (s *scene) capture() Result {
	s.t.Helper()
	if s.baseline == nil {
		s.t.Fatal("no baseline")
	}
	res, err := s.repo.Capture(context.Background(), s.root(), s.baseline)
	must(s.t, err)
	return res
}

// applied applies the patch, as a user would, to a fresh clone and returns it.
func (s *scene) applied(res Result) string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "clone")
	git(s.t, "/", "clone", "-q", s.src, dir)
	git(s.t, dir, "checkout", "-q", s.commit)
	if res.PatchFile != "" {
		git(s.t, dir, "apply", "--index", "--whitespace=nowarn", res.PatchFile)
	}
	if got := git(s.t, dir, "write-tree"); got != res.Tree {
		s.t.Fatalf("the clone with the patch is tree %s, want %s", got, res.Tree)
	}
	return dir
}

func changes(list []api.FileChange) string {
	var b strings.Builder
	for _, f := range list {
		b.WriteString(f.Change[:1] + " " + f.Path + "\n")
	}
	return b.String()
}

func leftOut(list []api.LeftOut) string {
	var b strings.Builder
	for _, l := range list {
		b.WriteString(l.Path + ": " + l.Why + "\n")
	}
	return b.String()
}

// proves R-D5
func TestEveryKindOfChangeRoundTrips(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			s := newScene(t, format, func(d string) {
				write(t, d+"/keep.txt", "same\n")
				write(t, d+"/edit.txt", "one\ntwo\nthree\n")
				write(t, d+"/gone.txt", "gone\n")
				write(t, d+"/tool.sh", "#!/bin/sh\n")
				write(t, d+"/becomes-link", "text\n")
				write(t, d+"/becomes-dir", "text\n")
				write(t, d+"/dir/a", "a\n")
				write(t, d+"/dir/b", "b\n")
				write(t, d+"/crlf.txt", "a\r\nb\r\n")
				write(t, d+"/bin", "\x00\x01\x02old")
				must(t, os.Symlink("keep.txt", d+"/link"))
				must(t, os.Symlink("dir", d+"/linkdir"))
			}).snapshot()
			w := s.work
			write(t, w+"/edit.txt", "one\n2\nthree") // no newline at the end
			must(t, os.Remove(w+"/gone.txt"))
			must(t, os.Chmod(w+"/tool.sh", 0o755))
			must(t, os.Remove(w+"/becomes-link"))
			must(t, os.Symlink("/etc/passwd", w+"/becomes-link"))
			must(t, os.Remove(w+"/becomes-dir"))
			write(t, w+"/becomes-dir/x/y", "y\n")
			must(t, os.RemoveAll(w+"/dir"))
			write(t, w+"/dir", "a file now\n")
			write(t, w+"/crlf.txt", "a\r\nc\r\n")
			write(t, w+"/bin", "\x00\xff\xfenew\x00")
			write(t, w+"/empty", "")
			write(t, w+"/new\nline \"quoted\"\t\\", "odd\n")
			write(t, w+"/bad\xff\xfeutf8", "odd\n")
			write(t, w+"/ lead and trail ", "odd\n")
			write(t, w+"/-dash", "odd\n")
			write(t, w+"/:(top)magic", "odd\n")
			must(t, os.Remove(w+"/linkdir"))
			write(t, w+"/linkdir/inside", "was a link\n")
			must(t, os.Remove(w+"/link"))
			must(t, os.Symlink("../outside", w+"/link"))
			must(t, os.MkdirAll(w+"/emptydir/sub", 0o755))
			res := s.capture()
			if len(res.LeftOut) != 0 {
				t.Errorf("left out:\n%s", leftOut(res.LeftOut))
			}
			dir := s.applied(res)
			must(t, os.RemoveAll(w+"/emptydir"))
			sameTrees(t, w, dir)
			if got := strings.Join(res.LinksOut, ","); got != "becomes-link,link" {
				t.Errorf("links out: %s", got)
			}
			if !strings.Contains(changes(res.Files), `a "new\nline \"quoted\"\t\\"`) || !strings.Contains(changes(res.Files), "t becomes-link") {
				t.Errorf("files:\n%s", changes(res.Files))
			}
			first, err := os.ReadFile(res.PatchFile)
			must(t, err)
			again, err := os.ReadFile(s.capture().PatchFile)
			must(t, err)
			if string(first) != string(again) {
				t.Error("the same workspace gave two patches")
			}
		})
	}
}

// sameTrees compares content, kind and executable bit, .git apart.
func sameTrees(t testing.TB, a, b string) {
	t.Helper()
	la, lb := describe(t, a), describe(t, b)
	for p, v := range la {
		if lb[p] != v {
			t.Errorf("%q: %.60q in the workspace, %.60q with the patch", p, v, lb[p])
		}
	}
	for p := range lb {
		if _, ok := la[p]; !ok {
			t.Errorf("%q: added by the patch, not in the workspace", p)
		}
	}
}

func describe(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(p, dir+"/")
		switch {
		case rel == ".git":
			return filepath.SkipDir
		case d.IsDir():
		case d.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(p)
			m[rel] = "link " + to
			return err
		default:
			st, err := os.Stat(p)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(p)
			kind := "file "
			if st.Mode()&0o100 != 0 {
				kind = "exec "
			}
			m[rel] = kind + string(b)
			return err
		}
		return nil
	}))
	return m
}

// The control is the correct patch.
//
// proves R-D5
func TestAPatchThatDoesNotReproduceTheTreeIsRefused(t *testing.T) {
	s := newScene(t, "sha1", func(d string) { write(t, d+"/a.txt", "a\n") }).snapshot()
	write(t, s.work+"/a.txt", "changed\n")
	res := s.capture()
	prove := func(edit func(string) string) error {
		b, err := os.ReadFile(res.PatchFile)
		must(t, err)
		f, err := os.CreateTemp(t.TempDir(), "patch")
		must(t, err)
		defer f.Close() //nolint:errcheck // a test's
		_, err = f.WriteString(edit(string(b)))
		must(t, err)
		return (&patcher{repo: s.repo, res: &res}).verify(t.Context(), f)
	}
	must(t, prove(func(p string) string { return p }))
	if err := prove(func(p string) string { return strings.Replace(p, "+changed", "+other", 1) }); err == nil || !strings.Contains(err.Error(), "it gives tree") {
		t.Errorf("another content: %v", err)
	}
	if err := prove(func(p string) string { return strings.Replace(p, "-a\n", "-b\n", 1) }); err == nil {
		t.Error("a patch that does not apply was accepted")
	}
}
