package anchor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

func openFile(t testing.TB, path string) *File {
	t.Helper()
	f, err := NewFile(FileConfig{Name: "disk", Path: path, Now: time.Now})
	must(t, err)
	return f
}

// proves R-A6
func TestFileKeepsCheckpoints(t *testing.T) {
	path := filepath.Join(t.TempDir(), "high-water")
	testKeeps(t, func() Anchor { return openFile(t, path) })
	b, err := os.ReadFile(path)
	must(t, err)
	list, err := receipt.Checkpoints(b)
	if err != nil || len(list) != 21 {
		t.Errorf("%d checkpoints, %v", len(list), err)
	}
	st, err := os.Stat(path)
	must(t, err)
	if st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
}

// Foreign data between the lines hides no checkpoint.
func TestFileReturnsTheLargestCheckpoint(t *testing.T) {
	k := newKey(t)
	line := func(size uint64) []byte {
		b, err := receipt.Line(signedAt(t, k, size, "a"))
		must(t, err)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want uint64
	}{
		"in order":                   {bytes.Join([][]byte{line(1), line(9)}, nil), 9},
		"smaller ones after it":      {bytes.Join([][]byte{line(9), line(1), line(2)}, nil), 9},
		"words after it":             {append(line(9), "nothing to see here\n"...), 9},
		"words without an end":       {append(line(9), "nothing to see here"...), 9},
		"very many words":            {append(append(line(9), bytes.Repeat([]byte("x"), 3*receipt.MaxLine)...), '\n'), 9},
		"half a line":                {append(line(9), line(10)[:70]...), 9},
		"half a line, and then more": {bytes.Join([][]byte{line(9), line(10)[:70], []byte("\n"), line(11)}, nil), 11},
		"zeros":                      {append(append(line(9), make([]byte, 4096)...), append([]byte("\n"), line(10)...)...), 10},
		"empty":                      {nil, 0},
	} {
		path := filepath.Join(t.TempDir(), "f")
		must(t, os.WriteFile(path, c.b, 0o600))
		f := openFile(t, path)
		signed := newestOf(t, f)
		if c.want == 0 {
			if signed != nil {
				t.Errorf("%s: %q", name, signed)
			}
			continue
		}
		if cp, err := logproof.Peek(signed); err != nil || cp.Size != c.want {
			t.Errorf("%s: %d, %v", name, cp.Size, err)
		}
		// The next checkpoint starts on its own line.
		put(t, f, signedAt(t, k, 50, "a"))
		for _, one := range []*File{f, openFile(t, path)} {
			if cp, err := logproof.Peek(newestOf(t, one)); err != nil || cp.Size != 50 {
				t.Errorf("%s: after the next: %d, %v", name, cp.Size, err)
			}
		}
	}
}

func TestFileRefusesOtherFileTypesWithoutBlocking(t *testing.T) {
	k, dir := newKey(t), t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, os.Symlink(filepath.Join(dir, "target"), filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "words"), []byte("all well\n"), 0o600))
	for _, name := range []string{"fifo", "link", "words", ".", "none/file"} {
		f, err := NewFile(FileConfig{Name: "disk", Path: filepath.Clean(filepath.Join(dir, name)), Now: time.Now})
		must(t, err)
		if signed, err := f.Newest(t.Context()); err == nil {
			t.Errorf("%s: holds %q", name, signed)
		}
		if name == "words" || name == "fifo" {
			continue // the Keeper calls Newest on a fifo first; text is harmless
		}
		if r, err := f.Put(t.Context(), signedAt(t, k, 1, "a")); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, err := NewFile(FileConfig{Name: "disk", Path: "relative"}); err == nil {
		t.Error("a relative path was accepted")
	}
}

// The file may be append-only for the account that writes it.
func TestAFileIsOnlyEverAppendedTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	k := newKey(t)
	put(t, openFile(t, path), signedAt(t, k, 1, "a"))
	if out, err := exec.Command("chattr", "+a", path).CombinedOutput(); err != nil {
		t.Logf("this file system knows no append-only files, so what is there is compared: %v %s", err, out)
	} else {
		t.Cleanup(func() { must(t, exec.Command("chattr", "-a", path).Run()) })
		if err := os.Truncate(path, 0); err == nil {
			t.Fatal("control: the file was truncated")
		}
	}
	before, err := os.ReadFile(path)
	must(t, err)
	put(t, openFile(t, path), signedAt(t, k, 2, "a"))
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.HasPrefix(after, before) || len(after) == len(before) {
		t.Errorf("%q became %q", before, after)
	}
}

// A file that is replaced while the service runs is read from the start.
func TestAReplacedFileIsReadAgain(t *testing.T) {
	path, k := filepath.Join(t.TempDir(), "f"), newKey(t)
	f := openFile(t, path)
	for size := range uint64(5) {
		put(t, f, signedAt(t, k, size+1, "a"))
		newestOf(t, f)
	}
	line, err := receipt.Line(signedAt(t, k, 2, "a"))
	must(t, err)
	must(t, os.Truncate(path, 0))
	must(t, os.WriteFile(path, line, 0o600))
	if cp, err := logproof.Peek(newestOf(t, f)); err != nil || cp.Size != 2 {
		t.Errorf("%d, %v", cp.Size, err)
	}
	must(t, os.WriteFile(path+".new", bytes.Repeat(line, 9), 0o600))
	must(t, os.Rename(path+".new", path))
	must(t, os.Remove(path))
	if signed := newestOf(t, f); signed != nil {
		t.Errorf("%q", signed)
	}
}

// TestHelper is the process whose disk loses power.
func TestHelper(t *testing.T) {
	path := os.Getenv("ANCHOR_TEST_FILE")
	if path == "" {
		return
	}
	if err := faultdisk.Join(); err != nil {
		t.Fatal(err)
	}
	k := logKey(append(bytes.Repeat([]byte{7}, 32), helperPublic()...))
	f := openFile(t, path)
	for size := uint64(1); size <= 6; size++ {
		for range 2 { // retries, as the Keeper does
			if _, err := f.Newest(context.Background()); err != nil {
				continue
			}
			if _, err := f.Put(context.Background(), signedAt(t, k, size, "a")); err == nil {
				fmt.Println("put", size)
				break
			}
		}
	}
}

func helperPublic() []byte { return ed25519Public(bytes.Repeat([]byte{7}, 32)) }

func journal(t *testing.T, fault func(int, faultdisk.Op) faultdisk.Fault) []faultdisk.Op {
	t.Helper()
	root := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
	cmd.Env = append(os.Environ(), "ANCHOR_TEST_FILE="+filepath.Join(root, "high-water"))
	cmd.Stderr = os.Stderr
	ops, err := faultdisk.Run(t.Context(), cmd, root, fault)
	must(t, err)
	return ops
}

// afterCut compares the file with the checkpoints that have receipts.
func afterCut(t *testing.T, path, said string) error {
	want := uint64(0)
	for line := range strings.Lines(said) {
		if n, err := fmt.Sscanf(line, "put %d", &want); n != 1 && strings.HasPrefix(line, "put") {
			return err
		}
	}
	f, err := NewFile(FileConfig{Name: "disk", Path: path, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	signed, err := f.Newest(t.Context())
	if signed == nil {
		if want == 0 {
			return nil //nolint:nilerr // half a line, and nothing was promised
		}
		return errors.Join(err, fmt.Errorf("holds nothing, want %d", want))
	}
	cp, err := logproof.Peek(signed)
	if err == nil && cp.Size < want {
		err = fmt.Errorf("holds %d, want %d", cp.Size, want)
	}
	if err != nil {
		return err
	}
	_, err = f.Put(t.Context(), signed)
	return err
}

func cutAll(t *testing.T, ops []faultdisk.Op, lies bool) (wrong int) {
	t.Helper()
	disk, err := faultdisk.Load(t.TempDir())
	must(t, err)
	disk.Lies = lies
	said := ""
	for at, op := range ops {
		disk.Apply(op)
		said += op.Text
		for _, what := range []faultdisk.Survivors{faultdisk.None, faultdisk.Some} {
			dir := t.TempDir()
			must(t, disk.Image(dir, rand.New(rand.NewPCG(uint64(at), 0)), what))
			if err := afterCut(t, filepath.Join(dir, "high-water"), said); err != nil {
				if wrong++; !lies && wrong < 4 {
					t.Errorf("cut %d of %d (%s of %s), survivors %d: %v", at, len(ops), op.Kind, op.Path, what, err)
				}
			}
			_ = os.RemoveAll(dir)
		}
	}
	return wrong
}

// proves R-A6: a checkpoint with a receipt survives a power cut.
func TestFileKeepsAcknowledgedCheckpointsAcrossPowerCuts(t *testing.T) {
	ops := journal(t, nil)
	cutAll(t, ops, false)
	if wrong := cutAll(t, ops, true); wrong < len(ops)/4 { // control
		t.Errorf("on a disk that lies about syncs, %d of %d cuts were detected", wrong, 2*len(ops))
	}
}

// A write or a sync fails, with or without effect. No missing checkpoint has a
// receipt, and later ones succeed.
func TestAFailedWriteOrSyncGivesNoReceipt(t *testing.T) {
	for _, kind := range []faultdisk.Kind{faultdisk.Sync, faultdisk.Write} {
		for _, kept := range []bool{false, true} {
			for n := range 4 {
				left, hit := n, false
				ops := journal(t, func(_ int, op faultdisk.Op) faultdisk.Fault {
					if op.Kind != kind || !strings.Contains(op.Path, "high-water") {
						return faultdisk.Fault{}
					}
					if left--; left != -1 {
						return faultdisk.Fault{}
					}
					hit = true
					return faultdisk.Fault{Errno: syscall.EIO, Kept: kept}
				})
				cutAll(t, ops, false)
				said := ""
				for _, op := range ops {
					said += op.Text
				}
				if !hit || !strings.Contains(said, "put 6") {
					t.Errorf("%s %d, kept %v: hit %v, said %q", kind, n, kept, hit, said)
				}
			}
		}
	}
}

func FuzzFile(f *testing.F) {
	k := newKey(f)
	line, err := receipt.Line(signedAt(f, k, 9, "a"))
	must(f, err)
	f.Add(line)
	f.Add(append(line[:40], line...))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "f")
		must(t, os.WriteFile(path, b, 0o600))
		signed, err := openFile(t, path).Newest(t.Context())
		if err != nil || signed == nil {
			return
		}
		if _, err := logproof.Peek(signed); err != nil {
			t.Errorf("%q: %v", signed, err)
		}
	})
}
