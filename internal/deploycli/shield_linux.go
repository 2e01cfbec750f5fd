package deploycli

import "golang.org/x/sys/unix"

// shield keeps other programs of the account from looking into this one, where
// a passphrase is typed and a key is opened: they can neither trace it nor read
// its memory, and nothing of it is written to a core file.
func shield() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }
