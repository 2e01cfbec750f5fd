package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/unixframe"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
)

// atTheSocket returns an attacker in the place of a service, with a manifest that this service signed.
func atTheSocket(t *testing.T) (*takenService, record.Manifest) {
	t.Helper()
	s := newTeam(t)
	w := s.world(machine.Alice)
	w.repository("repo", map[string]string{"a.txt": "one\n"})
	w.manifest(subagent{name: "work", script: "echo done"})
	w.publish("reversible")
	d := w.dispatch("work", "--source", "repo")
	wantEnd(t, d, api.EventFinished, "")
	a := s.takeService()
	return a, a.stored(d.Manifest)
}

// groups lists the control groups of the machine's uid blocks.
func (s *team) groups() (list []string) {
	s.t.Helper()
	groups, err := account.OpenGroups(account.Place)
	must(s.t, err)
	for n := range uidBlocks {
		name := fmt.Sprintf("block-%d", s.uidsFrom+n*account.Size)
		if _, err := groups.Open(name); !errors.Is(err, fs.ErrNotExist) {
			list = append(list, name)
		}
	}
	return list
}

// nothing fails the test unless the launcher still answers, and has left nothing of a start that it refused.
func (a *takenService) nothing(what string) {
	t := a.s.t
	t.Helper()
	answer, _, err := a.ask(launch.Request{Kind: launch.KindList})
	if err != nil || len(answer.Running) > 0 {
		t.Errorf("%s: afterwards the launcher lists %v, %v", what, answer.Running, err)
	}
	if left := a.s.attempts(""); len(left) > 0 {
		t.Errorf("%s: processes are left: %v", what, left)
	}
	if left := a.s.groups(); len(left) > 0 {
		t.Errorf("%s: control groups are left: %v", what, left)
	}
}

// honest starts an attempt, and ends it.
func (a *takenService) honest(what string, m record.Manifest) {
	t := a.s.t
	t.Helper()
	answer, _, err := a.start(m, nil)
	if err != nil {
		t.Fatalf("control: %s: %v", what, err)
	}
	if all := a.s.attempts(string(m.ID)); len(all) != 1 || all[0] != answer.PID {
		t.Errorf("control: %s: the attempt has the processes %v, not %d", what, all, answer.PID)
	}
	a.end(m)
}

// as returns what make makes under the account of the service. It is closed after the test.
func (a *takenService) as(make func() (*os.File, error)) *os.File {
	t := a.s.t
	t.Helper()
	var f *os.File
	var err error
	asAccount(machine.Service, func() { f, err = make() })
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// numbered makes a file of a descriptor.
func numbered(fd int, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "descriptor"), nil
}

// listening makes a socket that listens.
func listening(network, address string) func() (*os.File, error) {
	return func() (*os.File, error) {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		return l.(interface{ File() (*os.File, error) }).File()
	}
}

// wrongDescriptors are of the service, unless they say otherwise, and none is what an attempt is started with.
func (a *takenService) wrongDescriptors() map[string]*os.File {
	s, t := a.s, a.s.t
	t.Helper()
	at := func(name string) string { return filepath.Join(s.Path("/srv"), name) }
	owned := func(name string, uid int) string {
		must(t, os.Mkdir(at(name), 0o700))
		must(t, os.Chown(at(name), uid, uid))
		return at(name)
	}
	must(t, os.WriteFile(at("file"), []byte("file"), 0o600))
	must(t, unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	for _, name := range []string{"file", "device"} {
		must(t, os.Chown(at(name), machine.Service, machine.Service))
	}
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(name, flags, 0)
		must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	removed := open(owned("removed", machine.Service), os.O_RDONLY)
	must(t, os.Remove(removed.Name()))
	pair := func(kind int) func() (*os.File, error) {
		return func() (*os.File, error) {
			fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Close(fds[1])
			}
			return numbered(fds[0], err)
		}
	}
	return map[string]*os.File{
		"a file":                         open(at("file"), os.O_RDWR),
		"a file to read":                 open(at("file"), os.O_RDONLY),
		"a path":                         open(at("file"), unix.O_PATH|os.O_APPEND|os.O_WRONLY),
		"a device":                       open(at("device"), os.O_WRONLY|os.O_APPEND),
		"a device of root":               open("/dev/null", os.O_WRONLY|os.O_APPEND),
		"a file of root":                 open(s.Path("/etc/bailiwick/trust.json"), os.O_WRONLY|os.O_APPEND),
		"the directory of the launcher":  open(s.Path("/var/lib/bailiwick-launch"), os.O_RDONLY),
		"a directory of another account": open(owned("bob", machine.Bob), os.O_RDONLY),
		"another directory":              open(owned("other", machine.Service), os.O_RDONLY),
		"the state":                      open(s.Path("/var/lib/bailiwick"), os.O_RDONLY),
		"a directory that was removed":   removed,
		"a pipe": a.as(func() (*os.File, error) {
			r, w, err := os.Pipe()
			if err == nil {
				err = r.Close()
			}
			return w, err
		}),
		"a connected socket":       a.as(pair(unix.SOCK_STREAM)),
		"a datagram socket":        a.as(pair(unix.SOCK_DGRAM)),
		"a socket of packets":      a.as(listening("unixpacket", "@"+filepath.Base(s.Path("/"))+"-packets")),
		"a socket of the internet": a.as(listening("tcp", "127.0.0.1:0")),
		"a memfd":                  a.as(func() (*os.File, error) { return numbered(unix.MemfdCreate("memfd", unix.MFD_CLOEXEC)) }),
		"an eventfd":               a.as(func() (*os.File, error) { return numbered(unix.Eventfd(0, unix.EFD_CLOEXEC)) }),
		"an epoll":                 a.as(func() (*os.File, error) { return numbered(unix.EpollCreate1(unix.EPOLL_CLOEXEC)) }),
		"a pidfd":                  a.as(func() (*os.File, error) { return numbered(unix.PidfdOpen(os.Getpid(), 0)) }),
	}
}

// standing is what a refusal leaves as it is: the owner and the mode of a file.
func standing(t testing.TB, f *os.File) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st)) //nolint:gosec // G115: a descriptor
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode)
}

// An attacker in the place of the service gives the launcher other descriptors than those of an
// attempt: of another kind, of other accounts, too few, too many, in another order. Each is refused with
// what is wrong with it, nothing is started and no file changes. The control is the same request
// with the descriptors of the attempt, before and after them.
//
// proves R-S2, R-B5
func TestTheSocketTakesNoOtherDescriptors(t *testing.T) {
	t.Parallel()
	a, genuine := atTheSocket(t)
	pid := a.s.launcherPID()
	a.honest("before", next(genuine))
	m := next(genuine)
	o := a.offer(m, nil)
	honest := []*os.File{o.dir, o.control, o.log}
	refused := func(what, want string, files ...*os.File) {
		t.Helper()
		var before []string
		for _, f := range files {
			before = append(before, standing(t, f))
		}
		_, _, err := a.send(o.r, files...)
		var answer *api.Error
		if !errors.As(err, &answer) || answer.Code != api.CodeInvalid || !strings.Contains(answer.Message, want) || answer.Hint == "" && len(files) == 3 {
			t.Errorf("%s: %v, want %q and what to do", what, err, want)
		}
		for i, f := range files {
			if now := standing(t, f); now != before[i] {
				t.Errorf("%s: descriptor %d is now %s, it was %s", what, i, now, before[i])
			}
		}
		a.nothing(what)
	}
	wrong := a.wrongDescriptors()
	for i, name := range []string{"directory", "control socket", "log"} {
		for what, f := range wrong {
			files := []*os.File{o.dir, o.control, o.log}
			files[i] = f
			want := "the " + name + " of the attempt: "
			if i == 0 && (what == "another directory" || what == "the state" || what == "a directory that was removed") {
				want = "it is not the directory whose descriptor was given"
			}
			refused(fmt.Sprintf("%s as the %s", what, name), want, files...)
		}
	}
	refused("another order", "the directory of the attempt: ", o.log, o.control, o.dir)
	refused("one for all", "the control socket of the attempt: ", o.dir, o.dir, o.dir)
	for n := range 3 {
		refused(fmt.Sprintf("%d descriptors", n), fmt.Sprintf("request: %d descriptors, a worker has 3", n), honest[:n]...)
	}
	refused("a fourth", "request: 4 descriptors, a worker has 3", append(honest, wrong["a pipe"])...)
	for _, n := range []int{5, 200} {
		if answer := a.raw(o.r, n); answer.Error == nil || !strings.Contains(answer.Error.Message, "frame: more than 4 descriptors") {
			t.Errorf("%d descriptors: %v", n, answer.Error)
		}
		a.nothing(fmt.Sprintf("%d descriptors", n))
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || len(open) > 40 {
		t.Errorf("the launcher has %d descriptors open, %v", len(open), err)
	}
	a.honest("after", m) // of the manifest that was refused
	if now := a.s.launcherPID(); now != pid {
		t.Errorf("the launcher was started again: %d, then %d", pid, now)
	}
}

// raw sends a request with n descriptors in one message, more than the sender of a service takes.
func (a *takenService) raw(r launch.Request, n int) (answer launch.Answer) {
	t := a.s.t
	t.Helper()
	r.V = launch.Version
	doc, err := canon.Marshal(r)
	must(t, err)
	fds := make([]int, n)
	null, err := os.Open(os.DevNull)
	must(t, err)
	defer null.Close()
	for i := range fds {
		fds[i] = int(null.Fd()) //nolint:gosec // G115: a descriptor
	}
	conn := a.dial()
	defer conn.Close()
	_, _, err = conn.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, uint32(len(doc))), unix.UnixRights(fds...), nil) //nolint:gosec // G115: short
	must(t, err)
	_, _ = conn.Write(doc) // it is refused before this
	_, err = unixframe.Read(conn, &answer, time.Minute)
	must(t, err)
	return answer
}

// swapped is a path of an attempt, and what an attacker puts there.
type swapped struct {
	what, path, by string
	see            string // what a worker has of it
}

// swaps prepares the attacks on the paths of an attempt: links to what the service may not read, links to what was there,
// and directories of other accounts.
func (a *takenService) swaps(m api.DispatchID, o offer) (list []swapped) {
	s, t := a.s, a.s.t
	t.Helper()
	state := s.Path("/var/lib/bailiwick")
	must(t, os.MkdirAll(filepath.Join(state, "checkouts"), 0o700))
	must(t, os.Chown(filepath.Join(state, "checkouts"), machine.Service, machine.Service))
	named := func(path string) string { return strings.TrimPrefix(path, strings.TrimSuffix(s.Path("/"), "/")) } // on the machine
	for n, path := range []string{o.dir.Name(), filepath.Dir(o.dir.Name()), filepath.Join(state, "checkouts"), filepath.Join(state, "private")} {
		see := path
		if n == 1 {
			see = o.dir.Name()
		}
		name := fmt.Sprintf("%s/swap-%s-%d", filepath.Dir(path), m, n)
		for i, to := range []string{"/var/lib/bailiwick-launch/identity", "/var/lib/bailiwick-launch", "/home/alice", ""} {
			by, what := fmt.Sprintf("%s-%d", name, i), "a link to "+to
			if to == "" {
				to, what = named(by), "a link to what was there"
			}
			must(t, os.Symlink(to, by))
			must(t, os.Lchown(by, machine.Service, machine.Service))
			list = append(list, swapped{what, path, by, see})
		}
		must(t, os.Mkdir(name+"-bob", 0o755))
		must(t, os.Chown(name+"-bob", machine.Bob, machine.Bob))
		list = append(list, swapped{"a directory of another account", path, name + "-bob", see})
	}
	return list
}

// put replaces a path by what was made for it, and returns what puts that back.
func (a *takenService) put(by swapped) (back func()) {
	t := a.s.t
	t.Helper()
	exchange := func() { must(t, unix.Renameat2(unix.AT_FDCWD, by.path, unix.AT_FDCWD, by.by, unix.RENAME_EXCHANGE)) }
	exchange()
	return exchange
}

// refusedPath fails the test unless an answer refuses a path of the machine, with what is wrong and what to do.
func (a *takenService) refusedPath(what string, err error) {
	a.s.t.Helper()
	var answer *api.Error
	if !errors.As(err, &answer) || answer.Code != api.CodeInvalid || answer.Hint == "" || !strings.HasPrefix(answer.Message, "show /var/lib/bailiwick/") {
		a.s.t.Errorf("%s: %v, want a refusal that names the path and says what to do", what, err)
	}
}

// Whatever path of an attempt the service replaces by a symbolic link, or by a directory of another account, the launcher
// refuses the attempt, starts nothing and changes nothing there. The control is the same request with the path as it was.
//
// proves R-S2
func TestTheSocketFollowsNoLink(t *testing.T) {
	t.Parallel()
	a, genuine := atTheSocket(t)
	m := next(genuine)
	o := a.offer(m, nil)
	before := a.victims()
	for _, swap := range a.swaps(m.ID, o) {
		what := fmt.Sprintf("%s at %s", swap.what, swap.path)
		back := a.put(swap)
		_, _, err := a.send(o.r, o.dir, o.control, o.log)
		back()
		a.refusedPath(what, err)
		a.nothing(what)
	}
	if now := a.victims(); now != before {
		t.Errorf("what the links lead to changed from\n%s to\n%s", before, now)
	}
	a.honest("as it was", m)
}

// victims describes what the links of an attacker lead to.
func (a *takenService) victims() string {
	return a.s.ok(machine.Root, "stat -c '%n %u:%g %a %s %y' /var/lib/bailiwick-launch/identity /var/lib/bailiwick-launch /home/alice")
}

// The service exchanges a path of an attempt all the time while the launcher starts it. An attempt is either
// refused, or its worker has what belongs there: never what the other name leads to. The controls: some are
// refused and some started in each race, so that both were met, and another process sees the exchange.
//
// proves R-S2
func TestNoRaceOnAPathLeadsElsewhere(t *testing.T) {
	t.Parallel()
	a, genuine := atTheSocket(t)
	before, pid := a.victims(), a.s.launcherPID()
	kinds := len(a.swaps("kinds", a.offer(next(genuine), nil)))
	const least, most = 3, 100 // rounds of each kind with each end, and rounds of a kind
	for kind := range kinds {
		started, refused, what := 0, 0, ""
		for round := 0; (started < least || refused < least) && round < most; round++ {
			m := next(genuine)
			o := a.offer(m, nil)
			swap := a.swaps(m.ID, o)[kind]
			what = fmt.Sprintf("%s at %s", swap.what, swap.path)
			want, err := os.Stat(swap.see)
			must(t, err)
			stop := a.exchange(swap)
			answer, _, err := a.send(o.r, o.dir, o.control, o.log)
			stop()
			if err != nil {
				refused++
				a.refusedPath(what, err)
				continue
			}
			started++
			a.sees(what, answer.PID, strings.TrimPrefix(swap.see, strings.TrimSuffix(a.s.Path("/"), "/")), want)
			a.end(m)
		}
		if started < least || refused < least {
			t.Errorf("control: %s: %d were started, %d refused", what, started, refused)
		}
	}
	a.nothing("the races")
	if now := a.victims(); now != before {
		t.Errorf("what the links lead to changed from\n%s to\n%s", before, now)
	}
	if now := a.s.launcherPID(); now != pid {
		t.Errorf("the launcher was started again: %d, then %d", pid, now)
	}
	a.honest("after the races", next(genuine))
}

// exchange has the service exchange a path and what was made for it, until stop. Then each is where it was.
func (a *takenService) exchange(of swapped) (stop func()) {
	t := a.s.t
	t.Helper()
	var ended atomic.Bool
	first, done := make(chan struct{}), make(chan error, 1)
	go asAccount(machine.Service, func() {
		for n := 0; ; n++ {
			if err := unix.Renameat2(unix.AT_FDCWD, of.path, unix.AT_FDCWD, of.by, unix.RENAME_EXCHANGE); err != nil {
				done <- err
				return
			}
			if n == 1 {
				close(first)
			}
			if n%2 == 1 && ended.Load() {
				done <- nil
				return
			}
		}
	})
	select {
	case <-first:
	case err := <-done:
		t.Fatalf("%s at %s: %v", of.what, of.path, err)
	}
	return func() {
		ended.Store(true)
		must(t, <-done)
	}
}

// sees fails the test unless a worker has one file at a path.
func (a *takenService) sees(what string, pid int, path string, want os.FileInfo) {
	t := a.s.t
	t.Helper()
	for late := range polling(time.Minute) { // it mounts what it sees before it becomes the worker
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && filepath.Base(exe) == "bailiwick-worker" {
			break
		}
		if late {
			t.Fatalf("%s: the worker is %q, %v", what, exe, err)
		}
	}
	there, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, path))
	if err != nil || !os.SameFile(there, want) {
		t.Errorf("%s: the worker has another file there: %+v, %v", what, there, err)
	}
}
