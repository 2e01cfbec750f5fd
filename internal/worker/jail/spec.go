package jail

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Directories of every jail. WorkspaceDir and HomeDir are writable, as are /tmp and /dev/shm.
const (
	WorkspaceDir = "/workspace"
	HomeDir      = "/home/agent"
	// LevelFull is the only isolation level.
	LevelFull = "full"
	// ListenPort is where the listener of a jail is, on 127.0.0.1. It is below the ports that the kernel hands out by itself.
	ListenPort = 19514
	// MountsDir is where a jail shows what Spec.Mounts has.
	MountsDir = "/opt/bailiwick"
)

// Spec configures a jail. The zero value has an empty workspace, the system toolchain and the default limits.
type Spec struct {
	// Lower are host directories merged into /workspace, topmost first. They are never changed. All files of one should have
	// its owner: as root only those become the agent's to rewrite. A character device 0:0 hides its name in those below.
	Lower []string
	// ReadOnly are further host files or directories, bound read-only at the same path. The agent reads them as "other".
	ReadOnly []string
	// Mounts are host directories shown read-only at other paths, as ReadOnly shows those at the same path.
	Mounts []Mount
	// Files are the files of /workspace instead of Lower, the agent's to change. They count for its limits.
	Files []File
	// Home are files in HomeDir, likewise.
	Home []File
	// Listen opens a listener in the jail's own network namespace before a command runs: see [Jail.Listener].
	Listen bool
	// Ports lists further ports of 127.0.0.1 to listen on, as Listen does: see [Jail.Ports].
	Ports  []int
	Limits Limits
	// Copy copies Lower instead of trying an overlay first.
	Copy bool

	// noCgroup forces the fallback to rlimits.
	noCgroup bool
	// scope asks for a control group; default systemdScope.
	scope scopeMaker
	// reapTime is how long pid 1 may take to reap what it killed; default reapTime.
	reapTime time.Duration
}

// Mount shows the host's directory or regular file Host at Jail, a path below MountsDir.
type Mount struct{ Host, Jail string }

// File is a file to write below WorkspaceDir or HomeDir.
type File struct {
	Path    string      // relative to it
	Mode    os.FileMode // permission bits; 0 means 0600
	Content []byte
}

// Limits bound one jail. A zero field means the default beside it; a zero CPU means no limit.
type Limits struct {
	Memory    int64   // bytes, default 4 GiB, of processes and the files they wrote together
	Disk      int64   // bytes of all writable space together, default 2 GiB
	FileSize  int64   // bytes of one file, default Disk
	Processes int     // processes and threads, default 256
	Files     int     // inodes the jail may create, default 200,000
	OpenFiles int     // descriptors per process, default 4096
	CPU       float64 // cores
}

const minMemory = 32 << 20

func (l Limits) withDefaults() Limits {
	l.Memory = cmp.Or(l.Memory, 4<<30)
	l.Disk = cmp.Or(l.Disk, 2<<30)
	l.FileSize = cmp.Or(l.FileSize, l.Disk)
	l.Processes = cmp.Or(l.Processes, 256)
	l.Files = cmp.Or(l.Files, 200_000)
	l.OpenFiles = cmp.Or(l.OpenFiles, 4096)
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
	if err := s.validateMounts(); err != nil {
		return err
	}
	if len(s.Files) > 0 && len(s.Lower) > 0 {
		return errors.New("files and lower directories for one workspace: give one of them")
	}
	if err := validatePorts(s.Ports); err != nil {
		return err
	}
	return errors.Join(validateFiles("workspace", WorkspaceDir, s.Files), validateFiles("home", HomeDir, s.Home))
}

// maxPorts bounds Spec.Ports: each is a descriptor of one message.
const maxPorts = 64

func validatePorts(ports []int) error {
	if len(ports) > maxPorts {
		return fmt.Errorf("%d ports: give at most %d", len(ports), maxPorts)
	}
	for i, p := range ports {
		if p < 1 || p > 65535 || p == ListenPort || slices.Contains(ports[:i], p) {
			return fmt.Errorf("port %d: give each port once, from 1 to 65535 and not %d", p, ListenPort)
		}
	}
	return nil
}

func (s Spec) validateMounts() error {
	within := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	taken := slices.Clone(s.ReadOnly)
	for _, m := range s.Mounts {
		if !filepath.IsAbs(m.Host) || filepath.Clean(m.Host) != m.Host {
			return fmt.Errorf("mount of %q: give a clean absolute path", m.Host)
		}
		if !strings.HasPrefix(m.Jail, MountsDir+"/") || filepath.Clean(m.Jail) != m.Jail {
			return fmt.Errorf("mount at %q: give a clean path below %s", m.Jail, MountsDir)
		}
		for _, other := range taken {
			if within(m.Jail, other) || within(other, m.Jail) {
				return fmt.Errorf("mount at %q: %q is shown there too; name another path", m.Jail, other)
			}
		}
		taken = append(taken, m.Jail)
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

// Exit is the exit status and resource usage of a command.
type Exit struct {
	Code      int            // exit code, 0 if killed by a signal
	Signal    syscall.Signal // 0 if it exited
	Hit       []string       // limits reached while it ran
	Why       string         // what the watchdog counted when it ended the command, if it did
	CPU       time.Duration  // user and system time of all its processes
	MaxMemory int64          // bytes, of the jail's cgroup, or without one of the largest process
}

// Isolation lists what is active.
type Isolation struct {
	Level  string
	Layers []string
	Limits []string
}

// Layer is one line of a [Report].
type Layer struct {
	Name   string `json:"name"`
	Active bool   `json:"active"`
	Detail string `json:"detail,omitempty"`
	Fix    string `json:"fix,omitempty"` // how to make it active
}

// Report lists the isolation layers of this machine.
type Report struct {
	Layers []Layer `json:"layers"`
	Full   bool    `json:"full"` // Start works at level full
}

// MissingError means that this machine lacks a layer of level full.
type MissingError struct {
	Layer, Detail, Fix string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("isolation layer %q is missing: %s; %s", e.Layer, e.Detail, e.Fix)
}

// ErrClosed means that a jail was closed or its pid 1 exited.
var ErrClosed = errors.New("jail is closed")
