package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/login"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// ring is passkeys in force.
type ring []seal.Key

func (r ring) Passkeys() []seal.Key                { return r }
func (r ring) CheckCount(seal.KeyID, uint32) error { return nil }

// far is a service that serves remote callers too.
type far struct {
	*house
	address string
	roots   *x509.CertPool
	ann     *softkey.Authenticator
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{ann: must[*softkey.Authenticator](t)(softkey.New(false))}
	k := must[seal.Key](t)(f.ann.Key("ann"))
	k.Principal = "human:ann"
	f.house = newHouse(t, func(h *house, cfg *Config) {
		cfg.Passkeys = login.NewPasskeys(ring{k}, "service", h.now)
		cfg.People = must[*login.Sessions](t)(login.Open(t.Context(), login.Config{Ledger: h.ledger, Now: h.now}))
	})
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	f.roots = x509.NewCertPool()
	f.roots.AddCert(must[*x509.Certificate](t)(x509.ParseCertificate(der)))
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	f.address = l.Addr().String()
	served := make(chan error, 1)
	go func() {
		served <- f.server.ServeRemote(Remote{Listener: l, TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	}()
	t.Cleanup(func() {
		_ = f.server.remote.end(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return f
}

// remote makes a call over TLS.
func (f *far) remote(method, path, body string, headers ...string) reply {
	f.t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.roots}}
	defer transport.CloseIdleConnections()
	req := must[*http.Request](f.t)(http.NewRequestWithContext(f.t.Context(), method, "https://"+f.address+path, strings.NewReader(body)))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp := must[*http.Response](f.t)(transport.RoundTrip(req)) //nolint:bodyclose // below
	defer resp.Body.Close()
	b := must[[]byte](f.t)(io.ReadAll(resp.Body))
	return reply{resp.StatusCode, string(b)}
}

func text(t *testing.T, v any) string { return string(must[[]byte](t)(json.Marshal(v))) }

func into[T any](t *testing.T, r reply) (v T) {
	t.Helper()
	if r.status/100 != 2 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// login logs ann in with her passkey.
func (f *far) login() api.PersonSession {
	f.t.Helper()
	c := into[api.PasskeyChallenge](f.t, f.remote("POST", "/v1/login/passkey/begin", text(f.t, api.PasskeyBegin{Origin: softkey.Origin})))
	by := must[seal.Assertion](f.t)(f.ann.Assert([32]byte(c.Challenge)))
	body := text(f.t, api.PasskeyLogin{ID: c.ID, Assertion: api.Assertion(by)})
	s := into[api.PersonSession](f.t, f.remote("POST", "/v1/login/passkey/finish", body))
	// The same answer opens no second session.
	if again := f.remote("POST", "/v1/login/passkey/finish", body); again.status != http.StatusUnauthorized {
		f.t.Errorf("the same answer again: %d %s", again.status, again.body)
	}
	return s
}

// proves R-T4
func TestAPersonLogsInRemotely(t *testing.T) {
	f := newFar(t)
	s := f.login()
	who := into[api.Who](t, f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, s.Session))
	if who.Principal != "human:ann" || who.Auth != api.AuthSession {
		t.Errorf("%+v", who)
	}
	list := into[[]api.SessionInfo](t, f.remote("GET", "/v1/sessions", "", api.SessionHeader, s.Session))
	if len(list) != 1 || list[0].ID != s.ID || !list[0].Current || list[0].From != "127.0.0.1" || list[0].Via != api.LoginPasskey {
		t.Errorf("%+v", list)
	}
	// Not on the socket, not for another, and not after its end.
	if r := f.call("GET", "/v1/runtime/who", "", api.SessionHeader, s.Session); r.status != http.StatusUnauthorized {
		t.Errorf("on the socket: %d %s", r.status, r.body)
	}
	token, _ := f.token("agent:a", time.Hour)
	handle := into[api.Session](t, f.remote("POST", "/v1/session", text(t, api.SessionRequest{Token: token}))).Handle
	if r := f.remote("DELETE", "/v1/sessions/"+s.ID, "", api.SessionHeader, handle); r.status != http.StatusNotFound {
		t.Errorf("by another: %d %s", r.status, r.body)
	}
	if r := f.remote("GET", "/v1/operator/log", "", api.SessionHeader, s.Session); r.status != http.StatusForbidden {
		t.Errorf("ann is no operator: %d %s", r.status, r.body)
	}
	if r := f.remote("DELETE", "/v1/sessions/"+s.ID, "", api.SessionHeader, s.Session); r.status != http.StatusOK {
		t.Errorf("logout: %d %s", r.status, r.body)
	}
	if r := f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, s.Session); r.status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d %s", r.status, r.body)
	}
	// The operator of the service sees and ends the sessions of everybody.
	s = f.login()
	if list := into[[]api.SessionInfo](t, f.call("GET", "/v1/sessions", "")); len(list) != 1 {
		t.Errorf("%+v", list)
	}
}

// proves R-T4, R-T6
func TestATokenIsUsedRemotely(t *testing.T) {
	f := newFar(t)
	token, id := f.token("agent:a", time.Hour)
	handle := into[api.Session](t, f.remote("POST", "/v1/session", text(t, api.SessionRequest{Token: token}))).Handle
	who := into[api.Who](t, f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, handle))
	if who.Principal != "agent:a" || who.Auth != api.AuthToken {
		t.Errorf("%+v", who)
	}
	local := into[api.Session](t, f.call("POST", "/v1/session", text(t, api.SessionRequest{Token: token}))).Handle
	for name, r := range map[string]reply{
		"a handle of TLS on the socket": f.call("GET", "/v1/runtime/who", "", api.SessionHeader, handle),
		"one of the socket over TLS":    f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, local),
		"the token as a handle":         f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, token),
		"the token as Authorization":    f.remote("GET", "/v1/runtime/who", "", "Authorization", "Bearer "+token),
	} {
		if r.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	f.decide(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:a", id })
	if r := f.remote("GET", "/v1/runtime/who", "", api.SessionHeader, handle); r.status != http.StatusUnauthorized {
		t.Errorf("after the token was revoked: %d %s", r.status, r.body)
	}
}

// A stranger gets nothing. The control makes the same requests with a session.
//
// proves R-T4, R-T3
func TestAStrangerGetsNothingRemotely(t *testing.T) {
	f := newFar(t)
	session := f.login()
	hostile := [][]string{
		{},
		{api.SessionHeader, ""},
		{api.SessionHeader, strings.Repeat("0", 64)},
		{api.SessionHeader, session.ID},
		{api.SessionHeader, session.Session, api.SessionHeader, session.Session},
		{"Authorization", "Bearer " + session.Session},
		{"Cookie", "session=" + session.Session},
		{"X-Forwarded-For", "127.0.0.1", "X-Remote-User", "root"},
		{"Origin", "https://evil.example", api.SessionHeader, session.Session},
	}
	made, answered := 0, map[string]bool{}
	for _, call := range api.Calls() {
		path := call.Path("d-1", "x")
		body := ""
		if call.Method() != http.MethodGet {
			body = "{}"
		}
		for i, headers := range hostile {
			if i > 0 && made%3 != 0 && i != made%len(hostile) { // each call in some ways, all in all
				made++
				continue
			}
			made++
			f.pass(20 * time.Second) // the rate of an address is a test of its own
			r := f.remote(call.Method(), path, body, headers...)
			public := (len(headers) == 0 || headers[0] == "X-Forwarded-For") && (call.Class() == api.ClassLogin || call.Class() == api.ClassSession)
			switch {
			case public && call == api.CallLoginMethods && r.status == http.StatusOK:
			case public && r.status >= 400 && r.status != http.StatusInternalServerError: // nothing that it was given opens a session
			case !public && r.status == http.StatusUnauthorized:
			default:
				t.Errorf("%s with %q: %d %s", call, headers, r.status, r.body)
			}
			if strings.Contains(r.body, f.dir) {
				t.Errorf("%s tells a path: %s", call, r.body)
			}
		}
		// The control, with the calls that wait for nothing.
		switch call { //nolint:exhaustive // some are enough
		case api.CallWho, api.CallCapabilities, api.CallSubagents, api.CallEnvs, api.CallDispatchList, api.CallSessionList:
			session = f.login()
			if r := f.remote(call.Method(), path, "", api.SessionHeader, session.Session); r.status == http.StatusOK {
				answered[string(call)] = true
			}
		}
	}
	if made < 100 || len(answered) < 6 {
		t.Errorf("%d hostile requests; a session gets answers to %d calls", made, len(answered))
	}
}

// proves R-T3
func TestRemoteBytesAreStrict(t *testing.T) {
	f := newFar(t)
	s := f.login()
	raw := func(text string, config *tls.Config) string {
		c, err := tls.Dial("tcp", f.address, config)
		if err != nil {
			return "handshake: " + err.Error()
		}
		defer c.Close()
		fmt.Fprint(c, text)
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	good := &tls.Config{RootCAs: f.roots}
	head := "GET /v1/runtime/who HTTP/1.1\r\nHost: x\r\n" + api.SessionHeader + ": " + s.Session + "\r\n"
	if got := raw(head+"\r\n", good); !strings.Contains(got, "200") {
		t.Fatalf("the control: %s", got)
	}
	for name, c := range map[string]struct {
		text   string
		config *tls.Config
		want   string
	}{
		"TLS 1.2":        {head + "\r\n", &tls.Config{RootCAs: f.roots, MaxVersion: tls.VersionTLS12}, "handshake"},
		"two lengths":    {head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", good, "400"},
		"two framings":   {head + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", good, "400"},
		"a long header":  {head + "X: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", good, "431"},
		"a bare newline": {strings.ReplaceAll(head, "\r\n", "\n") + "\n", good, "400"},
	} {
		if got := raw(c.text, c.config); !strings.Contains(got, c.want) && got != "" {
			t.Errorf("%s: %q, want %s", name, got, c.want)
		}
	}
	plain := must[net.Conn](t)(net.Dial("tcp", f.address))
	defer plain.Close()
	fmt.Fprint(plain, head+"\r\n")
	if b, _ := io.ReadAll(plain); strings.Contains(string(b), "human:ann") {
		t.Errorf("without TLS: %s", b)
	}
}

// An address and a principal have a rate. Another principal is not refused with it.
//
// proves R-T5
func TestRemoteRatesAreBounded(t *testing.T) {
	f := newFar(t)
	s := f.login()
	throttled := func(headers ...string) (n int) {
		for range 2 * anonymousBurst {
			if r := f.remote("GET", "/v1/login", "", headers...); r.status == http.StatusTooManyRequests {
				n++
			}
		}
		return n
	}
	if n := throttled(); n < anonymousBurst/2 {
		t.Errorf("%d of %d requests without a caller are throttled", n, 2*anonymousBurst)
	}
	if n := throttled(api.SessionHeader, s.Session); n != 0 {
		t.Errorf("%d requests of a session are throttled with those of its address", n)
	}
	token, _ := f.token("agent:claude", time.Hour)
	present := func(token string) int {
		return f.remote("POST", "/v1/session", text(t, api.SessionRequest{Token: token})).status
	}
	for range 2 * anonymousBurst {
		if status := present(token); status != http.StatusOK {
			t.Fatalf("a valid token is answered with %d at an address without requests left", status)
		}
	}
	if status := present(api.TokenPrefix + "guessed"); status != http.StatusTooManyRequests {
		t.Errorf("control: a guessed token is answered with %d", status)
	}
	b := newBounds(f.now)
	for range principalOpen {
		if !b.begin("human:ann") {
			t.Fatal("within the bound")
		}
	}
	if b.begin("human:ann") || !b.begin("human:bob") {
		t.Error("one principal takes the share of another, or more than its own")
	}
}
