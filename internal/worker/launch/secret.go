package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// ReadSecrets returns the values that the secrets of a manifest have now. Its error names no
// value.
func ReadSecrets(ctx context.Context, resolve func(context.Context, api.SecretRef) (string, error), refs []api.SecretRef) (record.Secrets, error) {
	values := record.Secrets{}
	for _, ref := range refs {
		v, ok := values[ref.Name]
		var err error
		if !ok {
			v, err = resolve(ctx, ref)
		}
		if err == nil {
			err = api.CheckSecretUse(ref.Use, v)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %q: %w", ref.Name, err)
		}
		values[ref.Name] = v
	}
	return values, nil
}

// handOver returns a pipe that holds the values of secrets, for a worker to read
// once. It holds all of them before the worker starts, so a launcher that is killed
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
