package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// TakeSession reads the session of a program that has ended from its home directory.
// clean redacts a text; a file that is not text and has something to redact is an error.
// There is nothing in the directory that the agent could not have changed.
func (a *Adapter) TakeSession(dir *os.File, id string, clean func([]byte) ([]byte, bool)) (*Session, error) {
	if id == "" || len(a.Session) == 0 {
		return nil, errors.New("the program named no session")
	}
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	t := taking{root: root, clean: clean, session: &Session{ID: id}}
	for _, name := range a.Session {
		if err := t.take(name, 0); err != nil {
			return nil, err
		}
	}
	if len(t.session.Files) == 0 {
		return nil, errors.New("the program left no files of its session")
	}
	return t.session, nil
}

// taking reads files of a session.
type taking struct {
	root    *os.Root
	clean   func([]byte) ([]byte, bool)
	session *Session
	seen    int
	size    int64
}

// take reads a file, or all files below a directory. Links and special files are left
// out.
func (t *taking) take(name string, depth int) error {
	info, err := t.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if t.seen++; t.seen > maxSessionFiles || depth > maxSessionDepth {
		return fmt.Errorf("more than %d files, or %d levels of directories", maxSessionFiles, maxSessionDepth)
	}
	switch {
	case info.Mode().IsRegular():
		return t.file(name)
	case !info.IsDir():
		return nil
	}
	d, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(maxSessionFiles + 1)
	if err := errors.Join(ignoreEOF(err), d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := t.take(path.Join(name, n), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (t *taking) file(name string) error {
	f, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	var content []byte
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(f, MaxSession-t.size+1))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if t.size += int64(len(content)); t.size > MaxSession {
		return fmt.Errorf("more than %d MiB", MaxSession>>20)
	}
	if cleaned, found := t.clean(content); found {
		if !utf8.Valid(content) {
			return fmt.Errorf("%s has a secret, which cannot be removed from it", name)
		}
		content = cleaned
	}
	t.session.Files = append(t.session.Files, File{name, content})
	return nil
}
