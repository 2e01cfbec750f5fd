package faultdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// call is a system call of the process, before the kernel executes it.
type call struct {
	pid  int
	root string // the recorded directory
	args [6]uint64
}

// decoder turns a call into an Op. ours is false if the call is outside the recorded
// directory or will fail.
type decoder func(c *call) (op Op, ours bool, err error)

// calls are the system calls that are watched.
func calls() map[uint32]decoder {
	all := map[uint32]decoder{
		unix.SYS_WRITE:     (*call).write,
		unix.SYS_PWRITE64:  (*call).write,
		unix.SYS_PREAD64:   (*call).read,
		unix.SYS_FTRUNCATE: (*call).truncate,
		unix.SYS_FSYNC:     (*call).sync,
		unix.SYS_FDATASYNC: (*call).sync,
		unix.SYS_OPENAT:    func(c *call) (Op, bool, error) { return c.open(c.args[0], c.args[1], c.args[2], c.args[3]) },
		unix.SYS_MKDIRAT:   func(c *call) (Op, bool, error) { return c.mkdir(c.args[0], c.args[1], c.args[2]) },
		unix.SYS_UNLINKAT:  func(c *call) (Op, bool, error) { return c.remove(c.args[0], c.args[1]) },
		unix.SYS_RENAMEAT:  func(c *call) (Op, bool, error) { return c.rename(c.args[0], c.args[1], c.args[2], c.args[3]) },
		unix.SYS_RENAMEAT2: func(c *call) (Op, bool, error) { return c.rename(c.args[0], c.args[1], c.args[2], c.args[3]) },
	}
	maps.Copy(all, oldCalls())
	return all
}

// here is AT_FDCWD as an argument.
func here() uint64 { v := int64(unix.AT_FDCWD); return uint64(v) }

// fdPath returns the path of descriptor fd, relative to the root, if it is below it.
func (c *call) fdPath(fd uint64) (string, bool) {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(fd)))
	if err != nil {
		return "", false
	}
	return c.rel(link)
}

func (c *call) rel(path string) (string, bool) {
	if path != c.root && !strings.HasPrefix(path, c.root+"/") || strings.HasSuffix(path, " (deleted)") {
		return "", false
	}
	rel, err := filepath.Rel(c.root, path)
	return rel, err == nil
}

// path returns the path that a call names, relative to the root, if it is below it.
func (c *call) path(dirFD, addr uint64) (string, bool, error) {
	name, err := c.text(addr)
	if err != nil {
		return "", false, err
	}
	if !filepath.IsAbs(name) {
		dir := fmt.Sprintf("/proc/%d/cwd", c.pid)
		if int32(dirFD) != unix.AT_FDCWD {
			dir = fmt.Sprintf("/proc/%d/fd/%d", c.pid, int32(dirFD))
		}
		base, err := os.Readlink(dir)
		if err != nil {
			return "", false, nil //nolint:nilerr // the call will fail
		}
		name = filepath.Join(base, name)
	}
	rel, ours := c.rel(filepath.Clean(name))
	return rel, ours, nil
}

func (c *call) kind(rel string) (mode fs.FileMode, exists bool) {
	fi, err := os.Lstat(filepath.Join(c.root, rel))
	if err != nil {
		return 0, false
	}
	return fi.Mode(), true
}

func (c *call) write() (Op, bool, error) {
	if int(int32(c.args[0])) == unix.Stdout {
		text, err := c.memory(c.args[1], c.args[2])
		return Op{Kind: Say, Text: string(text)}, true, err
	}
	path, ours := c.fdPath(c.args[0])
	if !ours {
		return Op{}, false, nil
	}
	data, err := c.memory(c.args[1], c.args[2])
	return Op{Kind: Write, Path: path, Off: int64(c.args[3]), Data: data}, true, err
}

func (c *call) read() (Op, bool, error) {
	path, ours := c.fdPath(c.args[0])
	return Op{Kind: Read, Path: path, Off: int64(c.args[3]), Size: int64(c.args[2])}, ours, nil
}

func (c *call) truncate() (Op, bool, error) {
	path, ours := c.fdPath(c.args[0])
	return Op{Kind: Truncate, Path: path, Size: int64(c.args[1])}, ours, nil
}

func (c *call) sync() (Op, bool, error) {
	path, ours := c.fdPath(c.args[0])
	return Op{Kind: Sync, Path: path}, ours, nil
}

func (c *call) open(dirFD, name, flags, mode uint64) (Op, bool, error) {
	if flags&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return Op{}, false, nil
	}
	path, ours, err := c.path(dirFD, name)
	if err != nil || !ours {
		return Op{}, false, err
	}
	_, exists := c.kind(path)
	switch {
	case exists && flags&unix.O_TRUNC != 0 && flags&unix.O_EXCL == 0:
		return Op{Kind: Truncate, Path: path}, true, nil
	case !exists && flags&unix.O_CREAT != 0:
		return Op{Kind: Create, Path: path, Mode: fs.FileMode(mode) & 0o777}, true, nil
	}
	return Op{}, false, nil
}

func (c *call) mkdir(dirFD, name, mode uint64) (Op, bool, error) {
	path, ours, err := c.path(dirFD, name)
	_, exists := c.kind(path)
	return Op{Kind: Mkdir, Path: path, Mode: fs.FileMode(mode) & 0o777}, ours && !exists, err
}

func (c *call) remove(dirFD, name uint64) (Op, bool, error) {
	path, ours, err := c.path(dirFD, name)
	if err != nil || !ours {
		return Op{}, false, err
	}
	mode, exists := c.kind(path)
	if mode.IsDir() {
		entries, err := os.ReadDir(filepath.Join(c.root, path))
		exists = err == nil && len(entries) == 0
	}
	return Op{Kind: Remove, Path: path}, exists, nil
}

func (c *call) rename(fromFD, from, toFD, to uint64) (Op, bool, error) {
	src, ours, err := c.path(fromFD, from)
	if err != nil || !ours {
		return Op{}, false, err
	}
	dst, inside, err := c.path(toFD, to)
	if err == nil && !inside {
		err = fmt.Errorf("%s was moved out of the recorded directory", src)
	}
	_, exists := c.kind(src)
	return Op{Kind: Rename, Path: src, To: dst}, exists, err
}

// offset sets the offset of a write, from the file position.
func (c *call) offset(op *Op) error {
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.pid, int32(c.args[0])))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(info)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "pos":
			op.Off, err = strconv.ParseInt(value, 10, 64)
		case "flags":
			var flags int64
			if flags, err = strconv.ParseInt(value, 8, 64); err == nil && flags&unix.O_APPEND != 0 {
				var fi os.FileInfo
				if fi, err = os.Stat(filepath.Join(c.root, op.Path)); err == nil {
					op.Off = fi.Size()
					return nil
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// memory copies memory of the process.
func (c *call) memory(addr, size uint64) ([]byte, error) {
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	n, err := unix.ProcessVMReadv(c.pid, []unix.Iovec{{Base: &b[0], Len: size}}, []unix.RemoteIovec{{Base: uintptr(addr), Len: int(size)}}, 0)
	if err == nil && uint64(n) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("memory of the process: %w", err)
	}
	return b, nil
}

// text reads a path, page by page, since the next page may not be mapped.
func (c *call) text(addr uint64) (string, error) {
	const page = 4096
	var all []byte
	for len(all) < 2*page {
		b, err := c.memory(addr, page-addr%page)
		if err != nil {
			return "", err
		}
		head, _, ended := bytes.Cut(b, []byte{0})
		if all = append(all, head...); ended {
			return string(all), nil
		}
		addr += uint64(len(b))
	}
	return "", errors.New("unterminated path")
}
