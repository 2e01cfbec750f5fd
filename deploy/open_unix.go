//go:build unix

package deploy

import "syscall"

// nonblock keeps the opening of a fifo that appeared in the wrong moment from
// waiting for its writer.
const nonblock = syscall.O_NONBLOCK
