package httpguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of struct nlmsghdr, inet_diag_req_v2 and inet_diag_msg, from
// linux/netlink.h and linux/inet_diag.h.
const (
	netlinkHead = 16
	diagRequest = netlinkHead + 56
	diagAnswer  = netlinkHead + 72
	diagState   = netlinkHead + 1
	diagID      = netlinkHead + 8 // of the request
	answerID    = netlinkHead + 4
	diagUID     = netlinkHead + 4 + 48 + 12
	diagIDSize  = 2 + 2 + 16 + 16 // ports and addresses

	established = 1 // TCP_ESTABLISHED: later states have lost the account
	diagTime    = time.Second
)

// errNoHolder reports a socket that no process of this network namespace holds.
var errNoHolder = errors.New("no process of this machine holds it")

// PeerUID returns the account that holds the other end of a TCP connection between two
// addresses of this machine. The kernel looks up that one socket, by sock_diag(7), so
// the cost does not depend on how many connections the machine has. PeerUID fails if no
// process of this network namespace holds the socket.
func PeerUID(local, remote netip.AddrPort) (int, error) {
	answer, err := askKernel(diagMessage(remote, local))
	if err != nil {
		return 0, fmt.Errorf("connection from %s: look up its account by sock_diag: %w", remote, err)
	}
	uid, err := uidOf(answer, remote, local)
	if err != nil {
		return 0, fmt.Errorf("connection from %s: %w", remote, err)
	}
	return uid, nil
}

// diagMessage asks for the socket with these addresses.
func diagMessage(own, peer netip.AddrPort) []byte {
	b := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	b[netlinkHead], b[netlinkHead+1] = unix.AF_INET, unix.IPPROTO_TCP
	if own.Addr().Unmap().Is6() {
		b[netlinkHead] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(b[netlinkHead+4:], 1<<established)
	copy(b[diagID:], diagAddresses(own, peer))
	for i := diagID + diagIDSize + 4; i < diagRequest; i++ {
		b[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	return b
}

// diagAddresses is the beginning of struct inet_diag_sockid.
func diagAddresses(own, peer netip.AddrPort) []byte {
	b := make([]byte, diagIDSize)
	binary.BigEndian.PutUint16(b, own.Port())
	binary.BigEndian.PutUint16(b[2:], peer.Port())
	copy(b[4:20], own.Addr().Unmap().AsSlice())
	copy(b[20:36], peer.Addr().Unmap().AsSlice())
	return b
}

// askKernel returns the kernel's answer to one message.
func askKernel(message []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	limit := unix.NsecToTimeval(diagTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return nil, err
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, answer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if kernel, ok := from.(*unix.SockaddrNetlink); ok && kernel.Pid == 0 {
			return answer[:n], nil
		}
	}
}

// uidOf reads the account of the socket with these addresses from an answer.
func uidOf(answer []byte, own, peer netip.AddrPort) (int, error) {
	if len(answer) < netlinkHead+4 {
		return 0, fmt.Errorf("malformed answer of %d bytes", len(answer))
	}
	switch kind := binary.NativeEndian.Uint16(answer[4:]); kind {
	case unix.NLMSG_ERROR:
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[netlinkHead:]))) //nolint:gosec // G115: an error number
		if errno == unix.ENOENT {
			return 0, errNoHolder
		}
		return 0, errno
	case unix.SOCK_DIAG_BY_FAMILY:
	default:
		return 0, fmt.Errorf("answer of kind %d", kind)
	}
	if len(answer) < diagAnswer {
		return 0, fmt.Errorf("malformed answer of %d bytes", len(answer))
	}
	// A socket that listens on the port also matches.
	if answer[diagState] != established || !sameSocket(answer[answerID:], own, peer) {
		return 0, errNoHolder
	}
	return int(binary.NativeEndian.Uint32(answer[diagUID:])), nil
}

// sameSocket reports whether an answer is about the socket with these addresses. An IPv6
// socket that is connected to an IPv4 address has mapped ones.
func sameSocket(id []byte, own, peer netip.AddrPort) bool {
	same := func(raw []byte, want netip.Addr) bool {
		if want = want.Unmap(); want.Is4() {
			mapped := want.As16()
			plain := want.As4()
			return netip.AddrFrom16([16]byte(raw)) == netip.AddrFrom16(mapped) || [4]byte(raw[:4]) == plain && [12]byte(raw[4:]) == [12]byte{}
		}
		return netip.AddrFrom16([16]byte(raw)) == want
	}
	return binary.BigEndian.Uint16(id) == own.Port() && binary.BigEndian.Uint16(id[2:]) == peer.Port() &&
		same(id[4:20], own.Addr()) && same(id[20:36], peer.Addr())
}

// LocalListener accepts connections of one account of this machine, and passes on only
// requests whose framing is unambiguous. It closes a connection of another account
// without an answer.
type LocalListener struct {
	net.Listener

	UID int
	// Refused is called with why a connection was closed. It is not called for one that
	// its client closed before, as browsers close those that they hold in reserve.
	Refused func(error)

	peer func(local, remote netip.AddrPort) (int, error) // PeerUID, but for tests
}

// Accept returns the next connection of the account. A peer is established on its own
// side before the connection is accepted here.
func (l *LocalListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := l.check(raw); err != nil {
			gone := errors.Is(err, errNoHolder) && closedByPeer(raw)
			if err = errors.Join(err, raw.Close()); !gone {
				l.Refused(err)
			}
			continue
		}
		return NewConn(raw), nil
	}
}

// closedByPeer reports whether the other end of a TCP connection has closed it.
func closedByPeer(c net.Conn) bool {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	ctlErr := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }) //nolint:gosec // G115: a descriptor
	return errors.Join(ctlErr, err) == nil && info.State != established
}

func (l *LocalListener) check(c net.Conn) error {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, also := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !also {
		return fmt.Errorf("connection from %s: not TCP", c.RemoteAddr())
	}
	peer := l.peer
	if peer == nil {
		peer = PeerUID
	}
	uid, err := peer(local.AddrPort(), remote.AddrPort())
	if err == nil && uid != l.UID {
		err = fmt.Errorf("connection from %s: of account %d, not %d", remote, uid, l.UID)
	}
	return err
}
