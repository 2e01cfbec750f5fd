package account

import (
	"os"
	"slices"
	"strings"
)

// mountedHierarchies lists the hierarchies of control groups with a controller of ours, and that of version 2 in any case: it
// kills.
func mountedHierarchies() ([]parent, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []parent
	for line := range strings.Lines(string(text)) {
		if p, ok := parseHierarchy(line); ok && !slices.ContainsFunc(found, func(o parent) bool { return o.point == p.point }) {
			found = append(found, p)
		}
	}
	return found, nil
}

// parseHierarchy parses a line of mountinfo(5).
func parseHierarchy(line string) (parent, bool) {
	head, tail, ok := strings.Cut(line, " - ")
	before, after := strings.Fields(head), strings.Fields(tail)
	if !ok || len(before) < 6 || len(after) < 3 || strings.Contains(before[4], `\`) {
		return parent{}, false
	}
	p := parent{point: before[4]}
	switch after[0] {
	case "cgroup2":
		p.version = 2
		return p, true
	case "cgroup":
		p.version = 1
	default:
		return parent{}, false
	}
	options := strings.Split(after[2], ",")
	for theirs, ours := range map[string]string{"memory": memory, "pids": processes, "cpu": cpu, "blkio": disk} {
		if slices.Contains(options, theirs) {
			p.controllers = append(p.controllers, ours)
		}
	}
	return p, len(p.controllers) > 0
}
