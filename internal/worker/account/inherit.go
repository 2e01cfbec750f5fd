package account

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CheckFile refuses a descriptor that does not belong to uid, or that check refuses. Only what is
// open counts: no name leads to another file.
func CheckFile(f *os.File, uid uint32, check func(fd int, st *unix.Stat_t) error) error {
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
			err = otherOwner(st.Uid, int(uid))
		}
		if err == nil {
			err = check(fd, &st)
		}
	})
	return errors.Join(ctlErr, err)
}

// Listening returns an error unless the file is a listening stream socket of this machine.
func Listening(fd int, _ *unix.Stat_t) error {
	for _, o := range []struct{ option, want int }{{unix.SO_DOMAIN, unix.AF_UNIX}, {unix.SO_TYPE, unix.SOCK_STREAM}, {unix.SO_ACCEPTCONN, 1}} {
		if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, o.option); err != nil || got != o.want {
			return errors.New("want a unix stream socket that listens")
		}
	}
	return nil
}
