package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// What a call and a login cost over TLS and at the socket, in pairs. Each has to be
// answered; the times are for docs/benchmarks.md, and are not compared.
func TestWhatTLSCosts(t *testing.T) {
	const calls, logins = 200, 20
	f := newFar(t)
	f.pass(time.Minute)
	s := f.login()
	tlsTransport := func(kept bool) *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: f.roots}, DisableKeepAlives: !kept}
	}
	unixTransport := func(kept bool) *http.Transport {
		return &http.Transport{DisableKeepAlives: !kept, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", f.socket)
		}}
	}
	call := func(c *http.Transport, method, url, body, handle string) string {
		t.Helper()
		req := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if handle != "" {
			req.Header.Set(api.SessionHeader, handle)
		}
		resp := must[*http.Response](t)(c.RoundTrip(req)) //nolint:bodyclose // below
		defer resp.Body.Close()
		b := must[[]byte](t)(io.ReadAll(resp.Body))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, url, resp.StatusCode, b)
		}
		return string(b)
	}
	median := func(n int, do func()) time.Duration {
		all := make([]time.Duration, n)
		for i := range all {
			f.pass(time.Second) // rates go by this clock
			start := time.Now()
			do()
			all[i] = time.Since(start)
		}
		slices.Sort(all)
		return all[n/2].Round(10 * time.Microsecond)
	}
	remote := "https://" + f.address
	for _, kept := range []bool{false, true} {
		at, over := unixTransport(kept), tlsTransport(kept)
		who := api.CallWho.Path()
		t.Logf("a call, connection kept %v: socket %s, TLS %s", kept, median(calls, func() { call(at, "GET", "http://x"+who, "", "") }), median(calls, func() { call(over, "GET", remote+who, "", s.Session) }))
		at.CloseIdleConnections()
		over.CloseIdleConnections()
	}
	login := func(c *http.Transport, base string) {
		p := into[api.PasskeyChallenge](t, reply{http.StatusOK, call(c, "POST", base+"/v1/login/passkey/begin", text(t, api.PasskeyBegin{Origin: softkey.Origin}), "")})
		by := must[seal.Assertion](t)(f.ann.Assert([32]byte(p.Challenge)))
		call(c, "POST", base+"/v1/login/passkey/finish", text(t, api.PasskeyLogin{ID: p.ID, Assertion: api.Assertion(by)}), "")
	}
	at, over := unixTransport(false), tlsTransport(false)
	t.Logf("a login with a passkey, two connections: socket %s, TLS %s", median(logins, func() { login(at, "http://x") }), median(logins, func() { login(over, remote) }))
}
