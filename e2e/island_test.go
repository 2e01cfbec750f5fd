package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// init keeps the main thread for the main goroutine, which runs no test. An
// island that took it would give /proc/self the namespaces of the island.
func init() { //nolint:gochecknoinits // tests never run on the main thread
	runtime.LockOSThread()
}

// island is a network namespace with only a loopback interface: programs in it
// reach only each other.
type island struct {
	calls chan func()
}

// newIsland creates an island that exists until the test ends.
func newIsland(t testing.TB) *island {
	t.Helper()
	return newIslandBy(t, isolate)
}

// mainland is the network of the test.
func mainland(t testing.TB) *island {
	t.Helper()
	return newIslandBy(t, func() error { return nil })
}

func newIslandBy(t testing.TB, isolate func() error) *island {
	t.Helper()
	i := &island{make(chan func())}
	made := make(chan error)
	go func() {
		// Only this thread is in the namespace. It is never unlocked, so it
		// exits with the goroutine.
		runtime.LockOSThread()
		made <- isolate()
		for call := range i.calls {
			call()
		}
	}()
	t.Cleanup(func() { close(i.calls) })
	if err := <-made; err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	return i
}

func isolate() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s) //nolint:errcheck // nothing was written
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// do calls f on the island. The sockets it opens and the programs it starts
// belong to the island.
func (i *island) do(f func() error) error {
	err := make(chan error)
	i.calls <- func() { err <- f() }
	return <-err
}

// start starts a program on the island.
func (i *island) start(cmd *exec.Cmd) error { return i.do(cmd.Start) }

// transport connects from the test to listeners on the island.
func (i *island) transport() *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		return c, i.do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
	}}
}

// serve answers HTTP on a free loopback port of the island until the test ends,
// and returns its URL.
func (i *island) serve(t testing.TB, h http.Handler) string {
	t.Helper()
	var l net.Listener
	if err := i.do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(l) //nolint:errcheck // returns when closed
	t.Cleanup(func() { _ = srv.Close() })
	return fmt.Sprintf("http://%s", l.Addr())
}

// The isolation of the real clients works: the island has one interface and no
// route elsewhere, while its own listeners are reachable.
func TestIslandReachesOnlyItself(t *testing.T) {
	i := newIsland(t)
	url := i.serve(t, http.NotFoundHandler())
	err := i.do(func() error {
		all, err := net.Interfaces()
		if err != nil || len(all) != 1 || all[0].Name != "lo" {
			return fmt.Errorf("want the interface lo and no other, got %v, %w", all, err)
		}
		for _, elsewhere := range []string{"192.0.2.1:443", "10.0.0.1:53", "[2001:db8::1]:443"} {
			if c, err := net.Dial("tcp", elsewhere); !errors.Is(err, syscall.ENETUNREACH) {
				return fmt.Errorf("%s: want no route, got %v, %w", elsewhere, c, err)
			}
		}
		// The control: the same call succeeds for a listener on the island.
		c, err := net.Dial("tcp", url[len("http://"):])
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		t.Error(err)
	}
	// A listener on the island is not reachable from outside it.
	if c, err := net.Dial("tcp", url[len("http://"):]); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("want no connection, got %v, %v", c, err)
	}
}
