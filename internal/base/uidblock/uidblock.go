// Package uidblock recognises a process that runs under a uid block: as root of a user namespace of three ids, in a root directory
// that root of the machine put together.
//
// The kernel says so. No variable, argument or file of an account makes a process look like one, and it gives nothing: a process
// that recognises itself so uses fewer ids, and reads what root shows it. Part of R-S1.
package uidblock

import (
	"os"
	"strconv"
	"strings"
)

// Size is the number of ids of a block.
const Size = 3

// Inside reports whether this process runs under a block.
func Inside() bool {
	return maps("/proc/self/uid_map") && maps("/proc/self/gid_map") && os.Geteuid() == 0
}

// maps reports whether a map of user_namespaces(7) has one line, with the ids of a block from 0 on.
func maps(name string) bool {
	text, err := os.ReadFile(name) //nolint:gosec // G304: of the kernel
	return err == nil && isBlock(string(text))
}

func isBlock(text string) bool {
	f := strings.Fields(text)
	return len(f) == 3 && f[0] == "0" && f[2] == strconv.Itoa(Size)
}

// Root is the uid by which this process sees the files of the machine's root. Under a block that is the one that stands for all
// accounts outside of it: root shows the program none of theirs without a decision.
func Root() uint32 {
	if !Inside() {
		return 0
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err == nil {
		if uid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
			return uint32(uid)
		}
	}
	return 65534
}
