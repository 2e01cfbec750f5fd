package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// systemMode makes every world a machine in mode system: the scenarios are the same, the
// programs have the accounts of an installation.
var systemMode = os.Getenv("BAILIWICK_E2E_MODE") == api.ModeSystem

// unit is what systemd and an administrator do on the machine of a world: they start and
// stop the service, start the launcher when something connects to its socket, and give the
// trust roots and settings that the person of the world wrote to root.
//
// The directories of the installation are those of the world: w.path("state/bailiwick") is
// /var/lib/bailiwick, for example.
type unit struct {
	*team
	w *world

	bin      string // where service and launcher are; empty: bin
	mu       sync.Mutex
	service  *daemon     // guarded by mu
	flags    []string    // of the service; guarded by mu
	state    os.FileInfo // of the directory that the launcher sees; guarded by mu
	launcher *daemon     // guarded by mu
	api      *os.File    // the socket of the API, if it is kept; guarded by mu
	halt     func()      // stops a service that the test itself started; may be nil
	stop     chan struct{}
	stopped  chan struct{}          // closed when no launcher will be started
	net      atomic.Pointer[island] // where service and launcher run; nil: where the commands do
}

// keepSocket keeps the socket of the API on a machine, as its unit does, until the test ends:
// callers wait while no service runs, and one starts for them. In mode same-user commands
// start one.
func (w *world) keepSocket() {
	w.t.Helper()
	if w.unit == nil {
		return
	}
	u := w.unit
	path := u.w.path("run/bailiwick/api.sock")
	f, err := listenAt("/run/bailiwick/api.sock", [2]string{u.Path("/run"), "/run"}, [2]string{u.w.path("/run/bailiwick"), "/run/bailiwick"})
	must(u.t, errors.Join(err, os.Chown(path, machine.Service, machine.Service), os.Chmod(path, 0o666)))
	u.mu.Lock()
	u.api = f
	u.mu.Unlock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}} //nolint:gosec // G115: a descriptor
			if n, _ := unix.Poll(poll, 20); n < 1 {
				continue
			}
			if d := u.up(); d.status != 0 {
				u.t.Error(d)
				return
			}
		}
	}()
	u.t.Cleanup(func() {
		close(stop)
		<-stopped
		u.mu.Lock()
		u.api = nil
		u.mu.Unlock()
		must(u.t, errors.Join(f.Close(), os.Remove(path)))
	})
}

// listenAt makes a socket that has the name which it has on a machine, whose directories are
// elsewhere for the test: each bind says from where and at which place.
func listenAt(path string, binds ...[2]string) (f *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with its mount namespace
		if err = unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return
		}
		for _, b := range binds {
			if err = unix.Mount(b[0], b[1], "", unix.MS_BIND, ""); err != nil {
				return
			}
		}
		l, fault := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err = fault; err != nil {
			return
		}
		l.SetUnlinkOnClose(false)
		f, err = l.File()
		err = errors.Join(err, l.Close())
	}()
	<-done
	return f, err
}

// moveTo starts the next service and launcher on an island.
func (u *unit) moveTo(n *island) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.net.Store(n)
	for _, name := range []string{"/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"} { // those of an internet
		var b []byte
		must(u.t, n.do(func() (err error) {
			b, err = os.ReadFile(name)
			return err
		}))
		u.MkdirAll(filepath.Dir(name), 0, 0, 0o755)
		u.Write(name, string(b), 0, 0, 0o644)
	}
	if u.launcher.running() {
		u.launcher.end(syscall.SIGTERM)
	}
}

// daemon is a process of a unit.
type daemon struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has exited
}

func (d *daemon) running() bool {
	if d == nil {
		return false
	}
	select {
	case <-d.ended:
		return false
	default:
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if _, state, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(state, "Z") {
		return true
	}
	// It was killed, and not waited for yet.
	<-d.ended
	return false
}

// end stops it as its unit does, and kills it if that takes too long.
func (d *daemon) end(signal syscall.Signal) {
	_ = d.cmd.Process.Signal(signal)
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		_ = d.cmd.Process.Kill()
		<-d.ended
	}
}

// newMachine puts a world on a machine of its own. Its commands are alice's.
func newMachine(t testing.TB, w *world) {
	t.Helper()
	u := &unit{team: &team{Machine: machine.New(t), t: t}, w: w, stop: make(chan struct{}), stopped: make(chan struct{})}
	w.on, w.unit, w.uid = u.team, u, machine.Alice
	must(t, os.Chmod(w.dir, 0o755)) // the service reads sources there
	u.MkdirAll("/etc/bailiwick", 0, 0, 0o755)
	u.MkdirAll("/var/lib/bailiwick-launch", 0, 0, 0o700)
	u.MkdirAll("/run/bailiwick-launch", 0, 0, 0o755)
	var before strings.Builder
	for _, d := range []struct {
		at, from string
		uid, gid int
		mode     fs.FileMode
	}{
		{"/var/lib/bailiwick", "state/bailiwick", machine.Service, machine.Service, 0o700},
		{"/var/lib/bailiwick-catalog", "data/bailiwick", 0, machine.Deploy, 0o775 | fs.ModeSetgid},
		{"/run/bailiwick", "run/bailiwick", machine.Service, machine.Service, 0o755},
		{"/tmp/none", "tmp-service", machine.Service, machine.Service, 0o700},
	} {
		must(t, os.MkdirAll(w.path(d.from), 0o755))
		u.give(d.from, d.uid, d.gid, d.mode)
		if !strings.HasPrefix(d.at, "/tmp") {
			u.MkdirAll(d.at, d.uid, d.gid, d.mode)
			// A test may have moved the directory away.
			fmt.Fprintf(&before, "[ ! -d '%[1]s' ] || mount --rbind '%[1]s' '%[2]s'\n", w.path(d.from), d.at)
		}
	}
	must(t, os.Chmod(w.path("run"), 0o777)) // for sockets that settings name
	u.Before = before.String()
	u.uids()
	u.listen()
	go u.activate()
	t.Cleanup(func() {
		u.down()
		close(u.stop)
		<-u.stopped
		if t.Failed() {
			b, _ := os.ReadFile(w.path("launcher.log"))
			t.Logf("launcher:\n%s", b)
		}
	})
}

// activate starts the launcher when something connects to its socket.
func (u *unit) activate() {
	defer close(u.stopped)
	for {
		select {
		case <-u.stop:
			return
		default:
		}
		poll := []unix.PollFd{{Fd: int32(u.socket.Fd()), Events: unix.POLLIN}} //nolint:gosec // G115: a descriptor
		if n, _ := unix.Poll(poll, 20); n < 1 {
			continue
		}
		const script = `[ ! -d /run/credentials ] || export CREDENTIALS_DIRECTORY=/run/credentials; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"`
		d, _, err := u.spawn(machine.Root, "launcher.log", []*os.File{u.socket}, "/bin/sh", "-c", script, "sh", filepath.Join(u.programs(), "bailiwick-launch"))
		if err != nil {
			u.t.Error(err)
			return
		}
		u.mu.Lock()
		u.launcher = d
		u.mu.Unlock()
		select {
		case <-d.ended:
		case <-u.stop:
			d.end(syscall.SIGTERM)
		}
	}
}

func (u *unit) programs() string {
	if u.bin != "" {
		return u.bin
	}
	return bin
}

// program prepares a program of a unit.
func (u *unit) program(uid int, argv ...string) *exec.Cmd {
	const umask = `umask 077; exec "$@"`
	cmd := u.Command(u.t.Context(), uid, append([]string{"/bin/sh", "-c", umask, "sh"}, argv...)...)
	cmd.Cancel = func() error { return nil } // the unit ends it
	cmd.WaitDelay = 0
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"), "TMPDIR="+u.w.path("tmp-service"))
	for _, v := range u.w.env { // what a test wants the service to have
		if name, _, _ := strings.Cut(v, "="); !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"}, name) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Dir = "/"
	return cmd
}

// worker reports whether a process has a uid of this machine's workers.
func (u *unit) worker(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "\nUid:")
	var uid int
	_, err = fmt.Sscan(rest, &uid)
	return err == nil && u.uidsFrom <= uid && uid < u.uidsFrom+uidBlocks*account.Size && !strings.Contains(string(status), "\nState:\tZ")
}

func (u *unit) launcherPID() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.launcher.running() {
		return 0
	}
	return u.launcher.cmd.Process.Pid
}

// spawn starts a program of a unit. What it prints goes to a file of the world.
func (u *unit) spawn(uid int, log string, files []*os.File, argv ...string) (*daemon, io.Reader, error) {
	cmd := u.program(uid, argv...)
	cmd.ExtraFiles = files
	f, err := os.OpenFile(u.w.path(log), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() //nolint:errcheck // the program has its own copy
	if err := f.Chown(machine.Service, machine.Service); err != nil {
		return nil, nil, err
	}
	cmd.Stderr = f
	out, in, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer in.Close() //nolint:errcheck // likewise
	cmd.Stdout = in
	start := cmd.Start
	if n := u.net.Load(); n != nil {
		start = func() error { return n.start(cmd) }
	} else if u.w.net != nil {
		start = func() error { return u.w.net.start(cmd) }
	}
	if err := start(); err != nil {
		return nil, nil, err
	}
	d := &daemon{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(d.ended)
	}()
	return d, out, nil
}

// up starts the service unless it runs, as systemctl start does. It says what bailiwick up
// says in mode same-user.
func (u *unit) up(flags ...string) done {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.service.running() && (len(flags) == 0 || slices.Equal(flags, u.flags)) {
		return done{0, fmt.Sprintf("already running: process %d\n", u.service.cmd.Process.Pid), ""}
	}
	if u.service.running() { // its unit gets other flags
		u.service.end(syscall.SIGTERM)
	}
	u.flags = flags
	u.sync()
	u.handOver()
	for _, dir := range []string{"state/bailiwick", "run/bailiwick"} { // as the unit's StateDirectory
		if err := os.Mkdir(u.w.path(dir), 0o700); err == nil {
			u.remounted()
			u.give(dir, machine.Service, machine.Service, map[string]fs.FileMode{"state/bailiwick": 0o700, "run/bailiwick": 0o755}[dir])
		}
	}
	// What an administrator has put back is given to the service.
	u.giveAll("state/bailiwick")
	st, err := os.Stat(u.w.path("state/bailiwick"))
	must(u.t, err)
	if u.state != nil && !os.SameFile(u.state, st) {
		u.remounted() // a test put another state there
	}
	u.state = st
	log := "state/bailiwick/service.log"
	if unix.Access(u.w.path("state/bailiwick"), unix.W_OK) != nil { // on a read-only disk
		log = "service.log"
	}
	from := int64(0)
	if st, err := os.Stat(u.w.path(log)); err == nil {
		from = st.Size()
	}
	argv, files := append([]string{filepath.Join(u.programs(), "bailiwickd"), "serve", "--system"}, flags...), []*os.File(nil)
	if u.api != nil {
		const script = `export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api; exec "$@"`
		argv, files = append([]string{"/bin/sh", "-c", script, "sh"}, argv...), []*os.File{u.api}
	}
	d, out, err := u.spawn(machine.Service, log, files, argv...)
	if err != nil {
		return done{1, "", err.Error()}
	}
	u.service = d
	listening := make(chan bool)
	go func() {
		var line [4096]byte
		n, _ := out.Read(line[:])
		listening <- n > 0
		_, _ = io.Copy(io.Discard, out)
	}()
	if <-listening {
		return done{0, fmt.Sprintf("started: process %d\n", d.cmd.Process.Pid), ""}
	}
	<-d.ended
	text, _ := os.ReadFile(u.w.path(log))
	return done{1, "", "the service did not start:\n" + string(text[min(from, int64(len(text))):])}
}

// down stops the service, as systemctl stop does.
func (u *unit) down() done {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.service.running() {
		if u.halt != nil {
			u.halt()
		}
		return done{0, "not running\n", ""}
	}
	u.service.end(syscall.SIGTERM)
	return done{0, "stopped\n", ""}
}

// remounted says that a directory of the world is another one: the launcher sees that which
// was there.
//
// The caller holds mu.
func (u *unit) remounted() {
	if u.launcher.running() {
		u.launcher.end(syscall.SIGTERM)
	}
}

// give changes who has a directory of the world.
func (u *unit) give(dir string, uid, gid int, mode fs.FileMode) {
	must(u.t, errors.Join(os.Chown(u.w.path(dir), uid, gid), os.Chmod(u.w.path(dir), mode)))
}

// giveAll gives a directory of the world, with all that is below, to the service. It may be read-only.
func (u *unit) giveAll(dir string) {
	must(u.t, filepath.WalkDir(u.w.path(dir), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if st, err := d.Info(); err != nil || st.Sys().(*syscall.Stat_t).Uid == machine.Service {
			return err
		}
		return os.Lchown(name, machine.Service, machine.Service)
	}))
}

// owner returns who owns what a test writes to the world.
func (u *unit) owner(name string) (uid, gid int) {
	for _, dir := range []string{"state/bailiwick", "run/bailiwick", "state/" + failpoint.Folder} {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return machine.Service, machine.Service
		}
	}
	if slices.Contains(u.named(), u.w.path(name)) {
		return machine.Service, machine.Service
	}
	if name == "data/bailiwick" {
		return 0, machine.Deploy
	}
	// Such as the file of an anchor, or its directory.
	for _, path := range []string{u.w.path(name), filepath.Dir(u.w.path(name))} {
		if st, err := os.Stat(path); err == nil && st.Sys().(*syscall.Stat_t).Uid == machine.Service {
			return machine.Service, machine.Service
		}
	}
	return machine.Alice, machine.Alice
}

// sync gives trust roots and settings to root.
func (u *unit) sync() {
	for _, name := range []string{"data/bailiwick/trust.json", "data/bailiwick/operators.json", "config/bailiwick/service.yaml"} {
		to := "/etc/bailiwick/" + filepath.Base(name)
		want, err := os.ReadFile(u.w.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			_ = os.Remove(u.Path(to))
			continue
		}
		must(u.t, err)
		if is, err := os.ReadFile(u.Path(to)); err == nil && bytes.Equal(is, want) {
			continue
		}
		u.Write(to, string(want), 0, 0, 0o644)
	}
}

// named lists the files of the world that its settings name.
func (u *unit) named() []string {
	settings, _ := os.ReadFile(u.w.path(serviceConfig)) // there may be none
	return regexp.MustCompile(regexp.QuoteMeta(u.w.dir)+`/[^\s"',}\]]+`).FindAllString(string(settings), -1)
}

// handOver gives the files that the settings name to the service, as an administrator does.
func (u *unit) handOver() {
	for _, path := range u.named() {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			path = filepath.Dir(path) // the service makes it there
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, own := range []string{".", "run", "config/bailiwick"} {
			if path == u.w.path(own) {
				path = ""
			}
		}
		if path == "" {
			continue
		}
		must(u.t, filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(name, machine.Service, machine.Service)
		}))
	}
}

// beforeSetup does what a person does before there is an installation, which setup then makes
// of the first keys.
func (u *unit) beforeSetup(do func()) {
	u.give("data/bailiwick", machine.Alice, machine.Alice, 0o755)
	env := u.w.env
	u.w.env = append(slices.Clone(env), api.ModeVariable+"="+api.ModeSameUser)
	do()
	u.w.env = env
	u.give("data/bailiwick", 0, machine.Deploy, 0o775|fs.ModeSetgid)
	u.sync()
}

// try runs bailiwick as the world's person. What starts and stops a service of the account
// in mode same-user is the administrator's.
func (u *unit) try(args []string) done {
	verb := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") })
	run := func() done { return u.w.plain(filepath.Join(bin, "bailiwick"), args...) }
	if verb < 0 {
		return run()
	}
	rest := slices.Delete(slices.Clone(args), verb, verb+1)
	switch {
	case args[verb] == "up" && (len(rest) == 0 || slices.Equal(rest, []string{"--orchestrator"})):
		return u.up(rest...)
	case args[verb] == "down" && len(rest) == 0:
		return u.down()
	case args[verb] == "init":
		d := done{}
		u.beforeSetup(func() { d = run() })
		return d
	}
	u.sync()
	if args[verb] == "anchor" { // it uses sudo
		u.administrator()
		cmd := u.Command(u.t.Context(), machine.Root, append([]string{"setpriv", "--reuid", "64311", "--regid", "64311", "--init-groups", "--", filepath.Join(bin, "bailiwick")}, args...)...)
		cmd.Dir, cmd.Env = u.w.dir, append(cmd.Env, u.w.env...)
		return u.w.finish(cmd)
	}
	d := run()
	// As the socket of the service's unit does. A call that ended with its service is not repeated.
	unmet := strings.Contains(d.stderr, "connection refused") || strings.Contains(d.stderr, "no such file or directory")
	if d.status != 0 && u.halt == nil && unmet && !slices.Contains([]string{"status", "doctor", "catalog", "plan", "completion"}, args[verb]) && !slices.Contains(args, "--socket") && strings.Contains(d.stderr, "no service answers") {
		u.mu.Lock()
		flags := u.flags // a service that was just killed may have looked alive when it was asked for
		u.mu.Unlock()
		if up := u.up(flags...); up.status != 0 {
			return done{1, d.stdout, d.stderr + up.stderr}
		}
		return run()
	}
	return d
}
