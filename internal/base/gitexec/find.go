package gitexec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Find returns the git directory of the repository at path, which has HEAD, and the
// directory with its refs and objects, which differs in a linked work tree. path is a
// work tree, a linked work tree or a bare repository; the directories above it are
// not searched. Its .git is a directory, a file, or a symbolic link to either. Find
// runs no program and checks no owner.
func Find(path string) (gitDir, common string, err error) { return FindWith(path, ReadFile) }

// FindWith is Find with a function that reads the files that name directories, and may refuse them.
func FindWith(path string, read func(path string) ([]byte, error)) (gitDir, common string, err error) {
	if gitDir, err = gitDirOf(path, read); err != nil {
		return "", "", err
	}
	common = gitDir
	switch line, err := firstLine(filepath.Join(gitDir, "commondir"), read); {
	case err == nil:
		common = AbsFrom(gitDir, line)
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", err
	}
	for _, p := range []string{filepath.Join(gitDir, "HEAD"), filepath.Join(common, "objects"), filepath.Join(common, "refs")} {
		if _, err := os.Stat(p); err != nil {
			return "", "", fmt.Errorf("not a git repository: %w", err)
		}
	}
	return gitDir, common, nil
}

// gitDirOf returns the git directory of the work tree at path, or path. A symbolic link
// is resolved here, once, so a later change of the link has no effect on what was checked.
func gitDirOf(path string, read func(string) ([]byte, error)) (string, error) {
	dotGit := filepath.Join(path, ".git")
	st, err := os.Lstat(dotGit)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	real := dotGit
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		if real, err = filepath.EvalSymlinks(dotGit); err != nil { // not an absent repository, so %v
			return "", fmt.Errorf("%s is a symbolic link that leads to no git directory: %v; point it at one, or replace it", dotGit, err) //nolint:errorlint // see above
		}
		st, err = os.Lstat(real)
	}
	switch {
	case err != nil:
		return "", err
	case st.IsDir():
		return real, nil
	case !st.Mode().IsRegular():
		return "", fmt.Errorf("%s is neither a directory nor a file", dotGit)
	}
	line, err := firstLine(real, read)
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(line, "gitdir: ")
	if !ok {
		return "", fmt.Errorf("the file %s does not name a repository", dotGit)
	}
	return AbsFrom(path, dir), nil // as git does, also where .git is a link to the file
}

// AbsFrom returns p, which is relative to base unless it is absolute.
func AbsFrom(base, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(base, p)
}

func firstLine(path string, read func(string) ([]byte, error)) (string, error) {
	b, err := read(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return line, err
}

// ReadFile returns the content of a regular file of a repository, of at most 64 MiB,
// such as the packed-refs of a very large one. Another kind of file is an error.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) //nolint:gosec // G304: in the configured repository
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return Read(f)
}

// Read is ReadFile for a file that is open.
func Read(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	const most = 64 << 20
	if !st.Mode().IsRegular() || st.Size() > most {
		return nil, fmt.Errorf("%s: not a regular file of at most %d bytes", f.Name(), int64(most))
	}
	return io.ReadAll(io.LimitReader(f, most))
}
