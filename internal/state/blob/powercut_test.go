package blob

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

func cutContent(i int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("blob %d;", i%17), 1+i%17*90))
}

// TestHelper is the process whose disk loses power.
func TestHelper(t *testing.T) {
	dir := os.Getenv("BLOB_TEST_DIR")
	if dir == "" {
		return
	}
	if err := faultdisk.Join(); err != nil {
		t.Fatal(err)
	}
	s, err := Create(Config{Dir: dir, Private: true})
	if err != nil {
		fmt.Println("not created")
		return
	}
	fmt.Println("ready")
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := w; i < 24; i += 3 { // some of them twice, at once
				if d, err := s.Put(context.Background(), cutContent(i)); err == nil {
					fmt.Println("put", d)
				}
			}
		})
	}
	wg.Wait()
}

func journal(t *testing.T, fault func(int, faultdisk.Op) faultdisk.Fault) []faultdisk.Op {
	t.Helper()
	root := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
	cmd.Env = append(os.Environ(), "BLOB_TEST_DIR="+filepath.Join(root, "var/blobs"))
	cmd.Stderr = os.Stderr
	ops, err := faultdisk.Run(t.Context(), cmd, root, fault)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// afterCut opens the store as a restarted service would.
func afterCut(t *testing.T, dir string, said string) (err error) {
	cfg := Config{Dir: dir, Private: true}
	s, err := Open(cfg)
	if errors.Is(err, ErrNoStore) && !strings.Contains(said, "ready\n") {
		s, err = Create(cfg)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for line := range strings.Lines(said) {
		if d, ok := strings.CutPrefix(strings.TrimSpace(line), "put "); ok {
			if _, err := s.Get(t.Context(), api.Digest(d), MaxSize); err != nil {
				return fmt.Errorf("a blob that was put: %w", err)
			}
		}
	}
	// What has its name is whole, and what is put again is there.
	if err := s.List(t.Context(), func(d api.Digest) error { _, err := s.Get(t.Context(), d, MaxSize); return err }); err != nil {
		return err
	}
	d, err := s.Put(t.Context(), cutContent(1))
	if err != nil {
		return err
	}
	_, err = s.Get(t.Context(), d, MaxSize)
	return err
}

// cutAll cuts at every operation and counts the failures.
func cutAll(t *testing.T, ops []faultdisk.Op, lies bool) (wrong int) {
	t.Helper()
	disk, err := faultdisk.Load(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	disk.Lies = lies
	said := ""
	for at, op := range ops {
		disk.Apply(op)
		said += op.Text
		for _, what := range []faultdisk.Survivors{faultdisk.None, faultdisk.Some} {
			dir := t.TempDir()
			if err := disk.Image(dir, rand.New(rand.NewPCG(uint64(at), 0)), what); err != nil {
				t.Fatal(err)
			}
			if err := afterCut(t, filepath.Join(dir, "var/blobs"), said); err != nil {
				if wrong++; !lies && wrong < 4 {
					t.Errorf("cut %d of %d (%s of %s), survivors %d: %v", at, len(ops), op.Kind, op.Path, what, err)
				}
			}
			_ = os.RemoveAll(dir)
		}
	}
	return wrong
}

// proves R-D5 (what is referred to is there)
func TestPutSurvivesAPowerCutWhole(t *testing.T) {
	t.Parallel()
	ops := journal(t, nil)
	cutAll(t, ops, false)
	if wrong := cutAll(t, ops, true); wrong < len(ops)/4 { // the control
		t.Errorf("control: on a disk that ignores syncs %d of %d cuts were detected", wrong, 2*len(ops))
	}
}

func TestAFailedSyncLosesNoEarlierBlob(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		for n := range 40 {
			left, before := n, 0
			ops := journal(t, func(at int, op faultdisk.Op) faultdisk.Fault {
				if op.Kind != faultdisk.Sync {
					return faultdisk.Fault{}
				}
				if left--; left != -1 {
					return faultdisk.Fault{}
				}
				before = at
				return faultdisk.Fault{Errno: syscall.EIO, Kept: kept}
			})
			disk, err := faultdisk.Load(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			// Nothing is claimed about later ones: a directory whose
			// sync failed may have lost their names too.
			said := ""
			for at, op := range ops {
				disk.Apply(op)
				if at <= before || left >= 0 {
					said += op.Text
				}
			}
			for _, what := range []faultdisk.Survivors{faultdisk.None, faultdisk.All} {
				dir := t.TempDir()
				if err := disk.Image(dir, rand.New(rand.NewPCG(0, 0)), what); err != nil {
					t.Fatal(err)
				}
				if err := afterCut(t, filepath.Join(dir, "var/blobs"), said); err != nil {
					t.Errorf("sync %d, kept %v, survivors %d: %v", n, kept, what, err)
				}
			}
			if left >= 0 {
				break
			}
		}
	}
}
