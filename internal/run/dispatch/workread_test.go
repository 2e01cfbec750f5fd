package dispatch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A worker of another account cannot make the service read the service's own files into the record, or wait for a pipe.
//
// proves R-S1
func TestTheServiceReadsOnlyFilesOfTheAttempt(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "service.key")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(secret, []byte("the service's"), 0o600))
	must(os.Mkdir(filepath.Join(dir, record.WorkOut), 0o700))
	must(os.WriteFile(filepath.Join(dir, record.WorkOut, "file"), []byte("the worker's"), 0o600))
	must(os.Symlink(secret, filepath.Join(dir, "link")))
	must(os.Symlink(filepath.Dir(secret), filepath.Join(dir, "dir")))
	must(os.Symlink(record.WorkOut, filepath.Join(dir, "own")))
	must(unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	for _, name := range []string{"link", "dir/service.key", "own/file", "pipe", "folder", "absent", "out/file/below"} {
		if b, err := readWork(dir, name, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "link")); err != nil || string(b) != "the service's" {
		t.Errorf("control: an ordinary open follows the link: %q, %v", b, err)
	}
	if b, err := readWork(dir, record.WorkOut+"/file", 100); err != nil || string(b) != "the worker's" {
		t.Errorf("a file of the attempt: %q, %v", b, err)
	}
	if _, err := readWork(dir, record.WorkOut+"/file", 5); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// proves R-S1
func TestALinkInTheLogIsNoPartOfIt(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	name := record.LogFile(api.LogPart{})
	for _, d := range []string{filepath.Join(dir, record.WorkLog), other} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(other, name), []byte("the service's"), 0o600), os.WriteFile(filepath.Join(dir, record.WorkLog, "odd"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	want := func(when string, n int) {
		t.Helper()
		if parts, err := logParts(dir); err != nil || len(parts) != n {
			t.Errorf("%s: %v, %v", when, parts, err)
		}
	}
	want("a name that is no part", 0)
	if err := os.Symlink(filepath.Join(other, name), filepath.Join(dir, record.WorkLog, name)); err != nil {
		t.Fatal(err)
	}
	want("a link to a part elsewhere", 0)
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, record.WorkLog)), os.Symlink(other, filepath.Join(dir, record.WorkLog))); err != nil {
		t.Fatal(err)
	}
	want("a link to a log elsewhere", 0)
	if err := errors.Join(os.Remove(filepath.Join(dir, record.WorkLog)), os.Rename(other, filepath.Join(dir, record.WorkLog))); err != nil {
		t.Fatal(err)
	}
	want("its own", 1)
}
