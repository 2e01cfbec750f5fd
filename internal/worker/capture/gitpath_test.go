package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// gitAccepts returns which paths git accepts in an index. Each is below its own
// directory, so that they do not conflict.
func gitAccepts(t testing.TB, repo gitexec.Repo, paths, modes []string) []bool {
	t.Helper()
	index := filepath.Join(repo.Dir(), "index")
	_ = os.Remove(index)
	var in, out bytes.Buffer
	for i, p := range paths {
		fmt.Fprintf(&in, "%s %040d\td%d/%s\x00", modes[i], 1, i, p)
	}
	add := gitexec.Git{Repo: repo, Index: index, Stdin: &in}
	must(t, add.Run(t.Context(), "update-index", "-z", "--index-info"))
	ls := gitexec.Git{Repo: repo, Index: index, Stdout: &out}
	must(t, ls.Run(t.Context(), "ls-files", "-z"))
	present := map[string]bool{}
	for p := range strings.SplitSeq(out.String(), "\x00") {
		present[p] = true
	}
	verdicts := make([]bool, len(paths))
	for i, p := range paths {
		verdicts[i] = present[fmt.Sprintf("d%d/%s", i, p)]
	}
	return verdicts
}

// compareWithGit fails on paths that pathProblem and git treat differently, and
// returns how many git refuses.
func compareWithGit(t *testing.T, repo gitexec.Repo, paths []string) (refused int) {
	t.Helper()
	both := slices.Concat(paths, paths)
	modes := slices.Concat(slices.Repeat([]string{"100644"}, len(paths)), slices.Repeat([]string{"120000"}, len(paths)))
	for i, want := range gitAccepts(t, repo, both, modes) {
		mode := uint32(modeFile)
		if modes[i] == "120000" {
			mode = modeLink
		}
		if !want {
			refused++
		}
		if got := pathProblem(both[i], mode) == ""; got != want {
			t.Errorf("path %q mode %s: accepted %v, by git %v", both[i], modes[i], got, want)
		}
	}
	return refused
}

func strictRepo(t testing.TB) gitexec.Repo {
	t.Helper()
	r, err := CreateRepo(t.Context(), filepath.Join(t.TempDir(), "strict"), "")
	must(t, err)
	return r.own
}

var pathSeeds = []string{
	".git", ".GIT", ".Git/x", "a/.git", "a/.gIt/b", ".git ", ".git.", ".git . .", ".git. /x", "git~1", "GIT~1", "git~2", "GiT~1/x",
	".git:stream", ".git::$INDEX_ALLOCATION/x", "git~1:x", `a\.git`, `.git\x`, `x\git~1\y`, ".g\u200cit", "\ufeff.git", ".git\u206f/x",
	".git\xff", ".git\xffrest", ".gi\xfft", ".gitx", ".gitignore", ".gitmodules", ".gitattributes", "gitmod~1", "gi7eba~1", "GI7EB~12",
	".gitmodules ", ".gitmodules:x", ".GITMODULES", ".gitm\u200codules", `a\.gitmodules`, "gi7eba~0", "gi7~12345", ".gitmodules/x", "g~123456",
	"", "/", "/a", "a//b", "a/", ".", "..", "a/../b", "a/./b", "...", "a/...", "a\nb", "a\tb", `"q"`, "\x01", "C:", "C:/x", "a\\b", "~1", "gi7eba",
	".git\uFFFE", ".git\uFFFF", ".git\xed\xa0\x80", "\u200c", "a/\u200c/b", ".git\u200c\u200d ", "git~10", "git~1 .", "git~1x", ".git./.", "gitmod~4:", "gitmod~5",
}

// The control: git must refuse some of the paths and accept others.
//
// proves R-S4
func TestPathProblemAgreesWithGit(t *testing.T) {
	if n := compareWithGit(t, strictRepo(t), pathSeeds); n < 60 || n > 2*len(pathSeeds)-20 {
		t.Errorf("git refused %d of %d: the control is void", n, 2*len(pathSeeds))
	}
}

// Paths are composed of the pieces that the rules depend on.
//
// proves R-S4
func TestPathProblemAgreesWithGitOnRandomPaths(t *testing.T) {
	pieces := []string{
		".", "..", ".git", "git", "GIT", "g", "i", "t", "~", "1", "2", "modules", ".gitmodules", "gitmod", "gi7eba", "gi7e", "/", "/", "\\",
		":", " ", "x", "\u200c", "\u206f", "\ufeff", "\xff", "\xe2\x80", "~1", "\n", "-", "\U0010ffff", "\xf5", "\xc0\xae", "\uffff",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	paths := make([]string, 20_000)
	for i := range paths {
		for range 1 + rng.IntN(6) {
			paths[i] += pieces[rng.IntN(len(pieces))]
		}
	}
	if n := compareWithGit(t, strictRepo(t), paths); n < 4000 || n > 36_000 {
		t.Errorf("git refused %d of %d: the control is void", n, 2*len(paths))
	}
}

func FuzzPathProblem(f *testing.F) {
	for _, p := range pathSeeds {
		f.Add(p)
	}
	repo := strictRepo(f)
	f.Fuzz(func(t *testing.T, p string) {
		if !strings.ContainsRune(p, 0) && len(p) < 300 {
			compareWithGit(t, repo, []string{p})
		}
	})
}

func FuzzParseTree(f *testing.F) {
	raw := strings.Repeat("\x01", 20)
	f.Add([]byte("100644 a\x00"+raw+"40000 b\x00"+raw), 20)
	f.Add([]byte("120000 a\x00"+raw+raw), 32)
	f.Add([]byte("100644 a/b\x00"+raw), 20)
	f.Fuzz(func(t *testing.T, b []byte, rawLen int) {
		if rawLen != 20 && rawLen != 32 {
			return
		}
		list, err := parseTree(b, rawLen)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range list {
			if e.path == "" || strings.Contains(e.path, "/") || seen[e.path] || len(e.id) != 2*rawLen {
				t.Fatalf("accepted %q in %q", e.path, b)
			}
			seen[e.path] = true
		}
	})
}

func FuzzParseAnswers(f *testing.F) {
	f.Add(strings.Repeat("a", 40)+" blob 12", ":100644 100644 a b M\x00x\x00")
	f.Add("deadbeef missing", ":1 2 3 4 A\x00")
	f.Add("dead ambiguous", "")
	f.Fuzz(func(t *testing.T, header, rawDiff string) {
		if id, _, size, err := parseBatchHeader(header); err == nil && (size < 0 || !fullObject.MatchString(id)) {
			t.Fatalf("accepted header %q", header)
		}
		if id, err := parseRootTree(rawDiff); err == nil && !fullObject.MatchString(id) {
			t.Fatalf("accepted %q", rawDiff)
		}
		if list, err := parseRaw(rawDiff); err == nil {
			for _, c := range list {
				if c.Path == "" || c.Change == "" {
					t.Fatalf("accepted %q", rawDiff)
				}
			}
		}
	})
}
