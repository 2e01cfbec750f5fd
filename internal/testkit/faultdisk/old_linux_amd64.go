package faultdisk

import "golang.org/x/sys/unix"

// oldCalls are those that newer architectures do not have.
func oldCalls() map[uint32]decoder {
	return map[uint32]decoder{
		unix.SYS_OPEN: func(c *call) (Op, bool, error) { return c.open(here(), c.args[0], c.args[1], c.args[2]) },
		unix.SYS_CREAT: func(c *call) (Op, bool, error) {
			return c.open(here(), c.args[0], unix.O_CREAT|unix.O_TRUNC, c.args[1])
		},
		unix.SYS_MKDIR:  func(c *call) (Op, bool, error) { return c.mkdir(here(), c.args[0], c.args[1]) },
		unix.SYS_UNLINK: func(c *call) (Op, bool, error) { return c.remove(here(), c.args[0]) },
		unix.SYS_RMDIR:  func(c *call) (Op, bool, error) { return c.remove(here(), c.args[0]) },
		unix.SYS_RENAME: func(c *call) (Op, bool, error) { return c.rename(here(), c.args[0], here(), c.args[1]) },
	}
}
