package record

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// CheckChanged refuses a result that does not name the files of its patch that v, the verify
// of its subagent, is known to run, or that names others than those of the patch. Names
// through symbolic links follow from the tree, which a result does not have: they may be
// named.
func CheckChanged(v *api.Verify, sum *api.ResultSummary) error {
	if sum.Verify == nil {
		return nil
	}
	named, runs := sum.Verify.Changed, v.Runs()
	if len(named) > api.MaxChanged || !slices.IsSorted(named) || len(slices.Compact(slices.Clone(named))) != len(named) {
		return fmt.Errorf("the files of the patch that verify runs are not a sorted list of at most %d", api.MaxChanged)
	}
	files := map[string]bool{}
	for _, f := range sum.Files {
		files[f.Path] = true
		if _, ok := slices.BinarySearch(named, f.Path); !ok && len(named) < api.MaxChanged && runs(rawPath(f.Path)) {
			return fmt.Errorf("the patch changes %s, which verify runs, but the result does not say so", Word(f.Path))
		}
	}
	for _, name := range named {
		if !files[name] && len(sum.Files) < api.MaxFiles {
			return fmt.Errorf("verify runs %s, which the patch does not change", Word(name))
		}
	}
	return nil
}

// rawPath reads a path of a result, which has Go escapes unless it is plain text. A very long
// path was cut, and stays so.
func rawPath(p string) string {
	if strings.HasPrefix(p, `"`) {
		if raw, err := strconv.Unquote(p); err == nil {
			return raw
		}
	}
	return p
}
