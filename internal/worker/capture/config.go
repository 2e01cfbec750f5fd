package capture

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
)

// Config bounds a workspace. Zero bounds mean the defaults beside them.
type Config struct {
	// Exclude are files or directories to ignore: those of the worker itself, such
	// as inputs, outputs and .bailiwick.
	Exclude []string
	// Overlay are the files that capabilities laid over the tree. They are never in
	// a patch; changed ones are reported.
	Overlay []string
	// Index is that of the checkout under the workspace, whose unchanged files are
	// not read. If nil, everything is read.
	Index *Index
	// Over are all directories that overlayfs lays over that checkout, the writable
	// one included. A directory that none of them has is unchanged and not listed.
	// If empty, or if one is nil, everything is listed.
	Over []*os.File
	// Resumed is the tree of an earlier attempt that was laid over the base before
	// the baseline, or "". Its changes count as changes since the baseline, so the
	// patch has the work of both attempts.
	Resumed string

	// Secret reports whether content or a name has the value of a secret; nil: nothing
	// has. Such a file is left out whole: a patch without parts of its text would be
	// another program.
	Secret func(io.Reader) (bool, error)

	MaxEntries int   // files and directories in the workspace: 500,000
	MaxNames   int64 // bytes of all their paths and link targets: 256 MiB
	MaxRead    int64 // bytes read from the workspace in one pass: 8 GiB
	MaxChanged int   // paths that changed: 50,000
	MaxTotal   int64 // bytes of the files that changed: 512 MiB
	MaxPatch   int64 // bytes of the patch: 1,000 MiB (git apply takes no more than 1,023)
	// Exceeding a bound above is a *LimitError, since a partial patch would be wrong.
	// Paths beyond a bound below are left out.
	MaxFile  int64 // bytes of one file: 64 MiB
	MaxPath  int   // bytes of one path: 3,000 (at most 4,000)
	MaxDepth int   // directories above a file: 128 (at most 500)
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		v   *int64
		def int64
	}{{&c.MaxNames, 256 << 20}, {&c.MaxRead, 8 << 30}, {&c.MaxTotal, 512 << 20}, {&c.MaxPatch, 1000 << 20}, {&c.MaxFile, 64 << 20}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
	}
	for _, f := range []struct {
		v        *int
		def, top int
	}{{&c.MaxEntries, 500_000, 5_000_000}, {&c.MaxChanged, 50_000, 500_000}, {&c.MaxPath, 3000, 4000}, {&c.MaxDepth, 128, 500}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
		*f.v = min(*f.v, f.top)
	}
	return c
}

// excluded reports whether p is, or is below, one of the excluded paths.
func (c Config) excluded(p string) bool {
	for _, x := range c.Exclude {
		if below(p, strings.Trim(x, "/")) {
			return true
		}
	}
	return false
}

// below reports whether p is dir or a path under it.
func below(p, dir string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// LimitError means that a workspace as a whole exceeds a bound, so that there is no
// patch, or no outputs, of it.
type LimitError struct {
	What  string // what is bounded
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("workspace: more than %d %s; have the agent leave less, or raise the limit", e.Limit, e.What)
}

// maxReported bounds the list of what was left out, which becomes part of the
// record.
const (
	maxReported     = 1000
	maxReportedPath = 512
)

// report collects what was left out, bounded.
type report struct {
	list []api.LeftOut
	more int
}

func (r *report) add(path, why string) {
	if len(r.list) >= maxReported {
		r.more++
		return
	}
	r.list = append(r.list, api.LeftOut{Path: Printable(path), Why: why})
}

func (r *report) done() []api.LeftOut {
	if r.more == 0 {
		return r.list
	}
	return append(r.list, api.LeftOut{Path: "...", Why: fmt.Sprintf("and %d more paths", r.more)})
}

// Printable returns p in a form fit for messages and records: p itself if it is
// printable, else quoted as a Go string, and cut if very long.
func Printable(p string) string {
	cut := ""
	if len(p) > maxReportedPath {
		p, cut = cuttext.Within(p, maxReportedPath), fmt.Sprintf("... (%d bytes)", len(p))
	}
	if q := strconv.Quote(p); q != `"`+p+`"` {
		return q + cut
	}
	return p + cut
}
