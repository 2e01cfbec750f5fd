//go:build linux

package egress

import (
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// site is an HTTPS server for *.example.com on public and loopback addresses, all
// with one port.
type site struct {
	port  string
	roots *x509.CertPool
	seen  chan string // address and path of each request
}

func open(t *testing.T, handler http.HandlerFunc) *site {
	t.Helper()
	s := &site{port: "0", roots: x509.NewCertPool(), seen: make(chan string, 64)}
	for _, a := range []netip.Addr{here, there, loopback} {
		l, err := net.Listen("tcp", net.JoinHostPort(a.String(), s.port))
		if err != nil {
			t.Fatal(err)
		}
		_, s.port, _ = net.SplitHostPort(l.Addr().String())
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.seen <- a.String() + " " + r.URL.Path
			handler(w, r)
		}))
		_ = srv.Listener.Close()
		srv.Listener = l
		srv.StartTLS()
		t.Cleanup(srv.Close)
		s.roots.AddCert(srv.Certificate())
	}
	return s
}

func (s *site) url(host, path string) string { return "https://" + host + ":" + s.port + path }

// get returns the body, or the first error.
func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func hosts() map[string][][]netip.Addr {
	return map[string][][]netip.Addr{
		"here.example.com.":   {addrs("93.184.215.14")},
		"there.example.com.":  {addrs("151.101.1.6")},
		"inside.example.com.": {addrs("127.0.0.1")},
		"rebind.example.com.": {addrs("93.184.215.14"), addrs("127.0.0.1")},
	}
}

// proves R-T7, R-S3
func TestRedirectsAreCheckedLikeTheFirstRequest(t *testing.T) {
	if !inside(t) {
		return
	}
	var to func() string
	s := open(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/from":
			w.Header().Set("Location", to())
			w.WriteHeader(http.StatusFound)
		case "/loop":
			w.Header().Set("Location", "/loop")
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			_, _ = w.Write([]byte("arrived"))
		}
	})
	z := &zone{answers: hosts()}
	d := Public(Config{Resolver: z.serve(t)})
	c := Client(ClientConfig{Dial: d.DialContext, Roots: s.roots, Redirects: 3})

	to = func() string { return s.url("there.example.com", "/to") }
	if got, err := get(t, c, s.url("here.example.com", "/from")); got != "arrived" {
		t.Fatalf("control: a redirect to a public host: %q, %v", got, err)
	}
	if a, b := <-s.seen, <-s.seen; a != "93.184.215.14 /from" || b != "151.101.1.6 /to" {
		t.Fatal(a, b)
	}
	targets := []string{
		s.url("inside.example.com", "/to"), s.url("127.0.0.1", "/to"), s.url("2130706433", "/to"), s.url("0x7f.1", "/to"), s.url("[::1]", "/to"), s.url("[::ffff:127.0.0.1]", "/to"),
		s.url("localhost", "/to"), s.url("here.example.com.", "/to"), s.url("127。0。0。1", "/to"), s.url("there。example.com", "/to"), s.url("tℎere.example.com", "/to"), "http://there.example.com:" + s.port + "/to", "http://127.0.0.1:" + s.port + "/to",
		"ftp://there.example.com/", "file:///etc/passwd", "unix:///run/socket", s.url("user:word@there.example.com", "/to"), "//inside.example.com:" + s.port + "/to", "//169.254.169.254/latest/",
	}
	for _, target := range targets {
		to = func() string { return target }
		if got, err := get(t, c, s.url("here.example.com", "/from")); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %q, %v", target, got, err)
		}
		if got := <-s.seen; got != "93.184.215.14 /from" {
			t.Errorf("%s: reached %s", target, got)
		}
	}
	if _, err := get(t, c, s.url("here.example.com", "/loop")); !errors.Is(err, ErrRefused) {
		t.Errorf("a loop: %v", err)
	}
	if n := len(s.seen); n != 4 {
		t.Errorf("%d requests in a redirect loop, want 4", n)
	}
	none := Client(ClientConfig{Dial: d.DialContext, Roots: s.roots})
	if _, err := get(t, none, s.url("here.example.com", "/loop")); !errors.Is(err, ErrRefused) {
		t.Errorf("without redirects: %v", err)
	}
}

// proves R-T7
func TestEveryConnectionIsChecked(t *testing.T) {
	if !inside(t) {
		return
	}
	s := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("arrived")) })
	z := &zone{answers: hosts()}
	d := Public(Config{Resolver: z.serve(t)})
	c := Client(ClientConfig{Dial: d.DialContext, Roots: s.roots})
	for range 3 { // over one connection
		if got, err := get(t, c, s.url("rebind.example.com", "/")); got != "arrived" {
			t.Fatal(got, err)
		}
		if got := <-s.seen; got != "93.184.215.14 /" {
			t.Error("reached", got)
		}
	}
	c.CloseIdleConnections()
	if got, err := get(t, c, s.url("rebind.example.com", "/")); !errors.Is(err, ErrRefused) {
		t.Error(got, err)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "inside.example.com", "2130706433", "[::1]"} {
		if got, err := get(t, c, s.url(host, "/")); !errors.Is(err, ErrRefused) {
			t.Error(host, got, err)
		}
	}
	if len(s.seen) != 0 {
		t.Error("reached", <-s.seen)
	}
}

func TestProxySettingsAreIgnored(t *testing.T) {
	const proxy = "93.184.215.14:3128"
	if !inside(t, "HTTPS_PROXY=http://"+proxy, "HTTP_PROXY=http://"+proxy, "ALL_PROXY=http://"+proxy, "NO_PROXY=") {
		return
	}
	l, err := net.Listen("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 8)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method
		w.WriteHeader(http.StatusBadGateway)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	s := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("arrived")) })
	z := &zone{answers: hosts()}
	d := Public(Config{Resolver: z.serve(t)})

	naive := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	if _, err := get(t, naive, s.url("there.example.com", "/")); err == nil || len(asked) != 1 {
		t.Fatalf("control: the environment has no proxy: %v", err)
	}
	<-asked
	if got, err := get(t, Client(ClientConfig{Dial: d.DialContext, Roots: s.roots}), s.url("there.example.com", "/")); got != "arrived" {
		t.Error(got, err)
	}
	if len(asked) != 0 {
		t.Error("the proxy was used")
	}
}

func TestResponseSizeIsBounded(t *testing.T) {
	if !inside(t) {
		return
	}
	s := open(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if r.URL.Query().Has("header") {
			w.Header().Set("X-Long", strings.Repeat("a", n))
			n = 0
		}
		_, _ = w.Write([]byte(strings.Repeat("a", n)))
	})
	z := &zone{answers: hosts()}
	d := Public(Config{Resolver: z.serve(t)})
	c := Client(ClientConfig{Dial: d.DialContext, Roots: s.roots, MaxBody: 1000})
	for n, ok := range map[string]bool{"0": true, "1": true, "999": true, "1000": true, "1001": false, "100000": false} {
		got, err := get(t, c, s.url("here.example.com", "/"+n))
		if ok != (err == nil) || err != nil && (!errors.Is(err, ErrRefused) || len(got) != 1000) {
			t.Errorf("%s bytes: %d read, %v", n, len(got), err)
		}
	}
	if _, err := get(t, c, s.url("here.example.com", "/100000?header")); err == nil {
		t.Error("a header of 100,000 bytes was read")
	}
	if _, err := get(t, Client(ClientConfig{Dial: d.DialContext}), s.url("here.example.com", "/1")); err == nil {
		t.Error("an untrusted certificate was accepted")
	}
}

func TestALocalClientFollowsNoRedirects(t *testing.T) {
	srv := httptest.NewServer(http.RedirectHandler("http://8.8.8.8/", http.StatusFound))
	t.Cleanup(srv.Close)
	d, err := Only(netip.MustParseAddrPort(srv.Listener.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := Local(d.DialContext).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusFound {
		t.Error(resp.Status)
	}
}
