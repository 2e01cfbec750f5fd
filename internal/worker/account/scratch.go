package account

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// Scratch makes an empty directory at path, which no account but the block's reaches, for what the program alone uses: whatever
// the service can write it can exchange, and what a jail runs from there nobody signed. The program sees it at
// [mounttree.Scratch], and the agents of its jails read it. The caller removes it once nothing of the block runs.
func Scratch(path string, b Block) (_ Opened, err error) {
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o755), os.Chown(path, b.First, b.First), os.Chmod(path, 0o755)); err != nil { //nolint:gosec // G301, G302: root's directory above it is closed
		return nil, fmt.Errorf("scratch of a program: %w", err)
	}
	var all Opened
	for _, m := range []Mount{{At: mounttree.Scratch, As: Self, Write: true, Own: true}, {At: mounttree.AgentView + mounttree.Scratch, As: Agent}} {
		if m.From, err = os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0); err != nil { //nolint:gosec // G304: of the launcher
			return nil, errors.Join(err, all.Close())
		}
		all = append(all, m)
	}
	return all, nil
}
