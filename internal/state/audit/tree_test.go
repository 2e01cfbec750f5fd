package audit

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// proves R-A1, R-A5: a signed checkpoint covers every durable entry, and its root
// is that of the table.
func TestEveryEntryIsCoveredByASignedCheckpoint(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	var before logproof.Checkpoint
	for _, count := range []int{1, 1, 3, 251, 1, 255, 300, 4097 / shrink, 9000 / shrink} {
		w.grow(t, count)
		c := w.covered(t)
		signed, _ := w.log.Latest()
		got, by, err := logproof.Open(signed, seal.LogOrigin(w.key.KeyID()), public(w.key))
		if err != nil || got != c || len(by) != 1 {
			t.Fatalf("%+v by %d: %v", got, len(by), err)
		}
		if want := w.reference(t, c.Size); c.Size != uint64(w.n) || c.Root != want {
			t.Fatalf("%d entries: %+v, want root %x", w.n, c, want)
		}
		file, err := os.ReadFile(w.path("log", "checkpoint"))
		must(t, err)
		if !bytes.Equal(file, signed) {
			t.Error("the checkpoint's file differs")
		}
		p, err := w.log.ConsistencyProof(t.Context(), before.Size, c.Size)
		must(t, err)
		if before.Size > 0 {
			must(t, logproof.VerifyConsistency(before, c, p))
		}
		before = c
	}
	n, err := w.log.Check(t.Context())
	if err != nil || n != uint64(w.n) {
		t.Errorf("checked %d: %v", n, err)
	}
	s, err := w.log.Status(t.Context())
	if err != nil || s.Entries != n || s.TreeSize != n || s.CheckpointSize != n || s.Lag != 0 || s.CheckpointAt.IsZero() || s.Err != nil {
		t.Errorf("status %+v, %v", s, err)
	}
}

// proves R-A1: each entry has a proof at every covered size, and it verifies no
// other entry.
func TestEachEntryIsProvedAtEachSize(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 1300)
	c := w.covered(t)
	for _, size := range []uint64{1, 2, 255, 256, 257, 512, 1299, 1300} {
		root, err := w.log.Root(t.Context(), size)
		must(t, err)
		if root != w.reference(t, size) {
			t.Fatalf("wrong root of %d entries", size)
		}
		at := logproof.Checkpoint{Origin: c.Origin, Size: size, Root: root}
		list, err := w.ledger.Leaves(t.Context(), 0, int(size))
		must(t, err)
		for i := 0; i < len(list); i += 1 + i/7 {
			p, err := w.log.InclusionProof(t.Context(), list[i].Seq, size)
			must(t, err)
			must(t, logproof.VerifyInclusion(at, list[i].Seq, list[i].Hash, p))
			if logproof.VerifyInclusion(at, list[i].Seq, list[(i+1)%len(list)].Hash, p) == nil && size > 1 {
				t.Errorf("the proof of entry #%d at size %d verifies another", i, size)
			}
		}
		p, err := w.log.ConsistencyProof(t.Context(), size, c.Size)
		must(t, err)
		must(t, logproof.VerifyConsistency(at, c, p))
	}
	for name, err := range map[string]error{
		"beyond the log":        second(w.log.InclusionProof(t.Context(), 1300, 1300)),
		"beyond the checkpoint": second(w.log.InclusionProof(t.Context(), 0, 1301)),
		"backwards":             second(w.log.ConsistencyProof(t.Context(), 5, 4)),
		"a future root":         second(w.log.Root(t.Context(), 1301)),
	} {
		if err == nil {
			t.Errorf("%s: proved", name)
		}
	}
}

// proves R-A1: all roots at once are those of Root, and a changed tile gives none.
func TestRootsAreThoseOfTheTree(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 1300)
	w.covered(t)
	for name, sizes := range map[string][]uint64{
		"none": nil, "the empty log": {0}, "at tiles": {0, 1, 255, 256, 256, 257, 511, 512, 1024, 1299, 1300}, "the last": {1300}, "far apart": {3, 1281},
	} {
		roots, err := w.log.Roots(t.Context(), sizes)
		must(t, err)
		for i, size := range sizes {
			if want, err := w.log.Root(t.Context(), size); err != nil || roots[i] != want {
				t.Errorf("%s: wrong root of %d entries, %v", name, size, err)
			}
		}
	}
	if err := errors.Join(second(w.log.Roots(t.Context(), []uint64{1301})), second(w.log.Roots(t.Context(), []uint64{7, 6}))); err == nil || strings.Count(err.Error(), "log tree") != 2 {
		t.Errorf("a future root and descending sizes: %v", err)
	}
	path := w.path("log", "tree", "tile", "0", "002")
	b, err := os.ReadFile(path)
	must(t, err)
	b[40]++
	must(t, os.WriteFile(path, b, 0o600))
	if roots, err := w.log.Roots(t.Context(), []uint64{600}); err == nil {
		t.Errorf("a changed tile gives %x", roots)
	}
}

func second[T any](_ T, err error) error { return err }

// proves R-A1: the tree is derived, so a start without it computes the same root.
func TestADeletedTreeIsRebuiltWithTheSameRoot(t *testing.T) {
	w, c := built(t, 2500/shrink)
	must(t, os.RemoveAll(w.path("log")))
	must(t, w.open(t))
	if again := w.covered(t); again != c {
		t.Errorf("%+v, and before it was deleted %+v", again, c)
	}
	w.grow(t, 10)
	w.covered(t)
	if _, err := w.log.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A start without new entries signs nothing and builds nothing.
func TestARestartSignsAndBuildsNothingAgain(t *testing.T) {
	w, c := built(t, 700)
	before, err := os.ReadFile(w.path("log", "checkpoint"))
	must(t, err)
	must(t, w.open(t))
	if got := w.covered(t); got != c {
		t.Errorf("%+v, want %+v", got, c)
	}
	signed, _ := w.log.Latest()
	if !bytes.Equal(signed, before) {
		t.Error("signed again")
	}
	w.grow(t, 700)
	w.covered(t)
	if _, err := w.log.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRebuildReproducesTheTree(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 3000/shrink)
	c := w.covered(t)
	must(t, w.log.Rebuild(t.Context()))
	if got := w.covered(t); got != c || w.log.Err() != nil {
		t.Errorf("%+v, %v; want %+v", got, w.log.Err(), c)
	}
	if _, err := w.log.Check(t.Context()); err != nil {
		t.Error(err)
	}
	w.grow(t, 5)
	w.covered(t)
}

func TestLagIsTheAgeOfTheOldestUncoveredEntry(t *testing.T) {
	w := newWorld(t)
	signer := &brokenSigner{Signer: w.key}
	must(t, w.open(t, func(c *TreeConfig) { c.Signer = signer }))
	w.grow(t, 3)
	w.covered(t)
	signer.set(errors.New("no key"))
	w.grow(t, 1)
	w.pass(40 * time.Second)
	w.grow(t, 1)
	s, err := w.log.Status(t.Context())
	if err != nil || s.Lag != 40*time.Second || s.Entries != 5 || s.CheckpointSize != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestOpenTreeValidatesItsConfiguration(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*TreeConfig){
		"a relative directory":   func(c *TreeConfig) { c.Dir = "log" },
		"no signer":              func(c *TreeConfig) { c.Signer = nil },
		"no ledger":              func(c *TreeConfig) { c.Ledger = nil },
		"no clock":               func(c *TreeConfig) { c.Now = nil },
		"no origin":              func(c *TreeConfig) { c.Origin = "" },
		"an origin of two words": func(c *TreeConfig) { c.Origin = "two words" },
	} {
		if err := w.open(t, change); err == nil {
			t.Errorf("%s: opened", name)
			_ = w.log.Close()
		}
	}
}

func TestALogKeepsItsOrigin(t *testing.T) {
	w := newWorld(t)
	first := seal.KeyOf(w.key, "service")
	origin, err := Origin(t.Context(), w.store, first, w.clock())
	if err != nil || origin != seal.LogOrigin(first.ID) {
		t.Fatalf("%q, %v", origin, err)
	}
	if again, err := Origin(t.Context(), w.store, first, w.clock()); err != nil || again != origin {
		t.Errorf("%q, %v", again, err)
	}
	other, err := seal.NewEphemeral()
	must(t, err)
	if _, err := Origin(t.Context(), w.store, seal.KeyOf(other, "service"), w.clock()); err == nil || !strings.Contains(err.Error(), origin) {
		t.Errorf("of another service: %v", err)
	}
}
