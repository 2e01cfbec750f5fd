package server

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
)

// raw sends bytes over TLS, and returns the first line of the answer and all of it.
func (f *far) raw(text string, config *tls.Config) (line, all string) {
	f.t.Helper()
	config.RootCAs = f.roots
	c, err := tls.Dial("tcp", f.address, config)
	if err != nil {
		return "handshake: " + err.Error(), ""
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // a server that waits for more fails the test
	_, _ = io.WriteString(c, text)
	r := bufio.NewReader(c)
	line, err = r.ReadString('\n')
	rest := ""
	if err == nil {
		var b strings.Builder
		b.WriteString(line)
		for { // to the end of the head, and what came with it
			l, err := r.ReadString('\n')
			b.WriteString(l)
			if err != nil || strings.TrimSpace(l) == "" {
				break
			}
		}
		part, _ := r.Peek(r.Buffered())
		rest = b.String() + string(part)
	}
	return line, rest
}

// refusals returns what the log says about refused callers.
func (f *far) refusals() (list []record.AuthRefused) {
	f.t.Helper()
	for _, e := range must[[]audit.Committed](f.t)(f.ledger.List(f.t.Context(), audit.Query{Kinds: []record.Kind{record.KindAuthRefused}, Limit: 1000})) {
		list = append(list, e.Entry.Detail.(record.AuthRefused))
	}
	return list
}

// More than a hundred hostile connections of a stranger, each of whom has something that
// looks right, get nothing: the answer has no 2xx and does not name the person. The control
// before each sends the same bytes with a valid session.
//
// proves R-T4, R-T3
func TestHostileConnectionsGetNothing(t *testing.T) {
	f, other := newFar(t), newFar(t)
	ended := f.login()
	if r := f.remote("DELETE", "/v1/sessions/"+ended.ID, "", api.SessionHeader, ended.Session); r.status != http.StatusOK {
		t.Fatalf("logout: %d %s", r.status, r.body)
	}
	foreign := other.login()
	short, _ := f.token("agent:short", time.Hour)
	shortHandle := into[api.Session](t, f.remote("POST", "/v1/session", text(t, api.SessionRequest{Token: short}))).Handle
	f.pass(2 * time.Hour) // the token has expired, and its handle
	session := f.login()
	header := func(h string) string { return api.SessionHeader + ": " + h + "\r\n" }
	mine := header(session.Session)
	wrong := map[string]string{
		"no handle":                   "",
		"the handle of a logout":      header(ended.Session),
		"the handle of an old token":  header(shortHandle),
		"an expired token":            header(short),
		"a handle of another server":  header(foreign.Session),
		"a handle of zeros":           header(strings.Repeat("0", 64)),
		"a handle with a space":       header(session.Session[:63] + " "),
		"a part of a handle":          header(session.Session[:32]),
		"a handle in capitals":        header(strings.ToUpper(session.Session)),
		"a handle in a cookie":        "Cookie: __Host-session=" + session.Session + "\r\n",
		"a handle as a bearer":        "Authorization: Bearer " + session.Session + "\r\n",
		"a handle as a password":      "Authorization: Basic " + session.Session + "\r\n",
		"a handle twice":              mine + mine,
		"a handle from a browser":     mine + "Origin: https://evil.example\r\n",
		"a handle from no origin":     mine + "Origin: null\r\n",
		"an account by a proxy":       "X-Forwarded-User: root\r\nX-Remote-User: root\r\nForwarded: for=127.0.0.1\r\n",
		"an address by a proxy":       "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: ::1\r\n",
		"a handle of the page's user": api.SessionHeader + ": " + session.ID + "\r\n",
	}
	requests := map[string]string{
		"who":        "GET /v1/runtime/who HTTP/1.1\r\nHost: x\r\n",
		"dispatches": "GET /v1/runtime/dispatches HTTP/1.1\r\nHost: x\r\n",
		"sessions":   "GET /v1/sessions HTTP/1.1\r\nHost: x\r\n",
		"localhost":  "GET /v1/runtime/who HTTP/1.1\r\nHost: localhost\r\n",
		"close":      "GET /v1/runtime/who HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
		"upgrade":    "GET /v1/runtime/who HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
	}
	made := 0
	nothing := func(name, line, all string) {
		t.Helper()
		made++
		if strings.Contains(line, " 2") || strings.Contains(line, " 101") || strings.Contains(all, "human:ann") || strings.Contains(all, f.dir) || strings.Contains(all, session.Session) {
			t.Errorf("%s: %q %q", name, line, all)
		}
	}
	for request, head := range requests {
		if line, _ := f.raw(head+mine+"\r\n", &tls.Config{}); !strings.Contains(line, "200") {
			t.Errorf("the control %s: %q", request, line)
		}
		for name, h := range wrong {
			f.pass(2 * time.Second) // the rate of an address is a test of its own
			line, all := f.raw(head+h+"\r\n", &tls.Config{})
			nothing(request+" with "+name, line, all)
		}
	}

	// What no session makes right: bytes that two readers could understand differently, other
	// protocols, and other paths.
	valid := "Host: x\r\n" + mine
	for name, text := range map[string]string{
		"HTTP/2 without TLS's word": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"an upgrade to h2c":         "GET /v1/login HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + "Origin: https://e\r\n\r\n",
		"CONNECT":                   "CONNECT 127.0.0.1:22 HTTP/1.1\r\n" + valid + "\r\n",
		"TRACE":                     "TRACE /v1/runtime/who HTTP/1.1\r\n" + valid + "\r\n",
		"an absolute address":       "GET https://127.0.0.1/v1/runtime/who HTTP/1.1\r\n" + valid + "\r\n",
		"a proxy's request":         "GET http://169.254.169.254/latest HTTP/1.1\r\n" + valid + "\r\n",
		"a path up":                 "GET /v1/runtime/../../etc/passwd HTTP/1.1\r\n" + valid + "\r\n",
		"an encoded path up":        "GET /v1/runtime/dispatches/%2e%2e%2f%2e%2e%2fetc%2fpasswd HTTP/1.1\r\n" + valid + "\r\n",
		"a path with a NUL":         "GET /v1/runtime/dispatches/a%00b HTTP/1.1\r\n" + valid + "\r\n",
		"two slashes":               "GET //v1/runtime/who HTTP/1.1\r\n" + valid + "\r\n",
		"no host":                   "GET /v1/runtime/who HTTP/1.1\r\n" + mine + "\r\n",
		"two hosts":                 "GET /v1/runtime/who HTTP/1.1\r\nHost: y\r\n" + valid + "\r\n",
		"two lengths":               "POST /v1/session HTTP/1.1\r\n" + valid + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"length and chunks":         "POST /v1/session HTTP/1.1\r\n" + valid + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a folded header":           "GET /v1/runtime/who HTTP/1.1\r\n" + valid + " folded\r\n\r\n",
		"a huge header":             "GET /v1/runtime/who HTTP/1.1\r\n" + valid + "X: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"ten thousand headers":      "GET /v1/runtime/who HTTP/1.1\r\n" + valid + strings.Repeat("X: a\r\n", 10000) + "\r\n",
		"an old version":            "GET /v1/runtime/who HTTP/0.9\r\n" + valid + "\r\n",
		"a smuggled second request": "POST /v1/session HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\nGET /v1/runtime/who HTTP/1.1\r\n" + valid + "\r\n",
	} {
		f.pass(2 * time.Second)
		line, all := f.raw(text, &tls.Config{})
		nothing(name, line, all)
	}

	// A client's certificate is no caller, and another name in SNI no other server.
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{"root"}, NotAfter: time.Now().Add(time.Hour)}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	for name, config := range map[string]*tls.Config{
		"a client's certificate": {Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
		"another name":           {ServerName: "other.example", InsecureSkipVerify: true}, //nolint:gosec // G402: it is an attacker
		"only h2":                {NextProtos: []string{"h2"}},
		"TLS 1.2":                {MaxVersion: tls.VersionTLS12}, //nolint:gosec // G402: likewise
	} {
		f.pass(2 * time.Second)
		line, all := f.raw(requests["who"]+"\r\n", config)
		nothing(name, line, all)
	}
	if line, _ := f.raw(requests["who"]+header(session.Session)+"\r\n", &tls.Config{}); !strings.Contains(line, "200") {
		t.Errorf("the control at the end: %q", line)
	}
	if made < 100 {
		t.Errorf("%d hostile connections", made)
	}

	// The log names what was presented, and never a secret.
	kinds := map[string]int{}
	for _, r := range f.refusals() {
		kinds[r.Via]++
		for _, secret := range []string{session.Session, ended.Session, shortHandle, short} {
			if strings.Contains(r.Claimed+r.Message, secret) {
				t.Errorf("the log has a secret: %+v", r)
			}
		}
	}
	if kinds["tls"] < 10 || kinds["session"] < 10 {
		t.Errorf("entries about refused callers: %v", kinds)
	}
}

// An address that opens connections and sends nothing, or one byte at a time, takes its own
// share alone: another address is served. Control: it is served again once they are closed.
//
// proves R-T5
func TestSlowConnectionsTakeTheShareOfTheirAddress(t *testing.T) {
	f := newFar(t)
	s := f.login()
	dial := func(from string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
		return d.DialContext(t.Context(), "tcp", f.address)
	}
	who := func(from string) error {
		raw, err := dial(from)
		if err != nil {
			return err
		}
		defer raw.Close()
		c := tls.Client(raw, &tls.Config{RootCAs: f.roots, ServerName: "127.0.0.1"})
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(c, "GET /v1/runtime/who HTTP/1.1\r\nHost: x\r\n%s: %s\r\n\r\n", api.SessionHeader, s.Session); err != nil {
			return err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && !strings.Contains(line, "200") {
			err = errors.New(line)
		}
		return err
	}
	if err := who("127.0.0.2"); err != nil {
		t.Fatalf("the control: %v", err)
	}
	taken := func() int {
		f.server.callers.remote.mu.Lock()
		defer f.server.callers.remote.mu.Unlock()
		n := 0
		for a, open := range f.server.callers.remote.open {
			if a.String() == "127.0.0.2" {
				n = open
			}
		}
		return n
	}
	var slow []net.Conn
	for range maxOfAddress {
		c, err := dial("127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte{0x16}) // the first byte of a handshake
		slow = append(slow, c)
	}
	f.until(func() bool { return taken() == maxOfAddress })
	if err := who("127.0.0.2"); err == nil {
		t.Error("an address has more connections than its share")
	}
	if err := who("127.0.0.3"); err != nil {
		t.Errorf("another address: %v", err)
	}
	for _, c := range slow {
		_ = c.Close()
	}
	f.until(func() bool { return taken() == 0 })
	if err := who("127.0.0.2"); err != nil {
		t.Errorf("after the slow connections have ended: %v", err)
	}
}

// until waits for a condition; the test's own limit ends it.
func (f *far) until(met func() bool) {
	f.t.Helper()
	for !met() {
		select {
		case <-f.t.Context().Done():
			f.t.Fatal("it did not happen")
		case <-time.After(time.Millisecond):
		}
	}
}

// The clock of the service steps. Nothing opens by it: what has ended stays ended when the
// clock goes back, and a step back of a session's opening ends its use rather than
// prolonging it. Control: the same session works while the clock is right.
//
// proves R-T4
func TestNoStepOfTheClockOpensASession(t *testing.T) {
	f := newFar(t)
	who := func(handle string) int {
		return f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, handle).status
	}
	s := f.login()
	if got := who(s.Session); got != http.StatusOK {
		t.Fatalf("the control: %d", got)
	}
	f.pass(13 * time.Hour)
	if got := who(s.Session); got != http.StatusUnauthorized {
		t.Errorf("after its end: %d", got)
	}
	f.pass(-13 * time.Hour)
	if got := who(s.Session); got != http.StatusUnauthorized {
		t.Errorf("it ended, and the clock went back: %d", got)
	}
	s = f.login()
	f.pass(-30 * time.Minute) // before the session was opened
	if got := who(s.Session); got != http.StatusUnauthorized {
		t.Errorf("a session of the future: %d", got)
	}
	token, _ := f.token("agent:clock", time.Hour)
	exchange := func() int {
		return f.remote("POST", "/v1/session", text(t, api.SessionRequest{Token: token})).status
	}
	if got := exchange(); got/100 != 2 {
		t.Fatalf("the control: %d", got)
	}
	f.pass(2 * time.Hour)
	if got := exchange(); got != http.StatusUnauthorized {
		t.Errorf("an expired token: %d", got)
	}
}
