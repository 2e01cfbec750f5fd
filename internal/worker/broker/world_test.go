package broker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// world is a broker with hosts that it can reach.
type world struct {
	t     testing.TB
	b     *Broker
	proxy string // HOST:PORT
	roots *x509.CertPool
	ca    *x509.Certificate // of the hosts
	key   *ecdsa.PrivateKey

	mu      sync.Mutex
	hosts   map[string]string // address of HOST:PORT
	dialed  []string
	refusal []record.EgressRefusal
	spent   []string
	record  bytes.Buffer
}

// newWorld returns a world whose broker serves until the test ends.
func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	w := &world{t: t, roots: x509.NewCertPool(), hosts: map[string]string{}}
	w.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &w.key.PublicKey, w.key)
	if err != nil {
		t.Fatal(err)
	}
	w.ca, _ = x509.ParseCertificate(der)
	w.roots.AddCert(w.ca)
	cfg.Record = lockedWriter{w}
	cfg.Refused = func(r record.EgressRefusal) { w.mu.Lock(); w.refusal = append(w.refusal, r); w.mu.Unlock() }
	cfg.Spent = func(s string) { w.mu.Lock(); w.spent = append(w.spent, s); w.mu.Unlock() }
	cfg.Roots = w.roots
	if cfg.Dial == nil {
		cfg.Dial = w.dial
	}
	if w.b, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- w.b.Serve(l) }()
	t.Cleanup(func() {
		if err := w.b.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

type lockedWriter struct{ w *world }

func (l lockedWriter) Write(p []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.record.Write(p)
}

// dial connects to the hosts of the world.
func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	at, ok := w.hosts[address]
	w.dialed = append(w.dialed, address)
	w.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("no host %s", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at)
}

// certificate returns a certificate for a host.
func (w *world) certificate(host string) tls.Certificate {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{host}}
	if ip := net.ParseIP(host); ip != nil {
		c.DNSNames, c.IPAddresses = nil, []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, w.ca, &key.PublicKey, w.key)
	if err != nil {
		w.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// raw accepts connections for a host.
func (w *world) raw(hostport string, serve func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.hosts[hostport] = l.Addr().String()
	w.mu.Unlock()
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// host serves HTTP, and HTTPS if the port is 443, for a host.
func (w *world) host(hostport string, h http.HandlerFunc) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.hosts[hostport] = l.Addr().String()
	w.mu.Unlock()
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
	w.t.Cleanup(func() { _ = srv.Close() })
	if name, ok := strings.CutSuffix(hostport, ":443"); ok {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{w.certificate(strings.Trim(name, "[]"))}}
		go srv.ServeTLS(l, "", "") //nolint:errcheck // until closed
		return
	}
	go srv.Serve(l) //nolint:errcheck // until closed
}

// trust returns the certificates that the agent trusts: those of the hosts and of the
// attempt.
func (w *world) trust() *x509.CertPool {
	pool := w.roots.Clone()
	pool.AppendCertsFromPEM(w.b.CA())
	return pool
}

// client returns an HTTP client of the agent.
func (w *world) client() *http.Client {
	t := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: w.proxy}),
		TLSClientConfig: &tls.Config{RootCAs: w.trust()}, ForceAttemptHTTP2: true, DisableCompression: true,
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// send sends a request as the agent does. It returns the status and the body.
func (w *world) send(r *http.Request) (int, string) {
	w.t.Helper()
	resp, err := w.client().Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, string(body) + " then " + err.Error()
	}
	return resp.StatusCode, string(body)
}

func (w *world) get(url string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.send(r)
}

// speak sends text to the proxy and returns all that it answers.
func (w *world) speak(text string) string {
	w.t.Helper()
	c, err := net.Dial("tcp", w.proxy)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, text)
	answer, _ := io.ReadAll(c)
	return string(answer)
}

// tunnel opens a tunnel to a host. It returns nil and the answer if it is refused.
func (w *world) tunnel(hostport string) (net.Conn, string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.proxy)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", hostport, hostport)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // the caller closes the connection
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		return c, ""
	}
	body, _ := io.ReadAll(resp.Body)
	return nil, string(body)
}

// lines returns the record once it has n lines.
func (w *world) lines(n int) (lines []api.NetworkLine) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		text := w.record.String()
		w.mu.Unlock()
		if strings.Count(text, "\n") >= n || time.Now().After(deadline) {
			for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
				var l api.NetworkLine
				if err := d.Decode(&l); err != nil {
					w.t.Fatal(err)
				}
				lines = append(lines, l)
			}
			if len(lines) != n {
				w.t.Fatalf("the record has %d lines, want %d:\n%s", len(lines), n, text)
			}
			return lines
		}
	}
}

// wantRefused checks that the last refusal in n lines has a reason with why, and that
// it was told.
func (w *world) wantRefused(n int, why string) {
	w.t.Helper()
	var last api.NetworkLine
	for _, l := range w.lines(n) { // an answer may arrive before its line is written
		if l.Refused != "" && l.Number > last.Number {
			last = l
		}
	}
	if !strings.Contains(last.Refused, why) || last.Refused == "" {
		w.t.Errorf("the record has %+v, want a refusal: %s", last, why)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.refusal) == 0 {
		w.t.Fatal("no refusal was told")
	}
	if r := w.refusal[len(w.refusal)-1]; r.Number != last.Number || r.Host != last.Host || r.Reason != last.Refused || r.Form != last.Form {
		w.t.Errorf("told %+v, but the record has %+v", r, last)
	}
}

// inTunnel returns a TLS connection in a tunnel to port 443 of a host.
func (w *world) inTunnel(host string) *tls.Conn {
	w.t.Helper()
	c, refused := w.tunnel(host + ":443")
	if c == nil {
		w.t.Fatal(refused)
	}
	return tls.Client(c, &tls.Config{ServerName: host, RootCAs: w.trust()})
}
