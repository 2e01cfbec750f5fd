package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/oci"

	"github.com/bailiwick-dev/bailiwick/api"
)

func newStore(t *testing.T, private bool) *Store {
	t.Helper()
	s, err := Create(Config{Dir: filepath.Join(t.TempDir(), "store"), Private: private})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *Store, text string) api.Digest {
	t.Helper()
	d, err := s.Put(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGetReturnsWhatPutStored(t *testing.T) {
	s := newStore(t, false)
	for _, text := range []string{"", "a", strings.Repeat("bailiwick", 100_000)} {
		d := put(t, s, text)
		if d != api.DigestOf([]byte(text)) {
			t.Fatalf("digest %s", d)
		}
		got, err := s.Get(t.Context(), d, 1<<20)
		if err != nil || string(got) != text {
			t.Fatalf("got %d bytes, err %v", len(got), err)
		}
		if again := put(t, s, text); again != d {
			t.Fatalf("second put: %s, first %s", again, d)
		}
	}
	entries, err := os.ReadDir(filepath.Join(s.Dir(), tempDir))
	if err != nil || len(entries) != 0 {
		t.Fatalf("left behind: %v, err %v", entries, err)
	}
}

// proves R-C4
func TestEveryFlippedBitIsAnIntegrityErrorThatNamesBlobAndFile(t *testing.T) {
	s := newStore(t, false)
	const text = "reviewed by two people"
	d := put(t, s, text)
	for i := range text {
		for bit := range 8 {
			b := []byte(text)
			b[i] ^= 1 << bit
			if err := os.WriteFile(s.Path(d), b, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := s.Get(t.Context(), d, 1<<20)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || corrupt.Digest != d || !strings.Contains(err.Error(), s.Path(d)) || api.CodeOf(err) != api.CodeIntegrity {
				t.Fatalf("byte %d bit %d: err = %v", i, bit, err)
			}
			r, err := s.Open(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); !errors.As(err, &corrupt) {
				t.Fatalf("byte %d bit %d: streamed to the end, err = %v", i, bit, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if put(t, s, text) != d { // and writing it again mends it
		t.Fatal("the repaired blob has another digest")
	}
	if got, err := s.Get(t.Context(), d, 1<<20); err != nil || string(got) != text {
		t.Fatalf("got %q, err %v", got, err)
	}
}

func TestATruncatedExtendedOrReplacedFileIsRefused(t *testing.T) {
	s := newStore(t, false)
	const text = "0123456789"
	d := put(t, s, text)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(b string) func() error { return func() error { return os.WriteFile(s.Path(d), []byte(b), 0o644) } }
	for name, spoil := range map[string]func() error{
		"truncated": write(text[:9]),
		"extended":  write(text + "0"),
		"emptied":   write(""),
		"link":      func() error { return os.Symlink(outside, s.Path(d)) },
		"fifo":      func() error { return syscall.Mkfifo(s.Path(d), 0o644) },
		"directory": func() error { return os.Mkdir(s.Path(d), 0o755) },
	} {
		if err := os.Remove(s.Path(d)); err != nil {
			t.Fatal(err)
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		_, err := s.Get(t.Context(), d, 1<<20)
		if _, ok := errors.AsType[*CorruptError](err); !ok {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

func TestAMissingBlobIsNotACorruptOne(t *testing.T) {
	s := newStore(t, false)
	d := api.DigestOf([]byte("never put"))
	if _, err := s.Get(t.Context(), d, 1); !errors.Is(err, fs.ErrNotExist) || api.CodeOf(err) != api.CodeIntegrity {
		t.Fatalf("err = %v", err)
	}
	if have, err := s.Has(t.Context(), d); have || err != nil {
		t.Fatalf("have %v, err %v", have, err)
	}
	for _, bad := range []api.Digest{"", "sha256:", "sha256:../../../../etc/passwd", "md5:00"} {
		if _, err := s.Get(t.Context(), bad, 1); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestGetRefusesABlobOverItsLimit(t *testing.T) {
	s := newStore(t, false)
	d := put(t, s, "12345")
	if _, err := s.Get(t.Context(), d, 4); api.CodeOf(err) != api.CodeTooLarge {
		t.Fatalf("err = %v", err)
	}
	if _, err := s.Get(t.Context(), d, 5); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentPutsOfTheSameBlobs(t *testing.T) {
	s := newStore(t, true)
	other, err := Open(Config{Dir: s.Dir(), Private: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				st := s
				if w%2 == 1 {
					st = other
				}
				if _, err := st.Put(context.Background(), fmt.Appendf(nil, "blob %d", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	err = s.List(t.Context(), func(d api.Digest) error {
		n++
		_, err := s.Get(t.Context(), d, 1<<10)
		return err
	})
	if err != nil || n != 20 {
		t.Fatalf("%d blobs, err %v", n, err)
	}
}

func TestAFailedStreamLeavesNothing(t *testing.T) {
	s := newStore(t, false)
	broken := io.MultiReader(strings.NewReader("half"), errReader{})
	if _, _, err := s.PutStream(t.Context(), broken); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("err = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.PutStream(ctx, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
	for _, dir := range []string{tempDir, blobDir} {
		if entries, err := os.ReadDir(filepath.Join(s.Dir(), dir)); err != nil || len(entries) != 0 {
			t.Errorf("%s holds %v, err %v", dir, entries, err)
		}
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestPermissionsAreIndependentOfTheUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for private, want := range map[bool]fs.FileMode{true: 0o600, false: 0o644} {
		s := newStore(t, private)
		d := put(t, s, "x")
		dirs := map[bool]fs.FileMode{true: 0o700, false: 0o755}
		if st, err := os.Stat(filepath.Join(s.Dir(), blobDir)); err != nil || st.Mode().Perm() != dirs[private] {
			t.Errorf("private %v: the blobs' directory has %v, err %v", private, st.Mode(), err)
		}
		for _, p := range []string{s.Path(d), filepath.Join(s.Dir(), "index.json"), filepath.Join(s.Dir(), "oci-layout")} {
			if st, err := os.Stat(p); err != nil || st.Mode().Perm() != want {
				t.Errorf("private %v: %s has %v, err %v", private, p, st.Mode(), err)
			}
		}
	}
}

func TestOpenRefusesADirectoryWithoutALayout(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(Config{Dir: filepath.Join(dir, "none")}); !errors.Is(err, ErrNoStore) {
		t.Fatalf("nothing there: err = %v", err)
	}
	if _, err := Open(Config{Dir: dir}); !errors.Is(err, ErrNoStore) {
		t.Fatalf("empty directory: err = %v", err)
	}
	for _, text := range []string{"", "{}", `{"imageLayoutVersion":"2.0.0"}`, `{"imageLayoutVersion":"1.0.0"}x`, `{"imageLayoutVersion":"1.0.0","x":1}`} {
		if err := os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: dir}); err == nil {
			t.Errorf("%q: opened", text)
		}
	}
	if _, err := Create(Config{Dir: dir}); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("created in a directory that is not empty: err = %v", err)
	}
}

func TestOrasReadsTheLayout(t *testing.T) {
	s := newStore(t, false)
	d := put(t, s, "hello")
	public, err := oci.NewFromFS(t.Context(), os.DirFS(s.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := content.FetchAll(t.Context(), public, ocispec.Descriptor{Digest: digest.Digest(d), Size: 5})
	if err != nil || !bytes.Equal(b, []byte("hello")) {
		t.Fatalf("oras read %q, err %v", b, err)
	}
}
