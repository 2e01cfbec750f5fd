package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// internet is an island with hosts at public addresses. Programs on it resolve their
// names, and trust the certificates that they present, with no setting of their own: a
// private mount namespace has other files of hosts and of certificate authorities.
type internet struct {
	*island

	t     testing.TB
	etc   string // directory of the files of hosts and of certificate authorities
	hosts int
	root  *x509.Certificate
	key   *ecdsa.PrivateKey
}

// newInternet makes one without hosts.
func newInternet(t testing.TB) *internet {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	n := internetOf(t, newIsland(t), dir)
	must(t, n.do(func() error {
		return errors.Join(
			unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(n.path("hosts"), "/etc/hosts", "", unix.MS_BIND, ""), unix.Mount(n.path("nsswitch.conf"), "/etc/nsswitch.conf", "", unix.MS_BIND, ""),
			unix.Mount(n.path(authorities), "/etc/"+authorities, "", unix.MS_BIND, ""),
		)
	}))
	return n
}

// authorities is the file of certificate authorities, below /etc.
const authorities = "ssl/certs/ca-certificates.crt"

// internetOf makes one on an island whose programs have etc as /etc.
func internetOf(t testing.TB, i *island, etc string) *internet {
	t.Helper()
	n := &internet{island: i, t: t, etc: etc}
	var err error
	n.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	n.root = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test root"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, n.root, n.root, n.key.Public(), n.key)
	must(t, err)
	n.root, err = x509.ParseCertificate(der)
	must(t, err)
	name, err := os.Hostname()
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(n.path(authorities)), 0o755)) //nolint:gosec // programs of any account read it
	n.file(authorities, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	n.file("hosts", "127.0.0.1 localhost\n127.0.1.1 "+name+"\n")
	n.file("nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
	return n
}

func (n *internet) path(name string) string { return filepath.Join(n.etc, name) }

func (n *internet) file(name, text string) {
	n.t.Helper()
	must(n.t, os.WriteFile(n.path(name), []byte(text), 0o644)) //nolint:gosec // programs of any account read it
}

// host serves HTTPS for a name on port 443 of a public address of its own.
func (n *internet) host(name string, h http.Handler) {
	n.t.Helper()
	l := tls.NewListener(n.listen(name, 443), &tls.Config{Certificates: []tls.Certificate{n.certificate(name)}, NextProtos: []string{"h2", "http/1.1"}}) //nolint:gosec // G402: the default minimum
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go srv.Serve(l) //nolint:errcheck // returns when closed
	n.t.Cleanup(func() { _ = srv.Close() })
}

// listen listens on a port of the address of a name.
func (n *internet) listen(name string, port uint16) (l net.Listener) {
	n.t.Helper()
	addr := n.locate(name)
	must(n.t, n.do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(addr, port).String())
		return err
	}))
	return l
}

// locate returns the address of a name, and assigns one at the first call.
func (n *internet) locate(name string) (addr netip.Addr) {
	n.t.Helper()
	b, err := os.ReadFile(n.path("hosts"))
	must(n.t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[1] == name {
			addr = netip.MustParseAddr(f[0])
		}
	}
	if !addr.IsValid() {
		n.hosts++
		addr = netip.AddrFrom4([4]byte{93, 184, 215, byte(n.hosts)})
		n.file("hosts", string(b)+addr.String()+" "+name+"\n")
	}
	must(n.t, n.do(func() error { return addAddress(addr) }))
	return addr
}

// addAddress gives an address to the loopback interface, as an alias of its own.
func addAddress(addr netip.Addr) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s) //nolint:errcheck // nothing was written
	alias, err := unix.NewIfreq(fmt.Sprintf("lo:%d", addr.As4()[3]))
	if err != nil {
		return err
	}
	if err := alias.SetInet4Addr(addr.AsSlice()); err != nil {
		return err
	}
	return unix.IoctlIfreq(s, unix.SIOCSIFADDR, alias)
}

// certificate returns one for a name.
func (n *internet) certificate(name string) tls.Certificate {
	n.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(n.t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(int64(n.hosts) + 2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: n.root.NotBefore, NotAfter: n.root.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, n.root, key.Public(), n.key)
	must(n.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A program finds a host of the internet by its name alone, and no other.
func TestAnInternetHasItsHostsOnly(t *testing.T) {
	n := newInternet(t)
	n.host("models.example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s from %s", r.Host, r.RemoteAddr) }))
	get := func(url string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "curl", "-sS", "--max-time", "10", url)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := n.start(cmd); err != nil {
			return "", err
		}
		err := cmd.Wait()
		return out.String(), err
	}
	if got, err := get("https://models.example.com/"); err != nil || !strings.HasPrefix(got, "hello models.example.com from 93.184.215.") && !strings.HasPrefix(got, "hello models.example.com from 127.") {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := get("https://other.example.com/"); err == nil {
		t.Errorf("%q", got)
	}
	if b, err := os.ReadFile("/etc/hosts"); err != nil || strings.Contains(string(b), "models.example.com") {
		t.Errorf("the test's own hosts: %s, %v", b, err)
	}
}
