package httpguard

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// connection returns both ends of a connection to address, as the accepting side sees it.
func connection(t *testing.T, network, address string) (accepted, client net.Conn) {
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

func addresses(t *testing.T, accepted net.Conn) (local, remote netip.AddrPort) {
	t.Helper()
	return accepted.LocalAddr().(*net.TCPAddr).AddrPort(), accepted.RemoteAddr().(*net.TCPAddr).AddrPort()
}

func TestThePeerOfAConnectionIsItsAccount(t *testing.T) {
	proc := os.DirFS("/proc")
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		accepted, client := connection(t, "tcp", address)
		local, remote := addresses(t, accepted)
		if uid, err := PeerUID(proc, local, remote); err != nil || uid != os.Getuid() {
			t.Errorf("%s: uid %d, %v", address, uid, err)
		}
		// The control: addresses that no socket has, and a peer that is gone, whose account
		// the kernel reports as 0.
		if uid, err := PeerUID(proc, local, netip.AddrPortFrom(remote.Addr(), remote.Port()^1)); err == nil {
			t.Errorf("%s: another port: uid %d", address, uid)
		}
		_ = client.Close()
		if uid, err := PeerUID(proc, local, remote); err == nil {
			t.Errorf("%s: a closed peer: uid %d", address, uid)
		}
	}
}

func TestThePeerIsReadFromTheKernelsTable(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	at := netip.MustParseAddrPort
	row := func(own, peer, state, uid string) string {
		return "   0: " + own + " " + peer + " " + state + " 00000000:00000000 00:00000000 00000000 " + uid + " 0 1 1\n"
	}
	const mapped = "0000000000000000FFFF00000100007F"
	for name, c := range map[string]struct {
		four, six string
		want      int // -1: an error
	}{
		"none":                    {"", "", -1},
		"the client's end":        {row("0100007F:1F90", "0100007F:0050", "01", "1001"), "", 1001},
		"the server's end":        {row("0100007F:0050", "0100007F:1F90", "01", "1001"), "", -1},
		"another port":            {row("0100007F:1F91", "0100007F:0050", "01", "1001"), "", -1},
		"another address":         {row("0200007F:1F90", "0100007F:0050", "01", "1001"), "", -1},
		"closed":                  {row("0100007F:1F90", "0100007F:0050", "05", "0"), "", -1},
		"waits":                   {row("0100007F:1F90", "0100007F:0050", "06", "0"), "", -1},
		"of IPv6, mapped":         {"", row(mapped+":1F90", mapped+":0050", "01", "1002"), 1002},
		"malformed":               {"   0: 0100007F:1F90\n", "", -1},
		"no number":               {row("0100007F:1F90", "0100007F:0050", "01", "x"), "", -1},
		"malformed addresses":     {row("zz:1F90", "0100007F:0050", "01", "0"), row("01:1F90", mapped+":0050", "01", "0"), -1},
		"another one before it":   {row("0100007F:1F92", "0100007F:0050", "01", "1003") + row("0100007F:1F90", "0100007F:0050", "01", "1001"), "", 1001},
		"a line that is too long": {strings.Repeat("x", 1<<17), "", -1},
	} {
		proc := fstest.MapFS{"self/net/tcp": {Data: []byte(head + c.four)}, "self/net/tcp6": {Data: []byte(head + c.six)}}
		uid, err := PeerUID(proc, at("127.0.0.1:80"), at("127.0.0.1:8080"))
		if (err != nil) != (c.want < 0) || err == nil && uid != c.want {
			t.Errorf("%s: uid %d, %v", name, uid, err)
		}
	}
	if _, err := PeerUID(fstest.MapFS{}, at("127.0.0.1:80"), at("127.0.0.1:8080")); err == nil {
		t.Error("no table: accepted")
	}
}
