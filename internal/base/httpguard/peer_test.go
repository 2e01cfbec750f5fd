package httpguard

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// connection returns both ends of a connection to address, as the accepting side sees it.
func connection(t testing.TB, network, address string) (accepted, client net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = accepted.Close(), client.Close() })
	return accepted, client
}

func addresses(accepted net.Conn) (local, remote netip.AddrPort) {
	return accepted.LocalAddr().(*net.TCPAddr).AddrPort(), accepted.RemoteAddr().(*net.TCPAddr).AddrPort()
}

// mapped connects an IPv6 socket to an IPv4 address.
func mapped(t *testing.T) (accepted, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet6{Port: l.Addr().(*net.TCPAddr).Port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
	if err := unix.Connect(fd, to); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "client")
	defer file.Close()
	if client, err = net.FileConn(file); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = accepted.Close(), client.Close() })
	return accepted, client
}

func TestThePeerOfAConnectionIsItsAccount(t *testing.T) {
	for name, dial := range map[string]func() (net.Conn, net.Conn){
		"IPv4":   func() (net.Conn, net.Conn) { return connection(t, "tcp", "127.0.0.1:0") },
		"IPv6":   func() (net.Conn, net.Conn) { return connection(t, "tcp", "[::1]:0") },
		"mapped": func() (net.Conn, net.Conn) { return mapped(t) },
	} {
		accepted, client := dial()
		local, remote := addresses(accepted)
		if uid, err := PeerUID(local, remote); err != nil || uid != os.Getuid() {
			t.Errorf("%s: uid %d, %v", name, uid, err)
		}
		// The control: addresses that no socket has, a port where a socket listens, and a
		// peer that is gone, whose account the kernel reports as 0.
		if uid, err := PeerUID(local, netip.AddrPortFrom(remote.Addr(), remote.Port()^1)); err == nil {
			t.Errorf("%s: another port: uid %d", name, uid)
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(remote.Addr(), 0).String())
		if err != nil {
			t.Fatal(err)
		}
		if uid, err := PeerUID(local, netip.MustParseAddrPort(l.Addr().String())); err == nil {
			t.Errorf("%s: a port where a socket listens: uid %d", name, uid)
		}
		_, _ = l.Close(), client.Close()
		if uid, err := PeerUID(local, remote); !errors.Is(err, errNoHolder) {
			t.Errorf("%s: a closed peer: uid %d, %v", name, uid, err)
		}
	}
}

func TestMalformedAnswersOfTheKernelNameNoAccount(t *testing.T) {
	own, peer := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:80")
	good := make([]byte, diagAnswer)
	binary.NativeEndian.PutUint16(good[4:], unix.SOCK_DIAG_BY_FAMILY)
	good[diagState] = established
	copy(good[answerID:], diagAddresses(own, peer))
	binary.NativeEndian.PutUint32(good[diagUID:], 1001)
	if uid, err := uidOf(good, own, peer); err != nil || uid != 1001 { // the control
		t.Fatalf("uid %d, %v", uid, err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"short":           func(b []byte) []byte { return b[:diagUID] },
		"another kind":    func(b []byte) []byte { b[4]++; return b },
		"listens":         func(b []byte) []byte { b[diagState] = 10; return b },
		"closes":          func(b []byte) []byte { b[diagState] = 8; return b },
		"another port":    func(b []byte) []byte { b[answerID]++; return b },
		"another peer":    func(b []byte) []byte { b[answerID+2]++; return b },
		"another address": func(b []byte) []byte { b[answerID+4]++; return b },
		"the other end":   func(b []byte) []byte { copy(b[answerID:], diagAddresses(peer, own)); return b },
		"an error":        func(b []byte) []byte { binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_ERROR); return b },
		"refused": func(b []byte) []byte {
			binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_ERROR)
			binary.NativeEndian.PutUint32(b[netlinkHead:], uint32(0xffffffff))
			return b
		},
		"the end of a set": func(b []byte) []byte { binary.NativeEndian.PutUint16(b[4:], unix.NLMSG_DONE); return b },
	} {
		if uid, err := uidOf(change(append([]byte{}, good...)), own, peer); err == nil {
			t.Errorf("%s: uid %d", name, uid)
		}
	}
}

// A connection of another account is closed, and the next one of ours is accepted.
func TestOnlyConnectionsOfTheAccountAreAccepted(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused []error
	foreign := true
	l := &LocalListener{Listener: inner, UID: os.Getuid(), Refused: func(err error) { refused = append(refused, err) }}
	l.peer = func(local, remote netip.AddrPort) (int, error) {
		if foreign {
			foreign = false
			return os.Getuid() + 1, nil
		}
		return PeerUID(local, remote)
	}
	defer l.Close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, second := dial(), dial()
	defer second.Close()
	accepted, err := l.Accept()
	if err != nil || len(refused) != 1 || accepted.RemoteAddr().String() != second.LocalAddr().String() {
		t.Fatalf("accepted %v, refused %v, %v", accepted, refused, err)
	}
	defer accepted.Close()
	if n, err := first.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the other account got %d bytes, %v", n, err)
	}
	_ = first.Close()
}

// The cost of a check does not depend on how many connections there are.
func BenchmarkPeerUID(b *testing.B) {
	for _, n := range []int{1, 400} {
		b.Run(map[int]string{1: "alone", 400: "beside 400"}[n], func(b *testing.B) {
			var limit syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 1000 {
				b.Fatalf("%d descriptors, %v", limit.Cur, err)
			}
			var local, remote netip.AddrPort
			for range n {
				accepted, _ := connection(b, "tcp", "127.0.0.1:0")
				local, remote = addresses(accepted)
			}
			for b.Loop() {
				if _, err := PeerUID(local, remote); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A client that closes its connection at once is no refusal. The control is a connection
// that is open and that no process here holds, as from another network namespace.
func TestAConnectionThatItsClientClosedIsNotReported(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused []error
	l := &LocalListener{Listener: inner, UID: os.Getuid(), Refused: func(err error) { refused = append(refused, err) }}
	defer l.Close()
	var open []net.Conn
	accept := func() {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, accepted)
	}
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	first, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	accept()
	if len(refused) > 0 {
		t.Errorf("a closed connection is reported: %v", refused)
	}
	foreign := true
	l.peer = func(local, remote netip.AddrPort) (int, error) {
		if foreign {
			foreign = false
			return 0, errNoHolder
		}
		return PeerUID(local, remote)
	}
	second, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	accept()
	if len(refused) != 1 || !errors.Is(refused[0], errNoHolder) {
		t.Errorf("an open connection without a holder is reported as %v", refused)
	}
}
