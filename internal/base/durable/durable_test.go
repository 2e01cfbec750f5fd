package durable

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files returns the names in dir with their content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		found[e.Name()] = string(b)
	}
	return found
}

func wantOnly(t *testing.T, dir, name, content string) {
	t.Helper()
	if got := files(t, dir); len(got) != 1 || got[name] != content {
		t.Errorf("the directory has %q, want only %s with %q", got, name, content)
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, Create(path, []byte("first"), 0o640))
	if err := Create(path, []byte("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second Create returned %v", err)
	}
	wantOnly(t, dir, "file", "first")
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o640 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

func TestReplaceOverwritesTheFileAndWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, os.WriteFile(path+".new", []byte("left by a crash, and longer"), 0o644))
	for _, content := range []string{"first", "second"} {
		must(t, Replace(path, []byte(content), 0o600))
		wantOnly(t, dir, "file", content)
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	must(t, ReplaceIn(root, "file", []byte("third"), 0o644))
	wantOnly(t, dir, "file", "third")
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir, failed := t.TempDir(), errors.New("no space")
	for _, finish := range []func(*Temp) error{
		func(f *Temp) error { return f.Replace(filepath.Join(dir, "a"), failed) },
		func(f *Temp) error { return f.Create(filepath.Join(dir, "a"), failed) },
		func(f *Temp) error { return f.Rename(filepath.Join(dir, "a"), failed) },
		func(f *Temp) error { return f.Replace(filepath.Join(dir, "missing", "a"), nil) },
	} {
		f, err := NewTemp(nil, filepath.Join(dir, "temp"), 0o600)
		must(t, err)
		if err := finish(f); err == nil {
			t.Error("no error")
		}
	}
	err := WriteNew(nil, filepath.Join(dir, "b"), 0o600, func(io.Writer) error { return failed })
	if got := files(t, dir); !errors.Is(err, failed) || len(got) > 0 {
		t.Errorf("%v; left behind: %q", err, got)
	}
}

func TestWriteNewRefusesAnExistingNameAndADanglingLink(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	must(t, WriteNew(root, "file", 0o600, func(w io.Writer) error { _, err := w.Write([]byte("x")); return err }))
	for _, name := range []string{"file", "link"} {
		if err := WriteNew(root, name, 0o600, func(io.Writer) error { return nil }); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALockIsHeldUntilItsFileIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	held, err := Lock(path)
	must(t, err)
	must(t, SetOwner(held, os.Getpid()))
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("the second lock: %v", err)
	}
	other, err := OpenLock(path)
	must(t, err)
	if pid, err := Owner(other); err != nil || pid != os.Getpid() {
		t.Errorf("owner %d, %v", pid, err)
	}
	if err := TryRLock(other); !errors.Is(err, ErrLocked) {
		t.Errorf("a reader's lock: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/10)
	defer cancel()
	if err := PollLock(ctx, func() error { return TryLock(other) }); !errors.Is(err, ErrLocked) {
		t.Errorf("after the context ended: %v", err)
	}
	time.AfterFunc(time.Second/10, func() { _ = held.Close() })
	must(t, PollLock(t.Context(), func() error { return TryLock(other) }))
	must(t, other.Close())
}

func TestReadersShareALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, err := OpenLock(path)
	must(t, err)
	b, err := OpenLock(path)
	must(t, err)
	must(t, TryRLock(a))
	must(t, RLock(b))
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a writer's lock: %v", err)
	}
	must(t, errors.Join(a.Close(), b.Close()))
}

func TestSyncParentsAcceptsADirectoryOfAnyDepth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, SyncParents(dir))
	if err := SyncParents(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}
