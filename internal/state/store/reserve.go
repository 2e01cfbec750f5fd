package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	reserveName = "reserve"
	probeName   = "probe"

	// The reserve is a sixteenth of its disk, at most this much.
	maxReserve = 16 << 20
	// The room that the database needs at least: its index of the write-ahead log
	// and some transactions.
	minRoom = 128 << 10
)

// Reserve is a file that keeps room on the disk of the state: when the disk is
// full, its space lets the service start, settle what is running, and collect
// garbage. While the disk is short of room, Err says so and nothing new may
// begin. Its methods may be called from any goroutine.
type Reserve struct {
	dir string

	mu sync.Mutex // one creates or removes the file at a time
}

// NewReserve returns the reserve of the state directory dir, which exists once
// Err has found room for it.
func NewReserve(dir string) *Reserve { return &Reserve{dir: dir} }

// DiskError says why the disk of the state cannot be written to.
type DiskError struct {
	Dir      string
	Free     int64 // bytes for this account
	Size     int64 // of the file system
	Want     int64 // bytes that must be free before new work begins
	ReadOnly bool
	Cause    error // nil: there is less free than wanted
}

func (e *DiskError) Error() string {
	switch {
	case e.ReadOnly:
		return fmt.Sprintf("state is on a read-only file system (%s): make it writable", e.Dir)
	case e.Cause != nil && e.Free >= e.Want: // such as a quota
		return fmt.Sprintf("state cannot be written (%s: %v): make room for %s", e.Dir, e.Cause, room(e.Want))
	}
	return fmt.Sprintf("state is on a full disk (%s): %s free of %s, the service needs %s: free some space",
		e.Dir, room(e.Free), room(e.Size), room(e.Want))
}

func (e *DiskError) Unwrap() error { return e.Cause }

// room is a number of bytes for people.
func room(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

// disk is what the system says about the disk of the state.
type disk struct {
	free, size int64
	readOnly   bool
}

func diskOf(dir string) (d disk, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return d, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := int64(st.Bsize)                                        //nolint:unconvert // the types differ between systems
	d.free, d.size = int64(st.Bavail)*block, int64(st.Blocks)*block //nolint:gosec // G115: fits
	d.readOnly = int64(st.Flags)&unix.ST_RDONLY != 0                //nolint:unconvert // as above
	return d, nil
}

// reserve is how much the reserve has; low is how much must be free beside it.
func (d disk) reserve() int64 { return max(minRoom, min(maxReserve, d.size/16)) }
func (d disk) low() int64     { return max(minRoom, d.reserve()/2) }

// CheckDisk returns a *DiskError when the disk of a state directory is full or
// read-only. It writes nothing.
func CheckDisk(dir string) error {
	d, err := diskOf(dir)
	if err != nil {
		return err
	}
	if d.readOnly || d.free < d.low() {
		return &DiskError{Dir: dir, Free: d.free, Size: d.size, Want: d.low(), ReadOnly: d.readOnly}
	}
	return nil
}

// Err returns why nothing new may begin, as a *DiskError, or nil: the reserve
// exists, and there is room beside it. It makes the reserve again when there is
// room for both.
func (r *Reserve) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := diskOf(r.dir)
	if err != nil {
		return err
	}
	want := d.low()
	held := r.held(d)
	if !held {
		want += d.reserve()
	}
	short := &DiskError{Dir: r.dir, Free: d.free, Size: d.size, Want: want, ReadOnly: d.readOnly}
	switch {
	case d.readOnly || d.free < want:
		return short
	case held:
		return nil
	}
	// What is left for the others is allocated too: a quota shows only then.
	if short.Cause = allocate(filepath.Join(r.dir, reserveName), want, d.reserve()); short.Cause != nil {
		short.ReadOnly = errors.Is(short.Cause, unix.EROFS)
		return short
	}
	return nil
}

// held reports whether the reserve has its size. One of a larger disk, which was
// moved here, is cut.
func (r *Reserve) held(d disk) bool {
	path := filepath.Join(r.dir, reserveName)
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() < d.reserve() {
		return false
	}
	return fi.Size() == d.reserve() || os.Truncate(path, d.reserve()) == nil
}

// Release gives the reserve up. The next Err that finds room makes it again.
func (r *Reserve) Release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := os.Remove(filepath.Join(r.dir, reserveName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Writable returns nil when there is room for what is running to be settled, or a
// *DiskError. It writes to find out.
func (r *Reserve) Writable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := diskOf(r.dir)
	if err != nil {
		return err
	}
	probe := filepath.Join(r.dir, probeName)
	err = allocate(probe, d.low(), d.low())
	if err == nil {
		err = os.Remove(probe)
		if errors.Is(err, fs.ErrNotExist) { // a second service on the same state, which is about to be refused, probes too
			return nil
		}
		return err
	}
	return &DiskError{Dir: r.dir, Free: d.free, Size: d.size, Want: d.low(), ReadOnly: d.readOnly || errors.Is(err, unix.EROFS), Cause: err}
}

// Ensure returns nil when the state can be opened, if need be by the room of the
// reserve.
func (r *Reserve) Ensure() error {
	if r.Writable() == nil {
		return nil
	}
	if err := r.Release(); err != nil && !errors.Is(err, unix.EROFS) {
		return err
	}
	return r.Writable()
}

// allocate makes path a file of keep bytes that has its blocks, if the disk has
// room for want bytes, and removes it if not.
func allocate(path string, want, keep int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600) //nolint:gosec // G304: our own directory
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, want) //nolint:gosec // G115: a descriptor fits
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fill(f, want)
	}
	if err == nil {
		err = f.Truncate(keep)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(path))
	}
	return nil
}

// fill writes n bytes, where the file system cannot allocate without.
func fill(f *os.File, n int64) error {
	chunk := make([]byte, 64<<10)
	for at := int64(0); at < n; at += int64(len(chunk)) {
		if _, err := f.WriteAt(chunk[:min(int64(len(chunk)), n-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}
