package anchor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

const origin = "bailiwick.dev/log/ed25519:00112233445566778899aabbccddeeff"

type logKey ed25519.PrivateKey

func (k logKey) Public() []byte { return ed25519.PrivateKey(k).Public().(ed25519.PublicKey) }

func (k logKey) Sign(_ context.Context, b []byte) ([]byte, error) {
	return ed25519.Sign(ed25519.PrivateKey(k), b), nil
}

func newKey(t testing.TB) logKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(nil)
	must(t, err)
	return logKey(k)
}

// signedAt returns a signed checkpoint whose root depends on what.
func signedAt(t testing.TB, k logKey, size uint64, what string) []byte {
	t.Helper()
	signed, err := logproof.Sign(t.Context(), logproof.Checkpoint{Origin: origin, Size: size, Root: logproof.LeafHash([]byte(what))}, k)
	must(t, err)
	return signed
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, a Anchor, signed []byte) receipt.Receipt {
	t.Helper()
	r, err := a.Put(t.Context(), signed)
	must(t, err)
	must(t, r.Validate())
	id := a.ID()
	if string(r.Signed) != string(signed) || r.Name != id.Name || r.Place != id.Place || r.Kind != id.Kind {
		t.Fatalf("receipt %+v of %s", r, id)
	}
	return r
}

func newestOf(t testing.TB, a Anchor) []byte {
	t.Helper()
	signed, err := a.Newest(t.Context())
	must(t, err)
	return signed
}

// testKeeps tests what every kind of anchor that keeps checkpoints does: Newest
// returns the last Put, also in another instance, and Put is idempotent.
func testKeeps(t *testing.T, open func() Anchor) {
	t.Helper()
	k, a := newKey(t), open()
	if got := newestOf(t, a); got != nil {
		t.Fatalf("a new anchor holds %q", got)
	}
	for size := uint64(1); size < 200; size += 33 {
		signed := signedAt(t, k, size, "a")
		put(t, a, signed)
		put(t, a, signed) // as after a lost answer
		for name, one := range map[string]Anchor{"itself": a, "another instance": open()} {
			if got := newestOf(t, one); string(got) != string(signed) {
				t.Fatalf("size %d: %s has %q", size, name, got)
			}
		}
		put(t, open(), signed)
	}
}

// identity is the key and certificate of a server on loopback, as files.
type identity struct {
	certFile, keyFile string
	pool              *x509.CertPool
}

func newIdentity(t testing.TB) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "loopback"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	dir := t.TempDir()
	id := identity{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(id.certFile, certPEM, 0o600))
	must(t, os.WriteFile(id.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	id.pool.AppendCertsFromPEM(certPEM)
	return id
}

func ed25519Public(seed []byte) []byte {
	return ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
}

func cpAt(size uint64) logproof.Checkpoint { return logproof.Checkpoint{Origin: origin, Size: size} }

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

// alive reports whether a process exists and is not a zombie.
func alive(pid string) bool {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	return err == nil && pid != "" && !bytes.Contains(b, []byte(") Z ")) && !bytes.Contains(b, []byte(") X "))
}
