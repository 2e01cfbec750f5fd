package httpguard

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// peerFiles are the tables of TCP sockets below /proc, of this network namespace. An
// IPv6 socket that is connected to an IPv4 address is in the second.
func peerFiles() []string { return []string{"self/net/tcp", "self/net/tcp6"} }

// established is the state of a socket that a process still holds. Later states have
// lost the account: the kernel reports 0 for them.
const established = "01"

// PeerUID returns the account that holds the other end of a connection between two
// addresses of this machine, as the kernel reports it below proc, which is /proc. It
// fails if no process of this machine does.
func PeerUID(proc fs.FS, local, remote netip.AddrPort) (int, error) {
	for _, name := range peerFiles() {
		uid, found, err := findPeer(proc, name, local, remote)
		if err != nil {
			return 0, err
		}
		if found {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("connection from %s: no process of this machine holds it", remote)
}

// findPeer looks for the socket whose own address is remote and whose peer is local.
func findPeer(proc fs.FS, name string, local, remote netip.AddrPort) (uid int, found bool, err error) {
	file, err := proc.Open(name)
	if err != nil {
		return 0, false, err
	}
	defer file.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(file)
	lines.Scan() // the head
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid ...
		f := strings.Fields(lines.Text())
		if len(f) < 8 {
			return 0, false, fmt.Errorf("/proc/%s: malformed line %q", name, lines.Text())
		}
		if f[3] != established || !sameSocket(f[1], remote) || !sameSocket(f[2], local) {
			continue
		}
		uid, err := strconv.Atoi(f[7])
		return uid, err == nil, err
	}
	return 0, false, lines.Err()
}

// sameSocket reports whether the kernel's spelling of an address is want: ADDRESS:PORT in
// hexadecimal, the address in words of the machine's byte order.
func sameSocket(text string, want netip.AddrPort) bool {
	address, port, _ := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 16, 16); err != nil || uint16(n) != want.Port() {
		return false
	}
	b, err := hex.DecodeString(address)
	if err != nil || len(b)%4 != 0 {
		return false
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	got, ok := netip.AddrFromSlice(b)
	return ok && got.Unmap() == want.Addr().Unmap()
}

// LocalListener accepts connections of one account of this machine, and passes on only
// requests whose framing is unambiguous. A connection of another account is closed
// without an answer.
type LocalListener struct {
	net.Listener

	UID  int
	Proc fs.FS // /proc
	// Refused is called with why a connection was closed.
	Refused func(error)
}

// Accept does not wait for the account: the first Read of the connection establishes it.
func (l *LocalListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return NewConn(&localConn{Conn: raw, listener: l}), nil
}

type localConn struct {
	net.Conn

	listener *LocalListener
	known    bool // the account is that of the listener
}

// Read fails as a closed connection does if the account is another one.
func (c *localConn) Read(p []byte) (int, error) {
	if !c.known {
		if err := c.check(); err != nil {
			c.listener.Refused(err)
			return 0, errors.Join(io.EOF, c.Close())
		}
		c.known = true
	}
	return c.Conn.Read(p)
}

func (c *localConn) check() error {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, also := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !also {
		return fmt.Errorf("connection from %s: not TCP", c.RemoteAddr())
	}
	uid, err := PeerUID(c.listener.Proc, local.AddrPort(), remote.AddrPort())
	if err == nil && uid != c.listener.UID {
		err = fmt.Errorf("connection from %s: of account %d, not %d", remote, uid, c.listener.UID)
	}
	return err
}

// CloseWrite lets net/http deliver an error response before it closes.
func (c *localConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
