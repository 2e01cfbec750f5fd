package broker

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// frame returns a frame of a WebSocket client.
func frame(final bool, payload string) string {
	key := "\x01\xa2\x33\xf4"
	b := []byte(payload)
	for i := range b {
		b[i] ^= key[i&3]
	}
	first := byte(0x01)
	if final {
		first |= 0x80
	}
	if len(b) < 126 {
		return string([]byte{first, 0x80 | byte(len(b))}) + key + string(b)
	}
	return string([]byte{first, 0x80 | 126, byte(len(b) >> 8), byte(len(b))}) + key + string(b)
}

// socket serves WebSockets that send back the raw bytes they get, behind hello.
func socket(got chan string, hello func(*http.Request) string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if !hasToken(r.Header, "Connection", "upgrade") {
			http.Error(rw, "no upgrade", http.StatusBadRequest)
			return
		}
		c, rb, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\nX-Extensions: %s\r\n\r\n%s", r.Header.Get("Sec-Websocket-Extensions"), hello(r))
		for b := make([]byte, 4096); ; {
			n, err := rb.Read(b)
			if err != nil {
				return
			}
			got <- string(b[:n])
			_, _ = c.Write(b[:n])
		}
	}
}

// dialSocket opens a WebSocket by absolute form. It returns the status and the header
// of the answer.
func (w *world) dialSocket(host string) (net.Conn, *bufio.Reader, int, http.Header) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.proxy)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "GET http://%s/chat HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
		host, host, base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")))
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return c, r, resp.StatusCode, resp.Header
}

func TestAWebSocketIsRelayedAndSearched(t *testing.T) {
	w := newWorld(t, Config{Egress: []string{"ws.example.com:80"}})
	got := make(chan string, 100)
	w.host("ws.example.com:80", socket(got, func(*http.Request) string { return "hello" }))
	c, r, status, header := w.dialSocket("ws.example.com")
	if status != 101 || header.Get("X-Extensions") != "" || header.Get("Sec-Websocket-Accept") != "x" {
		t.Fatalf("%d %v", status, header)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "hello" {
		t.Fatalf("%q %v", b, err)
	}
	for _, payload := range []string{"", "a", "a message", strings.Repeat("long ", 5000)} {
		sent := frame(true, payload)
		_, _ = io.WriteString(c, sent)
		back := make([]byte, len(sent))
		if _, err := io.ReadFull(r, back); err != nil || string(back) != sent {
			t.Fatalf("%d bytes: %v", len(sent), err)
		}
	}
	for len(got) > 0 {
		<-got
	}
	// A placeholder is split over two frames, byte by byte.
	ph := NewPlaceholder("")
	for _, b := range []byte(frame(false, "text "+ph[:9]) + frame(true, ph[9:])) {
		if _, err := c.Write([]byte{b}); err != nil {
			break
		}
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Log(err) // the connection is cut
	}
	w.wantRefused(1, "in its WebSocket")
	arrived := ""
	for len(got) > 0 {
		arrived += <-got
	}
	if want := frame(false, "text "+ph[:9])[:6+5]; !strings.HasPrefix(want, arrived) {
		t.Errorf("the server got %q, want no more than %q", arrived, want)
	}
	// Another host is refused like any request.
	if _, _, status, _ := w.dialSocket("evil.example.com"); status != 403 {
		t.Errorf("status %d", status)
	}
	w.wantRefused(2, "not in the egress list")
}

func TestAWebSocketWithASecret(t *testing.T) {
	secret, _ := brokered(api.Brokered{Hosts: []string{"api.example.com:443"}, Header: "X-Token"})
	w := newWorld(t, Config{Egress: []string{"api.example.com:443"}, Secrets: []Secret{secret}})
	got := make(chan string, 100)
	w.host("api.example.com:443", socket(got, func(r *http.Request) string { return "\x81\x17<" + r.Header.Get("X-Token") + ">" }))
	c := w.inTunnel("api.example.com")
	head := "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: evil.example.com\r\n%s", head)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil) //nolint:bodyclose // the connection is closed
	if err != nil || resp.StatusCode != 403 {
		t.Fatalf("%v %v", resp, err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	w.wantRefused(1, "names another host than its tunnel")
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: api.example.com\r\n%s", head)
	if resp, err = http.ReadResponse(r, nil); err != nil || resp.StatusCode != 101 { //nolint:bodyclose // likewise
		t.Fatalf("%v %v", resp, err)
	}
	b := make([]byte, 2+23)
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "\x81\x17<[redacted]***********>" {
		t.Errorf("%q %v", b, err)
	}
}
