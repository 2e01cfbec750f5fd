package anchor

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
)

// openssl is a time-stamp authority that runs Debian's openssl behind HTTP.
type opensslTSA struct {
	dir    string
	root   string // file
	roots  []*x509.Certificate
	url    string
	client *http.Client

	mu     sync.Mutex
	change func(request []byte) ([]byte, bool) // replaces the answer; guarded by mu
}

const opensslConfig = `
[req]
distinguished_name = dn
prompt = no
[dn]
CN = tsa
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[leaf]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = %s
[tsa]
default_tsa = one
[one]
serial = %[2]s/serial
crypto_device = builtin
signer_cert = %[2]s/leaf.pem
signer_key = %[2]s/leaf.key
certs = %[2]s/root.pem
signer_digest = sha256
default_policy = 1.2.3.4
digests = sha256,sha384,sha512
accuracy = secs:1
ess_cert_id_chain = no
ess_cert_id_alg = %[3]s
`

type tsaWish struct{ usage, ess, days, algorithm string }

func (o *opensslTSA) openssl(t testing.TB, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", args...)
	cmd.Dir = o.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("openssl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func newTSA(t testing.TB, w tsaWish) *opensslTSA {
	t.Helper()
	for of, value := range map[*string]string{&w.usage: "critical,timeStamping", &w.ess: "sha256", &w.days: "30", &w.algorithm: "ec:P-256"} {
		if *of == "" {
			*of = value
		}
	}
	o := &opensslTSA{dir: t.TempDir()}
	o.root = filepath.Join(o.dir, "root.pem")
	must(t, os.WriteFile(filepath.Join(o.dir, "c.cnf"), fmt.Appendf(nil, opensslConfig, w.usage, o.dir, w.ess), 0o600))
	must(t, os.WriteFile(filepath.Join(o.dir, "serial"), []byte("01\n"), 0o600))
	kind, size, _ := strings.Cut(w.algorithm, ":")
	generate := []string{"-newkey", "rsa:" + size}
	if kind == "ec" {
		generate = []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:" + size}
	}
	o.openssl(t, append([]string{"req", "-config", "c.cnf", "-x509", "-nodes", "-extensions", "ca", "-days", "30", "-subj", "/CN=root", "-keyout", "root.key", "-out", "root.pem"}, generate...)...)
	o.openssl(t, append([]string{"req", "-config", "c.cnf", "-nodes", "-subj", "/CN=tsa", "-keyout", "leaf.key", "-out", "leaf.csr"}, generate...)...)
	o.openssl(t, "x509", "-req", "-in", "leaf.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", w.days, "-extfile", "c.cnf", "-extensions", "leaf", "-out", "leaf.pem")
	b, err := os.ReadFile(o.root)
	must(t, err)
	block, _ := pem.Decode(b)
	root, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	o.roots = []*x509.Certificate{root}
	srv := httptest.NewTLSServer(o)
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	d, err := egress.Only(netip.MustParseAddrPort(srv.Listener.Addr().String()))
	must(t, err)
	o.url, o.client = srv.URL+"/tsr", egress.Client(egress.ClientConfig{Dial: d.DialContext, Roots: pool})
	return o
}

// ServeHTTP answers a request with openssl.
func (o *opensslTSA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "application/timestamp-query" || r.Method != http.MethodPost {
		http.Error(w, "want a query", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.change != nil {
		changed, instead := o.change(request)
		if instead {
			_, _ = w.Write(changed)
			return
		}
		request = changed
	}
	b, err := o.reply(r.Context(), request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(b)
}

func (o *opensslTSA) reply(ctx context.Context, request []byte) ([]byte, error) {
	query, answer := filepath.Join(o.dir, "q.tsq"), filepath.Join(o.dir, "a.tsr")
	if err := os.WriteFile(query, request, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.CommandContext(ctx, "openssl", "ts", "-reply", "-config", filepath.Join(o.dir, "c.cnf"), "-section", "one", "-queryfile", query, "-out", answer).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(answer)
}

func (o *opensslTSA) open(t testing.TB) *TSA {
	t.Helper()
	a, err := NewTSA(TSAConfig{Name: "time", URL: o.url, Client: o.client, Roots: o.roots, Now: time.Now})
	must(t, err)
	return a
}

// We, another library and openssl itself verify its stamps, for keys of both
// algorithms and both attributes that name the certificate.
//
// proves R-A6
func TestAnAuthorityStampsCheckpoints(t *testing.T) {
	k := newKey(t)
	for name, w := range map[string]tsaWish{"ecdsa": {}, "rsa": {algorithm: "rsa:2048"}, "the older attribute": {ess: "sha1"}} {
		o, signed, began := newTSA(t, w), signedAt(t, k, 12, "a"), time.Now()
		r := put(t, o.open(t), signed)
		s, err := r.Stamp(o.roots)
		if err != nil || s.Time.Before(began.Add(-2*time.Second)) || s.Time.After(time.Now().Add(time.Second)) || s.By != "CN=tsa" || s.Accuracy != time.Second {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		ts, err := timestamp.Parse(r.TSA.Token)
		if err != nil || !ts.Time.Equal(s.Time) {
			t.Errorf("%s: with another library: %+v, %v", name, ts, err)
		}
		must(t, os.WriteFile(filepath.Join(o.dir, "note"), signed, 0o600))
		must(t, os.WriteFile(filepath.Join(o.dir, "token"), r.TSA.Token, 0o600))
		o.openssl(t, "ts", "-verify", "-data", "note", "-token_in", "-in", "token", "-CAfile", "root.pem")
		if held := newestOf(t, o.open(t)); held != nil {
			t.Errorf("%s: holds %q", name, held)
		}
	}
}

// An authority that lies in any one way yields no receipt. The first is honest.
//
// proves R-A6
func TestAnAuthorityThatLiesGivesNoReceipt(t *testing.T) {
	k := newKey(t)
	signed := signedAt(t, k, 12, "a")
	good := newTSA(t, tsaWish{})
	put(t, good.open(t), signed) // control
	var kept []byte
	var err error
	query := func(t *testing.T, b []byte, edit func(*timestamp.Request)) []byte {
		req, err := timestamp.ParseRequest(b)
		must(t, err)
		edit(req)
		out, err := req.Marshal()
		must(t, err)
		return out
	}
	for name, change := range map[string]func([]byte) ([]byte, bool){
		"another imprint": func(b []byte) ([]byte, bool) {
			return query(t, b, func(r *timestamp.Request) { r.HashedMessage = bytes.Repeat([]byte{1}, 32) }), false
		},
		"another nonce": func(b []byte) ([]byte, bool) {
			return query(t, b, func(r *timestamp.Request) { r.Nonce.Add(r.Nonce, r.Nonce) }), false
		},
		"no nonce": func(b []byte) ([]byte, bool) { return query(t, b, func(r *timestamp.Request) { r.Nonce = nil }), false },
		"no certificate": func(b []byte) ([]byte, bool) {
			return query(t, b, func(r *timestamp.Request) { r.Certificates = false }), false
		},
		"an answer that was given before": func(b []byte) ([]byte, bool) {
			if kept == nil {
				kept, err = good.reply(t.Context(), query(t, b, func(r *timestamp.Request) { r.Nonce.SetInt64(7) }))
				must(t, err)
			}
			return kept, true
		},
		"an algorithm that it refuses": func(b []byte) ([]byte, bool) { return b[:len(b)-1], false },
		"nothing":                      func([]byte) ([]byte, bool) { return nil, true },
		"the query":                    func(b []byte) ([]byte, bool) { return b, true },
		"without end":                  func([]byte) ([]byte, bool) { return make([]byte, 2<<20), true },
	} {
		good.mu.Lock()
		good.change = change
		good.mu.Unlock()
		if r, err := good.open(t).Put(t.Context(), signed); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for name, w := range map[string]tsaWish{"usage not critical": {usage: "timeStamping"}, "usage of two kinds": {usage: "critical,timeStamping,serverAuth"}, "another usage": {usage: "critical,serverAuth"}} {
		o := newTSA(t, w)
		if r, err := o.open(t).Put(t.Context(), signed); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	foreign := newTSA(t, tsaWish{})
	foreign.roots = good.roots
	if r, err := foreign.open(t).Put(t.Context(), signed); err == nil {
		t.Errorf("a foreign authority: %+v", r)
	}
	if _, err := NewTSA(TSAConfig{URL: good.url, Client: good.client}); err == nil {
		t.Error("an authority without roots was accepted")
	}
}
