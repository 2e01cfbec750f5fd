package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// checkouts opens the checkout store of a world, which the test's own account
// can read.
func (w *world) checkouts() *checkoutcache.Store {
	return checkoutcache.New(w.path("state/bailiwick/checkouts"))
}

// tree is the directory of the world's only checkout.
func (w *world) tree() string {
	w.t.Helper()
	list, err := w.checkouts().List()
	if err != nil || len(list) != 1 {
		w.t.Fatalf("%d checkouts, %v", len(list), err)
	}
	return w.path("state/bailiwick/checkouts", list[0].Key, "tree")
}

// requireWorkTree makes a capability require a work tree.
func (w *world) requireWorkTree(capability string) {
	w.t.Helper()
	line := "name: " + capability + ", from: capabilities/" + capability
	w.replace(manifest, line+"}", line+", requires: [{git: worktree}]}")
	w.must("catalog", "apply", "-f", w.path(manifest))
}

func inodeOf(t testing.TB, name string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// proves R-S4, R-D5
func TestDispatchesStartFromOneCheckoutAndNeverChangeIt(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n", "deep/b.txt": "two\n", "deep/c/d.txt": "three\n", "gone/x.txt": "x\n"})
		w.catalog(
			subagent{name: "edit", script: "echo changed > a.txt; rm -r gone; echo new > deep/new.txt", more: "    verify: {command: [bash, -c, 'cat a.txt; test ! -e gone && test -e deep/new.txt && cat deep/c/d.txt']}\n"},
			// Same size and restored modification time: only the change time
			// reveals it.
			subagent{name: "disguise", script: "touch -r a.txt /tmp/ref; printf 'ONE\\n' > a.txt; touch -r /tmp/ref a.txt"},
			subagent{name: "look", script: "cat a.txt; ls"},
		)
		w.up()
		edited := w.dispatch("edit", "--source", "repo")
		wantEnd(t, edited, api.EventFinished, "")
		tree, layers := w.tree(), strings.Join(edited.Outcome.Isolation.Layers, "\n")
		if !strings.Contains(layers, "workspace: overlay") {
			t.Errorf("layers: %s", layers)
		}
		before := inodeOf(t, tree)
		disguised := w.dispatch("disguise", "--source", "repo")
		if len(disguised.Outcome.Files) != 1 || disguised.Outcome.Files[0].Path != "a.txt" {
			t.Errorf("the disguised change is not in the patch: %+v", disguised.Outcome.Files)
		}
		looked := w.dispatch("look", "--source", "repo")
		if log := w.must("dispatch", "logs", string(looked.ID)); !strings.HasPrefix(log, "one\n") || !strings.Contains(log, "gone") {
			t.Errorf("a dispatch sees the changes of another: %q", log)
		}
		if after := inodeOf(t, w.tree()); after != before {
			t.Error("the checkout was created again unnecessarily")
		}
		if b, err := os.ReadFile(tree + "/a.txt"); err != nil || string(b) != "one\n" {
			t.Errorf("the checkout contains %q, %v", b, err)
		}
		for _, d := range []api.Dispatch{edited, disguised} {
			clone := "clone-" + string(d.ID)
			w.must("dispatch", "patch", string(d.ID), "--to", w.path(clone+".patch"))
			w.git(".", "clone", "-q", w.path("repo"), w.path(clone))
			w.git(clone, "apply", "--index", w.path(clone+".patch"))
		}
	})
}

// The control: an agent sees the planted change if the index is altered to
// match, which only the service's own account can do.
//
// proves R-S4
func TestDamagedCheckoutIsNotUsed(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
		w.catalog(subagent{name: "look", script: "cat a.txt; find . -name planted; find . -name b.txt"})
		w.up()
		want := w.must("dispatch", "logs", string(w.dispatch("look", "--source", "repo").ID))
		for what, damage := range map[string]func(tree string) error{
			"a changed file": func(tree string) error {
				st, err := os.Stat(tree + "/a.txt")
				if err != nil {
					return err
				}
				return errors.Join(os.WriteFile(tree+"/a.txt", []byte("ONE\n"), 0), os.Chtimes(tree+"/a.txt", st.ModTime(), st.ModTime()))
			},
			"an added file": func(tree string) error { return os.WriteFile(tree+"/dir/planted", nil, 0o644) },
			"a lost file":   func(tree string) error { return os.Remove(tree + "/dir/b.txt") },
		} {
			tree := w.tree()
			must(t, damage(tree))
			if w.unit != nil { // its service checks it once a minute
				must(t, os.Chtimes(filepath.Join(filepath.Dir(tree), "boot"), time.Now(), time.Now().Add(-time.Hour)))
			}
			d := w.dispatch("look", "--source", "repo")
			wantEnd(t, d, api.EventFinished, "")
			if got := w.must("dispatch", "logs", string(d.ID)); got != want {
				t.Errorf("%s: the agent saw %q, want %q", what, got, want)
			}
			eventually(t, "the checkout is made again", func() bool {
				b, _ := os.ReadFile(tree + "/a.txt")
				_, lost := os.Lstat(tree + "/dir/b.txt")
				_, planted := os.Lstat(tree + "/dir/planted")
				return string(b) == "one\n" && lost == nil && planted != nil
			})
		}
		must(t, os.WriteFile(w.tree()+"/a.txt", []byte("ONE\n"), 0))
		repo, err := capture.CreateRepo(t.Context(), filepath.Join(t.TempDir(), "repo"), w.path("repo"))
		must(t, err)
		forged, err := repo.IndexCheckout(t.Context(), w.git("repo", "rev-parse", "HEAD"), w.tree())
		must(t, err)
		must(t, os.WriteFile(filepath.Dir(w.tree())+"/index", forged.Encode(), 0))
		if got := w.must("dispatch", "logs", string(w.dispatch("look", "--source", "repo").ID)); !strings.HasPrefix(got, "ONE\n") {
			t.Errorf("control: the agent saw %q", got)
		}
	})
}

// proves R-S1
func TestCopyReplacesARefusedOverlay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.repository("repo", map[string]string{"a.txt": "one\n", "gone/x.txt": "x\n", "deep/b.txt": "two\n"})
	w.catalog(subagent{name: "edit", script: "git rev-parse HEAD; echo changed > a.txt; rm -r gone", more: "    verify: {command: [bash, -c, 'cat a.txt; test ! -e gone && cat deep/b.txt']}\n"})
	w.requireWorkTree("edit")
	// An overlay cannot be idmapped, so as root a directory on an overlay
	// cannot be a layer.
	for _, d := range []string{"upper", "work"} {
		w.mkdir("ov/" + d)
	}
	if err := unix.Mount("tmpfs", w.path("ov"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(w.path("ov"), unix.MNT_DETACH) })
	for _, d := range []string{"upper", "work"} {
		w.mkdir("ov/" + d)
	}
	if err := unix.Mount("overlay", w.path("state"), "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", w.path("home"), w.path("ov/upper"), w.path("ov/work"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(w.path("state"), unix.MNT_DETACH) })
	w.up()
	w.consent(w.me(), "reversible") // the state is new
	d := w.dispatch("edit", "--source", "repo")
	if w.unit != nil { // the uids of an attempt own no copy on such a file system
		if d.State != api.EventFailed || !strings.Contains(d.Message, "its file system gives no attempt owners of its own; put it on ext4") {
			t.Errorf("%s %s (%s)", d.State, d.Reason, d.Message)
		}
		return
	}
	wantEnd(t, d, api.EventFinished, "")
	if layers := strings.Join(d.Outcome.Isolation.Layers, "\n"); !strings.Contains(layers, "workspace: copy") {
		t.Errorf("layers: %s", layers)
	}
	if got, want := w.must("dispatch", "logs", string(d.ID)), w.git("repo", "rev-parse", "HEAD")+"\nverify| changed\nverify| two\n"; got != want {
		t.Errorf("log %q, want %q", got, want)
	}
	if len(d.Outcome.Files) != 2 {
		t.Errorf("files: %+v", d.Outcome.Files)
	}
}

// A capability that requires a work tree gets one, private to each dispatch,
// and so does the verify command.
func TestWorkTreeSourceIsNeverChanged(t *testing.T) {
	t.Parallel()
	asBoth(t, func(t *testing.T, uid int) {
		w := newWorld(t, uid)
		w.repository("repo", map[string]string{"a.txt": "one\n"})
		w.catalog(subagent{name: "commits", script: `set -e
test -z "$(git status --porcelain --untracked-files=no)"
git rev-parse HEAD
echo two > a.txt
git -c user.name=a -c user.email=a@b commit -qam second
git rev-list --count HEAD`, more: "    verify: {command: [git, log, '--format=%s']}\n"})
		w.requireWorkTree("commits")
		w.up()
		want := w.git("repo", "rev-parse", "HEAD") + "\n2\nverify| first\n"
		var trees []uint64
		for range 2 {
			d := w.dispatch("commits", "--source", "repo")
			wantEnd(t, d, api.EventFinished, "")
			if got := w.must("dispatch", "logs", string(d.ID)); got != want {
				t.Errorf("log %q, want %q", got, want)
			}
			if w.unit == nil { // on a machine each attempt makes its own, in its own directory
				trees = append(trees, inodeOf(t, filepath.Join(filepath.Dir(w.tree()), "git/tree/.git")))
			}
		}
		if w.unit == nil && trees[0] != trees[1] {
			t.Error("the .git was created again unnecessarily")
		}
	})
}

// A killed worker holds no lock. The control: a live one does.
//
// proves R-A2
func TestKilledWorkerReleasesItsCheckout(t *testing.T) {
	t.Parallel()
	w := gated(t, 0)
	id, j := w.begun()
	list, err := w.checkouts().List()
	if err != nil || len(list) != 1 {
		t.Fatalf("the checkouts are %+v, %v", list, err)
	}
	if err := w.checkouts().Remove(list[0]); !errors.Is(err, checkoutcache.ErrInUse) {
		t.Errorf("control: while the worker lives: %v", err)
	}
	for pid := range j.workers {
		kill(t, pid)
	}
	wantEnd(t, w.awaitEnd(id), api.EventFailed, api.ReasonLost)
	must(t, w.checkouts().Remove(list[0]))
	wantEnd(t, w.dispatch("quick", "--source", "repo"), api.EventFinished, "")
}

// BenchmarkBigRepository measures a no-op dispatch, end to end, on a repository
// of 10,000 files of 5 KB: with an existing checkout, without, and sixteen at
// once.
func BenchmarkBigRepository(b *testing.B) {
	w := newWorld(b, 0)
	files := map[string]string{}
	for i := range 10_000 {
		files[fmt.Sprintf("pkg%d/sub%d/f%d.go", i%20, i%200, i)] = fmt.Sprintf("package p%d\n", i) + strings.Repeat("// a line of code, more or less\n", 150)
	}
	w.repository("repo", files)
	w.git("repo", "repack", "-adq")
	w.catalog(
		subagent{name: "nothing", script: "true"},
		subagent{name: "edits", script: "echo changed > pkg3/sub3/f3.go", more: "    verify: {command: [\"true\"]}\n"},
		subagent{name: "commits", script: "git rev-parse HEAD"},
	)
	w.requireWorkTree("commits")
	w.up()
	conn := w.conn()
	defer conn.Close()
	one := func(b *testing.B, name api.Name) api.Dispatch {
		d, err := conn.Runtime().Dispatch(b.Context(), api.DispatchRequest{Subagent: name, Source: &api.SourceRequest{Name: "repo"}})
		if err == nil {
			d, err = conn.Runtime().Describe(b.Context(), d.ID, time.Minute)
		}
		if err != nil || d.State != api.EventFinished {
			b.Errorf("%s %s: %v", d.State, d.Message, err)
		}
		return d
	}
	for _, c := range []struct {
		name     string
		subagent api.Name
		cold     bool
		atOnce   int
	}{
		{"Cold", "nothing", true, 1},
		{"Cached", "nothing", false, 1},
		{"CachedWithWorkTree", "commits", false, 1},
		{"CachedPatchVerified", "edits", false, 1},
		{"CachedSixteenAtOnce", "nothing", false, 16},
	} {
		b.Run(c.name, func(b *testing.B) {
			steps := map[string]time.Duration{}
			var mu sync.Mutex
			var took []time.Duration
			if !c.cold {
				one(b, c.subagent)
			}
			for b.Loop() {
				if c.cold {
					b.StopTimer()
					list, err := w.checkouts().List()
					for _, e := range list {
						err = errors.Join(err, w.checkouts().Remove(e))
					}
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				var wg sync.WaitGroup
				for range c.atOnce {
					wg.Go(func() {
						from := time.Now()
						d := one(b, c.subagent)
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(from))
						for _, s := range d.Outcome.Steps {
							steps[s.Name] += time.Duration(s.Seconds * float64(time.Second))
						}
					})
				}
				wg.Wait()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
			for name, total := range steps {
				b.ReportMetric(float64(total.Microseconds())/1000/float64(len(took)), name+"-ms")
			}
		})
	}
}
