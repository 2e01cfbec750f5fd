package installer

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// An archive is a gzip-compressed tar with the directories of an installation as etc,
// state, catalog and launch. Its first entry is a header, its last one has the digest of
// the content of each file between them.
const (
	headerName = "bailiwick-backup.json"
	sumsName   = "sums.json"
	maxSums    = 256 << 20
)

// header is the first entry of an archive.
type header struct {
	V        int       `json:"v"`
	Version  string    `json:"version"` // of the program that wrote it
	At       time.Time `json:"at"`
	Identity bool      `json:"identity"` // it has the key that decrypts secrets
	Without  []string  `json:"without"`  // directories that it leaves out, which the machine keeps
}

// Backup copies an installation to a file.
type Backup struct {
	Dirs     api.Dirs
	Version  string
	Now      func() time.Time
	Identity bool // with the key that decrypts secrets
	// Without leaves directories out, such as state/blobs: those that a migration does not
	// change.
	Without []string
}

// place is a directory of an installation, and its name in an archive.
type place struct{ name, dir string }

func places(d api.Dirs) []place {
	return []place{{"etc", d.Trust}, {"state", d.State}, {"catalog", d.Data}, {"launch", d.LauncherState()}}
}

// skip reports what an archive does not have: what is made again, what only says that a
// process runs, and the anchor in the state directory, which would agree with the restored log.
func (b Backup) skip(name string) bool {
	if name == "launch/identity" {
		return !b.Identity
	}
	if slices.Contains(b.Without, name) {
		return true
	}
	return slices.Contains([]string{"state/scratch", "state/tool", "state/checkouts", "state/sources", "state/address", "state/successor", "state/private", "state/high-water"}, name)
}

// Write writes the archive to path, which must not exist. Content that never changes is
// copied while the service runs; then paused is called, and the rest is copied while
// nothing writes to the state.
func (b Backup) Write(ctx context.Context, path string, paused func(copyRest func() error) error) (err error) {
	part := path + ".part"
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeConflict, "backup: %s exists", path).WithHint("name a new file")
	}
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an interrupted one
		return api.Errorf(api.CodeUnavailable, "backup: %w", err)
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // G304: as root named it
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = api.Errorf(api.CodeUnavailable, "backup: %w", errors.Join(err, os.Remove(part))).WithHint("nothing was changed; free some space or name another file, and repeat the command")
		}
	}()
	packed, _ := gzip.NewWriterLevel(f, gzip.BestSpeed) // a valid level
	w := &archiver{Backup: b, tar: tar.NewWriter(packed), sums: map[string]string{}}
	steps := []func() error{
		func() error { return w.json(headerName, header{1, b.Version, b.Now().UTC(), b.Identity, b.Without}) },
		func() error { return w.add(ctx, "state/blobs", b.Dirs.Blobs()) },
		func() error {
			return paused(func() error {
				for _, p := range places(b.Dirs) {
					if err := w.add(ctx, p.name, p.dir); err != nil {
						return err
					}
				}
				return nil
			})
		},
		func() error { return w.json(sumsName, w.sums) },
		w.tar.Close, packed.Close, f.Sync,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(path))
}

// archiver writes an archive.
type archiver struct {
	Backup
	tar  *tar.Writer
	sums map[string]string // digest of the content, by name
}

func (w *archiver) json(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(b)), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = w.tar.Write(b)
	return err
}

// add adds what is below dir under a name. What is in the archive is not added again, and
// a worker may remove its files meanwhile. The service's account may put links there while
// root reads: nothing outside of dir is read.
func (w *archiver) add(ctx context.Context, name, dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only read
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		in := filepath.ToSlash(filepath.Join(name, path))
		_, has := w.sums[in]
		switch {
		case w.skip(in) && e.IsDir():
			return filepath.SkipDir
		case w.skip(in) || has:
			return nil
		}
		return w.entry(root, in, path)
	})
}

func (w *archiver) entry(root *os.Root, in, path string) error {
	st, err := root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h := &tar.Header{Name: in, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	if st.Mode()&fs.ModeSetgid != 0 {
		h.Mode |= 0o2000
	}
	switch {
	case st.IsDir():
		h.Typeflag = tar.TypeDir
	case st.Mode().Type() == fs.ModeSymlink:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	case st.Mode().IsRegular():
		return w.file(root, h, path)
	default:
		return nil // a socket or a pipe
	}
	if err != nil {
		return err
	}
	return w.tar.WriteHeader(h)
}

// file adds a file as long as it is now: a worker may still write to its own, and that is
// no part of the state.
func (w *archiver) file(root *os.Root, h *tar.Header, path string) error {
	f, err := root.OpenFile(path, os.O_RDONLY|durable.Nonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: changed meanwhile", h.Name)
	}
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.tar, sum), io.LimitReader(f, h.Size))
	if err == nil && n < h.Size {
		err = fill(io.MultiWriter(w.tar, sum), h.Size-n)
	}
	w.sums[h.Name] = hexOf(sum)
	return err
}

// fill writes n zero bytes, in place of what a worker cut off meanwhile.
func fill(to io.Writer, n int64) error {
	_, err := io.CopyN(to, zeros{}, n)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func hexOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

// Stopped calls do while no service has the state. The lock is the one that a service
// takes, so a service that starts meanwhile waits and then refuses.
//
// The service's account owns the directories above the lock, so root follows no link out
// of the state.
func Stopped(d api.Dirs, do func() error) error {
	if err := os.MkdirAll(d.State, 0o700); err != nil {
		return err
	}
	lock, err := openStateLock(d)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "lock of the state %s: %w", d.State, err)
	}
	defer lock.Close() //nolint:errcheck // only a lock
	err = durable.TryLock(lock)
	if errors.Is(err, durable.ErrLocked) {
		return api.Errorf(api.CodeConflict, "the service has the state %s open", d.State).WithHint("stop it: sudo systemctl stop bailiwick.service; workers continue")
	}
	if err != nil {
		return err
	}
	return do()
}

// openStateLock opens the lock of the service, and creates what is missing for its account.
func openStateLock(d api.Dirs) (*os.File, error) {
	uid, gid, err := ownerOf(d.State)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(d.State)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a directory
	store := filepath.Base(d.Store())
	switch err := root.Mkdir(store, 0o700); {
	case err == nil:
		if err := root.Lchown(store, uid, gid); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	name := filepath.Join(store, "lock")
	f, err := root.OpenFile(name, os.O_RDWR|durable.Nonblock, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = f.Chown(uid, gid)
		}
	}
	return f, err
}

// release is the release in a version: what is before the commit.
func release(version string) string {
	r, _, _ := strings.Cut(version, "+")
	return r
}

// refuseNewer refuses what a newer program than this one wrote.
func refuseNewer(what, theirs, own string) error {
	if compareReleases(release(theirs), release(own)) > 0 {
		return api.Errorf(api.CodeInvalid, "%s is of version %s, and this program is %s: a downgrade is not supported", what, theirs, own).WithHint("install version %s or a later one first", release(theirs))
	}
	return nil
}

// compareReleases compares releases such as 0.10.2.
func compareReleases(a, b string) int {
	pa, pb := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(pa), len(pb)) {
		if c := number(pa, i) - number(pb, i); c != 0 {
			return c
		}
	}
	return 0
}

func number(parts []string, i int) (n int) {
	if i < len(parts) {
		_, _ = fmt.Sscanf(parts[i], "%d", &n) // what is not a number counts as 0
	}
	return n
}
