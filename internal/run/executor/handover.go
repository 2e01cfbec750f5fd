package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// handOver returns a pipe that holds the values of secrets, for a worker to read
// once. It holds all of them before the worker starts, so a service that is killed
// leaves no worker without them.
func handOver(values record.Secrets) (*os.File, error) {
	if values == nil {
		values = record.Secrets{}
	}
	doc, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	if len(doc) > record.MaxSecrets {
		return nil, fmt.Errorf("the values of the secrets have %d bytes together, the limit is %d", len(doc), record.MaxSecrets)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	err = fill(w, doc)
	clear(doc)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("hand over secrets: %w", err), r.Close())
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
