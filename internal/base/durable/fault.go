package durable

import (
	"errors"
	"syscall"
)

// IsFault reports whether err comes from a fault of the machine: a full or failing
// disk, a file system that is read-only, no memory or descriptors left. It says
// nothing about what was read or written, so a retry on a healthy machine may
// succeed. Nothing else decides this.
func IsFault(err error) bool {
	for _, errno := range faults() {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func faults() []syscall.Errno {
	return []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, // the disk
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, // descriptors and memory
	}
}
