package jail

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// Jail is a running jail. Its methods may be called from several goroutines; Run admits one command at a time.
type Jail struct {
	spec      Spec
	wire      *wire
	process   *os.Process
	groups    *cgroup
	isolation Isolation
	workspace *os.File
	home      *os.File
	proc      *os.File
	listener  net.Listener // nil unless Spec.Listen
	ports     map[int]net.Listener
	upper     *os.File      // nil unless the workspace is an overlay
	replies   chan reply    // from the reader goroutine
	ended     chan struct{} // closed when pid 1 has been reaped
	problems  *cuttext.Head // stderr of pid 1; complete once ended is closed

	running  sync.Mutex // held by Run
	close    sync.Once
	closeErr error
}

type reply struct {
	*message
	files []int
}

// Start builds a jail without running a command. The error is a *[MissingError] when a layer of level full is missing. The
// caller must Close the jail.
func Start(ctx context.Context, spec Spec) (*Jail, error) {
	spec.Limits = spec.Limits.withDefaults()
	if err := spec.validate(); err != nil {
		return nil, fmt.Errorf("start jail: %w", err)
	}
	j, err := start(ctx, spec)
	if isOverlay(err) && !spec.Copy {
		spec.Copy = true // Isolation reports "workspace: copy"
		j, err = start(ctx, spec)
	}
	if err != nil {
		return nil, fmt.Errorf("start jail: %w", err)
	}
	return j, nil
}

func start(ctx context.Context, spec Spec) (*Jail, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	shown, err := spec.shown()
	if err != nil {
		return nil, err
	}
	root := os.Geteuid() == 0
	owner, err := newMapping(root)
	if err != nil {
		return nil, err
	}
	groups, err := newCgroup(spec)
	if err != nil {
		return nil, err
	}
	j := &Jail{spec: spec, groups: groups, ports: map[int]net.Listener{}, replies: make(chan reply, 1), ended: make(chan struct{}), problems: &cuttext.Head{Most: 2048}}
	if err := j.launch(owner); err != nil {
		return nil, errors.Join(err, groups.remove())
	}
	failpoint.Hit(failpoint.JailLaunched, strconv.Itoa(j.process.Pid))
	groups.enterScope(ctx, spec, j.process.Pid)
	stop := context.AfterFunc(ctx, func() { _ = j.process.Kill() })
	err = j.setUp(owner, shown)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if cause := ctx.Err(); cause != nil {
			err = cause
		}
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// launch starts pid 1, which waits for its setup.
func (j *Jail) launch(owner *mapping) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "control socket of a jail") //nolint:gosec // a descriptor
	defer func() { _ = theirs.Close() }()
	j.wire = &wire{fd: pair[0]}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{initName}, Env: []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=24MiB", "GOTRACEBACK=none"},
		Dir: "/", ExtraFiles: []*os.File{theirs}, Stderr: j.problems, SysProcAttr: owner.attributes(),
	}
	started := make(chan error)
	go j.keep(cmd, started)
	if err := <-started; err != nil {
		_ = unix.Close(pair[0])
		return missing("user namespace", fmt.Errorf("start pid 1 of the jail: %w", err))
	}
	go j.read()
	return nil
}

// keep is the goroutine, on its own thread, that is the parent of pid 1 until that exits: the parent-death signal is bound
// to the thread, as is, in version 1 of cgroups, membership in the jail's groups.
func (j *Jail) keep(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // memory of the process is accounted to the groups of its first thread: use another
		done := make(chan struct{})
		go func() { defer close(done); j.keep(cmd, started) }()
		<-done
		runtime.UnlockOSThread()
		return
	}
	err := j.groups.startIn(cmd)
	if err == nil {
		j.process = cmd.Process
	}
	started <- err
	if err == nil {
		_ = cmd.Wait() // the cause is in what pid 1 said before
		close(j.ended)
	}
	if !j.groups.strayed {
		runtime.UnlockOSThread() // else the thread, still in the jail's groups, exits with this goroutine
	}
}

// read forwards messages of pid 1, until its end of the socket closes.
func (j *Jail) read() {
	defer close(j.replies)
	for {
		m, files, err := j.wire.receive()
		if err != nil {
			return
		}
		r := reply{m, files}
		select {
		case j.replies <- r: // also what pid 1 said before it exited
			continue
		default:
		}
		select {
		case j.replies <- r:
		case <-j.ended:
			closeAll(files)
			return
		}
	}
}

func (j *Jail) setUp(owner *mapping, shown []Mount) error {
	s := &setup{
		Root: owner.root, Lower: j.spec.Lower, Shown: shown, Limits: j.spec.Limits,
		MemoryCgroup: j.groups.has(memoryGroup), ProcessCgroup: j.groups.has(processGroup), CountSockets: !j.groups.sockets,
		Processors: j.processors(), Copy: j.spec.Copy && len(j.spec.Lower) > 0 || len(j.spec.Files) > 0,
		Home: len(j.spec.Home) > 0, Listen: j.spec.Listen, Ports: j.spec.Ports,
	}
	files, streams, err := j.handOver(owner, s)
	if err != nil {
		closeAll(files)
		streams.close()
		return err
	}
	err = j.wire.send(&message{Kind: kindSetup, Setup: s}, files...)
	closeAll(files)
	written := streams.write() // always: it closes them
	if err != nil {
		return j.gone()
	}
	r, ok := <-j.replies
	if !ok {
		return j.gone()
	}
	err = <-written
	switch {
	case err != nil && (r.Kind != kindFail || !errors.Is(err, unix.EPIPE)): // else pid 1 says why it stopped reading
		closeAll(r.files)
		return err
	case r.Kind == kindFail:
		closeAll(r.files)
		return r.failure()
	case r.Kind != kindReady:
		closeAll(r.files)
		return fmt.Errorf("pid 1 of the jail answered %q to its setup", r.Kind)
	}
	j.isolation = Isolation{Level: LevelFull, Layers: append([]string{owner.describe()}, r.Layers...), Limits: j.holds(owner, r.Unset)}
	return j.takeHandles(r.files)
}

func (m *message) failure() error {
	switch {
	case m.Miss != nil:
		return m.Miss
	case m.Overlay:
		return &overlayError{errors.New(m.Error)}
	default:
		return errors.New(m.Error)
	}
}

// gone returns why pid 1 exited.
func (j *Jail) gone() error {
	_ = j.process.Kill()
	<-j.ended
	if said := j.problems.Text(); said != "" {
		return fmt.Errorf("%w: pid 1 said: %s", ErrClosed, said)
	}
	return ErrClosed
}

// Isolation returns the active layers and limits.
func (j *Jail) Isolation() Isolation { return j.isolation }

// Workspace returns a descriptor of the merged workspace, usable until Close, also after the last process of the jail exited.
// Callers must not close it, and must open below it with openat2. Never pass its /proc/self/fd path to a program that
// resolves paths itself, such as git: the link reads as the path inside the jail, which on the host is another directory.
func (j *Jail) Workspace() *os.File { return j.workspace }

// Upper returns a descriptor of the overlay's writable layer, usable until Close: a path of the workspace whose directory
// does not exist in it is unchanged. It is O_PATH, belongs to the jail, and is nil if the workspace is not an overlay.
func (j *Jail) Upper() *os.File { return j.upper }

// Close kills everything in the jail and removes what Start created on the host. It may be called more than once.
func (j *Jail) Close() error {
	j.close.Do(func() {
		failpoint.Hit(failpoint.JailClose, strconv.Itoa(j.process.Pid))
		_ = j.process.Kill()
		_ = unix.Shutdown(j.wire.fd, unix.SHUT_RDWR)
		<-j.ended // pid 1 is reaped after everything in its namespace
		for r := range j.replies {
			closeAll(r.files)
		}
		j.wire.mu.Lock()
		_ = unix.Close(j.wire.fd)
		j.wire.fd = -1
		j.wire.mu.Unlock()
		if j.listener != nil {
			_ = j.listener.Close() // the caller may have closed it
		}
		for _, l := range j.ports {
			_ = l.Close() // likewise
		}
		for _, f := range []*os.File{j.workspace, j.home, j.proc, j.upper} {
			if f != nil {
				j.closeErr = errors.Join(j.closeErr, f.Close())
			}
		}
		failpoint.Hit(failpoint.JailClosed, strconv.Itoa(j.process.Pid))
		j.closeErr = errors.Join(j.closeErr, j.groups.remove())
	})
	return j.closeErr
}
