package api

import "fmt"

// Check refuses limits that no jail can start with. Zero is valid and means the
// default.
func (l Limits) Check() error {
	switch {
	case l.Memory != 0 && l.Memory < 32<<20:
		return fmt.Errorf("memory %s: want at least 32MiB", l.Memory)
	case l.Disk != 0 && l.Disk < 1<<20:
		return fmt.Errorf("disk %s: want at least 1MiB", l.Disk)
	case l.Log != 0 && l.Log < 1<<10:
		return fmt.Errorf("log %s: want at least 1KiB", l.Log)
	case l.Files != 0 && l.Files < 16:
		return fmt.Errorf("files %d: want at least 16", l.Files)
	case l.Processes < 0 || l.Processes > 1<<20:
		return fmt.Errorf("processes %d: want 1 to 1048576", l.Processes)
	case l.CPU != 0 && (l.CPU < 0.01 || l.CPU > 1024):
		return fmt.Errorf("cpu %v: want 0.01 to 1024", l.CPU)
	}
	return nil
}
