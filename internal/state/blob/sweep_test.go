package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

func newSwept(t *testing.T, swept bool) *Store {
	t.Helper()
	s, err := Create(Config{Dir: filepath.Join(t.TempDir(), "store"), Private: true, Swept: swept})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// remove sweeps one unreferenced blob; while runs between the survey and the
// removal.
func remove(t *testing.T, s *Store, d api.Digest, while func()) (gone bool) {
	t.Helper()
	w, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	while()
	if gone, err = w.Remove(d); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, statErr := s.Stat(t.Context(), d)
	if gone != errors.Is(statErr, fs.ErrNotExist) {
		t.Fatalf("gone is %t and the file says %v", gone, statErr)
	}
	return gone
}

// An unreferenced blob is put again, at each point of a sweep that would remove
// it. The control is the same without protection, where the sweep removes it.
func TestABlobPutAgainDuringASweepIsKept(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		t.Run(fmt.Sprintf("guarded=%t", guarded), func(t *testing.T) {
			hold := func(s *Store) (context.Context, func()) {
				if guarded {
					return s.Protect(t.Context())
				}
				return t.Context(), func() {}
			}
			moments := map[string]func(s *Store, again func(context.Context)) bool{
				"held since before the sweep": func(s *Store, again func(context.Context)) bool {
					ctx, release := hold(s)
					again(ctx)
					defer release()
					return remove(t, s, api.DigestOf([]byte("orphan")), func() {})
				},
				"put during the sweep and still held": func(s *Store, again func(context.Context)) bool {
					ctx, release := hold(s)
					defer release()
					return remove(t, s, api.DigestOf([]byte("orphan")), func() { again(ctx) })
				},
				"put and released during the sweep": func(s *Store, again func(context.Context)) bool {
					return remove(t, s, api.DigestOf([]byte("orphan")), func() {
						ctx, release := hold(s)
						again(ctx)
						release()
					})
				},
				"held before and released during the sweep": func(s *Store, again func(context.Context)) bool {
					ctx, release := hold(s)
					again(ctx)
					return remove(t, s, api.DigestOf([]byte("orphan")), release)
				},
			}
			for name, moment := range moments {
				for how, put := range map[string]func(s *Store, ctx context.Context) error{
					"Put": func(s *Store, ctx context.Context) error { _, err := s.Put(ctx, []byte("orphan")); return err },
					"PutStream": func(s *Store, ctx context.Context) error {
						_, _, err := s.PutStream(ctx, strings.NewReader("orphan"))
						return err
					},
				} {
					s := newSwept(t, guarded)
					again := func(ctx context.Context) {
						if err := put(s, ctx); err != nil {
							t.Fatal(err)
						}
					}
					ctx, release := s.Protect(t.Context())
					again(ctx)
					release()
					if gone := moment(s, again); gone == guarded {
						t.Errorf("%s, by %s: gone is %t", name, how, gone)
					}
				}
			}
		})
	}
}

func TestAReleasedBlobIsRemovedByTheNextSweep(t *testing.T) {
	s := newSwept(t, true)
	ctx, release := s.Protect(t.Context())
	d, err := s.Put(ctx, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	release()
	if !remove(t, s, d, func() {}) {
		t.Error("the released blob still exists")
	}
	if !remove(t, s, d, func() {}) {
		t.Error("a removed blob was not reported as gone")
	}
}

func TestTwoProtectionsOfOneBlobCountTwice(t *testing.T) {
	s := newSwept(t, true)
	first, releaseFirst := s.Protect(t.Context())
	second, releaseSecond := s.Protect(t.Context())
	d, err := s.Put(first, []byte("x"))
	if _, again := s.Put(second, []byte("x")); err != nil || again != nil {
		t.Fatal(err, again)
	}
	releaseFirst()
	if remove(t, s, d, func() {}) {
		t.Error("removed while the second protection is active")
	}
	releaseSecond()
	if !remove(t, s, d, func() {}) {
		t.Error("kept without any protection")
	}
}

// The control is a store that is never swept.
func TestASweptStoreRefusesAnUnprotectedPut(t *testing.T) {
	s, other := newSwept(t, true), newSwept(t, true)
	released, release := s.Protect(t.Context())
	release()
	elsewhere, releaseElsewhere := other.Protect(t.Context())
	defer releaseElsewhere()
	for name, ctx := range map[string]context.Context{"unprotected": t.Context(), "released": released, "protected in another store": elsewhere} {
		if _, err := s.Put(ctx, []byte("x")); !errors.Is(err, errUnprotected) {
			t.Errorf("%s: Put: %v", name, err)
		}
		if _, _, err := s.PutStream(ctx, strings.NewReader("x")); !errors.Is(err, errUnprotected) {
			t.Errorf("%s: PutStream: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(s.Dir(), tempDir)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := newSwept(t, false).Put(t.Context(), []byte("x")); err != nil {
		t.Error(err)
	}
}

func TestOneSweepAtATime(t *testing.T) {
	s := newSwept(t, true)
	w, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(); err == nil {
		t.Error("a second sweep began beside the first")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestFilesListsBlobsWithSizesAndIgnoresOtherFiles(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "") //nolint:usetesting // one per try
		if err != nil {
			t.Fatal(err)
		}
		s, err := Create(Config{Dir: filepath.Join(dir, "store")})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want := map[api.Digest]int64{}
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3000), 0, 20).Draw(r, "sizes") {
			want[put(t, s, strings.Repeat("x", n))] = int64(n)
		}
		if err := os.WriteFile(filepath.Join(s.Dir(), "blobs/sha256/stranger"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Files(t.Context(), func(f File) error {
			if size, ok := want[f.Digest]; !ok || size != f.Size {
				t.Errorf("file %v", f)
			}
			delete(want, f.Digest)
			return nil
		}); err != nil || len(want) > 0 {
			t.Errorf("%v, not listed: %v", err, want)
		}
	})
}

func TestRemoveTempRemovesUnfinishedWrites(t *testing.T) {
	s := newSwept(t, true)
	for name, kept := range map[string]bool{"a.part": false, "note": true} {
		path := filepath.Join(s.Dir(), tempDir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.RemoveTemp(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != kept {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Many goroutines put and record the same few blobs while a sweeper removes those
// that are not recorded: recorded blobs exist.
func TestAReferencedBlobIsNeverSwept(t *testing.T) {
	s := newSwept(t, true)
	var mu sync.Mutex
	noted := map[api.Digest]int{} // by how many
	var writers, sweeper sync.WaitGroup
	done := make(chan struct{})
	for i := range 8 {
		writers.Go(func() {
			for n := range 60 {
				ctx, release := s.Protect(t.Context())
				d, err := s.Put(ctx, fmt.Appendf(nil, "blob %d", (i+n)%10))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				noted[d]++
				mu.Unlock()
				release()
				if _, err := s.Stat(t.Context(), d); err != nil {
					t.Error(err)
				}
				mu.Lock()
				if n%3 == 0 && i%2 == 0 {
					noted[d]--
				}
				mu.Unlock()
			}
		})
	}
	sweeper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			w, err := s.Sweep()
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			keep := map[api.Digest]bool{}
			for d, n := range noted {
				keep[d] = n > 0
			}
			mu.Unlock()
			err = s.Files(t.Context(), func(f File) error {
				if keep[f.Digest] {
					return nil
				}
				_, err := w.Remove(f.Digest)
				return err
			})
			if err := errors.Join(err, w.Close()); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	close(done)
	sweeper.Wait()
	for d, n := range noted {
		if _, err := s.Stat(t.Context(), d); n > 0 && err != nil {
			t.Error(err)
		}
	}
}

// The control is an unclaimed blob.
func TestAClaimedBlobIsKept(t *testing.T) {
	s := newStore(t, true)
	held, release := s.Protect(t.Context())
	claimed, loose := put(t, s, "claimed"), put(t, s, "loose")
	w, err := s.Sweep()
	if err != nil {
		t.Fatal(err)
	}
	if size, err := s.Claim(held, claimed); err != nil || size != int64(len("claimed")) {
		t.Fatalf("%d, %v", size, err)
	}
	for d, want := range map[api.Digest]bool{claimed: false, loose: true} {
		if gone, err := w.Remove(d); err != nil || gone != want {
			t.Errorf("%s: gone %v, %v", d, gone, err)
		}
	}
	release()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w, err = s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if gone, err := w.Remove(claimed); err != nil || !gone { // no longer protected
		t.Errorf("%v, %v", gone, err)
	}
	if _, err := s.Claim(t.Context(), loose); err == nil {
		t.Error("claimed a missing blob")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
