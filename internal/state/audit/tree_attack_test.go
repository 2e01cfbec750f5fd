package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// proves R-A1: an older copy of the state and a truncated table are refused, and
// the message names both lengths. Control: the unchanged state.
//
// takeover both modes, database: no rewrite the log
func TestATableShorterThanItsCheckpointIsRefused(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 600)
	w.covered(t)
	w.close()
	old := t.TempDir()
	copyTree(t, w.path("store"), filepath.Join(old, "store"))
	must(t, w.open(t))
	w.grow(t, 300)
	c := w.covered(t)
	w.close()
	for name, harm := range map[string]func(t *testing.T){
		"nothing": nil,
		"an older copy of the database": func(t *testing.T) {
			must(t, os.RemoveAll(w.path("store")))
			copyTree(t, filepath.Join(old, "store"), w.path("store"))
		},
		"the same, and the checkpoint removed": func(t *testing.T) {
			must(t, os.RemoveAll(w.path("store")))
			copyTree(t, filepath.Join(old, "store"), w.path("store"))
			must(t, os.Remove(w.path("log", "checkpoint")))
		},
		"the same, and the tiles removed": func(t *testing.T) {
			must(t, os.RemoveAll(w.path("store")))
			copyTree(t, filepath.Join(old, "store"), w.path("store"))
			must(t, os.RemoveAll(w.path("log", "tree")))
		},
		"the newest entry deleted": func(t *testing.T) { w.edit(t, "DELETE FROM audit_entry WHERE seq = 899") },
	} {
		t.Run(name, func(t *testing.T) {
			keep := t.TempDir()
			copyTree(t, w.dir, keep)
			defer func() {
				w.close()
				must(t, os.RemoveAll(w.dir))
				copyTree(t, keep, w.dir)
			}()
			if harm == nil {
				must(t, w.open(t))
				return
			}
			harm(t)
			err := w.open(t)
			has := "600"
			if strings.HasPrefix(name, "the newest") {
				has = "899"
			}
			if !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), fmt.Sprint(c.Size)) || !strings.Contains(err.Error(), has) {
				t.Errorf("%v", err)
			}
		})
	}
}

// proves R-A1: an entry that was rewritten, together with its hash, is never
// signed: a start refuses it, also without a tree, or Check does.
//
// takeover both modes, database: no rewrite the log
func TestARewrittenEntryIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		seq   int
		wipe  bool
		check bool // detected by Check, not by the start
	}{
		"a new one":                          {590, false, false},
		"an old one, without the tree":       {3, true, false},
		"a new one, without the tree":        {599, true, false},
		"an old one, among many, with check": {3, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := built(t, 600)
			before, err := os.ReadFile(w.path("log", "checkpoint"))
			must(t, err)
			w.rewrite(t, c.seq)
			if c.wipe {
				must(t, os.RemoveAll(w.path("log", "tree")))
			}
			err = w.open(t, func(cfg *TreeConfig) {
				if c.check {
					cfg.newest = 100
				}
			})
			if c.check {
				must(t, err)
				must(t, w.log.Admit())
				_, err = w.log.Check(t.Context())
				if !strings.Contains(fmt.Sprint(err), "entries up to #3:") && !strings.Contains(fmt.Sprint(err), "entries up to #255:") {
					t.Errorf("the error does not name the entry: %v", err)
				}
				if admit := w.log.Admit(); !errors.Is(admit, ErrChanged) {
					t.Errorf("new work is admitted: %v", admit)
				}
				if rebuilt := w.log.Rebuild(t.Context()); !errors.Is(rebuilt, ErrChanged) {
					t.Errorf("the tree was rebuilt: %v", rebuilt)
				}
			}
			if !errors.Is(err, ErrChanged) {
				t.Errorf("%v", err)
			}
			if after, err := os.ReadFile(w.path("log", "checkpoint")); err != nil || !bytes.Equal(after, before) {
				t.Errorf("signed again: %v", err)
			}
		})
	}
}

// A damaged tree is rebuilt with the same root, and the signed checkpoint stays.
func TestADamagedTreeIsRebuilt(t *testing.T) {
	w, c := built(t, 700)
	keep := t.TempDir()
	copyTree(t, w.dir, keep)
	flip := func(name string) func(*testing.T) {
		return func(t *testing.T) {
			path := w.path("log", "tree", name)
			b, err := os.ReadFile(path)
			must(t, err)
			b[len(b)/2] ^= 4
			must(t, os.WriteFile(path, b, 0o600))
		}
	}
	remove := func(name string) func(*testing.T) {
		return func(t *testing.T) { must(t, os.Remove(w.path("log", "tree", name))) }
	}
	write := func(name, text string) func(*testing.T) {
		return func(t *testing.T) { must(t, os.WriteFile(w.path("log", "tree", name), []byte(text), 0o600)) }
	}
	for name, harm := range map[string]func(*testing.T){
		"a bit in a tile":          flip("tile/0/001"),
		"a bit in a tile above":    flip("tile/1/000.p/2"),
		"a bit in a partial tile":  flip("tile/0/002.p/188"),
		"a bit in the last bundle": flip("tile/entries/002.p/188"),
		"a tile is gone":           remove("tile/0/000"),
		"a partial tile is gone":   remove("tile/0/002.p/188"),
		"a torn tile":              write("tile/0/001", strings.Repeat("x", 100)),
		"an empty tile":            write("tile/0/002.p/188", ""),
		"an empty last bundle":     write("tile/entries/002.p/188", ""),
		"a state that is empty":    write(".state/treeState", ""),
		"a state that is torn":     write(".state/treeState", `{"size":700`),
		"a state of another size":  write(".state/treeState", `{"size":701,"root":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`),
		"a state of a huge size":   write(".state/treeState", `{"size":18446744073709551615,"root":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`),
		"no state":                 remove(".state/treeState"),
		"a bit in an older bundle": flip("tile/entries/000"),
		"a bundle with trailing data": func(t *testing.T) {
			b, err := os.ReadFile(w.path("log", "tree", "tile/entries/002.p/188"))
			must(t, err)
			write("tile/entries/002.p/188", string(b)+"\x00\x01x")(t)
		},
		"a full bundle for the last": func(t *testing.T) {
			must(t, os.Rename(w.path("log", "tree", "tile/entries/002.p/188"), w.path("log", "tree", "tile/entries/002")))
		},
		"an older bundle is gone":      remove("tile/entries/001"),
		"no tiles":                     func(t *testing.T) { must(t, os.RemoveAll(w.path("log", "tree", "tile"))) },
		"an older state":               write(".state/treeState", `{"size":0,"root":"47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}`),
		"a checkpoint that is garbage": func(t *testing.T) { must(t, os.WriteFile(w.path("log", "checkpoint"), []byte("\x00\x00"), 0o600)) },
		"a checkpoint that is empty":   func(t *testing.T) { must(t, os.WriteFile(w.path("log", "checkpoint"), nil, 0o600)) },
		"leftovers of a kill": func(t *testing.T) {
			write("tile/0/002.p/1881234567", "x")(t)
			must(t, os.WriteFile(w.path("log", "checkpoint.new"), []byte("x"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				w.close()
				must(t, os.RemoveAll(w.dir))
				copyTree(t, keep, w.dir)
			}()
			harm(t)
			must(t, w.open(t))
			if got := w.covered(t); got != c {
				t.Errorf("%+v, want %+v", got, c)
			}
			if _, err := w.log.InclusionProof(t.Context(), 7, c.Size); err != nil || w.log.Err() != nil {
				t.Errorf("a proof: %v, %v", err, w.log.Err())
			}
			if n, err := w.log.Check(t.Context()); err != nil || n != c.Size {
				t.Errorf("checked %d: %v", n, err)
			}
		})
	}
}

// A tree that is rebuilt while the signer fails proves entries of the earlier
// checkpoint, although the table is longer.
func TestARebuiltTreeProvesTheEarlierCheckpoint(t *testing.T) {
	w, c := built(t, 700)
	w.openStore(t)
	w.grow(t, 50)
	must(t, os.RemoveAll(w.path("log", "tree")))
	signer := &brokenSigner{Signer: w.key, err: errors.New("no key")}
	must(t, w.open(t, func(c *TreeConfig) { c.Signer = signer }))
	must(t, w.log.Wait(t.Context(), c.Size))
	until(t, "the fault", w.log, func() bool { return w.log.Err() != nil })
	list, err := w.ledger.Leaves(t.Context(), 0, 700)
	must(t, err)
	for _, index := range []uint64{0, 511, 512, 699} {
		p, err := w.log.InclusionProof(t.Context(), index, c.Size)
		must(t, err)
		must(t, logproof.VerifyInclusion(c, index, list[index].Hash, p))
	}
}

// Check finds damage that OpenTree does not look for, and blames the tree, not the
// table. Rebuild repairs it.
func TestCheckFindsADamagedBundleAndRebuildRepairsIt(t *testing.T) {
	w, c := built(t, 1000)
	path := w.path("log", "tree", "tile", "entries", "000")
	b, err := os.ReadFile(path)
	must(t, err)
	b[100] ^= 1
	must(t, os.WriteFile(path, b, 0o600))
	must(t, w.open(t, func(c *TreeConfig) { c.newest = 500 }))
	if _, err := w.log.Check(t.Context()); err == nil || errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "tile/entries/000") {
		t.Errorf("found: %v", err)
	}
	must(t, w.log.Admit())
	must(t, w.log.Rebuild(t.Context()))
	if n, err := w.log.Check(t.Context()); err != nil || n != c.Size {
		t.Errorf("after: %d, %v", n, err)
	}
}

// A tile that is damaged while the service runs yields no proof.
func TestNoProofComesFromADamagedTile(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 600)
	c := w.covered(t)
	path := w.path("log", "tree", "tile", "0", "000")
	b, err := os.ReadFile(path)
	must(t, err)
	for i := range b {
		b[i] ^= 1
	}
	must(t, os.WriteFile(path, b, 0o600))
	if p, err := w.log.InclusionProof(t.Context(), 7, c.Size); err == nil {
		t.Errorf("proved with %d hashes", len(p))
	}
	if _, err := w.log.InclusionProof(t.Context(), 300, c.Size); err != nil {
		t.Errorf("control, another tile: %v", err)
	}
}

// A file of the tree that is changed while the service runs is noticed without a read of
// it, and the tree is rebuilt: newest and old entries, their hashes, and the tiles above.
// The control is an unchanged tree, in which nothing is noticed.
//
// proves R-A5
func TestAFlippedTileIsNoticedWhileTheServiceRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	noticed := func(w *world) string {
		s, err := w.log.Status(t.Context())
		must(t, err)
		return s.Repaired.Reason
	}
	for _, path := range []string{"entries/000", "entries/001", "entries/002.p/88", "0/000", "0/001", "0/002.p/88", "1/000.p/2"} {
		w := newWorld(t)
		slept := make(chan struct{}, 3)
		must(t, w.open(t, func(c *TreeConfig) {
			c.Watch = time.Millisecond
			c.idle = func() {
				select {
				case slept <- struct{}{}:
				default:
				}
			}
		}))
		w.grow(t, 600)
		c := w.covered(t)
		for range cap(slept) {
			<-slept // the feeder compares after each
		}
		must(t, w.log.Err())
		if got := noticed(w); got != "" {
			t.Fatalf("the control: %s", got)
		}
		file := w.path("log", "tree", "tile", path)
		good, err := os.ReadFile(file)
		must(t, err)
		bad := slices.Clone(good)
		bad[len(bad)/2] ^= 1
		must(t, os.WriteFile(file, bad, 0o600))
		must(t, w.log.wait(ctx, func() bool { return !w.log.repaired.At.IsZero() && !w.log.rebuild && w.log.size == c.Size }))
		if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, good) {
			t.Errorf("%s was not repaired: %v", path, err)
		}
		if got := noticed(w); !strings.Contains(got, errDamaged.Error()) {
			t.Errorf("%s: noticed as %q", path, got)
		}
		if n, err := w.log.Check(t.Context()); err != nil || n != c.Size {
			t.Errorf("%s: after the repair: %d, %v", path, n, err)
		}
		w.close()
	}
}

// While a tile is damaged the service is not ready, and a read of it is enough. The fault
// ends with the repair.
func TestADamagedTileThatIsReadMakesTheTreeFail(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t, func(c *TreeConfig) { c.Watch = time.Hour }))
	w.grow(t, 600)
	c := w.covered(t)
	must(t, w.log.Err())
	path := w.path("log", "tree", "tile", "0", "000")
	b, err := os.ReadFile(path)
	must(t, err)
	b[0] ^= 1
	must(t, os.WriteFile(path, b, 0o600))
	if _, err := w.log.InclusionProof(t.Context(), 7, c.Size); !errors.Is(err, errDamaged) {
		t.Fatalf("proved: %v", err)
	}
	must(t, w.log.wait(t.Context(), func() bool { return !w.log.rebuild && w.log.fault.err == nil && w.log.size == c.Size }))
	if _, err := w.log.InclusionProof(t.Context(), 7, c.Size); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	if s, err := w.log.Status(t.Context()); err != nil || s.Repaired.At.IsZero() || !strings.Contains(s.Repaired.Reason, "proof of entry #7") {
		t.Errorf("%+v %v", s, err)
	}
}

// proves R-A9: a tree signed by an earlier key is extended; one signed by an
// unknown key, or of another log, is refused.
func TestATreeOfAnotherLogOrKeyIsRefused(t *testing.T) {
	w, c := built(t, 300)
	old := w.key
	next, err := seal.NewEphemeral()
	must(t, err)
	origin := seal.LogOrigin(old.KeyID())

	err = w.open(t, func(c *TreeConfig) { c.Signer, c.Origin = next, origin })
	if !errors.Is(err, ErrForeign) || !errors.Is(err, logproof.ErrUnsigned) {
		t.Errorf("with another key: %v", err)
	}
	w.close()
	err = w.open(t, func(c *TreeConfig) { c.Origin = "bailiwick.dev/log/another" })
	if !errors.Is(err, ErrForeign) || !errors.Is(err, logproof.ErrOrigin) {
		t.Errorf("as another log: %v", err)
	}
	w.close()
	must(t, w.open(t, func(c *TreeConfig) { c.Signer, c.Origin, c.Keys = next, origin, append(c.Keys, public(old)) }))
	if got := w.covered(t); got != c {
		t.Errorf("%+v, want %+v", got, c)
	}
	w.grow(t, 1)
	w.covered(t)
	signed, _ := w.log.Latest()
	if _, by, err := logproof.Open(signed, origin, public(old), public(next)); err != nil || len(by) != 1 || !bytes.Equal(by[0], public(next)) {
		t.Errorf("signed by %d: %v", len(by), err)
	}
}

// Files serves the files of the layout, and no others.
func TestFilesShowsTheLayoutAndNothingElse(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 300)
	w.covered(t)
	must(t, os.WriteFile(w.path("log", "secret"), []byte("x"), 0o600))
	files := w.log.Files()
	for _, name := range []string{"checkpoint", "tile/0/000", "tile/0/001.p/44", "tile/1/000.p/1", "tile/entries/000", "tile/entries/001.p/44"} {
		if b, err := fs.ReadFile(files, name); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	for _, name := range []string{
		".", "tile", "tile/0", "secret", "tree/checkpoint", "../service.key", "tile/../secret", "/etc/passwd", ".state/treeState", "tile/0/.state", "tile/0/000.p",
		"tile/0/000.p/0", "tile/0/000.p/256", "tile/64/000", "tile/0/000x", "tile/0/001.p/44123", "tile/0/000\n", "tile/00/000", "",
	} {
		if b, err := fs.ReadFile(files, name); err == nil {
			t.Errorf("%q: %d bytes", name, len(b))
		}
	}
}
