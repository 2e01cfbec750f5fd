package account

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FilledPipe returns a pipe that holds doc, for a program to read once. It holds all of it before
// the program starts, so a caller that is killed leaves no program without it.
func FilledPipe(doc []byte) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if err = errors.Join(fill(w, doc), w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// fill writes to a pipe that has no reader yet, after making it as large as doc: more
// would wait for ever.
func fill(w *os.File, doc []byte) error {
	raw, err := w.SyscallConn()
	if err != nil {
		return err
	}
	size := 0
	ctlErr := raw.Control(func(fd uintptr) {
		if size, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && size < len(doc) {
			size, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, len(doc))
		}
	})
	if err = errors.Join(ctlErr, err); err != nil || size < len(doc) {
		return fmt.Errorf("a pipe of %d bytes, this account may have %d: %w", len(doc), size, errors.Join(err, unix.ENOSPC))
	}
	_, err = w.Write(doc)
	return err
}
