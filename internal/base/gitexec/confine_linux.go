package gitexec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/landlock"
	"github.com/bailiwick-dev/bailiwick/internal/base/ownedpath"
)

// startConfined starts git on a thread of its own, which is restricted for good and lives as long as git.
func (c *Cmd) startConfined() error {
	started, ended := make(chan error), make(chan struct{})
	onOwnThread(func() {
		err := c.confine()
		if err == nil {
			err = c.Cmd.Start()
		}
		started <- err
		if err == nil {
			<-ended
		}
	})
	err := <-started
	if err == nil {
		c.ended = ended
	}
	return err
}

// onOwnThread runs f on a thread that exits with it.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f() // and the thread ends, as it is still locked
			return
		}
		defer runtime.UnlockOSThread() // the first thread cannot exit, and is kept until f has another
		locked := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(locked)
			f()
		}()
		<-locked
	}()
}

// confine restricts the thread, and git, to what Repo.Confined says.
func (c *Cmd) confine() (err error) {
	const read = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	set, err := landlock.New(unix.LandlockRulesetAttr{Access_fs: read})
	if err != nil {
		if errors.Is(err, landlock.ErrMissing) {
			err = fmt.Errorf("%w, which keeps git to the files of the repository's owner; %s", err, landlock.Fix)
		}
		return err
	}
	defer set.Close() //nolint:errcheck // only a descriptor
	program, err := filepath.EvalSymlinks(c.Path)
	if err != nil {
		return err
	}
	own := []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", filepath.Dir(c.Path), filepath.Dir(program), c.git.Repo.dir, c.git.WorkTree}
	if c.git.Index != "" {
		own = append(own, filepath.Dir(c.git.Index))
	}
	for _, dir := range own {
		if dir == "" {
			continue
		}
		if err := set.Allow(dir, read); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, file := range []string{"/etc/ld.so.cache", "/etc/passwd", "/dev/null", "/dev/zero", "/dev/urandom"} {
		if err := set.Allow(file, unix.LANDLOCK_ACCESS_FS_READ_FILE); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, dir := range c.git.Repo.lent.dirs {
		if err := c.git.Repo.lent.allow(set, dir, read); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give git no new privileges: %w", err)
	}
	return set.Restrict()
}

// allow allows reading dir if it belongs to the owner.
func (l *lent) allow(set landlock.Ruleset, dir string, access uint64) error {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0) //nolint:gosec // G304: its owner is checked
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only a place
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if uid, err := ownedpath.Of(st); err != nil || uid != l.owner {
		return errors.Join(fmt.Errorf("%s belongs to user %d now, and the repository to user %d", dir, uid, l.owner), err)
	}
	return set.AllowFile(f, access)
}
