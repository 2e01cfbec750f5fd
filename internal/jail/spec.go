package jail

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Places every jail has. WorkspaceDir and HomeDir are writable, as are /tmp and /dev/shm.
const (
	WorkspaceDir = "/workspace"
	HomeDir      = "/home/agent"
	// LevelFull is the only level this package provides.
	LevelFull = "full"
)

// Spec says what one jail sees and may use. The zero value is a jail with an empty workspace, the system toolchain and
// the default limits.
type Spec struct {
	// Lower are host directories merged into /workspace, topmost first. They are read, never changed. Each must be owned by
	// one uid and gid (those of the directory itself): as root only files of that owner become the agent's to rewrite. A
	// character device 0:0 in one hides that name in those below it.
	Lower []string
	// ReadOnly are further host files or directories, seen read-only at the same path. The agent reads them as "other".
	ReadOnly []string
	Limits   Limits
	// Copy takes at once the fallback of machines without a usable overlay, for which Start otherwise tries first.
	Copy bool

	// noCgroup forces the fallback to rlimits.
	noCgroup bool
}

// Limits bound one jail. A zero field takes the default named beside it; CPU's zero is no limit.
type Limits struct {
	Memory    int64   // bytes, default 4 GiB; with a cgroup this covers processes and the files they wrote, else each process
	Disk      int64   // bytes of all writable space together, default 2 GiB
	FileSize  int64   // bytes of one file, default Disk
	Processes int     // processes and threads, default 256
	Files     int     // inodes the jail may create, default 200,000
	OpenFiles int     // descriptors per process, default 4096
	CPU       float64 // cores
}

const minMemory = 32 << 20

func (l Limits) withDefaults() Limits {
	if l.Memory == 0 {
		l.Memory = 4 << 30
	}
	if l.Disk == 0 {
		l.Disk = 2 << 30
	}
	if l.FileSize == 0 {
		l.FileSize = l.Disk
	}
	if l.Processes == 0 {
		l.Processes = 256
	}
	if l.Files == 0 {
		l.Files = 200_000
	}
	if l.OpenFiles == 0 {
		l.OpenFiles = 4096
	}
	return l
}

func (l Limits) validate() error {
	switch {
	case l.Memory < minMemory:
		return fmt.Errorf("limit memory %d: give at least %d bytes", l.Memory, minMemory)
	case l.Disk < 1<<20:
		return fmt.Errorf("limit disk %d: give at least 1 MiB", l.Disk)
	case l.FileSize < 1:
		return fmt.Errorf("limit file size %d: give a positive number of bytes", l.FileSize)
	case l.Processes < 1 || l.Processes > 1<<20:
		return fmt.Errorf("limit processes %d: give 1 to 1048576", l.Processes)
	case l.Files < 16:
		return fmt.Errorf("limit files %d: give at least 16", l.Files)
	case l.OpenFiles < 16 || l.OpenFiles > 1<<20:
		return fmt.Errorf("limit open files %d: give 16 to 1048576", l.OpenFiles)
	case l.CPU != 0 && !(l.CPU >= 0.01 && l.CPU <= 1024):
		return fmt.Errorf("limit cpu %v: give 0 (none) or 0.01 to 1024 cores", l.CPU)
	}
	return nil
}

func (s Spec) validate() error {
	if err := s.Limits.validate(); err != nil {
		return err
	}
	for _, p := range s.Lower {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return fmt.Errorf("lower %q: give a clean absolute path", p)
		}
	}
	for _, p := range s.ReadOnly {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return fmt.Errorf("read-only path %q: give a clean absolute path below /", p)
		}
		for _, own := range []string{"/proc", "/sys", "/dev", "/tmp", "/etc", "/run", WorkspaceDir, HomeDir} {
			if p == own || strings.HasPrefix(p, own+"/") && own != "/tmp" && own != "/etc" {
				return fmt.Errorf("read-only path %q: %s is the jail's own; name another path", p, own)
			}
		}
	}
	return nil
}

// Command is one program to run in a jail.
type Command struct {
	Argv   []string  // Argv[0] is looked up on PATH of Env, inside the jail
	Env    []string  // the whole environment; nothing is added
	Dir    string    // absolute in the jail; empty is /workspace
	Stdin  io.Reader // nil is empty
	Stdout io.Writer // nil discards
	Stderr io.Writer // nil discards
	Grace  time.Duration
}

func (c Command) validate() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return errors.New("command: give the program to run")
	}
	for _, s := range append(append([]string{c.Dir}, c.Argv...), c.Env...) {
		if strings.ContainsRune(s, 0) {
			return fmt.Errorf("command %q: a NUL byte in an argument, variable or directory", c.Argv[0])
		}
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("command %q: directory %q is not absolute", c.Argv[0], c.Dir)
	}
	return nil
}

// Names of limits in [Exit.Hit].
const (
	HitMemory    = "memory"
	HitProcesses = "processes"
	HitDisk      = "disk"
	HitFiles     = "files"
)

// Exit is how a command ended. When Run returns it, no process of the command is left.
type Exit struct {
	Code      int            // exit code, 0 when a signal ended it
	Signal    syscall.Signal // 0 if it exited by itself
	Hit       []string       // limits that were reached while it ran
	CPU       time.Duration  // user and system time of everything it started
	MaxMemory int64          // bytes: of the jail's cgroup, or of the largest process where there is none
}

// Isolation says exactly what was active.
type Isolation struct {
	Level  string
	Layers []string
	Limits []string
}

// Layer is one line of a [Report].
type Layer struct {
	Name   string
	Active bool
	Detail string
	Fix    string // what to change when it is not active
}

// Report says what this machine gives.
type Report struct {
	Layers []Layer
	Full   bool // Start will work at level full
}

// MissingError refuses a jail because a layer of level full is not to be had here.
type MissingError struct {
	Layer, Detail, Fix string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("isolation layer %q is missing: %s; %s", e.Layer, e.Detail, e.Fix)
}

// ErrClosed is returned for a jail that was closed or whose init ended.
var ErrClosed = errors.New("jail is closed")
