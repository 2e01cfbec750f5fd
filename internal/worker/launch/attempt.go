package launch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Attempt is an attempt to start, as its service hands it over. The files stay the caller's.
type Attempt struct {
	Manifest []byte       // its envelope
	Keys     seal.History // of the service
	// Secrets are the values of the manifest's secrets, of the service's own store; without it, see Sealed.
	Secrets record.Secrets

	Dir     *os.File // of the attempt
	Control *os.File // a listening unix socket
	Lock    *os.File // record.WorkLock of Dir, which the caller has locked
	Log     *os.File // record.WorkErrors of Dir, open for appending
}

// check refuses files that are not what they are to be, or not of the account uid. Only what
// is open counts: no name leads to another file.
func (a *Attempt) check(uid uint32) error {
	for _, f := range []struct {
		what  string
		file  *os.File
		check func(fd int, st *unix.Stat_t) error
	}{
		{"directory", a.Dir, func(_ int, st *unix.Stat_t) error {
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 {
				return errors.New("want a directory with mode 0700")
			}
			return nil
		}},
		{"control socket", a.Control, listening},
		{"lock", a.Lock, a.checkLock},
		{"log", a.Log, func(fd int, st *unix.Stat_t) error {
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
			if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || flags&unix.O_APPEND == 0 || flags&unix.O_ACCMODE != unix.O_WRONLY || flags&unix.O_PATH != 0) {
				err = errors.New("want a file that is open for appending alone")
			}
			return err
		}},
	} {
		if err := checkFile(f.file, uid, f.check); err != nil {
			return api.Errorf(api.CodeInvalid, "the %s of the attempt: %w", f.what, err)
		}
	}
	return nil
}

func checkFile(f *os.File, uid uint32, check func(fd int, st *unix.Stat_t) error) error {
	if f == nil {
		return errors.New("its descriptor is missing")
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(p uintptr) {
		fd, st := int(p), unix.Stat_t{} //nolint:gosec // G115: a descriptor
		if err = unix.Fstat(fd, &st); err == nil && st.Uid != uid {
			err = fmt.Errorf("it belongs to uid %d, not to the service's uid %d", st.Uid, uid)
		}
		if err == nil {
			err = check(fd, &st)
		}
	})
	return errors.Join(ctlErr, err)
}

// listening refuses what is no stream socket of this machine that listens.
func listening(fd int, _ *unix.Stat_t) error {
	for _, o := range []struct{ option, want int }{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1}} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option)
		if err == nil && got != o.want {
			err = errors.New("want a unix stream socket that listens")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLock refuses a file that is not the lock of the directory.
func (a *Attempt) checkLock(fd int, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("want a file")
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || flags&unix.O_PATH != 0 {
		return errors.Join(errors.New("want a file that is open for reading and writing"), err)
	}
	var there unix.Stat_t
	raw, err := a.Dir.SyscallConn()
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(dir uintptr) {
		err = unix.Fstatat(int(dir), record.WorkLock, &there, unix.AT_SYMLINK_NOFOLLOW) //nolint:gosec // G115: a descriptor
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return err
	}
	if there.Dev != st.Dev || there.Ino != st.Ino {
		return fmt.Errorf("it is not the file %s of its directory", record.WorkLock)
	}
	return nil
}
