package anchor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// FileConfig configures a file anchor.
type FileConfig struct {
	Name   string
	Path   string // absolute
	Now    func() time.Time
	Logger *slog.Logger
}

// File is an anchor that appends checkpoints to a file, one per line. It never
// overwrites or truncates: the file may be on another disk, and append-only for
// the account too (chattr +a). It skips empty lines and what a power cut left of
// a line.
type File struct {
	cfg FileConfig
	// How far the file seen was read, so that a long one is read once.
	read   int64
	seen   fs.FileInfo
	newest []byte
	// Owned by Put: the last append succeeded, and the file's name is durable.
	appended, named bool
}

// NewFile validates the configuration. It opens nothing.
func NewFile(cfg FileConfig) (*File, error) {
	if !filepath.IsAbs(cfg.Path) || filepath.Clean(cfg.Path) != cfg.Path {
		return nil, fmt.Errorf("path %q: want a clean absolute path", cfg.Path)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &File{cfg: cfg}, nil
}

// ID implements Anchor.
func (f *File) ID() ID { return ID{f.cfg.Name, receipt.File, f.cfg.Path} }

// Put implements Anchor. A power cut may remove a line whose sync failed, so the
// next attempt writes another.
func (f *File) Put(_ context.Context, signed []byte) (receipt.Receipt, error) {
	line, err := receipt.Line(signed)
	if err != nil {
		return receipt.Receipt{}, err
	}
	// After a failure, here or in an earlier process, a power cut may leave a hole
	// at the end of the file. It must not share a line with this checkpoint.
	if !f.appended {
		line = append([]byte("\n"), line...)
	}
	f.appended = false
	if err := f.append(line); err != nil {
		return receipt.Receipt{}, fmt.Errorf("%s: %w", f.cfg.Path, err)
	}
	f.appended = true
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
	// Also of a file that an earlier attempt created.
	if !f.named {
		if err := durable.Sync(filepath.Dir(f.cfg.Path)); err != nil {
			return err
		}
		f.named = true
	}
	return nil
}

// open opens the file to read it; nil if it does not exist.
func (f *File) open() (file *os.File, st fs.FileInfo, err error) {
	file, err = os.OpenFile(f.cfg.Path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) //nolint:gosec // G703: as above
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, parent(f.cfg.Path)
	}
	if err != nil {
		return nil, nil, err
	}
	if st, err = file.Stat(); err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", f.cfg.Path)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, st, nil
}

// Scan implements Anchor. It reads every line.
func (f *File) Scan(ctx context.Context, _ func(uint64) []byte, see func(Item) error) error {
	file, _, err := f.open()
	if _, there := os.Lstat(f.cfg.Path); err != nil && there == nil {
		return see(Item{Where: "the file", Problem: err.Error()})
	}
	if file == nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	r := bufio.NewReaderSize(file, receipt.MaxLine)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		it := Item{Where: fmt.Sprintf("line %d", n)}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			it.Problem = "longer than any checkpoint"
			return see(it) // the rest cannot be told apart
		case err != nil && !errors.Is(err, io.EOF):
			it.Problem = err.Error()
			return see(it)
		}
		end := err != nil
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 {
			if err := errors.Join(ctx.Err(), see(readLine(it, line))); err != nil {
				return err
			}
		}
		if end {
			return nil
		}
	}
}

// readLine adds what a line says to it.
func readLine(it Item, line []byte) Item {
	signed, _, err := receipt.ParseLine(line)
	switch {
	case err == nil:
		it.Signed = signed
	case receipt.Torn(line):
		fields := strings.Split(string(line), `\n`) // the origin, the size and the root, each with its end
		if len(fields) < 3 {
			return Item{}
		}
		size, err := strconv.ParseUint(fields[1], 10, 63)
		if err != nil || size == 0 {
			return Item{}
		}
		it.Half = size
	default:
		it.Signed, it.Problem = bytes.Clone(line), err.Error()
	}
	return it
}

// Newest implements Anchor.
func (f *File) Newest(ctx context.Context) ([]byte, error) {
	file, st, err := f.open()
	if file == nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	if !os.SameFile(f.seen, st) || st.Size() < f.read {
		f.read, f.newest, f.seen = 0, nil, st // another file, or a shorter one: read it all
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
		case errors.Is(err, bufio.ErrBufferFull): // longer than any checkpoint: skip it
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
		f.cfg.Logger.WarnContext(ctx, "skipped malformed lines of an anchor's file", slog.String("anchor", f.cfg.Name), slog.String("path", f.cfg.Path), slog.Int("lines", unread))
	}
	if f.newest == nil && unread > 0 {
		return nil, fmt.Errorf("%s: not empty, but holds no checkpoint", f.cfg.Path)
	}
	return f.newest, nil
}

// parent returns an error if the directory of path does not exist.
func parent(path string) error {
	st, err := os.Stat(filepath.Dir(path)) //nolint:gosec // G703: the configuration names it
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s: not a directory", filepath.Dir(path))
	}
	return err
}
