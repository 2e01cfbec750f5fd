package mountinfo

import (
	"os"
	"strings"
)

// Hierarchy is a mounted hierarchy of control groups.
type Hierarchy struct {
	Version     int    // 1 or 2
	Root, Point string // as of a Mount, as the kernel writes them
	Controllers []string
}

// Hierarchies lists the mounted hierarchies of control groups. Those of version 1 have their controllers; which ones version 2 has,
// its files say.
func Hierarchies() ([]Hierarchy, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []Hierarchy
	for line := range strings.Lines(string(text)) {
		if h, ok := ParseHierarchy(line); ok {
			all = append(all, h)
		}
	}
	return all, nil
}

// ParseHierarchy parses a line of mountinfo(5).
func ParseHierarchy(line string) (h Hierarchy, ok bool) {
	head, tail, ok := strings.Cut(line, " - ")
	before, after := strings.Fields(head), strings.Fields(tail)
	if !ok || len(before) < 6 || len(after) < 3 || strings.Contains(before[4], `\`) {
		return Hierarchy{}, false
	}
	h = Hierarchy{Root: before[3], Point: before[4]}
	switch after[0] {
	case "cgroup2":
		h.Version = 2
	case "cgroup":
		h.Version, h.Controllers = 1, strings.Split(after[2], ",")
	default:
		return Hierarchy{}, false
	}
	return h, true
}
