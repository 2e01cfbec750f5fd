package daemoncli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launch"
	"github.com/bailiwick-dev/bailiwick/internal/worker/launchsetting"
)

// asProgram makes the test binary bailiwickd.
const asProgram = "DAEMONCLI_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		place := installation.Find(os.Getenv, os.Getuid())
		status := Run(ctx, Config{
			Output: console.Output{Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(), Now: time.Now}, Args: os.Args[1:], Stdin: os.Stdin,
			Dirs: place.Dirs, UIDs: place.UIDs, UID: os.Getuid(), Supervisor: testSupervisor(), Self: os.Args[0], Version: "test",
			Login: func(uid uint32) (string, error) {
				u, err := user.LookupId(strconv.Itoa(int(uid)))
				if err != nil {
					return "", err
				}
				return u.Username, nil
			},
		})
		stop()
		os.Exit(status)
	}
	if os.Getenv(asManager) != "" {
		passSocket()
	}
	os.Exit(m.Run())
}

// installed returns a machine as package and setup leave it, and the path of bailiwickd.
func installed(t *testing.T) (m *machine.Machine, program string) {
	t.Helper()
	m = machine.New(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join("/var/lib", "bailiwickd")               // every account may execute it there
	if err := os.WriteFile(m.Path(program), b, 0o755); err != nil { //nolint:gosec // G306: a program
		t.Fatal(err)
	}
	m.MkdirAll("/etc/bailiwick", 0, 0, 0o755)
	m.MkdirAll("/var/lib/bailiwick", machine.Service, machine.Service, 0o700)
	m.MkdirAll("/var/lib/bailiwick-catalog", 0, machine.Deploy, 0o2775)
	m.MkdirAll("/run/bailiwick", machine.Service, machine.Service, 0o755)
	m.MkdirAll("/run/bailiwick-launch", 0, 0, 0o755)
	key, err := seal.CreateServiceKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, err := seal.RootOf(seal.KeyOf(key, "alice")).Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"trust.json", "operators.json"} {
		m.Write("/etc/bailiwick/"+name, string(root), 0, 0, 0o644)
	}
	listenLauncher(t, m)
	return m, program
}

// listenLauncher runs the launcher where the service looks for it.
func listenLauncher(t *testing.T, m *machine.Machine) {
	t.Helper()
	dirs := api.Dirs{Mode: api.ModeSystem, Trust: m.Path("/etc/bailiwick"), Data: m.Path("/var/lib/bailiwick-catalog"), State: m.Path("/var/lib/bailiwick"), Runtime: m.Path("/run/bailiwick"), Config: "/nonexistent", Home: "/"}
	m.MkdirAll("/var/lib/bailiwick-launch", 0, 0, 0o700)
	if err := seal.EnsureIdentity(filepath.Join(dirs.LauncherState(), launch.Identity), dirs.SecretsRecipient()); err != nil {
		t.Fatal(err)
	}
	groups, err := account.OwnGroups()
	if err != nil {
		t.Fatal(err)
	}
	launcher, err := launch.New(launch.Config{Dirs: dirs, Worker: "/nonexistent/bailiwick-worker", Fetcher: "/nonexistent/bailiwick-fetch", UID: machine.Service, Now: time.Now, Logger: slog.New(slog.DiscardHandler), System: &launch.System{Settings: launchsetting.Default(), Groups: groups}})
	if err != nil {
		t.Fatal(err)
	}
	path := m.Path("/run/bailiwick-launch/launch.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	socket := l.(*net.UnixListener) //nolint:forcetypeassert // of a unix socket
	socket.SetUnlinkOnClose(false)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- launch.NewServer(launcher, time.Hour).Serve(ctx, socket) }()
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		if err := <-served; err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	for _, err := range []error{os.Chown(path, 0, machine.Service), os.Chmod(path, 0o660)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The service of a machine starts under its account with the state, trust and socket of
// the machine, and every account reaches the socket. Nothing else may start it.
func TestTheServiceOfAMachineStarts(t *testing.T) {
	m, program := installed(t)
	ctx, stop := context.WithCancel(t.Context())
	cmd := m.Command(ctx, machine.Service, program, "serve", "--system")
	cmd.Env = append(cmd.Env, asProgram+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "listening on /run/bailiwick/api.sock\n" {
		stop()
		_ = cmd.Wait()
		t.Fatalf("%q\n%s", line, errs.String())
	}
	if st, err := os.Stat(m.Path("/run/bailiwick/api.sock")); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("socket: %v, %v", st, err)
	}
	// A second one, and one of a person, each say what to do instead.
	for _, c := range []struct {
		uid  int
		args []string
		want string
	}{
		{machine.Service, []string{"serve", "--system"}, "in use by process"},
		{machine.Alice, []string{"serve"}, "sudo systemctl start bailiwick.service"},
		{machine.Alice, []string{"start"}, "BAILIWICK_MODE=same-user"},
		{machine.Alice, []string{"serve", "--system"}, "/var/lib/bailiwick"},
		{machine.Root, []string{"serve", "--system"}, "runs as root"},
		{machine.Service, []string{"serve", "--system", "--idle", "1s"}, "leave out"},
	} {
		if said, err := asDaemon(m, c.uid, append([]string{program}, c.args...)...); err == nil || !strings.Contains(said, c.want) {
			t.Errorf("uid %d %s: %v\n%s", c.uid, c.args, err, said)
		}
	}
	stop()
	if err := cmd.Wait(); err != nil && ctx.Err() == nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
}

func asDaemon(m *machine.Machine, uid int, argv ...string) (string, error) {
	cmd := m.Command(context.Background(), uid, append([]string{"timeout", "20"}, argv...)...)
	cmd.Env = append(cmd.Env, asProgram+"=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What would give another account a say in what the service trusts keeps it from
// starting, and the message names the thing. The control is the test above.
//
// proves R-B9
func TestAMachineThatOthersCouldChangeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *machine.Machine) error
		want  string
	}{
		"no trust root": {func(m *machine.Machine) error { return os.Remove(m.Path("/etc/bailiwick/trust.json")) }, "sudo bailiwick-deploy setup"},
		"no operators":  {func(m *machine.Machine) error { return os.Remove(m.Path("/etc/bailiwick/operators.json")) }, "sudo bailiwick-deploy setup"},
		"a trust root of its": {func(m *machine.Machine) error {
			return os.Chown(m.Path("/etc/bailiwick/trust.json"), machine.Service, 0)
		}, "/etc/bailiwick/trust.json: owned by another account than root"},
		"operators of others":  {func(m *machine.Machine) error { return os.Chmod(m.Path("/etc/bailiwick/operators.json"), 0o666) }, "chmod go-w /etc/bailiwick/operators.json"},
		"a directory of its":   {func(m *machine.Machine) error { return os.Chown(m.Path("/etc/bailiwick"), machine.Service, 0) }, "chown root /etc/bailiwick"},
		"a writable directory": {func(m *machine.Machine) error { return os.Chmod(m.Path("/etc"), 0o775) }, "chmod go-w /etc"},
		"settings of its": {func(m *machine.Machine) error {
			m.Write("/etc/bailiwick/service.yaml", "version: 1\n", machine.Service, 0, 0o644)
			return nil
		}, "configuration: /etc/bailiwick/service.yaml: owned by another account"},
		"a catalog of its": {func(m *machine.Machine) error {
			return os.Chown(m.Path("/var/lib/bailiwick-catalog"), machine.Service, 0)
		}, "chown root:bailiwick-deploy"},
		"a catalog of its group's": {func(m *machine.Machine) error {
			m.MkdirAll("/var/lib/bailiwick-catalog", 0, machine.Service, 0o2775)
			return nil
		}, "group that writes it"},
		"a catalog of everybody's": {func(m *machine.Machine) error { return os.Chmod(m.Path("/var/lib/bailiwick-catalog"), 0o777) }, "chmod o-w"},
		"a readable state":         {func(m *machine.Machine) error { return os.Chmod(m.Path("/var/lib/bailiwick"), 0o755) }, "chmod 700 /var/lib/bailiwick"},
		"a state of root's":        {func(m *machine.Machine) error { return os.Chown(m.Path("/var/lib/bailiwick"), 0, 0) }, "owned by another account"},
		"no launcher":              {func(m *machine.Machine) error { return os.Remove(m.Path("/run/bailiwick-launch/launch.sock")) }, "bailiwick-launch.socket"},
		"a launcher of its": {func(m *machine.Machine) error {
			return os.Chown(m.Path("/run/bailiwick-launch/launch.sock"), machine.Service, 0)
		}, "not root's alone"},
		"a launcher for others": {func(m *machine.Machine) error { return os.Chown(m.Path("/run/bailiwick-launch/launch.sock"), 0, 0) }, "group of the service's account"},
	} {
		t.Run(name, func(t *testing.T) {
			m, program := installed(t)
			if err := c.spoil(m); err != nil {
				t.Fatal(err)
			}
			if said, err := asDaemon(m, machine.Service, program, "serve", "--system"); err == nil || !strings.Contains(said, c.want) {
				t.Errorf("%v\n%s", err, said)
			}
		})
	}
}

// A service that could gain privileges does not start.
func TestAServiceWithPrivilegesIsRefused(t *testing.T) {
	m, program := installed(t)
	id := strconv.Itoa(machine.Service)
	for want, flags := range map[string][]string{
		"has capabilities": {"--inh-caps=+chown", "--ambient-caps=+chown", "--no-new-privs"},
		"setuid program":   {"--inh-caps=-all", "--bounding-set=-all"},
	} {
		argv := append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups"}, flags...)
		if said, err := asDaemon(m, machine.Root, append(argv, program, "serve", "--system")...); err == nil || !strings.Contains(said, want) {
			t.Errorf("%s: %v\n%s", flags, err, said)
		}
	}
}

// Doctor says to each account what the mode rests on, and names what is wrong with its fix.
func TestDoctorKnowsTheMachine(t *testing.T) {
	m, program := installed(t)
	lines := func(uid int) map[string]checkLine {
		t.Helper()
		out, _ := asDaemon(m, uid, program, "doctor", "-o", "json") // the other programs are missing
		var r doctorReport
		if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &r); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		all := map[string]checkLine{}
		for _, c := range r.Checks {
			all[c.Name] = c
		}
		return all
	}
	sound := []string{"accounts", "trust and settings", "catalog directory", "state directory", "launcher", "configuration", "mode"}
	for _, uid := range []int{machine.Root, machine.Alice, machine.Bob} {
		all := lines(uid)
		for _, name := range sound {
			if c := all[name]; c.State != "ok" {
				t.Errorf("uid %d: %s: %+v", uid, name, c)
			}
		}
		if c := all["service"]; c.State != "missing" || !strings.Contains(c.Fix, "sudo systemctl start bailiwick.service") {
			t.Errorf("uid %d: %+v", uid, c)
		}
		if c := all["service layers"]; c.State != "note" || !strings.Contains(c.Found, "not tried") || !strings.Contains(c.Fix, "sudo systemctl start bailiwick.service") {
			t.Errorf("uid %d: %+v", uid, c)
		}
		writes := strings.Contains(all["accounts"].Found, "your account writes the catalog")
		if writes != (uid == machine.Alice) {
			t.Errorf("uid %d: %s", uid, all["accounts"].Found)
		}
	}
	m.Write("/etc/bailiwick/service.yaml", "version: 1\nnonsense: 1\n", 0, 0, 0o644)
	for _, err := range []error{
		os.Chmod(m.Path("/etc/bailiwick/trust.json"), 0o666), os.Chmod(m.Path("/var/lib/bailiwick"), 0o755), os.Chmod(m.Path("/var/lib/bailiwick-catalog"), 0o777),
		os.Chmod(m.Path("/run/bailiwick-launch/launch.sock"), 0o666), replaceGroup(m, "bailiwick-deploy:x:64303:alice", "bailiwick-deploy:x:64303:alice,bailiwick"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	all := lines(machine.Bob)
	for name, fix := range map[string]string{
		"accounts": "gpasswd -d bailiwick", "trust and settings": "", "catalog directory": "chmod o-w", "state directory": "chmod 700", "launcher": "bailiwick-launch.socket", "configuration": "does not start",
	} {
		if c := all[name]; c.State != "invalid" || !strings.Contains(c.Fix, fix) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func replaceGroup(m *machine.Machine, old, with string) error {
	b, err := os.ReadFile(m.Path("/etc/group"))
	if err != nil {
		return err
	}
	return os.WriteFile(m.Path("/etc/group"), []byte(strings.Replace(string(b), old, with, 1)), 0o644) //nolint:gosec // G306: of a machine
}
