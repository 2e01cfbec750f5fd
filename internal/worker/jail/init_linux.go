package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/landlock"
)

// initName is argv[0] of pid 1 of a jail. Forging it gains nothing: without a control socket the process exits.
const (
	initName  = "bailiwick-jail-init"
	controlFD = 3
)

// Main is the first statement of main (and TestMain) of a program that starts jails. It returns at once, unless this
// process is the re-executed pid 1 of a jail: then it never returns.
func Main() {
	if len(os.Args) == 0 || os.Args[0] != initName {
		return
	}
	code := 0
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code) //nolint:forbidigo // this process is a program of its own
}

// serve is the main loop of pid 1. It returns when the owner's end of the control socket closes; the kernel then kills
// everything in the pid namespace.
func serve() error {
	if err := unix.CloseRange(controlFD+1, ^uint(0)>>1&0xffffffff, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	unix.CloseOnExec(controlFD)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set parent death signal: %w", err)
	}
	// If these two were ignored, the Go runtime keeps them ignored, and so would the programs started here. It handles all
	// other signals, which exec resets. Nothing inside may signal pid 1 (see the seccomp rules).
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT)
	unix.Umask(0o022)
	w := &wire{fd: controlFD}
	m, files, err := w.receive()
	if err != nil {
		return quietEOF(err)
	}
	if m.Kind != kindSetup || m.Setup == nil {
		return fmt.Errorf("first control message is %q, not setup", m.Kind)
	}
	in := &initProcess{wire: w, setup: m.Setup, ids: m.Setup.ids(), reaper: newReaper()}
	handles, err := in.start(files)
	if err != nil {
		var miss *MissingError
		errors.As(err, &miss)
		return w.send(&message{Kind: kindFail, Error: err.Error(), Miss: miss, Overlay: isOverlay(err)})
	}
	if err := w.send(&message{Kind: kindReady, Layers: in.layers, Unset: in.unset}, handles...); err != nil {
		return err
	}
	closeAll(handles)
	if err := setOpenFiles(in.setup.Limits); err != nil {
		return err
	}
	return in.loop()
}

func quietEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// initProcess is the state of pid 1, owned by the loop goroutine. Commands answer through the wire, which has its own lock.
type initProcess struct {
	wire    *wire
	setup   *setup
	ids     ids
	layers  []string
	unset   []string // limits of the namespaces that could not be set
	spawner *spawner
	reaper  *reaper
	running atomic.Bool
}

// start builds the jail and drops every right that building needs. It returns descriptors of the workspace, of /proc, of the
// home directory, of the listener if there is to be one, of the ports, and of the writable layer if the workspace is an overlay.
func (in *initProcess) start(files []int) ([]int, error) {
	s := in.setup
	b := &builder{setup: s, ids: in.ids, stream: -1, home: -1, upper: -1, beside: map[string]int{}, layers: []string{"user namespace", "mount, pid, network, ipc, uts and cgroup namespaces"}}
	if err := b.take(files); err != nil {
		return nil, err
	}
	if err := loopback(); err != nil {
		return nil, missing("network namespace", err)
	}
	if err := unix.Sethostname([]byte(hostName)); err != nil {
		return nil, missing("uts namespace", err)
	}
	unset, err := setNamespaceLimits(s)
	if err != nil {
		return nil, missing("private /proc", err)
	}
	in.unset = unset
	if err := b.build(); err != nil {
		return nil, err
	}
	in.layers = b.layers
	var handles []int
	for _, dir := range []string{WorkspaceDir, "/proc", HomeDir} {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: dir, Err: err}
		}
		handles = append(handles, fd)
	}
	ports := s.Ports
	if s.Listen {
		ports = append([]int{ListenPort}, ports...)
	}
	for _, p := range ports {
		fd, err := listen(p)
		if err != nil {
			return nil, err
		}
		handles = append(handles, fd)
	}
	if b.upper >= 0 {
		handles = append(handles, b.upper)
	}
	return handles, in.confine()
}

// take takes the descriptors that came with the setup.
func (b *builder) take(files []int) error {
	s := b.setup
	lower, shown := 0, 0
	if s.Root {
		shown = len(s.Shown)
		if !s.Copy {
			lower = len(s.Lower)
		}
	}
	streams := []*int{}
	if s.Copy {
		streams = append(streams, &b.stream)
	}
	if s.Home {
		streams = append(streams, &b.home)
	}
	if len(files) != lower+shown+len(streams) {
		return fmt.Errorf("setup: %d descriptors for %d mounts and %d streams", len(files), lower+shown, len(streams))
	}
	b.lower, b.extra = files[:lower], files[lower:lower+shown]
	for i, stream := range streams {
		*stream = files[lower+shown+i]
	}
	return nil
}

// confine starts the spawner thread under every restriction and strips pid 1 itself.
func (in *initProcess) confine() error {
	warmThreads()
	in.spawner = newSpawner(in.setup)
	layers, err := in.spawner.start()
	if err != nil {
		return err
	}
	in.layers = append(in.layers, layers...)
	if err := setLimits(in.setup); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make pid 1 untraceable: %w", err)
	}
	dropped, err := dropProcess()
	if err != nil {
		return fmt.Errorf("drop capabilities of pid 1: %w", err)
	}
	in.layers = append(in.layers, "pid 1 untraceable"+dropped)
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

const warmCount = 8

// warmThreads makes the runtime create its threads before process limits are in force, so that an agent's fork bomb cannot
// kill pid 1 by taking the last one, and before the seccomp filter is made, which keeps signals from their numbers.
func warmThreads() {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	for range warmCount {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}

func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

func (in *initProcess) loop() error {
	for {
		m, files, err := in.wire.receive()
		if err != nil {
			return quietEOF(err)
		}
		switch {
		case m.Kind == kindRun && m.Run != nil && len(files) == 3:
			err = in.run(m.Run, files)
		case m.Kind == kindKill:
			in.spawner.do(func() { _ = unix.Kill(-1, unix.Signal(m.Signal)) })
		default:
			err = fmt.Errorf("control message %q with %d descriptors", m.Kind, len(files))
		}
		closeAll(files)
		if err != nil {
			return err
		}
	}
}

// run starts a command and answers when none of its processes is left.
func (in *initProcess) run(r *run, files []int) error {
	if !in.running.CompareAndSwap(false, true) {
		return in.wire.send(&message{Kind: kindFail, Error: "another command is running in this jail"})
	}
	in.reaper.reset()
	pid, err := in.spawner.spawn(r, files)
	if err != nil {
		in.running.Store(false)
		return in.wire.send(&message{Kind: kindFail, Error: err.Error()})
	}
	go func() {
		exit := in.reaper.wait(pid, in.spawner, in.setup)
		in.running.Store(false)
		if err := in.wire.send(&message{Kind: kindExit, Exit: exit}); err != nil {
			fmt.Fprintln(os.Stderr, "report the end of a command:", err)
		}
	}()
	return nil
}

// missing turns an error of the kernel into a MissingError for the layer, with its fix.
func missing(layer string, err error) error {
	var miss *MissingError
	if errors.As(err, &miss) || isOverlay(err) {
		return err
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSYS) &&
		!errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EUSERS) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%s: %w", layer, err)
	}
	return &MissingError{Layer: layer, Detail: err.Error(), Fix: fix(layer)}
}

func fix(layer string) string {
	switch {
	case strings.Contains(layer, "landlock"):
		return landlock.Fix
	case layer == exposeLayer:
		return "use Linux 5.11 or later with overlayfs, and a path that is not itself on an overlay over an overlay"
	case layer == "seccomp":
		return "use a kernel with CONFIG_SECCOMP_FILTER"
	default:
		return "allow user namespaces (kernel.apparmor_restrict_unprivileged_userns=0, kernel.unprivileged_userns_clone=1, " +
			"user.max_user_namespaces above 0), use Linux 5.12 or later, and in a container leave /proc unmasked"
	}
}
