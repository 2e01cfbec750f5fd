package capture

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// estate is the repositories of two people, which this process, as root, may all read.
type estate struct {
	t              *testing.T
	alice, bob     string // Alice's is a source
	commit, secret string // of Alice's, and of Bob's
}

const aliceUID, bobUID = 4711, 4712

func newEstate(t *testing.T) *estate {
	t.Helper()
	e := &estate{t: t}
	for name, of := range map[string]struct{ path, head *string }{"alice": {&e.alice, &e.commit}, "bob": {&e.bob, &e.secret}} {
		s := newScene(t, "sha1", func(dir string) { write(t, dir+"/a.txt", name+"\n") })
		git(t, s.src, "branch", "of-"+name)
		git(t, s.src, "pack-refs", "--all")
		*of.path, *of.head = s.src, s.commit
	}
	e.own()
	return e
}

// own gives each repository to its person.
func (e *estate) own() {
	e.t.Helper()
	for dir, uid := range map[string]int{e.alice: aliceUID, e.bob: bobUID} {
		must(e.t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			must(e.t, err)
			return os.Lchown(path, uid, uid)
		}))
	}
}

// link replaces a file or directory of Alice's repository by a link of hers to the same of Bob's.
func (e *estate) link(name string) {
	e.t.Helper()
	must(e.t, os.RemoveAll(e.alice+"/.git/"+name))
	must(e.t, os.MkdirAll(filepath.Dir(e.alice+"/.git/"+name), 0o755))
	must(e.t, os.Symlink(e.bob+"/.git/"+name, e.alice+"/.git/"+name))
	e.own()
}

// packs links Bob's packs.
func (e *estate) packs() {
	e.t.Helper()
	git(e.t, e.bob, "-c", "safe.directory=*", "repack", "-adq")
	list, err := filepath.Glob(e.bob + "/.git/objects/pack/*")
	must(e.t, err)
	for _, p := range list {
		e.link("objects/pack/" + filepath.Base(p))
	}
}

// tree returns what a checkout of a commit of Alice's source has, or the error.
func (s *Source) tree(ctx context.Context, t *testing.T, commit string) (string, error) {
	t.Helper()
	id, err := s.Resolve(ctx, commit, "")
	if err != nil {
		return "", err
	}
	r, err := s.CreateRepo(filepath.Join(t.TempDir(), "repo"))
	if err != nil {
		return "", err
	}
	dir := t.TempDir()
	if err := r.Checkout(ctx, id, dir); err != nil {
		return "", err
	}
	must(t, r.Worktree(ctx, id, t.TempDir()))
	b, err := os.ReadFile(dir + "/a.txt")
	return string(b), err
}

// Who owns a source makes no process that may read more read the repository of another account, by any link and at any moment.
// The control is git and this package without the owner's bounds, which read it; and Alice's own commit is read all the while.
//
// proves R-S4
func TestASourceLeadsToNoRepositoryOfAnotherAccount(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(e *estate) // the source is opened
		loose         bool            // Bob's objects by their names
		shared        bool            // Bob's repository is in shared memory
		ref           string          // of Bob's
	}{
		"loose objects":  {loose: true},
		"shared memory":  {loose: true, shared: true},
		"packs":          {before: (*estate).packs},
		"packed refs":    {before: func(e *estate) { e.link("packed-refs") }, ref: "of-bob"},
		"objects, later": {after: func(e *estate) { e.link("objects") }},
		"alternates, later": {after: func(e *estate) {
			write(e.t, e.alice+"/.git/objects/info/alternates", e.bob+"/.git/objects\n")
			e.own()
		}},
		"refs, later": {after: func(e *estate) { must(e.t, os.RemoveAll(e.alice+"/.git/packed-refs")); e.link("refs") }, ref: "later"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEstate(t)
			if c.ref == "later" {
				git(t, e.bob, "-c", "safe.directory=*", "branch", "later")
				e.own()
			}
			if c.shared {
				dir, err := os.MkdirTemp("/dev/shm", "bailiwick-test-") //nolint:usetesting // of a device
				must(t, err)
				t.Cleanup(func() { _ = os.RemoveAll(dir) })
				must(t, exec.CommandContext(t.Context(), "cp", "-a", e.bob, dir+"/bob").Run()) //nolint:gosec // G204: of this test
				e.bob = dir + "/bob"
			}
			if c.loose {
				list, err := filepath.Glob(e.bob + "/.git/objects/??")
				must(t, err)
				for _, dir := range list {
					if _, err := os.Stat(e.alice + "/.git/objects/" + filepath.Base(dir)); err != nil {
						e.link("objects/" + filepath.Base(dir))
					}
				}
			}
			if c.before != nil {
				c.before(e)
			}
			src, err := OpenSource(t.Context(), e.alice)
			must(t, err)
			if !strings.HasSuffix(name, "later") {
				if got, err := src.tree(t.Context(), t, e.commit); err != nil || got != "alice\n" {
					t.Errorf("Alice's own commit: %q, %v", got, err)
				}
			}
			if c.after != nil {
				c.after(e)
			}
			want := e.secret
			if c.ref != "" {
				want = c.ref
			}
			if got, err := src.tree(t.Context(), t, want); err == nil {
				t.Errorf("Bob's: %q", got)
			}
			if c.ref != "" {
				id, err := src.lookUp(c.ref)
				if err == nil || strings.Contains(err.Error(), e.secret) {
					t.Errorf("Bob's branch: %s, %v", id, err)
				}
				return
			}
			free := *src
			free.owner = uint32(os.Geteuid())
			if got, err := free.tree(t.Context(), t, want); err != nil || got != "bob\n" {
				t.Errorf("control: unbounded: %q, %v", got, err)
			}
		})
	}
}

// What names the directories of a repository is the owner's, so no error shows a line of another account's file.
//
// proves R-S4
func TestNoFileOfAnotherAccountNamesADirectory(t *testing.T) {
	for _, name := range []string{"commondir", "objects/info/alternates", "config"} {
		e := newEstate(t)
		const line = "a secret line"
		if name == "config" {
			write(t, e.bob+"/.git/config", "[extensions]\n\tobjectFormat = "+line+"\n")
		} else {
			write(t, e.bob+"/.git/"+name, line+"\n")
		}
		shown := func(err error) bool { return err != nil && strings.Contains(err.Error(), line) }
		e.own()
		_, err := OpenSource(t.Context(), e.bob)
		if control := shown(err); !control && name != "objects/info/alternates" {
			t.Errorf("control: the owner of %s is not told what is wrong with it: %v", name, err)
		}
		e.link(name)
		if _, err := OpenSource(t.Context(), e.alice); err == nil || shown(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A repository of another account is a source, with all that its owner has. Whole says whether its path is enough for a process
// that is shown no more.
func TestAnotherAccountsRepositoriesAreSources(t *testing.T) {
	s := newScene(t, "sha1", small)
	dir, want := ordinary(t, s.src)
	commit := s.commit
	must(t, os.Symlink("clone", dir+"/by-link"))
	want["by-link"] = ""
	git(t, "/", "clone", "-q", "--shared", dir+"/clone", dir+"/borrows")
	want["borrows"] = ""
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		return os.Lchown(path, aliceUID, aliceUID)
	}))
	whole := map[string]bool{}
	for _, name := range []string{"clone", "Größe und Maß's", "super", "bare.git", "partial", "worktree-elsewhere", "stores/link"} {
		whole[name] = true
	}
	for name, problem := range want {
		if problem != "" || name == "shallow" {
			continue
		}
		src, err := OpenSource(t.Context(), filepath.Join(dir, name))
		if err == nil {
			_, err = src.tree(t.Context(), t, commit)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if src.Whole() != whole[name] {
			t.Errorf("%s: whole is %t", name, src.Whole())
		}
	}
}
