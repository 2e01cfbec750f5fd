package account

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program is a program to start.
type Program struct {
	Path string     // absolute
	Args []string   // without the program itself
	Env  []string   // the whole environment; nothing is added
	Dir  string     // where it starts; empty is /
	Name string     // of the program in errors; empty is its file name
	File []*os.File // its descriptors, from 0; nil is /dev/null
	// Block is the account; nil: the caller's own, with the caller's mounts, and without Mounts.
	Block *Block
	// Mounts are shown to it besides the system's programs and configuration.
	Mounts []Mount
	// Group holds its processes; nil: the caller's groups.
	Group *Group
}

// Process is a program that was started. It outlives its caller.
type Process struct {
	PID int
	// Handle is a pidfd, to signal the process and to wait for its end. The caller closes it.
	Handle  *os.File
	process *os.Process
}

// Wait waits for the exit, and returns how the process exited. Only the process that started it can wait for it.
func (p *Process) Wait() (*os.ProcessState, error) { return p.process.Wait() }

// Kill kills the process alone.
func (p *Process) Kill() error { return p.process.Kill() }

// Close releases what the caller has of the process, without waiting for it.
func (p *Process) Close() error { return errors.Join(p.Handle.Close(), p.process.Release()) }

// Start starts a program in a session of its own. With a block it takes real root, and runs without new privileges.
func Start(p Program) (*Process, error) {
	if p.Name == "" {
		p.Name = filepath.Base(p.Path)
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	// The program gets the given descriptors alone. All of Go's close at an exec by themselves; others may be inherited.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("start %s: keep descriptors: %w", p.Name, err)
	}
	start := p.onThread
	if p.Block == nil && p.Group == nil { // a thread that exits would end those of the caller's children that end with it
		start = p.start
	}
	started, err := start()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return started, nil
}

func (p *Program) validate() error {
	switch {
	case !filepath.IsAbs(p.Path) || filepath.Clean(p.Path) != p.Path:
		return fmt.Errorf("program %q: give a clean absolute path", p.Path)
	case p.Block == nil && len(p.Mounts) > 0:
		return errors.New("mounts without a uid block: give both or none")
	case p.Block == nil:
		return nil
	case os.Geteuid() != 0:
		return fmt.Errorf("uid block %d: only root gives a program another account", p.Block.First)
	}
	if err := p.Block.validate(); err != nil {
		return err
	}
	for i, m := range p.Mounts {
		if err := m.validate(); err != nil {
			return err
		}
		for _, other := range p.Mounts[:i] {
			if other.At == m.At {
				return fmt.Errorf("mount at %s: given twice", m.At)
			}
		}
	}
	return nil
}

// onThread starts the program from a thread of its own, which exits afterwards: it has left the caller's mounts and groups.
func (p *Program) onThread() (started *Process, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot exit, and /proc/PID shows its mounts as the process's.
			started, err = p.onThread()
			runtime.UnlockOSThread()
			return
		}
		started, err = p.start()
	}()
	<-done
	return started, err
}

func (p *Program) start() (*Process, error) {
	enter := p.Group.enter
	if p.Block != nil {
		enter = p.leave
	}
	leaf, err := enter()
	defer func() { _ = unix.Close(leaf) }()
	if err != nil {
		return nil, err
	}
	handle := -1
	attr := &syscall.SysProcAttr{Setsid: true, PidFD: &handle, UseCgroupFD: leaf >= 0, CgroupFD: leaf}
	if p.Block != nil {
		p.Block.attributes(attr)
	}
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	dir := p.Dir
	if dir == "" {
		dir = "/"
	}
	process, err := os.StartProcess(p.Path, append([]string{p.Path}, p.Args...), &os.ProcAttr{
		Dir: dir, Env: append([]string{}, p.Env...), Files: files, Sys: attr,
	})
	for _, f := range files {
		if f != nil && f.Name() == os.DevNull {
			_ = f.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	return &Process{PID: process.Pid, Handle: os.NewFile(uintptr(handle), "handle of "+p.Name), process: process}, nil //nolint:gosec // a descriptor
}

// files are the descriptors of the program. Those that are nil are /dev/null.
func (p *Program) files() ([]*os.File, error) {
	files := append([]*os.File{}, p.File...)
	for len(files) < 3 {
		files = append(files, nil)
	}
	for i, f := range files {
		if f != nil {
			continue
		}
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		files[i] = null
	}
	return files, nil
}

// leave takes the calling thread out of everything of the caller's that a program inherits, into the program's groups.
func (p *Program) leave() (leaf int, err error) {
	if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno != 0 && errno != unix.ENOSYS {
		return -1, fmt.Errorf("join an empty session keyring: %w", errno)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("set no_new_privs: %w", err)
	}
	return p.buildRoot()
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
