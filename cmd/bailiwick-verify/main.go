// Command bailiwick-verify recomputes, from one file and a trust file, what ran
// in a run or a dispatch, who decided it and whether anything is missing. It
// reads and writes only the files that it is given, and needs neither a network nor any
// other part of Bailiwick.
package main

import (
	"io"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
)

func main() {
	os.Exit(evidence.Command(os.Args[1:], os.Stdout, os.Stderr, evidence.Files{
		Open: func(name string) (io.ReadCloser, error) { return os.Open(name) }, //nolint:gosec // G304: the user's own file, by the user's own name
		Create: func(name string) (io.WriteCloser, error) {
			return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // G302, G304: likewise, and for others to read
		},
		Now:   time.Now,
		Mkdir: func(name string) error { return os.MkdirAll(name, 0o755) }, //nolint:gosec // G301: likewise
	}))
}
