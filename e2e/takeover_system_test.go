package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// team is a machine with an installation in mode system, as package and setup leave it:
// alice has deploy key and operator key, bob has neither.
type team struct {
	*machine.Machine
	t testing.TB

	net               *internet // where its programs run; nil: the network of the test
	uidsFrom          int       // the first uid of its workers
	socket            *os.File  // of the launcher, which systemd keeps
	api               *os.File  // of the service, if systemd keeps it; nil: the service makes it
	service, launcher *program
}

// uidBlocks is how many uid blocks a machine has.
const uidBlocks = 32

// newTeam starts the service of a machine, after the changes of its caller.
func newTeam(t *testing.T, change ...func(*team)) *team {
	t.Helper()
	return newTeamOn(t, nil, change...)
}

// newTeamOn is newTeam with programs on an internet, whose hosts they find by name.
func newTeamOn(t *testing.T, n *internet, change ...func(*team)) *team {
	t.Helper()
	s := &team{Machine: machine.New(t), t: t, net: n}
	if n != nil {
		s.knows(n)
	}
	s.MkdirAll("/etc/bailiwick", 0, 0, 0o755)
	s.MkdirAll("/var/lib/bailiwick", machine.Service, machine.Service, 0o700)
	s.MkdirAll("/var/lib/bailiwick-catalog", 0, machine.Deploy, 0o2775)
	s.MkdirAll("/var/lib/bailiwick-launch", 0, 0, 0o700)
	s.MkdirAll("/run/bailiwick", machine.Service, machine.Service, 0o755)
	s.MkdirAll("/run/bailiwick-launch", 0, 0, 0o755)
	s.uids()
	for _, person := range []struct {
		uid  int
		name string
	}{{machine.Alice, "alice"}, {machine.Bob, "bob"}} {
		s.ok(person.uid, "cd && BAILIWICK_MODE=same-user bailiwick init --insecure-unencrypted project && BAILIWICK_MODE=same-user bailiwick catalog apply -f project/bailiwick.yaml")
	}
	for _, name := range []string{"trust.json", "operators.json"} {
		b, err := os.ReadFile(s.Path("/home/alice/.local/share/bailiwick/" + name))
		must(t, err)
		s.Write("/etc/bailiwick/"+name, string(b), 0, 0, 0o644)
	}
	s.ok(machine.Alice, "cp -r ~/.local/share/bailiwick/catalog /var/lib/bailiwick-catalog/")
	for _, f := range change {
		f(s)
	}
	s.listen()
	s.startLauncher()
	s.startService()
	return s
}

// knows gives the programs of the machine the names of an internet and its authority.
func (s *team) knows(n *internet) {
	s.MkdirAll("/etc/ssl/certs", 0, 0, 0o755)
	for at, name := range map[string]string{"/etc/hosts": "hosts", "/etc/" + authorities: authorities} {
		s.Write(at, n.read(name), 0, 0, 0o644)
	}
}

// program is a program of the machine that its units keep running.
type program struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs lockedBuffer
	stop context.CancelFunc
}

// start starts a program with the umask of units. It ends with the test, and tells what it
// logged if that failed.
func (s *team) start(uid int, script string, files []*os.File, argv ...string) *program {
	s.t.Helper()
	ctx, stop := context.WithCancel(context.Background()) //nolint:usetesting // it ends after what uses it
	p := &program{stop: stop}
	p.cmd = s.Command(ctx, uid, append([]string{"/bin/sh", "-c", "umask 077; " + script, "sh"}, argv...)...)
	p.cmd.ExtraFiles, p.cmd.Stderr = files, &p.errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Cancel = func() error { return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) }
	out, err := p.cmd.StdoutPipe()
	must(s.t, err)
	p.out = bufio.NewReader(out)
	if s.net != nil {
		must(s.t, s.net.start(p.cmd))
	} else {
		must(s.t, p.cmd.Start())
	}
	s.t.Cleanup(func() {
		p.end()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", filepath.Base(argv[0]), p.errs.String())
		}
	})
	return p
}

// end stops the program as its unit does, and returns when it has exited.
func (p *program) end() {
	p.stop()
	_ = p.cmd.Wait() // more than once for a program that was killed
}

// kill kills the program alone, and returns when it has exited.
func (p *program) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.end()
}

// startService starts the service, and returns when it listens.
func (s *team) startService() {
	s.t.Helper()
	script, files := `exec "$@"`, []*os.File(nil)
	if s.api != nil {
		script, files = `export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api; exec "$@"`, []*os.File{s.api}
	}
	s.service = s.start(machine.Service, script, files, filepath.Join(bin, "bailiwickd"), "serve", "--system")
	if line, _ := s.service.out.ReadString('\n'); line != "listening on /run/bailiwick/api.sock\n" {
		s.service.end()
		s.t.Fatalf("%q\n%s", line, s.service.errs.String())
	}
}

// keepSocket makes the socket of the API, which stays while no service runs, as its unit does.
func (s *team) keepSocket() {
	path, err := "/run/bailiwick/api.sock", error(nil)
	s.api, err = listenAt(path, [2]string{s.Path("/run"), "/run"})
	must(s.t, errors.Join(err, os.Chown(s.Path(path), machine.Service, machine.Service), os.Chmod(s.Path(path), 0o666)))
	s.t.Cleanup(func() { _ = s.api.Close() })
}

// listen makes the socket of the launcher, as its unit does.
func (s *team) listen() {
	path := s.Path("/run/bailiwick-launch/launch.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(s.t, err)
	l.SetUnlinkOnClose(false)
	s.socket, err = l.File()
	must(s.t, errors.Join(err, l.Close()))
	s.t.Cleanup(func() { _ = s.socket.Close() })
	must(s.t, errors.Join(os.Chown(path, 0, machine.Service), os.Chmod(path, 0o660)))
}

// startLauncher starts the launcher on its socket, again each time that it has ended because it
// had nothing to do. Credentials of its unit are files in /run/credentials.
func (s *team) startLauncher() {
	s.t.Helper()
	const unit = `[ ! -d /run/credentials ] || export CREDENTIALS_DIRECTORY=/run/credentials
while /bin/sh -c 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"' sh "$@"; do :; done`
	s.launcher = s.start(machine.Root, unit, []*os.File{s.socket}, filepath.Join(bin, "bailiwick-launch"))
}

// machines counts the machines of this process: each has a range of uids of its own.
var machines atomic.Int32

// uids gives the machine a range of uids, and ends what is left in it after the test.
func (s *team) uids() {
	const most = 500 // machines of a process
	s.uidsFrom = 1<<28 + (os.Getpid()%2048*most+int(machines.Add(1))%most)*uidBlocks*account.Size
	s.Write("/etc/bailiwick/launch.yaml", fmt.Sprintf("version: 1\nuids: {first: %d, blocks: %d}\n", s.uidsFrom, uidBlocks), 0, 0, 0o644)
	s.t.Cleanup(func() {
		groups, err := account.OpenGroups(account.Place)
		must(s.t, err)
		for n := range uidBlocks {
			g, err := groups.Open(fmt.Sprintf("block-%d", s.uidsFrom+n*account.Size))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = errors.Join(g.Kill(), g.Remove())
			}
			if err != nil {
				s.t.Error(err)
			}
		}
		_ = groups.Remove() // it stays while another machine has an attempt
	})
}

// sh executes a script under an account, with our programs in its PATH.
func (s *team) sh(uid int, script string) (string, error) {
	return s.Run(uid, "timeout", "60", "/bin/sh", "-c", "PATH="+bin+":$PATH; export NO_COLOR=1; "+script)
}

func (s *team) ok(uid int, script string) string {
	s.t.Helper()
	out, err := s.sh(uid, script)
	if err != nil {
		s.t.Fatalf("uid %d: %s: %v\n%s", uid, script, err, out)
	}
	return out
}

// In mode system each account is taken over in turn: whatever code runs in its place has
// that account and no capability. It reaches no trust, no state, no identity of secrets
// and no launcher but by its own right. The control of each attack is root, or the account
// whose right it is.
//
// takeover system, page: no define, widen, read a secret, rewrite the log, forge evidence
// takeover system, MCP program; a person's account: no read a secret, read work, rewrite the log, forge evidence
// takeover system, root: yes define, widen, replay, start, approve, read a secret, read work
// takeover system, database; service account: yes read work
//
// proves R-B9, R-S2, R-P3
func TestNoAccountOfAMachineReachesAnothers(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	connect := func(path string) string {
		return `perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) or die; connect(S, sockaddr_un("` + path + `")) or die "$!\n"'`
	}
	accounts := map[string]int{"a person with keys": machine.Alice, "a person without": machine.Bob, "the page": machine.Page, "the service": machine.Service}
	for _, a := range []struct {
		what, script string
		may          string // the account that may do it, as root may
	}{
		{"write the trust root", "echo >> /etc/bailiwick/trust.json", ""},
		{"write the operators", "echo >> /etc/bailiwick/operators.json", ""},
		{"add a file to the trust", "touch /etc/bailiwick/launch.yaml", ""},
		{"replace the trust", "mv /etc/bailiwick /etc/b && mv /etc/b /etc/bailiwick", ""},
		{"read the identity of the secrets", "cat /var/lib/bailiwick-launch/identity", ""},
		{"list the marks of the launcher", "ls /var/lib/bailiwick-launch/", ""},
		{"connect to the launcher", connect("/run/bailiwick-launch/launch.sock"), "the service"},
		{"list the state", "ls /var/lib/bailiwick/", "the service"},
		{"read the log and the key of the service", "tar c -C /var/lib bailiwick > /dev/null", "the service"},
		{"write the state", "touch /var/lib/bailiwick/planted && rm /var/lib/bailiwick/planted", "the service"},
		{"replace the socket of the API", "mv /run/bailiwick/api.sock /run/bailiwick/a && mv /run/bailiwick/a /run/bailiwick/api.sock", "the service"},
		{"write the catalog", "touch /var/lib/bailiwick-catalog/planted && rm -f /var/lib/bailiwick-catalog/planted", "a person with keys"},
		{"read the keys of a person", "cat /home/alice/.config/bailiwick/*.key", "a person with keys"},
		{"replace the program of a person", "touch /home/alice/bailiwick && rm /home/alice/bailiwick", "a person with keys"},
	} {
		for name, uid := range accounts {
			out, err := s.sh(uid, a.script)
			if (err == nil) != (a.may == name) {
				t.Errorf("%s: %s: %v %s", name, a.what, err, out)
			}
		}
		if out, err := s.sh(machine.Root, a.script); err != nil {
			t.Errorf("control: root: %s: %v %s", a.what, err, out)
		}
	}
}

// An AI with a person's shell, without the person's keys: it writes files of the catalog,
// and what the service does with them is nothing.
//
// takeover system, MCP program; a person's account: no define, widen
//
// proves R-B5, R-P3
func TestAPersonsAccountDefinesNothingWithoutAKey(t *testing.T) {
	t.Parallel()
	s := newTeam(t)
	if out := s.ok(machine.Alice, "bailiwick status"); !strings.Contains(out, "system") {
		t.Errorf("status does not say the mode: %s", out)
	}
	t.Log("its requests are decided by policy: bob has no grant")
	if out, err := s.sh(machine.Bob, "bailiwick dispatch run greet --set name=Bob"); err == nil || !strings.Contains(out, `no grant lets local:bob dispatch subagent "greet"`) {
		t.Errorf("%v %s", err, out)
	}
	if out, err := s.sh(machine.Bob, "bailiwick can local:bob dispatch greet"); err == nil {
		t.Errorf("%s", out)
	}
	t.Log("consent needs an operator's key: bob's own counts for nothing, alice's does")
	if out, err := s.sh(machine.Bob, "bailiwick ceiling set local:bob reversible"); err == nil {
		t.Errorf("%s", out)
	}
	s.ok(machine.Alice, "bailiwick ceiling set local:alice reversible")
	s.ok(machine.Alice, "bailiwick can local:alice dispatch greet")

	t.Log("a catalog that other keys signed: nothing is dispatched")
	s.MkdirAll("/home/alice/planted", machine.Alice, machine.Alice, 0o755)
	s.ok(machine.Root, "cp -r /home/bob/.local/share/bailiwick/catalog/. /home/alice/planted/ && chown -R alice /home/alice/planted")
	s.ok(machine.Alice, "mv /var/lib/bailiwick-catalog/catalog ~/genuine && cp -r ~/planted /var/lib/bailiwick-catalog/catalog")
	out, err := s.sh(machine.Alice, "bailiwick can local:alice dispatch greet; bailiwick dispatch run greet --set name=Ann")
	if err == nil || !strings.Contains(out, "the catalog is refused") {
		t.Errorf("%v %s", err, out)
	}
	s.ok(machine.Alice, "rm -rf /var/lib/bailiwick-catalog/catalog && mv ~/genuine /var/lib/bailiwick-catalog/catalog")
	if out, err := s.sh(machine.Alice, "bailiwick can local:alice dispatch greet"); err != nil {
		t.Errorf("control: the catalog that alice signed: %v %s", err, out)
	}
}
