package mcpserve

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
)

// maxTokenFile is longer than any token with its line end.
const maxTokenFile = 1 << 10

// ReadToken reads the token of a principal from a regular file that only its owner,
// uid, can read.
func ReadToken(path string, uid int) (string, error) {
	// O_NONBLOCK: opening a fifo would block.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0) //nolint:gosec // G304: the flag names it
	if errors.Is(err, syscall.ELOOP) {
		return "", api.Errorf(api.CodeInvalid, "token file %s: is a symbolic link, whose target can change", path).WithHint("name the file itself")
	}
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "token file: %w", err).WithHint("create one: bailiwick token create PRINCIPAL --out FILE")
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "token file: %w", err)
	}
	owner, _, ok := installation.Owner(info)
	switch {
	case !info.Mode().IsRegular():
		return "", api.Errorf(api.CodeInvalid, "token file %s: not a regular file", path)
	case !ok || owner != uid:
		return "", api.Errorf(api.CodeInvalid, "token file %s: belongs to another account", path).WithHint("chown it to the account that runs this program")
	case info.Mode().Perm()&0o077 != 0:
		return "", api.Errorf(api.CodeInvalid, "token file %s: accessible to others (mode %04o)", path, info.Mode().Perm()).WithHint("chmod 600 %s", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "token file: %w", err)
	}
	token := string(bytes.TrimRight(b, "\r\n"))
	if err := api.CheckToken(token); err != nil {
		return "", api.Errorf(api.CodeInvalid, "token file %s: %w", path, err)
	}
	return token, nil
}
