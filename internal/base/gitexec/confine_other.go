//go:build !linux

package gitexec

import "errors"

// startConfined refuses: only Linux keeps git to some directories.
func (c *Cmd) startConfined() error {
	return errors.New("git cannot be kept to the files of the repository's owner on this system: use Linux")
}
