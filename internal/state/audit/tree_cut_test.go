package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// snapshot is the content of every file of the tree's directory.
type snapshot map[string][]byte

func (w *world) snapshot(t testing.TB) snapshot {
	t.Helper()
	s := snapshot{}
	must(t, filepath.WalkDir(w.path("log"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a superseded partial tile
		}
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(w.path("log"), path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		s[name] = b
		return err
	}))
	return s
}

// history returns a log, and the snapshot and checkpoint after each growth.
func history(t *testing.T) (w *world, past []snapshot, marks []logproof.Checkpoint) {
	t.Helper()
	w = newWorld(t)
	must(t, w.open(t))
	for _, count := range []int{1, 200, 54, 1, 3, 250, 4, 190} {
		w.grow(t, count)
		marks = append(marks, w.covered(t))
		past = append(past, w.snapshot(t))
	}
	must(t, w.log.Close())
	w.log = nil
	past[len(past)-1] = w.snapshot(t)
	return w, past, marks
}

// afterCut returns what a power cut may leave of a directory with these successive
// states: of each file independently some version, a prefix of one, zeros, an
// empty file, or none.
func afterCut(rng *rand.Rand, past []snapshot) snapshot {
	names := map[string]bool{}
	for _, s := range past {
		for name := range s {
			names[name] = true
		}
	}
	harm := rng.IntN(3) // little, some, much
	out := snapshot{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		of := past[len(past)-1]
		if rng.IntN(8) < 1+harm*3 {
			of = past[rng.IntN(len(past))]
		}
		b, ok := of[name]
		if !ok {
			continue
		}
		if len(b) == 0 || rng.IntN(40) >= harm*3 {
			out[name] = b
			continue
		}
		switch rng.IntN(5) {
		case 0: // no file
		case 1:
			out[name] = nil
		case 2:
			out[name] = make([]byte, len(b))
		case 3:
			out[name] = b[:rng.IntN(len(b))]
		case 4:
			b = bytes.Clone(b)
			clear(b[rng.IntN(len(b)):])
			out[name] = b
		}
	}
	return out
}

func (s snapshot) write(t *testing.T, dir string) {
	t.Helper()
	for name, b := range s {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, b, 0o600))
	}
}

// mark returns the checkpoint in a snapshot, if it is valid.
func (s snapshot) mark(w *world) (c logproof.Checkpoint, ok bool) {
	c, _, err := logproof.Open(s[checkpointName], w.config().Origin, public(w.key))
	return c, err == nil
}

// A power cut leaves any mixture of versions of the tree's files, also torn and
// zeroed. The next start computes the same root over the table, contradicts no
// earlier checkpoint, and proves every entry.
//
// proves R-A1
func TestTheTreeIsRebuiltAfterAnyPowerCut(t *testing.T) {
	w, past, marks := history(t)
	want := w.reference(t, uint64(w.n))
	built := 0
	for n := range 48 / shrink {
		rng := rand.New(rand.NewPCG(uint64(n), 6))
		dir := filepath.Join(t.TempDir(), "log")
		what := afterCut(rng, past)
		what.write(t, dir)
		if err := w.open(t, func(c *TreeConfig) { c.Dir = dir }); err != nil {
			// Only a torn checkpoint may be refused, as one by an unknown key.
			if !errors.Is(err, ErrForeign) || !torn(what[checkpointName], past) {
				t.Errorf("cut %d: %v", n, err)
			}
			continue
		}
		built++
		if c := w.covered(t); c.Size != uint64(w.n) || c.Root != want {
			t.Errorf("cut %d: %+v, want %x", n, c, want)
		}
		for _, before := range marks {
			root, err := w.log.Root(t.Context(), before.Size)
			if err != nil || root != before.Root {
				t.Errorf("cut %d: the checkpoint of %d entries is contradicted: %v", n, before.Size, err)
			}
		}
		if checked, err := w.log.Check(t.Context()); err != nil || checked != uint64(w.n) || w.log.Err() != nil {
			t.Errorf("cut %d: checked %d: %v, %v", n, checked, err, w.log.Err())
		}
		must(t, w.log.Close())
		w.log = nil
	}
	if built < 36/shrink {
		t.Errorf("only %d of the trees were rebuilt", built)
	}
}

// torn reports whether a checkpoint was never signed.
func torn(mark []byte, past []snapshot) bool {
	return !slices.ContainsFunc(past, func(s snapshot) bool { return bytes.Equal(s[checkpointName], mark) })
}

// The same with a rewritten entry: if the remaining checkpoint covers it, nothing
// is signed again, whatever else the cut leaves.
//
// proves R-A1
func TestARewrittenEntryIsNeverSignedAfterAnyPowerCut(t *testing.T) {
	w, past, _ := history(t)
	w.close()
	const seq = 201 // covered from the third state on
	w.rewrite(t, seq)
	refused, signed := 0, 0
	for n := range 48 / shrink {
		rng := rand.New(rand.NewPCG(uint64(n), 7))
		dir := filepath.Join(t.TempDir(), "log")
		what := afterCut(rng, past)
		what.write(t, dir)
		mark, ok := what.mark(w)
		err := w.open(t, func(c *TreeConfig) { c.Dir = dir })
		switch {
		case ok && mark.Size > seq:
			refused++
			after, read := os.ReadFile(filepath.Join(dir, checkpointName))
			if !errors.Is(err, ErrChanged) || read != nil || !bytes.Equal(after, what[checkpointName]) {
				t.Errorf("cut %d, with a checkpoint of %d entries: %v; signed again: %t", n, mark.Size, err, !bytes.Equal(after, what[checkpointName]))
			}
		case err == nil: // the checkpoint is lost; anchors would detect it
			signed++
		}
		if w.log != nil {
			must(t, w.log.Close())
			w.log = nil
		}
	}
	if refused == 0 || signed == 0 {
		t.Errorf("%d were refused, and in the control %d were signed", refused, signed)
	}
}

// The newest checkpoint is replaced by an earlier one, or lost. The tree extends it
// and contradicts none.
//
// proves R-A1
func TestAnOlderCheckpointIsExtended(t *testing.T) {
	w, past, marks := history(t)
	for i := -1; i < len(past); i++ {
		dir := filepath.Join(t.TempDir(), "log")
		what := maps.Clone(past[len(past)-1])
		delete(what, checkpointName)
		if i >= 0 {
			what[checkpointName] = past[i][checkpointName]
		}
		what.write(t, dir)
		must(t, w.open(t, func(c *TreeConfig) { c.Dir = dir }))
		if c := w.covered(t); c != marks[len(marks)-1] {
			t.Errorf("checkpoint of state %d: %+v", i, c)
		}
		must(t, w.log.Close())
		w.log = nil
	}
}

// proves R-A2 (no degraded mode): a failed write is a reported fault, whether
// or not the file was replaced, nothing incomplete is signed, and the tree
// recovers.
func TestTheTreeRecoversFromAFailedWrite(t *testing.T) {
	for name, c := range map[string]struct {
		replaced bool
		err      error
	}{
		"not replaced":          {false, syscall.EIO},
		"replaced":              {true, syscall.EIO},
		"no room, not replaced": {false, syscall.ENOSPC},
	} {
		for fails := range 3 { // the bundle, the tile, the state
			t.Run(fmt.Sprintf("%s/write-%d", name, fails), func(t *testing.T) {
				w := newWorld(t)
				opened, writes := false, 0
				must(t, w.open(t, func(cfg *TreeConfig) {
					cfg.replace = func(path string, b []byte) error {
						if !opened { // the state of an empty tree
							opened = true
							return replaceFile(path, b)
						}
						writes++
						if writes-1 != fails {
							return replaceFile(path, b)
						}
						if c.replaced {
							must(t, replaceFile(path, b))
						}
						return fmt.Errorf("write %s: %w", path, c.err)
					}
				}))
				w.grow(t, 30)
				if got := w.covered(t); got.Root != w.reference(t, 30) || writes <= fails {
					t.Errorf("%+v after %d writes", got, writes)
				}
				if n, err := w.log.Check(t.Context()); err != nil || n != 30 {
					t.Errorf("%d, %v", n, err)
				}
				until(t, "the recovery", w.log, func() bool { return w.log.Err() == nil })
			})
		}
	}
}
