package console

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// discardTyped forgets what was typed before a question was shown, which cannot
// be its answer.
func discardTyped(stdin io.Reader) {
	if f, ok := stdin.(*os.File); ok {
		_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH) // no terminal, nothing typed
	}
}
