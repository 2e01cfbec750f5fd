package ownedpath

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A directory that its owner exchanges for a link while a path is resolved leads to no other account. The control asks for the
// directory and then for the owner of what is below it, as if nothing could change in between.
//
// proves R-S4
func TestAnExchangedDirectoryLeadsNowhereElse(t *testing.T) {
	const alice, bob = 4711, 4712
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	way, link, repo := filepath.Join(dir, "way"), filepath.Join(dir, "link"), filepath.Join(dir, "way/repo")
	if err := errors.Join(os.MkdirAll(repo, 0o755), os.MkdirAll(filepath.Join(dir, "bob/repo"), 0o755), os.Symlink("bob", link), //nolint:gosec // of this test
		os.Chown(way, alice, alice), os.Chown(repo, alice, alice), os.Lchown(link, alice, alice), os.Chown(filepath.Join(dir, "bob/repo"), bob, bob)); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	exchanged := make(chan error)
	go func() {
		for !done.Load() {
			if err := unix.Renameat2(unix.AT_FDCWD, way, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				exchanged <- err
				return
			}
		}
		exchanged <- nil
	}()
	const rounds = 20_000
	naive := 0
	for n, end := 0, time.Now().Add(time.Minute); (n < rounds || naive == 0) && time.Now().Before(end); n++ {
		if real, owner, err := Resolve(repo); err == nil && (owner != alice || real != repo) {
			t.Errorf("round %d: %s of user %d", n, real, owner)
			break
		}
		if mode, _, err := stat(way); err == nil && mode.IsDir() {
			if _, owner, err := stat(repo); err == nil && owner == bob {
				naive++
			}
		}
	}
	done.Store(true)
	if err := <-exchanged; err != nil {
		t.Fatal(err)
	}
	if naive == 0 {
		t.Error("control: no exchange hit the moment between the two questions")
	}
	t.Logf("the control was led to the other account %d times", naive)
}
