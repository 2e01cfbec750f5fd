package capture

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadFile returns the content of a file in a hostile workspace, which may change
// meanwhile. It returns nil if the file does not exist, and an error unless it is
// a regular file of at most limit bytes.
func ReadFile(root *os.File, path string, limit int64) (b []byte, err error) {
	defer wrap(&err, path)
	fd, err := openBelow(int(root.Fd()), path, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	b, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return b, err
}
