package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of this size, for which the test needs root.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fillUp leaves no free block on the disk of dir.
func fillUp(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.OpenFile(filler, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if err := errors.Join(f.Close()); err != nil {
		t.Fatal(err)
	}
	return filler
}

// proves R-A2: on a full disk nothing new begins, the reserve lets the state be
// opened, and when there is room again the reserve is made again.
func TestTheReserveOpensTheStateOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, "size=8m")
	dir := filepath.Join(disk, "state")
	s, err := Create(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	r := NewReserve(dir)
	if err := r.Err(); err != nil {
		t.Fatalf("with room: %v", err)
	}
	filler := fillUp(t, disk)
	var short *DiskError
	if err := r.Err(); !errors.As(err, &short) || !strings.Contains(err.Error(), "state is on a full disk") || !strings.Contains(err.Error(), "0 B free of 8.0 MiB") {
		t.Errorf("on the full disk: %v", err)
	}
	for err == nil { // the log may have some blocks left
		err = s.Update(t.Context(), insert(strings.Repeat("x", 64<<10)))
	}
	poisoned, ok := errors.AsType[*PoisonedError](err)
	if !ok || !poisoned.Full() || !strings.Contains(err.Error(), "state is on a full disk") || !strings.Contains(Advice(err), "bailiwick gc") {
		t.Errorf("the write failed with %v", err)
	}
	_ = s.Close()
	fillUp(t, disk)                                           // what closing it freed
	if s, err := Open(t.Context(), config(dir)); err == nil { // the control
		if s.Update(t.Context(), insert(strings.Repeat("x", 64<<10))) == nil {
			t.Error("the full disk can be written without the reserve")
		}
		_ = s.Close()
	}
	fillUp(t, disk)
	if err := r.Ensure(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), config(dir)); err != nil {
		t.Fatalf("with the room of the reserve: %v", err)
	}
	defer s.Close() //nolint:errcheck // a test's
	if err := s.Update(t.Context(), insert("settled")); err != nil {
		t.Error(err)
	}
	if err := r.Err(); err == nil {
		t.Error("new work may begin without the reserve")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, reserveName)); err != nil {
		t.Errorf("the reserve was not made again: %v", err)
	}
}

func TestAReadOnlyDiskIsNamed(t *testing.T) {
	dir := smallDisk(t, "size=4m")
	r := NewReserve(dir)
	if err := errors.Join(r.Err(), unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"new work": r.Err(), "a write": r.Writable(), "a start": r.Ensure()} {
		if err == nil || !strings.Contains(err.Error(), "state is on a read-only file system") {
			t.Errorf("%s: %v", what, err)
		}
		if !strings.Contains(Advice(err), "writable") {
			t.Errorf("%s: %s", what, Advice(err))
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Err(), r.Writable()); err != nil {
		t.Error(err)
	}
}

// A disk that refuses although it seems to have room, as under a quota.
func TestAnotherRefusalOfTheDiskIsReported(t *testing.T) {
	err := error(&DiskError{Dir: "/s", Free: 1 << 30, Size: 1 << 40, Want: 1 << 20, Cause: unix.EDQUOT})
	if !strings.Contains(err.Error(), "disk quota exceeded") || !errors.Is(err, unix.EDQUOT) {
		t.Error(err)
	}
}

func TestFillWritesEveryByte(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test's
	if err := fill(f, 100_000); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(b, make([]byte, 100_000)) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Two services that start on the same state probe its disk at the same time. Neither fails by
// the other's probe.
func TestTwoProbesOfADiskDoNotDisturbEachOther(t *testing.T) {
	dir := t.TempDir()
	errs := make(chan error)
	for range 2 {
		go func() {
			r := NewReserve(dir)
			var err error
			for i := 0; i < 500 && err == nil; i++ {
				err = r.Writable()
			}
			errs <- err
		}()
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, probeName)); err == nil {
		t.Error("a probe is left")
	}
}
