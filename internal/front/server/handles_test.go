package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A client that exchanges without end keeps its newest handles and takes none from
// others.
func TestHandlesAreBoundedForEachToken(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSessions(func() time.Time { return now })
	defer s.close()
	here := peer{uid: 1, pid: 2}
	begin := func(id api.TokenID) string {
		now = now.Add(time.Millisecond)
		process, err := openProcess(peer{pid: int32(os.Getpid())}) //nolint:gosec // G115: a process
		if err != nil {
			t.Fatal(err)
		}
		handle, _ := s.begin(session{token: id, peer: here, process: process, active: func() bool { return true }})
		return handle
	}
	good := func(handle string) bool {
		_, err := s.find([]string{handle}, here)
		return err == nil
	}
	other := begin("t-b")
	var all []string
	for range 3 * maxSessions {
		all = append(all, begin("t-a"))
	}
	for i, handle := range all {
		if newest := i >= len(all)-maxSessions; good(handle) != newest {
			t.Errorf("handle %d of %d: good = %v", i, len(all), !newest)
		}
	}
	if !good(other) {
		t.Error("another token's handle is gone")
	}
	if n := len(s.open); n != maxSessions+1 {
		t.Errorf("%d are kept", n)
	}
	now = now.Add(sessionTime)
	begin("t-c")
	if n := len(s.open); n != 1 {
		t.Errorf("%d are kept although all but one have expired", n)
	}
}

// A clock that is set back gains nothing.
func TestRefusalsAreLoggedWithinTheirQuota(t *testing.T) {
	now := time.Unix(1000, 0)
	f := newQuota[struct{}](func() time.Time { return now }, refusalRate, refusalBurst)
	taken := func(n int) (had int) {
		for range n {
			if f.take(struct{}{}) {
				had++
			}
		}
		return had
	}
	if got := taken(100); got != refusalBurst {
		t.Errorf("%d at once", got)
	}
	now = now.Add(3 * time.Second / refusalRate)
	if got := taken(100); got != 3 {
		t.Errorf("%d after three", got)
	}
	now = now.Add(-time.Hour)
	if got := taken(100); got != 0 {
		t.Errorf("%d after the clock was set back", got)
	}
	now = now.Add(24 * time.Hour)
	if got := taken(100); got != refusalBurst {
		t.Errorf("%d after a day", got)
	}
	if n := f.dropped()[struct{}{}]; n != 400-2*refusalBurst-3 {
		t.Errorf("%d have no entry", n)
	}
	if n := f.dropped()[struct{}{}]; n != 0 {
		t.Errorf("%d are summed up twice", n)
	}
}

// FuzzDeclared: the declared ceiling is the one named, or the lowest if none is
// named unambiguously.
func FuzzDeclared(f *testing.F) {
	f.Add("stateful", "", false)
	f.Add("observe", "irreversible", true)
	f.Fuzz(func(t *testing.T, first, second string, both bool) {
		h := http.Header{api.CeilingHeader: {first}}
		if both {
			h.Add(api.CeilingHeader, second)
		}
		got, want := declared(h), api.Observe
		if named, err := api.ParseTier(first); err == nil && !both {
			want = named
		}
		if got != want {
			t.Errorf("%q, %q is %s, want %s", first, second, got, want)
		}
	})
}

// FuzzStrayToken: a token in an address is found, however it is escaped.
func FuzzStrayToken(f *testing.F) {
	f.Add("/v1/x", "a", uint8(0))
	f.Add("/v1/%2562wt_", "b", uint8(2))
	f.Fuzz(func(t *testing.T, path, query string, escapes uint8) {
		token := api.TokenText([32]byte{1})
		for range escapes % 3 {
			token = url.PathEscape(strings.ReplaceAll(token, "_", "%5F"))
		}
		u, err := url.ParseRequestURI("/" + url.PathEscape(path) + "?x=" + url.QueryEscape(query) + "&t=" + token)
		if err != nil {
			return
		}
		if got := strayToken(&http.Request{URL: u, RequestURI: u.RequestURI()}); got == "" {
			t.Errorf("%s has a token", u.RequestURI())
		}
	})
}

// A request is refused if its token ends before its body has arrived.
//
// proves R-T4
func TestARequestThatOutlastsItsTokenIsRefused(t *testing.T) {
	for name, end := range map[string]bool{"revoked": true, "positive control": false} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			text, id := h.token("agent:claude", time.Hour)
			s := h.session(text)
			c := must[net.Conn](t)(net.Dial("unix", h.socket))
			defer c.Close() //nolint:errcheck // the test's
			body := `{"operation":"x","message":"slow"}`
			_ = must[int](t)(fmt.Fprintf(c, "POST /v1/runtime/refused HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n%s: %s\r\n\r\n",
				len(body), api.SessionHeader, s.Handle))
			in := bufio.NewReader(c)
			// The service reads the body after it has established the caller.
			if line := must[string](t)(in.ReadString('\n')); !strings.Contains(line, "100 Continue") {
				t.Fatalf("%q", line)
			}
			if end {
				h.decide(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", id })
			}
			_ = must[int](t)(io.WriteString(c, body))
			_ = must[string](t)(in.ReadString('\n')) // the empty line behind 100 Continue
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() //nolint:errcheck // only read
			a := reply{resp.StatusCode, string(must[[]byte](t)(io.ReadAll(resp.Body)))}
			if end {
				h.unauthenticated(name, a, "no longer active", string(id))
			} else if a.status != http.StatusOK {
				t.Errorf("%+v", a)
			}
		})
	}
}
