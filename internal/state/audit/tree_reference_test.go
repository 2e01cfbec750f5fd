package audit

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	sumnote "golang.org/x/mod/sumdb/note"
	sumtlog "golang.org/x/mod/sumdb/tlog"
)

// tesseraTree adds entries to the tree in dir with Tessera's POSIX driver.
func tesseraTree(t *testing.T, dir, origin string, list []Committed) {
	t.Helper()
	skey, _, err := sumnote.GenerateKey(nil, origin)
	must(t, err)
	signer, err := sumnote.NewSigner(skey)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	driver, err := posix.New(ctx, posix.Config{Path: dir})
	must(t, err)
	appender, shutdown, _, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(100*time.Millisecond).
		WithBatching(uint(len(list)), 100*time.Millisecond).
		WithGarbageCollectionInterval(0))
	must(t, err)
	futures := make([]tessera.IndexFuture, len(list))
	for i := range list {
		futures[i] = appender.Add(ctx, tessera.NewEntry(list[i].Leaf))
	}
	for i, future := range futures {
		at, err := future()
		must(t, err)
		if at.Index != list[i].Seq {
			t.Fatalf("entry #%d has number %d", list[i].Seq, at.Index)
		}
	}
	must(t, shutdown(ctx))
}

// required returns the files that a reader of a tree of that size opens.
func required(size int64) (names []string) {
	for _, of := range sumtlog.NewTiles(height, 0, size) {
		names = append(names, tilePath(of))
		if of.L == 0 {
			of.L = bundles
			names = append(names, tilePath(of))
		}
	}
	return names
}

// proves R-A5: at each size our files are, byte for byte, those that Tessera writes
// for the same entries.
func TestTilesAndBundlesAreThoseOfTessera(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	theirs := filepath.Join(t.TempDir(), "tree")
	for _, count := range []int{1, 1, 200, 53, 1, 3, 253, 1, 255, 500, 7} {
		from := uint64(w.n)
		w.grow(t, count)
		c := w.covered(t)
		list, err := w.ledger.Leaves(t.Context(), from, count)
		must(t, err)
		tesseraTree(t, theirs, c.Origin, list)
		for _, name := range required(int64(c.Size)) {
			if _, err := os.Stat(w.path("log", "tree", name)); err != nil {
				t.Errorf("size %d: %v", c.Size, err)
			}
		}
		tree := os.DirFS(w.path("log", "tree"))
		must(t, fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			ours, err := fs.ReadFile(tree, path)
			must(t, err)
			want, err := os.ReadFile(filepath.Join(theirs, path))
			if err != nil || !bytes.Equal(ours, want) {
				t.Errorf("size %d: %s differs from Tessera's: %v", c.Size, path, err)
			}
			return nil
		}))
	}
}

// A tree that an earlier version of the service wrote with Tessera is extended,
// not rebuilt.
func TestATreeThatTesseraWroteIsExtended(t *testing.T) {
	w, c := built(t, 700)
	w.openStore(t)
	list, err := w.ledger.Leaves(t.Context(), 0, 700)
	must(t, err)
	must(t, os.RemoveAll(w.path("log", "tree")))
	tesseraTree(t, w.path("log", "tree"), c.Origin, list)
	before, err := os.Stat(w.path("log", "tree", "tile", "0", "000"))
	must(t, err)
	must(t, w.open(t))
	if got := w.covered(t); got != c {
		t.Errorf("%+v, want %+v", got, c)
	}
	w.grow(t, 400)
	if got := w.covered(t); got.Root != w.reference(t, 1100) {
		t.Error("another root")
	}
	if n, err := w.log.Check(t.Context()); err != nil || n != 1100 {
		t.Errorf("%d, %v", n, err)
	}
	after, err := os.Stat(w.path("log", "tree", "tile", "0", "000"))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("the tree was rebuilt")
	}
	must(t, fs.WalkDir(os.DirFS(w.path("log", "tree", "tile")), ".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".new") {
			t.Errorf("%s was left behind", path)
		}
		return err
	}))
}
