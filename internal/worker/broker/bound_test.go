package broker

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

func TestRequestsOfAnAttemptAreBounded(t *testing.T) {
	small := defaultBounds()
	small.requests, small.hostRequests, small.hostBytes = 5, 3, 3000
	w := newWorld(t, Config{Egress: []string{"a.example.com:80", "b.example.com:80"}, bounds: small})
	w.host("a.example.com:80", echo)
	w.host("b.example.com:80", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, strings.Repeat("x", 1<<20)) })
	for i, want := range []string{"200", "200", "200", "more than 3 requests to this host"} {
		if status, body := w.get("http://a.example.com/"); !strings.Contains(fmt.Sprint(status, body), want) {
			t.Errorf("request %d: %d %s", i+1, status, body)
		}
	}
	if status, body := w.get("http://b.example.com/"); status != 200 || len(body) > 100<<10 {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	if status, body := w.get("http://b.example.com/"); status != 403 || !strings.Contains(body, "more than 5 requests") {
		t.Errorf("%d %s", status, body)
	}
	cut := 0
	for _, l := range w.lines(6) {
		if strings.Contains(l.Error, "byte limit for this host") {
			cut++
		}
	}
	if cut != 1 {
		t.Errorf("%d lines say that the bytes are spent", cut)
	}
}

func TestBytesOfATunnelAreBounded(t *testing.T) {
	small := defaultBounds()
	small.hostBytes = 6 << 20
	w := newWorld(t, Config{Egress: []string{"a.example.com:443"}, bounds: small})
	w.host("a.example.com:443", func(rw http.ResponseWriter, _ *http.Request) {
		for range 100 {
			if _, err := rw.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	if _, body := w.get("https://a.example.com/"); !strings.Contains(body, "EOF") && !strings.Contains(body, "reset") {
		t.Errorf("%.200s, %d bytes", body[max(0, len(body)-200):], len(body))
	}
	if l := w.lines(1)[0]; !strings.Contains(l.Error, "byte limit for this host") || l.Received > 20<<20 {
		t.Errorf("record: %+v", l)
	}
}

func TestTooManyRefusalsAreSpentOnce(t *testing.T) {
	w := newWorld(t, Config{})
	for range record.MaxRefusals + 5 {
		_ = w.speak("GET http://evil.example.com/ HTTP/1.1\r\nHost: evil.example.com\r\n\r\n")
	}
	if len(w.spent) != 1 || w.spent[0] != "more than 1000 refused requests" {
		t.Errorf("spent: %q", w.spent)
	}
}

// More connections than the bound wait, and slow ones end.
func TestSlowAgentsTimeOut(t *testing.T) {
	small := defaultBounds()
	small.conns, small.head, small.idle = 4, 50*time.Millisecond, 100*time.Millisecond
	w := newWorld(t, Config{Egress: []string{"a.example.com:80", "a.example.com:443", "slow.example.com:80"}, bounds: small})
	w.host("a.example.com:80", echo)
	w.raw("a.example.com:443", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	w.host("slow.example.com:80", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, text := range []string{
		"", "GET http://a.exa", "GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\n", "POST http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 10\r\n\r\nx",
		"POST http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 1000000\r\n\r\nx", "CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com\r\n\r\n",
		"CONNECT a.example.com:443 HTTP/1.1\r\nHost: a.example.com\r\n\r\n\x16\x03\x01\x01\x00", "GET http://slow.example.com/ HTTP/1.1\r\nHost: slow.example.com\r\n\r\n",
	} {
		start := time.Now()
		for range 3 {
			c, err := net.Dial("tcp", w.proxy)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, text)
		}
		if answer := w.speak(text); time.Since(start) > 5*time.Second {
			t.Errorf("%q: after %s: %s", text, time.Since(start), answer)
		}
	}
	c, _ := w.tunnel("a.example.com:443")
	s := tls.Client(c, &tls.Config{ServerName: "a.example.com"})
	if err := s.Handshake(); err == nil || strings.Contains(err.Error(), "i/o timeout") {
		t.Errorf("an idle tunnel: %v", err)
	}
	if status, body := w.get("http://a.example.com/"); status != 200 {
		t.Errorf("control: %d %s", status, body)
	}
}

func TestALargeHeaderIsRefused(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"a.example.com:80"}})
	if answer := w.speak("GET http://a.example.com/ HTTP/1.1\r\nHost: a.example.com\r\nX: " + strings.Repeat("x", 2*maxHead) + "\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 431 ") {
		t.Errorf("%.200s", answer)
	}
}

func TestNoGoroutineIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("uses", TestAWebSocketIsRelayedAndSearched)
	t.Run("uses", TestASecretIsPutInOnlyForItsHosts)
	t.Run("uses", TestCloseEndsEverything)
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, before %d:\n%s", runtime.NumGoroutine(), before, b[:runtime.Stack(b, true)])
		}
	}
}
