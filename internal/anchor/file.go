package anchor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/durable"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/receipt"
)

// FileConfig is where a file anchor is.
type FileConfig struct {
	Name   string
	Path   string // absolute
	Now    func() time.Time
	Logger *slog.Logger
}

// File is an anchor that appends checkpoints to a file, each a line. It is
// never written over or cut: the file may be on another disk, and append-only
// for the account too (chattr +a). What a power cut left of a line stays and is
// passed over, as are empty lines.
type File struct {
	cfg FileConfig
	// What was read of which file, so that a long one is read once.
	read   int64
	inode  uint64
	newest []byte
	// Owned by Put: the last append was well, and the file's name is durable.
	well, named bool
}

// NewFile checks the configuration; nothing is opened yet.
func NewFile(cfg FileConfig) (*File, error) {
	if !filepath.IsAbs(cfg.Path) || filepath.Clean(cfg.Path) != cfg.Path {
		return nil, fmt.Errorf("path %q: want an absolute path without detours", cfg.Path)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &File{cfg: cfg}, nil
}

// ID implements Anchor.
func (f *File) ID() ID { return ID{f.cfg.Name, receipt.File, f.cfg.Path} }

// Put implements Anchor. A line whose sync failed may be there and may be gone
// with the next power cut, so the next try writes another and never relies on
// the first.
func (f *File) Put(_ context.Context, signed []byte) (receipt.Receipt, error) {
	line, err := receipt.Line(signed)
	if err != nil {
		return receipt.Receipt{}, err
	}
	// After a failure, ours or of a service before, what seems to be there may be
	// a hole after the next power cut: it must not be on one line with this.
	if !f.well {
		line = append([]byte("\n"), line...)
	}
	f.well = false
	if err := f.append(line); err != nil {
		return receipt.Receipt{}, fmt.Errorf("%s: %w", f.cfg.Path, err)
	}
	f.well = true
	return newReceipt(f.ID(), f.cfg.Now(), signed), nil
}

func (f *File) append(line []byte) (err error) {
	made := false
	file, err := os.OpenFile(f.cfg.Path, os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW, 0) //nolint:gosec // G703: the configuration names it
	if errors.Is(err, fs.ErrNotExist) {
		made = true
		file, err = os.OpenFile(f.cfg.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // G703: as above
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if made || st.Size() == 0 {
		f.named = false
	}
	if _, err := file.Write(line); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	// The name too, also of a file that an earlier try made.
	if !f.named {
		if err := durable.Sync(filepath.Dir(f.cfg.Path)); err != nil {
			return err
		}
		f.named = true
	}
	return nil
}

// Newest implements Anchor.
func (f *File) Newest(ctx context.Context) ([]byte, error) {
	file, err := os.OpenFile(f.cfg.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // G703: as above
	if errors.Is(err, fs.ErrNotExist) {
		return nil, parent(f.cfg.Path)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", f.cfg.Path)
	}
	if id, ok := st.Sys().(*syscall.Stat_t); !ok || id.Ino != f.inode || st.Size() < f.read {
		f.read, f.newest, f.inode = 0, nil, 0 // another file, or a shorter one: from its beginning
		if ok {
			f.inode = id.Ino
		}
	}
	if _, err := file.Seek(f.read, io.SeekStart); err != nil {
		return nil, err
	}
	unread := 0
	r := bufio.NewReaderSize(file, receipt.MaxLine)
	for ctx.Err() == nil {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			return f.result(ctx, unread)
		case errors.Is(err, bufio.ErrBufferFull): // longer than any of ours: on to its end
			unread++
			f.read += int64(len(line))
			continue
		case err != nil:
			return nil, err
		}
		f.read += int64(len(line))
		if len(line) == 1 {
			continue
		}
		signed, _, err := receipt.ParseLine(line)
		if err == nil {
			f.newest, err = newest(f.newest, signed)
		}
		if err != nil {
			unread++
		}
	}
	return nil, ctx.Err()
}

func (f *File) result(ctx context.Context, unread int) ([]byte, error) {
	if unread > 0 {
		f.cfg.Logger.WarnContext(ctx, "lines of an anchor's file cannot be read", slog.String("anchor", f.cfg.Name), slog.String("path", f.cfg.Path), slog.Int("lines", unread))
	}
	if f.newest == nil && unread > 0 {
		return nil, fmt.Errorf("%s: holds no checkpoint and is not empty", f.cfg.Path)
	}
	return f.newest, nil
}

// parent is an error where there is no directory for a file.
func parent(path string) error {
	st, err := os.Stat(filepath.Dir(path)) //nolint:gosec // G703: the configuration names it
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s: not a directory", filepath.Dir(path))
	}
	return err
}
