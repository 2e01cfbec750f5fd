package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// toolChecks are doctor's checks of the servers of tools of the catalog: what they need
// on this machine. They start none; bailiwick catalog plan does, and compares the pins.
func (t *doctor) toolChecks(ctx context.Context) (out []check) {
	set, err := t.catalogSet(ctx)
	if err != nil || set == nil {
		return nil // dataCheck and the service say what is wrong with a catalog
	}
	for _, name := range slices.Sorted(maps.Keys(set.Tools)) {
		out = append(out, toolCheck(set.Tools[name]))
	}
	return out
}

// catalogSet returns the artifacts of the catalog in force, or nil before the first.
func (t *doctor) catalogSet(ctx context.Context) (set *catalog.Set, err error) {
	root, err := seal.LoadDeployKeys(t.Dirs)
	if err != nil {
		return nil, err
	}
	blobs, err := blob.Open(blob.Config{Dir: t.Dirs.Catalog()})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()
	c, err := catalog.Open(blobs, root)
	if err != nil {
		return nil, err
	}
	rev, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	return rev.Set(), nil
}

// toolCheck says what a server lacks on this machine.
func toolCheck(s api.ToolServer) check {
	c := check{name: "tool " + string(s.Name), ok: true}
	switch {
	case s.HTTP != nil:
		c.found = s.HTTP.URL + " is called when an agent needs it"
	case s.Stdio != nil:
		c.found, c.fix = hostLacks(s.Stdio.Command, s.Stdio.ToolHost)
	case s.Run != nil:
		c.found, c.fix = hostLacks(s.Run.Command, s.Run.ToolHost)
	}
	c.ok = c.fix == ""
	return c
}

// hostLacks returns where the program of a jail is, or what is missing and a fix.
func hostLacks(command api.Command, h api.ToolHost) (found, fix string) {
	for _, dir := range slices.Concat(h.ReadOnly, h.Path) {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Sprintf("its jail needs %s, which is not there: %v", dir, errors.Unwrap(err)), "install what belongs there, or change the manifest and run: bailiwick catalog apply"
		}
	}
	program := command[0]
	switch {
	case strings.HasPrefix(program, "./"):
		return fmt.Sprintf("program %s of capability %s", program, h.Capability), ""
	case filepath.IsAbs(program):
		if executable(program) {
			return "program " + program, ""
		}
	default:
		for _, dir := range append(slices.Clone(h.Path), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin") {
			if path := filepath.Join(dir, program); executable(path) {
				return "program " + path, ""
			}
		}
	}
	return fmt.Sprintf("no program %s for its jail: its calls fail", program), "install it, or name its directory with path and readOnly in the manifest"
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}
