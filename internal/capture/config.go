package capture

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Config says what belongs to a workspace and how much of it is taken. Zero
// bounds mean the defaults that are named beside them.
type Config struct {
	// Exclude are paths, files or directories, that are never looked at:
	// what the worker itself put there, such as inputs, outputs, .bailiwick.
	Exclude []string
	// Overlay are the exact files that capabilities laid over the tree. They
	// are never in a patch; one that changed is reported.
	Overlay []string
	// Index is of the checkout that the workspace is laid over; files that are
	// still the checkout's own are not read. Without one everything is read.
	Index *Index
	// Over are the directories that overlayfs lays over that checkout, all of
	// them, the writable one included. A directory of the workspace that none of
	// them has is the checkout's own with all that is in it, and is not listed.
	// Without any, or with a nil one, everything is listed.
	Over []*os.File
	// Resumed is the tree of an earlier attempt, laid over the base before the
	// baseline was taken; "" when there was none. What it changed counts as
	// changed since the baseline, so that the patch holds the work of both.
	Resumed string

	MaxEntries int   // files and directories in the workspace: 500,000
	MaxNames   int64 // bytes of all their paths and link targets: 256 MiB
	MaxRead    int64 // bytes read from the workspace in one pass: 8 GiB
	MaxChanged int   // paths that changed: 50,000
	MaxTotal   int64 // bytes of the files that changed: 512 MiB
	MaxPatch   int64 // bytes of the patch: 1,000 MiB (git apply takes no more than 1,023)
	// Beyond the bounds above there is no patch, only a *LimitError: half a
	// patch would be a wrong one. Beyond those below one path is left out.
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

// LimitError says that a workspace as a whole exceeds a bound, so that no
// patch, or no set of outputs, could be made of it.
type LimitError struct {
	What  string // what there is too much of
	Limit int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("workspace: more than %d %s; have the agent leave less, or raise the limit", e.Limit, e.What)
}

// maxReported bounds the list of what was left out: a hostile workspace must
// not make the record large.
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
	return append(r.list, api.LeftOut{Path: "…", Why: fmt.Sprintf("and %d more paths", r.more)})
}

// Printable returns p as it may be shown to a person and put in a record: itself
// when it is printable text, otherwise quoted and escaped as Go escapes a
// string, and cut when it is very long.
func Printable(p string) string {
	cut := ""
	if len(p) > maxReportedPath {
		p, cut = p[:maxReportedPath], fmt.Sprintf("… (%d bytes)", len(p))
	}
	if q := strconv.Quote(p); q != `"`+p+`"` {
		return q + cut
	}
	return p + cut
}
