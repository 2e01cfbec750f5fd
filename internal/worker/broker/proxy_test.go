package broker

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// echo answers with what arrived.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Seen", r.Host)
	fmt.Fprintf(w, "%s %s %s host=%s auth=%s key=%s body=%s", r.Proto, r.Method, r.URL.RequestURI(), r.Host, r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), body)
}

func TestAllowedHostsAreReachedByEveryForm(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"plain.example.com:80", "blind.example.com:443", "*.many.example.com:443"}})
	w.host("plain.example.com:80", echo)
	w.host("blind.example.com:443", echo)
	w.host("a.b.many.example.com:443", echo)

	if status, body := w.get("http://plain.example.com/a?b=c"); status != 200 || body != "HTTP/1.1 GET /a?b=c host=plain.example.com auth= key= body=" {
		t.Errorf("absolute form: %d %s", status, body)
	}
	l := w.lines(1)[0]
	if l.Number != 1 || l.Form != "http" || l.Host != "plain.example.com:80" || l.Method != "GET" || l.Path != "/a" || l.Status != 200 || l.Received == 0 || l.Refused+l.Error != "" {
		t.Errorf("record: %+v", l)
	}
	r, _ := http.NewRequest(http.MethodPost, "https://BLIND.example.com/x", strings.NewReader(strings.Repeat("y", 1000)))
	if status, body := w.send(r); status != 200 || !strings.HasPrefix(body, "HTTP/2.0 POST /x host=") {
		t.Errorf("blind tunnel: %d %s", status, body)
	}
	if status, body := w.get("https://a.b.many.example.com/"); status != 200 || !strings.HasPrefix(body, "HTTP/2.0 GET /") {
		t.Errorf("wildcard: %d %s", status, body)
	}

	// Some clients use a tunnel for http, too.
	c, refused := w.tunnel("plain.example.com:80")
	if c == nil {
		t.Fatal(refused)
	}
	for range 2 {
		fmt.Fprint(c, "GET /in HTTP/1.1\r\nHost: plain.example.com\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if !strings.HasPrefix(string(body), "HTTP/1.1 GET /in host=plain.example.com") {
			t.Errorf("http in a tunnel: %s", body)
		}
	}
}

func TestABlindTunnelIsALineOfTheRecord(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"blind.example.com:443"}})
	w.host("blind.example.com:443", echo)
	c, refused := w.tunnel("blind.example.com:443")
	if c == nil {
		t.Fatal(refused)
	}
	s := tls.Client(c, &tls.Config{ServerName: "blind.example.com", RootCAs: w.trust()})
	fmt.Fprint(s, "GET / HTTP/1.1\r\nHost: blind.example.com\r\nConnection: close\r\n\r\n")
	if _, err := io.ReadAll(s); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // to the end of the tunnel: a byte sent before it may meet a closed host
		t.Fatal(err)
	}
	_ = c.Close()
	l := w.lines(1)[0]
	if l.Form != "connect" || l.Host != "blind.example.com:443" || l.Method != "" || l.Path != "" || l.Status != 200 || l.Sent < 200 || l.Received < 500 || l.Refused+l.Error != "" {
		t.Errorf("record: %+v", l)
	}
}

func TestAHostThatClosesAfterItsAnswerIsNoError(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"brief.example.com:443"}})
	heard, gone := make(chan bool), make(chan bool)
	w.host("brief.example.com:443", func(rw http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		s := c.(*tls.Conn)
		tcp := s.NetConn().(*net.TCPConn)
		fmt.Fprint(s, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbye")
		_, _ = s.CloseWrite(), tcp.CloseWrite()
		<-heard
		_, _ = tcp.SetLinger(0), tcp.Close() // a reset
		close(gone)
	})
	c, refused := w.tunnel("brief.example.com:443")
	if c == nil {
		t.Fatal(refused)
	}
	s := tls.Client(c, &tls.Config{ServerName: "brief.example.com", RootCAs: w.trust()})
	fmt.Fprint(s, "GET / HTTP/1.1\r\nHost: brief.example.com\r\n\r\n")
	if answer, err := io.ReadAll(s); err != nil || !strings.HasSuffix(string(answer), "bye") {
		t.Fatalf("%q %v", answer, err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	close(heard)
	<-gone
	_ = s.Close() // its last words meet a closed host
	if l := w.lines(1)[0]; l.Error != "" || l.Received < 100 {
		t.Errorf("record: %+v", l)
	}
}

func TestOtherPathsAreNotFound(t *testing.T) {
	w := newWorld(t, Config{})
	for _, path := range []string{"/", "/mcp", "/models", "//evil.example.com/", "/model"} {
		answer := w.speak("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 404 ") {
			t.Errorf("%s: %s", path, answer)
		}
	}
	w.lines(0)
}

func TestABrokenHostIsAnErrorNotARefusal(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"gone.example.com:80", "gone.example.com:443"}})
	if status, body := w.get("http://gone.example.com/"); status != 502 || !strings.Contains(body, "gone.example.com:80") {
		t.Errorf("%d %s", status, body)
	}
	if c, answer := w.tunnel("gone.example.com:443"); c != nil || !strings.Contains(answer, "no host gone.example.com:443") {
		t.Errorf("%v %s", c, answer)
	}
	for _, l := range w.lines(2) {
		if l.Error == "" || l.Refused != "" || l.Status != 502 {
			t.Errorf("record: %+v", l)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"slow.example.com:80", "raw.example.com:443"}})
	started := make(chan bool, 1)
	w.host("slow.example.com:80", func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).Flush()
		started <- true
		<-r.Context().Done()
	})
	w.raw("raw.example.com:443", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r, _ := http.NewRequest(http.MethodGet, "http://slow.example.com/", nil)
	resp, err := w.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-started
	silent, _ := w.tunnel("raw.example.com:443") // never says anything
	busy, _ := w.tunnel("raw.example.com:443")
	go func() {
		_ = tls.Client(busy, &tls.Config{ServerName: "raw.example.com"}).Handshake()
	}()
	if err := w.b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a cut answer seems whole")
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the tunnel is open")
	}
	for _, l := range w.lines(3) {
		if l.Refused != "" {
			t.Errorf("record: %+v", l)
		}
	}
	if _, err := net.Dial("tcp", w.proxy); err == nil {
		t.Error("the proxy still listens")
	}
}
