package account

import (
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/base/mountinfo"
)

// mountedHierarchies lists the hierarchies of control groups with a controller of ours, and that of version 2 in any case: it
// kills.
func mountedHierarchies() (found []parent, err error) {
	all, err := mountinfo.Hierarchies()
	for _, h := range all {
		p := parent{point: h.Point, version: h.Version}
		for theirs, ours := range map[string]string{"memory": memory, "pids": processes, "cpu": cpu, "blkio": disk} {
			if slices.Contains(h.Controllers, theirs) {
				p.controllers = append(p.controllers, ours)
			}
		}
		if (h.Version == 2 || len(p.controllers) > 0) && !slices.ContainsFunc(found, func(o parent) bool { return o.point == p.point }) {
			found = append(found, p)
		}
	}
	return found, err
}
