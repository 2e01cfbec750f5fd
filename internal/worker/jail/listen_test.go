//go:build linux

package jail

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// answer serves a text on the listener of a jail.
func answer(t testing.TB, j *Jail, text string) {
	t.Helper()
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })}
	go func() { _ = s.Serve(j.Listener()) }()
	t.Cleanup(func() { _ = s.Close() })
}

// listenAttacks use or take the listener of a jail, or, as a control, the one at f.TCP.
func listenAttacks() map[string]func(facts) error {
	port := func(f facts) int {
		_, p, _ := net.SplitHostPort(f.TCP)
		n, _ := strconv.Atoi(p)
		return n
	}
	bind := func(f facts, address [4]byte, options ...int) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for _, o := range options {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1); err != nil {
				return err
			}
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port(f), Addr: address}); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	}
	loopback := [4]byte{127, 0, 0, 1}
	return map[string]func(facts) error{
		"listener read":             func(f facts) error { return get(f.TCP) },
		"listener bound again":      func(f facts) error { return bind(f, loopback) },
		"listener address reused":   func(f facts) error { return bind(f, loopback, unix.SO_REUSEADDR) },
		"listener port reused":      func(f facts) error { return bind(f, loopback, unix.SO_REUSEADDR, unix.SO_REUSEPORT) },
		"listener by every address": func(f facts) error { return bind(f, [4]byte{}, unix.SO_REUSEADDR, unix.SO_REUSEPORT) },
		"listener by IPv6": func(f facts) error {
			l, err := net.Listen("tcp", "[::]:"+strconv.Itoa(port(f)))
			if err == nil {
				err = l.Close()
			}
			return err
		},
		"listener descriptor of pid 1": func(facts) error {
			if _, err := os.ReadDir("/proc/1/fd"); err == nil {
				return nil
			}
			fd, err := unix.PidfdOpen(os.Getppid(), 0)
			if err != nil {
				return err
			}
			return call(unix.SYS_PIDFD_GETFD, uintptr(fd), 0, 0)
		},
		"listener destroyed by netlink": func(facts) error {
			_, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG)
			return err
		},
	}
}

func get(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	fmt.Println(string(text))
	return err
}

func attack(t *testing.T, j *Jail, name string, f facts) (string, int) {
	t.Helper()
	var out bytes.Buffer
	exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, name, encode(t, f)}, Env: plainEnv(), Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String()), exit.Code
}

// proves R-S3
func TestEachJailHasAListenerOfItsOwn(t *testing.T) {
	for _, s := range []Spec{{}, {noCgroup: true}, {Lower: []string{t.TempDir()}, Copy: true}} {
		s.Lower, s.Listen = append([]string{attackDir(t)}, s.Lower...), true
		own, other, none := mustStart(t, s), mustStart(t, s), mustStart(t, Spec{Lower: s.Lower})
		answer(t, own, "mine")
		answer(t, other, "yours")
		at := facts{TCP: fmt.Sprintf("127.0.0.1:%d", ListenPort)}
		for range 2 { // it stays for the next command
			if out, code := attack(t, own, "listener read", at); code != 0 || !strings.Contains(out, "mine") {
				t.Errorf("%d %s", code, out)
			}
		}
		if out, code := attack(t, other, "listener read", at); code != 0 || !strings.Contains(out, "yours") {
			t.Errorf("%d %s", code, out)
		}
		if out, code := attack(t, none, "listener read", at); code != 10 || none.Listener() != nil {
			t.Errorf("a jail without Listen: %d %s", code, out)
		}
		if err := get(at.TCP); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("it is reachable on the host: %v", err)
		}
		// With a listener, too, the host's loopback is another.
		host, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if out, code := attack(t, own, "tcp to the host's loopback", facts{TCP: host.Addr().String()}); code != 10 {
			t.Errorf("%d %s", code, out)
		}
		control(t, "tcp to the host's loopback", encode(t, facts{TCP: host.Addr().String()}))
		_ = host.Close()
	}
}

// The control is the same on the host, against a port that is free.
//
// proves R-S3
func TestAnAgentCannotTakeTheListener(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}, Listen: true})
	answer(t, j, "still mine")
	at := facts{TCP: fmt.Sprintf("127.0.0.1:%d", ListenPort)}
	for name := range listenAttacks() {
		if name == "listener read" {
			continue
		}
		if out, code := attack(t, j, name, at); code != 10 {
			t.Errorf("%s: %d %s", name, code, out)
		} else {
			t.Log(name, code, out)
		}
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = free.Close()
		if name != "listener descriptor of pid 1" || realRoot() {
			control(t, name, encode(t, facts{TCP: free.Addr().String()}))
		}
		if out, code := attack(t, j, "listener read", at); code != 0 || !strings.Contains(out, "still mine") {
			t.Errorf("after %s: %d %s", name, code, out)
		}
	}
}

// Connections that wait are bounded, and the owner is not disturbed by many.
func TestTheBacklogIsBounded(t *testing.T) {
	j := mustStart(t, Spec{Listen: true})
	out, exit := shell(t, j, fmt.Sprintf(`perl -MIO::Socket::INET -e '$n=0; for (1..200) { $s = IO::Socket::INET->new(PeerAddr=>"127.0.0.1:%d", Timeout=>0.2) or last; push @s, $s; $n++ } print $n'`, ListenPort))
	if n, err := strconv.Atoi(out); err != nil || exit.Code != 0 || n < listenBacklog || n > listenBacklog+1 {
		t.Errorf("%q connections wait: %+v %v", out, exit, err)
	}
	answer(t, j, "after all")
	if out, _ := shell(t, j, fmt.Sprintf(`perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new("127.0.0.1:%d"); print $s "GET / HTTP/1.0\r\n\r\n"; print <$s>'`, ListenPort)); !strings.Contains(out, "after all") {
		t.Errorf("%s", out)
	}
}
