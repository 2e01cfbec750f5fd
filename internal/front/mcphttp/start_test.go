package mcphttp

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// certificate writes a certificate for 127.0.0.1 and its key.
func certificate(t testing.TB, names ...string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "t"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: names, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(os.WriteFile(cert, text, 0o644), os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), 0o600)); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return cert, key, pool
}

// Everything is missing at first and fixed one by one: the refusals come in their
// order, one line each with its fix, and none opens a socket.
//
// proves R-T2
func TestStartIsRefusedInAFixedOrder(t *testing.T) {
	cert, key, _ := certificate(t)
	service := newFakeService(t)
	service.ready.Token, service.ready.Audit = false, false
	lost := client.NewRuntime(client.Config{Socket: filepath.Join(t.TempDir(), "s"), UIDs: []int{os.Getuid()}})
	defer lost.Close()
	listening := false
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{
		Conn: lost, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Address: "0.0.0.0:0", selfTest: func(context.Context) error { return errors.New("a hole") },
		Listening: func(string) { listening = true; cancel() },
	}
	for _, step := range []struct {
		refusal string // before the fix
		fix     string // as the refusal names it
		apply   func()
	}{
		{"no service answers at", "bailiwick up", func() { cfg.Conn = service.connect(t) }},
		{"no client token", "bailiwick token create", func() { service.ready.Token = true }},
		{"other machines can reach", AcknowledgementName + "=" + Acknowledgement, func() { cfg.Acknowledged = "yes" }},
		{"other machines can reach", AcknowledgementName + "=" + Acknowledgement, func() { cfg.Acknowledged = Acknowledgement }},
		{"unencrypted", "--tls-cert FILE", func() { cfg.Cert = cert }},
		{"--tls-key", "give both", func() { cfg.Key = key }},
		{"any host name", "--allow-host", func() { cfg.Hosts = []string{"mcp.example"} }},
		{"audit log", "bailiwick doctor", func() { service.ready.Audit = true }},
		{"a hole", "use stdio", func() { cfg.selfTest = nil }}, // the real one
	} {
		err := Serve(ctx, cfg)
		if err == nil || listening {
			t.Fatalf("started despite: %s", step.refusal)
		}
		if text := err.Error(); !strings.Contains(text, step.refusal) || !strings.Contains(text, step.fix) || strings.Contains(text, "\n") {
			t.Errorf("want one line about %q that names %q: %s", step.refusal, step.fix, text)
		}
		step.apply()
	}
	if err := Serve(ctx, cfg); err != nil || !listening {
		t.Errorf("after all fixes: %v", err)
	}
}

// proves R-T2
func TestLocalhostMustResolveToLoopback(t *testing.T) {
	for name, c := range map[string]struct {
		found []string
		err   error
		word  string
	}{
		"both":                {[]string{"::1", "127.0.0.1", "127.0.0.1"}, nil, ""},
		"one of them is not":  {[]string{"127.0.0.1", "192.0.2.1"}, nil, "192.0.2.1"},
		"the other one":       {[]string{"2001:db8::1", "127.0.0.1"}, nil, "2001:db8::1"},
		"unspecified":         {[]string{"0.0.0.0"}, nil, "0.0.0.0"},
		"none":                {nil, nil, "no address"},
		"it cannot be asked":  {nil, errors.New("timeout"), "no address"},
		"mapped, but another": {[]string{"::ffff:192.0.2.1"}, nil, "192.0.2.1"},
	} {
		a, err := httpguard.ParseAddress("--http", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		err = a.Resolve(t.Context(), func(context.Context, string) (all []netip.Addr, err error) {
			for _, s := range c.found {
				all = append(all, netip.MustParseAddr(s))
			}
			return all, c.err
		})
		if (err == nil) != (c.word == "") || err != nil && (!strings.Contains(err.Error(), c.word) || !strings.Contains(err.Error(), "127.0.0.1")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := newTestServer(t, func(c *Config) {
		c.Address, c.lookup = "localhost:0", func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
	})
	f.want("by its name", rawRequest{}, 200)
}

func TestMalformedFlagsAreRefused(t *testing.T) {
	service := newFakeService(t)
	for word, change := range map[string]func(*Config){
		"--rate":                              func(c *Config) { c.Rate = -1 },
		"--rate 1000001":                      func(c *Config) { c.Rate = maxRate + 1 },
		"--allow-host":                        func(c *Config) { c.Hosts = []string{"http://a"} },
		`--allow-host "a/b"`:                  func(c *Config) { c.Hosts = []string{"a/b"} },
		`--allow-host "*"`:                    func(c *Config) { c.Hosts = []string{"*"} },
		`--allow-host ""`:                     func(c *Config) { c.Hosts = []string{""} },
		`--allow-host "a:x"`:                  func(c *Config) { c.Hosts = []string{"a:x"} },
		`--allow-origin "*"`:                  func(c *Config) { c.Origins = []string{"*"} },
		`--allow-origin "null"`:               func(c *Config) { c.Origins = []string{"null"} },
		`--allow-origin "https://a/"`:         func(c *Config) { c.Origins = []string{"https://a/"} },
		`--allow-origin "https://A"`:          func(c *Config) { c.Origins = []string{"https://A"} },
		`--allow-origin "file://a"`:           func(c *Config) { c.Origins = []string{"file://a"} },
		"--oauth-issuer and --resource":       func(c *Config) { c.Issuer = "https://a" },
		`--resource "https://a/other"`:        func(c *Config) { c.Issuer, c.Resource = "https://a", "https://a/other" },
		"--tls-cert and --tls-key: give both": func(c *Config) { c.Cert = "x" },
		"--tls-key: stat /nowhere":            func(c *Config) { c.Cert, c.Key = "/nowhere", "/nowhere" },
		`--http "1": want HOST:PORT`:          func(c *Config) { c.Address = "1" },
		"other machines can reach":            func(c *Config) { c.Address = "127.0.0.2:0" },
		"cannot assign requested address": func(c *Config) {
			c.Address, c.Acknowledged = "192.0.2.1:0", Acknowledgement
			c.Cert, c.Key, _ = certificate(t)
		},
		"--tls-key " + strings.Repeat("k", 0):    func(c *Config) { c.Cert, c.Key, _ = certificate(t); _ = os.Chmod(c.Key, 0o644) },
		"tls: private key does not match public": func(c *Config) { c.Cert, _, _ = certificate(t); _, c.Key, _ = certificate(t) },
	} {
		cfg := Config{
			Conn: service.connect(t), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			Address: "127.0.0.1:0", Listening: func(string) { t.Errorf("%s: it listens", word) },
		}
		change(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := Serve(ctx, cfg)
		cancel()
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want %s: %v", word, err)
		}
	}
}

// proves R-T2, R-T3
func TestTLSIsAtLeast12AndOffersHTTP1Only(t *testing.T) {
	cert, key, pool := certificate(t)
	f := newTestServer(t, func(c *Config) { c.Cert, c.Key = cert, key })
	if f.url.Scheme != "https" {
		t.Error(f.url)
	}
	over := func(cfg *tls.Config) (string, rawAnswer) {
		cfg.RootCAs, cfg.ServerName = pool, "127.0.0.1"
		c := tls.Client(f.dial(), cfg)
		if err := c.Handshake(); err != nil {
			return "", rawAnswer{body: err.Error()}
		}
		if _, err := io.WriteString(c, f.text(rawRequest{})); err != nil {
			return "", rawAnswer{body: err.Error()}
		}
		return c.ConnectionState().NegotiatedProtocol, read(bufio.NewReader(c), "POST")
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if protocol, got := over(&tls.Config{MaxVersion: version, NextProtos: []string{"h2", "http/1.1"}}); got.status != 200 || protocol != "http/1.1" {
			t.Errorf("%x: %q, %s", version, protocol, got)
		}
	}
	if _, got := over(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); got.status != 0 {
		t.Errorf("TLS 1.1: %s", got)
	}
	if got := f.raw(f.text(rawRequest{})); got.status == 200 {
		t.Errorf("plain HTTP to a TLS port: %s", got)
	}
}

func TestSmuggledRequestsAreRefusedOverTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	f := newTestServer(t, func(c *Config) { c.Cert, c.Key = cert, key })
	for text, want := range map[string]int{
		f.text(rawRequest{}): 200,
		strings.Replace(f.text(rawRequest{}), "Content-Length:", "Transfer-Encoding: chunked\r\nContent-Length:", 1): 400,
	} {
		c := tls.Client(f.dial(), &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if got := read(bufio.NewReader(c), "POST"); got.status != want {
			t.Errorf("want %d: %s", want, got)
		}
	}
}

func TestShutdownWaitsForAnswers(t *testing.T) {
	f := newTestServer(t, nil)
	inside, release := make(chan struct{}), make(chan struct{})
	f.service.before = func(path string) {
		if strings.HasPrefix(path, "/v1/runtime/catalog/") {
			close(inside)
			<-release
		}
	}
	call := rawRequest{header: []string{"Mcp-Method: tools/call", "Mcp-Name: bailiwick_envs_list"}, body: strings.Replace(strings.Replace(toolsList, "tools/list", "tools/call", 1), `"_meta":{`, `"name":"bailiwick_envs_list","arguments":{},"_meta":{`, 1)}
	answered := make(chan rawAnswer, 1)
	go func() { answered <- f.send(call) }()
	<-inside
	ended := make(chan error, 1)
	go func() { ended <- f.stop() }()
	for { // until new connections are refused
		c, err := net.Dial("tcp", f.url.Host)
		if err != nil {
			break
		}
		_ = c.Close()
	}
	select {
	case err := <-ended:
		t.Fatalf("shut down before the answer: %v", err)
	default:
	}
	close(release)
	if got := <-answered; got.status != 200 || !strings.Contains(got.body, `"items":[]`) {
		t.Errorf("%s", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
