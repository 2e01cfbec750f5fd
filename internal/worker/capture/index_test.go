package capture

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// agentMain is this program inside a jail.
func agentMain() {
	if len(os.Args) != 3 || filepath.Base(os.Args[0]) != "agent" {
		return
	}
	err := disguise(os.Args[1])
	if seed, aerr := strconv.ParseUint(os.Args[2], 10, 64); aerr == nil {
		err = scramble(os.Args[1], seed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// disguises are the ways to hide a change, by the name of the changed file.
func disguises() map[string]func(p string, st *unix.Stat_t) error {
	other := func(st *unix.Stat_t) []byte { return bytes.Repeat([]byte("B"), int(st.Size)) }
	return map[string]func(p string, st *unix.Stat_t) error{
		"rewritten": func(p string, st *unix.Stat_t) error { return os.WriteFile(p, other(st), 0) },
		"one-byte": func(p string, _ *unix.Stat_t) error {
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("B"), 1)
			}
			return errors.Join(err, f.Close())
		},
		"renamed": func(p string, st *unix.Stat_t) error {
			return errors.Join(os.WriteFile(p+".new", other(st), os.FileMode(st.Mode&0o777)), os.Rename(p+".new", p))
		},
		"linked": func(p string, st *unix.Stat_t) error {
			return errors.Join(os.Link(p, p+".hard"), os.WriteFile(p+".hard", other(st), 0), os.Remove(p+".hard"))
		},
		"mapped": func(p string, st *unix.Stat_t) error {
			f, err := os.OpenFile(p, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			copy(b, other(st))
			return errors.Join(unix.Munmap(b), f.Close())
		},
		"chmod-and-back": func(p string, st *unix.Stat_t) error {
			return errors.Join(os.Chmod(p, 0o600), os.WriteFile(p, other(st), 0), os.Chmod(p, os.FileMode(st.Mode&0o777)))
		},
		"recreated": func(p string, st *unix.Stat_t) error {
			return errors.Join(os.Remove(p), os.WriteFile(p, other(st), os.FileMode(st.Mode&0o777)))
		},
		"directory-recreated": func(p string, st *unix.Stat_t) error {
			dir := filepath.Dir(p)
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(p, other(st), os.FileMode(st.Mode&0o777)))
		},
	}
}

// disguise changes the content of a file in each way and then restores everything
// that a program can.
func disguise(dir string) error {
	for name, change := range disguises() {
		p := filepath.Join(dir, name, "deep", "file")
		var st, after unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if err := change(p, &st); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		times := []unix.Timespec{st.Atim, st.Mtim}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, p, times, 0); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		err := unix.Lstat(p, &after)
		if err != nil || after.Mtim != st.Mtim || after.Size != st.Size || after.Mode != st.Mode {
			return fmt.Errorf("%s: not disguised: %v (%w)", name, after, err)
		}
	}
	return nil
}

// scramble makes a few random changes of all kinds.
func scramble(dir string, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	name := func() string {
		p := dir
		for range 1 + r.IntN(3) {
			p += "/" + string(rune('a'+r.IntN(4)))
		}
		return p
	}
	for range r.IntN(8) {
		p, q := name(), name()
		switch r.IntN(9) { // what cannot be done where it is drawn is not done
		case 0:
			_ = os.RemoveAll(p)
		case 1:
			_ = os.Rename(p, q)
		case 2:
			_ = os.Link(p, q)
		case 3:
			_ = os.Symlink("x"+strconv.Itoa(r.IntN(3)), p)
		case 4:
			_ = os.Chmod(p, 0o755)
		case 5:
			_ = os.MkdirAll(p, 0o755)
		case 6:
			_ = os.RemoveAll(p)
			_ = os.MkdirAll(p, 0o755)
			_ = os.WriteFile(p+"/a", []byte("recreated\n"), 0o644)
		case 7:
			_ = os.Chmod(p, 0o644)
		default:
			_ = os.MkdirAll(filepath.Dir(p), 0o755)
			_ = os.WriteFile(p, fmt.Appendf(nil, "random %d\n", r.IntN(4)), 0o644)
		}
	}
	return nil
}

// inside is a scene whose workspace is a jail's.
type inside struct {
	*scene
	index *Index
	top   string
	jail  *jail.Jail
}

// newInside puts a jail with this program over a checkout.
func newInside(t testing.TB, forced bool, fill func(dir string)) *inside {
	t.Helper()
	s := &inside{scene: newScene(t, "sha1", fill), top: t.TempDir()}
	var err error
	s.index, err = s.repo.IndexCheckout(t.Context(), s.commit, s.work)
	must(t, err)
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	write(t, s.top+"/.bailiwick/agent", string(self))
	must(t, os.Chmod(s.top+"/.bailiwick/agent", 0o755))
	s.start(forced)
	return s
}

func (s *inside) start(forced bool) {
	s.t.Helper()
	var err error
	s.jail, err = jail.Start(s.t.Context(), jail.Spec{Lower: []string{s.top, s.work}, Copy: forced})
	must(s.t, err)
	s.t.Cleanup(func() { _ = s.jail.Close() })
}

func (s *inside) run(what string) {
	s.t.Helper()
	var out bytes.Buffer
	exit, err := s.jail.Run(s.t.Context(), jail.Command{Argv: []string{"/workspace/.bailiwick/agent", "/workspace", what}, Env: []string{"GOMAXPROCS=2"}, Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		s.t.Fatalf("%+v %v %s", exit, err, out.String())
	}
}

// config returns the configurations that detect changes by reading, by the index,
// and without listing.
func (s *inside) config(way string) Config {
	cfg := Config{Exclude: []string{".bailiwick"}}
	if way != "read" {
		cfg.Index = s.index
	}
	if way == "layers" {
		top, err := os.Open(s.top)
		must(s.t, err)
		s.t.Cleanup(func() { _ = top.Close() })
		cfg.Over = []*os.File{s.jail.Upper(), top}
	}
	return cfg
}

func ways() []string { return []string{"read", "index", "layers"} }

// The control compares what a program can set, by which no disguised file changed.
//
// proves R-D5, R-S4
func TestADisguisedChangeIsCaptured(t *testing.T) {
	for _, forced := range []bool{false, true} {
		t.Run(fmt.Sprintf("copy %v", forced), func(t *testing.T) {
			s := newInside(t, forced, func(d string) {
				for name := range disguises() {
					write(t, d+"/"+name+"/deep/file", strings.Repeat("A", 5000))
					write(t, d+"/"+name+"/other", "untouched\n")
				}
				write(t, d+"/quiet/deep/file", "untouched\n")
			})
			baselines := map[string]*Snapshot{}
			for _, way := range ways() {
				var err error
				baselines[way], err = s.repo.Snapshot(t.Context(), s.jail.Workspace(), s.commit, s.config(way))
				must(t, err)
			}
			s.run("disguise")
			trees := map[string]string{}
			for _, way := range ways() {
				res, err := s.repo.Capture(t.Context(), s.jail.Workspace(), baselines[way])
				must(t, err)
				if len(res.Files) != len(disguises()) {
					t.Errorf("%s: %d of %d disguised changes are captured:\n%s", way, len(res.Files), len(disguises()), changes(res.Files))
				}
				trees[way] = res.Tree
			}
			if trees["read"] != trees["index"] || trees["read"] != trees["layers"] {
				t.Errorf("trees: %v", trees)
			}
			for name := range disguises() {
				p := name + "/deep/file"
				var st unix.Stat_t
				must(t, unix.Fstatat(int(s.jail.Workspace().Fd()), p, &st, 0))
				now, was := stampOf(&st), s.index.entries[s.index.files[p]].stamp
				if s.index.unchanged(p, now) != "" {
					t.Errorf("%s counts as unchanged", name)
				}
				now.ctime, now.ino = was.ctime, was.ino
				if s.index.unchanged(p, now) == "" {
					t.Errorf("control: %s differs in metadata that a program can set", name)
				}
			}
		})
	}
	asOrdinaryUser(t)
}

// proves R-D5
func TestSkippingReadsAndListingsGivesTheSameResult(t *testing.T) {
	s := newInside(t, false, func(d string) { must(t, scramble(d, 0)); small(d); must(t, fillMany(d)) })
	changed := 0
	for seed := uint64(1); seed <= 8; seed++ {
		baselines := map[string]*Snapshot{}
		for _, way := range ways() {
			var err error
			baselines[way], err = s.repo.Snapshot(t.Context(), s.jail.Workspace(), s.commit, s.config(way))
			must(t, err)
			if got, want := fmt.Sprint(baselines[way].order), fmt.Sprint(baselines["read"].order); got != want {
				t.Fatalf("seed %d: baseline %s lists\n%s\nand by reading it is\n%s", seed, way, got, want)
			}
		}
		s.run(strconv.FormatUint(seed, 10))
		results := map[string]Result{}
		for _, way := range ways() {
			res, err := s.repo.Capture(t.Context(), s.jail.Workspace(), baselines[way])
			must(t, err)
			results[way] = res
		}
		for _, way := range ways() {
			if got, want := results[way], results["read"]; got.Tree != want.Tree || changes(got.Files) != changes(want.Files) || leftOut(got.LeftOut) != leftOut(want.LeftOut) {
				t.Fatalf("seed %d: %s gives\n%s%s\nand by reading it is\n%s%s", seed, way, changes(got.Files), leftOut(got.LeftOut), changes(want.Files), leftOut(want.LeftOut))
			}
		}
		if results["read"].PatchFile != "" {
			changed++
		}
		if seed%3 == 0 { // else the next round continues from here
			must(t, s.jail.Close())
			s.start(false)
		}
	}
	if changed < 3 {
		t.Errorf("only %d of 8 seeds changed something", changed)
	}
	asOrdinaryUser(t)
}

func fillMany(d string) error {
	for _, p := range []string{"a/a/a", "a/a/b", "a/b/a", "a/b/c", "b/a", "b/b/b", "b/c/d", "c/a", "c/b/a", "d"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(d+"/"+p), 0o755), os.WriteFile(d+"/"+p, []byte(p+"\n"), 0o644)); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink("a", d+"/a/link"), os.Symlink("../d", d+"/b/c/link"))
}

// A listing would show files that are not in the index.
func TestUntouchedDirectoriesAreNotListed(t *testing.T) {
	s := newInside(t, false, func(d string) { must(t, fillMany(d)) })
	write(t, s.work+"/a/b/planted", "beside the index\n")
	for way, want := range map[string]bool{"layers": false, "index": true} {
		snap, err := s.repo.Snapshot(t.Context(), s.jail.Workspace(), s.commit, s.config(way))
		must(t, err)
		if _, seen := snap.entries["a/b/planted"]; seen != want {
			t.Errorf("%s: listed: %v", way, seen)
		}
	}
}

// The control is the unchanged index.
func TestBindRefusesAnIndexOfAnotherCommit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		s := newScene(t, format, func(d string) {
			must(t, fillMany(d))
			write(t, d+"/a.b", "between a and a/\n")
			write(t, d+"/a0", "0\n")
		})
		git(t, s.src, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", len(s.commit))+",sub/module")
		git(t, s.src, "commit", "-qm", "submodule")
		s.commit, s.work = git(t, s.src, "rev-parse", "HEAD"), t.TempDir()
		s.checkout()
		made, err := s.repo.IndexCheckout(t.Context(), s.commit, s.work)
		must(t, err)
		stored := made.Encode()
		fresh := func() (*Repo, *Index) {
			r, err := CreateRepo(t.Context(), filepath.Join(t.TempDir(), "repo"), s.src)
			must(t, err)
			x, err := DecodeIndex(stored)
			must(t, err)
			return r, x
		}
		r, x := fresh()
		must(t, r.Bind(t.Context(), s.commit, x))
		must(t, x.Verify(t.Context(), s.work))
		must(t, x.VerifyContent(t.Context(), s.work))
		if len(r.dirs) == 0 || len(x.Submodules()) != 1 || !bytes.Equal(x.Encode(), stored) {
			t.Errorf("%s: bound without its trees, %d submodules, or stored otherwise", format, len(x.Submodules()))
		}
		for what, spoil := range map[string]func(x *Index) string{
			"another commit":  func(*Index) string { return git(t, s.src, "rev-parse", "HEAD^") },
			"another content": func(x *Index) string { x.entries[x.files["d"]].id = x.entries[x.files["c/a"]].id; return s.commit },
			"another mode":    func(x *Index) string { x.entries[x.files["d"]].mode |= 0o111; return s.commit },
			"another name":    func(x *Index) string { x.entries[x.files["d"]].path = "e"; return s.commit },
			"a file less":     func(x *Index) string { x.entries = x.entries[:len(x.entries)-1]; return s.commit },
			"an odd path":     func(x *Index) string { x.entries[x.files["d"]].path = "../d"; return s.commit },
		} {
			r, x := fresh()
			if err := r.Bind(t.Context(), spoil(x), x); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %s: %v", format, what, err)
			}
		}
		for i := range stored { // every byte
			bad := bytes.Clone(stored)
			bad[i] ^= 1
			if _, err := DecodeIndex(bad); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%s: byte %d flipped: %v", format, i, err)
			}
		}
	}
}

// The object name of a tree with obsolete modes cannot be computed from its
// listing, so Bind compares it with the repository.
func TestBindComparesATreeWithOldModes(t *testing.T) {
	s := newScene(t, "sha1", small)
	blob := git(t, s.src, "rev-parse", "HEAD:a.txt")
	raw := []byte("100664 a.txt\x00")
	for i := 0; i < len(blob); i += 2 {
		v, err := strconv.ParseUint(blob[i:i+2], 16, 8)
		must(t, err)
		raw = append(raw, byte(v))
	}
	write(t, s.src+"/.git/raw", string(raw))
	tree := git(t, s.src, "hash-object", "-w", "-t", "tree", "--literally", s.src+"/.git/raw")
	s.commit, s.work = git(t, s.src, "commit-tree", "-m", "old", tree), t.TempDir()
	s.checkout()
	x, err := s.repo.IndexCheckout(t.Context(), s.commit, s.work)
	must(t, err)
	r, err := CreateRepo(t.Context(), filepath.Join(t.TempDir(), "repo"), s.src)
	must(t, err)
	must(t, r.Bind(t.Context(), s.commit, x))
	x.entries[x.files["a.txt"]].id = strings.Repeat("1", 40)
	if err := r.Bind(t.Context(), s.commit, x); !errors.Is(err, ErrDamaged) {
		t.Errorf("another content: %v", err)
	}
}

func FuzzDecodeIndex(f *testing.F) {
	f.Add([]byte(nil))
	f.Add((&Index{format: "sha1", commit: []byte("tree x\n"), entries: []indexed{{stamp: stamp{mode: unix.S_IFDIR}}, {path: "a", id: "1"}}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &Index{}
		if x.decode(&indexReader{rest: string(b)}) != nil {
			return
		}
		again, err := DecodeIndex(x.Encode())
		if err != nil || len(again.entries) != len(x.entries) {
			t.Errorf("stored again it is %v, %v", again, err)
		}
	})
}

// The control is the index before its newest time is set ahead.
func TestTouchRefusesAnIndexFromTheFuture(t *testing.T) {
	s := newScene(t, "sha1", small)
	x, err := s.repo.IndexCheckout(t.Context(), s.commit, s.work)
	must(t, err)
	mark := t.TempDir()
	must(t, x.Touch(mark))
	x.newest.Sec += 3600
	if err := x.Touch(mark); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}
