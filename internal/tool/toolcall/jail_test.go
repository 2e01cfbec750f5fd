package toolcall

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// greeter answers a line on each connection.
func greeter(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			_, _ = fmt.Fprintf(c, "%s of %s\n", strings.TrimSpace(line), network)
			_ = c.Close()
		}
	}()
	return l
}

// proves R-G5: a port leads to the one address that a human signed, and no other does
func TestAPortLeadsToTheSignedAddress(t *testing.T) {
	w := newWorld(t, nil)
	tcp, other := greeter(t, "tcp", "127.0.0.1:0"), greeter(t, "tcp", "127.0.0.1:0")
	path := filepath.Join(t.TempDir(), "s")
	greeter(t, "unix", path)
	w.hostile("honest").Connect = map[int]string{5432: tcp.Addr().String(), 80: "unix:" + path, 6000: "127.0.0.1:1"}
	if got := w.text("dial 127.0.0.1:5432"); got != "hello of tcp\n<nil>" {
		t.Errorf("tcp: %q\n%s", got, w.log)
	}
	if got := w.text("dial 127.0.0.1:80"); got != "hello of unix\n<nil>" {
		t.Errorf("unix: %q\n%s", got, w.log)
	}
	for _, address := range []string{other.Addr().String(), tcp.Addr().String()} { // of the machine
		if got := w.text("dial " + address); strings.Contains(got, "hello") {
			t.Errorf("%s: %q", address, got)
		}
	}
	if got := w.text("dial 127.0.0.1:6000"); strings.Contains(got, "hello") {
		t.Errorf("nobody listens: %q", got)
	}
	eventually(t, "the log has the failed connection", func() bool { return strings.Contains(w.log.String(), "connect 6000: ") })
}

// proves R-G5: only hosts of the egress list are reached, and a refusal is in the log
func TestAServerReachesTheHostsOfItsListOnly(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("honest").Egress = []string{"example.com:443"}
	if got := w.text("get http://169.254.169.254/latest"); !strings.HasPrefix(got, "403 ") {
		t.Error(got)
	}
	eventually(t, "the log has the refusal", func() bool {
		return strings.Contains(w.log.String(), "169.254.169.254") && strings.Contains(w.log.String(), "server=warehouse")
	})
	if env := w.text("env"); !strings.Contains(env, "HTTPS_PROXY=http://127.0.0.1:19514") { // control
		t.Error(env)
	}
	w.hostile("honest")
	if env := w.text("env"); strings.Contains(env, "PROXY") {
		t.Errorf("without a list: %s", env)
	}
}

// hosts lists the processes of bailiwick-toolhost that this test started, with their
// children.
func hosts(t *testing.T) (list []int) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		stat, _ := os.ReadFile("/proc/" + d.Name() + "/stat")
		_, rest, ok := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); err == nil && ok && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			if line, _ := os.ReadFile("/proc/" + d.Name() + "/cmdline"); strings.HasSuffix(string(line), "/bailiwick-toolhost\x00") {
				list = append(list, pid)
			}
		}
	}
	return list
}

// proves R-G5: nothing of a server outlives its host, and the next start removes its groups
func TestNothingOfAKilledServerIsLeft(t *testing.T) {
	w := newWorld(t, nil)
	w.hostile("stays")
	w.text("x")
	all := hosts(t)
	if len(all) != 1 {
		t.Fatalf("processes: %v", all)
	}
	inside, err := exec.Command("pgrep", "-P", strconv.Itoa(all[0])).Output()
	if err != nil {
		t.Fatalf("control: the host has no jail: %v", err)
	}
	if err := syscall.Kill(all[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its jail is gone", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(inside)))
		return err != nil
	})
	eventually(t, "the session has ended", func() bool { return w.pool.Sessions() == 0 })
	if left := jail.Sweep(); left != 0 {
		t.Errorf("%d control groups are left", left)
	}
	if got := w.text("again"); got != "again" {
		t.Error(got)
	}
}

// TestAServiceThatIsKilledTakesItsServersAlong kills a process that holds a pool.
func TestAServiceThatIsKilledTakesItsServersAlong(t *testing.T) {
	if os.Getenv("BAILIWICK_TEST_POOL") != "" {
		w := newWorld(t, nil)
		w.hostile("stays")
		fmt.Println("STARTED", w.text("x"), hosts(t)[0])
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAServiceThatIsKilledTakesItsServersAlong$", "-test.timeout=60s")
	dir, err := os.MkdirTemp("", "pool-") //nolint:usetesting // its path is short, as those of sockets must be; a killed process removes nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd.Env = append(os.Environ(), "BAILIWICK_TEST_POOL=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := ""
	lines := bufio.NewScanner(out)
	for pid == "" && lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "STARTED x "); ok {
			pid = rest
		}
	}
	if _, err := os.Stat("/proc/" + pid + "/cwd"); err != nil || pid == "" {
		t.Errorf("control: no server runs: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "the host of the server has exited", func() bool {
		_, err := os.Stat("/proc/" + pid + "/cwd")
		return err != nil
	})
	// The next start of a service does this. Without it the groups stay until then.
	eventually(t, "a sweep removes its control groups", func() bool { return jail.Sweep() == 0 })
}
