// Command bailiwick-verify recomputes, from one file and a trust file, what ran
// in a run or a dispatch, who decided it and whether anything is missing. It
// reads only the files that it is given, and needs neither a network nor any
// other part of Bailiwick.
package main

import (
	"io"
	"os"

	"github.com/bailiwick-dev/bailiwick/internal/evidence"
)

func main() {
	open := func(name string) (io.ReadCloser, error) { return os.Open(name) } //nolint:gosec // G304: the user's own file, by the user's own name
	os.Exit(evidence.Command(os.Args[1:], os.Stdout, os.Stderr, open))
}
