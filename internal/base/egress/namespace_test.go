//go:build linux

package egress

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const namespace = "EGRESS_TEST_NAMESPACE"

// Two public addresses of the tests' network.
var (
	here  = netip.MustParseAddr("93.184.215.14")
	there = netip.MustParseAddr("151.101.1.6")
)

// inside reports whether this process is in a network namespace with those
// addresses. Otherwise it runs the test in such a process and returns false.
func inside(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(namespace) != "" {
		lo(t)
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
	cmd.Env = append(append(os.Environ(), namespace+"=1"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("inside: %v\n%s", err, out)
	}
	return false
}

// lo brings up loopback with the public addresses.
func lo(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd) //nolint:errcheck // never connected
	up, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	up.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		t.Fatal(err)
	}
	for i, a := range []netip.Addr{here, there} {
		alias, err := unix.NewIfreq("lo:" + strconv.Itoa(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if err := alias.SetInet4Addr(a.AsSlice()); err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, alias); err != nil {
			t.Fatal(err)
		}
	}
}

// greeter listens on addresses and sends each client the address.
type greeter struct {
	port uint16
	met  chan string // address of each connection
}

// greet listens on the same port of every address.
func greet(t *testing.T, addrs ...netip.Addr) *greeter {
	t.Helper()
	g := &greeter{met: make(chan string, 64)}
	for _, a := range addrs {
		l, err := net.Listen("tcp", netip.AddrPortFrom(a, g.port).String())
		if err != nil {
			t.Fatal(err)
		}
		g.port = netip.MustParseAddrPort(l.Addr().String()).Port()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				g.met <- a.String()
				_, _ = conn.Write([]byte(a.String()))
				_ = conn.Close()
			}
		}()
		t.Cleanup(func() { _ = l.Close(); <-done })
	}
	return g
}

func (g *greeter) at(host string) string { return net.JoinHostPort(host, strconv.Itoa(int(g.port))) }

// none fails the test if there was a connection.
func (g *greeter) none(t *testing.T) {
	t.Helper()
	select {
	case name := <-g.met:
		t.Errorf("%s was reached", name)
	default:
	}
}
