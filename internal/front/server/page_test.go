package server

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/login"
)

// newPaged is a house whose test's account is that of the page, with one session of Bob.
func newPaged(t *testing.T, page api.Principal) (h *house, handle string) {
	t.Helper()
	var people *login.Sessions
	h = newHouse(t, func(h *house, c *Config) {
		people = must[*login.Sessions](t)(login.Open(t.Context(), login.Config{Ledger: h.ledger, Now: h.now}))
		c.People, c.Page = people, page
		c.Login = func(uint32) (string, error) { return "bailiwick-web", nil }
	})
	opened := must[api.PersonSession](t)(people.Begin(t.Context(), login.Identity{Principal: "human:bob", Via: api.LoginPasskey, Credential: api.DigestOf([]byte("c"))}, "unix:0", ""))
	return h, opened.Session
}

// Who takes the page over makes no call of its own but those by which people log in, and in
// a session that it holds what its person may. The controls: the same account where it is
// not the page's, and each kind of call in the session.
//
// takeover system, page: until start, read work
//
// proves R-S2
func TestATakenOverPageMayWhatItsSessionsMay(t *testing.T) {
	h, handle := newPaged(t, "local:bailiwick-web")
	path := strings.NewReplacer("{id}", "s-1", "{number}", "1", "{name}", "n", "{kind}", "subagent", "{role}", "r", "{principal}", "human:bob", "{path...}", "x")
	login := 0
	for _, call := range api.Calls() {
		_, pattern, _ := strings.Cut(string(call), " ")
		body := ""
		if call.Method() == http.MethodPost {
			body = "{}"
		}
		a := h.call(call.Method(), path.Replace(pattern), body)
		if call.Class() == api.ClassLogin {
			login++
			if a.status == http.StatusForbidden {
				t.Errorf("%s: the page logs nobody in: %+v", call, a)
			}
		} else if a.status != http.StatusForbidden || !strings.Contains(a.body, "account of the page") {
			t.Errorf("%s by the page itself: %+v", call, a)
		}
	}
	if login < 5 {
		t.Errorf("%d calls of logins: the test shows nothing", login)
	}
	if a := h.call("GET", "/v1/none", ""); a.status != http.StatusForbidden {
		t.Errorf("an unknown call: %+v", a)
	}
	if list := h.logged(record.KindAuthRefused); !slices.ContainsFunc(list, func(c audit.Committed) bool { return strings.Contains(c.Entry.Line(c.Seq), "account of the page") }) {
		t.Error("no entry says so")
	}
	who, a := h.who(api.SessionHeader, handle)
	if who.Principal != "human:bob" || who.Auth != api.AuthSession || who.Operator {
		t.Errorf("in the session: %+v", a)
	}
	if a := h.call("POST", "/v1/operator/stop", "", api.SessionHeader, handle); a.status != http.StatusForbidden || strings.Contains(a.body, "account of the page") {
		t.Errorf("what Bob may not: %+v", a)
	}
	if a := h.call("GET", "/v1/runtime/runs", "", api.SessionHeader, handle); a.status != http.StatusOK {
		t.Errorf("what Bob may: %+v", a)
	}
	if _, a := h.who(api.SessionHeader, strings.Repeat("0", 64)); a.status != http.StatusUnauthorized {
		t.Errorf("a made-up session: %+v", a)
	}
	other, handle := newPaged(t, "")
	if who, a := other.who(); who.Principal != "local:bailiwick-web" {
		t.Errorf("without a page: %+v", a)
	}
	// A session is of the account that it was opened for: stolen, it is of no use to another.
	if a := other.elsewhere(65534, "GET", "/v1/runtime/who", "", api.SessionHeader, handle); a.status != http.StatusUnauthorized {
		t.Errorf("in another account: %+v", a)
	}
}

// The log has the address of the browser that the page logs in for. Of other accounts the
// header counts for nothing, and what is no address is left out.
func TestThePagePassesTheAddressOfABrowserOn(t *testing.T) {
	for name, c := range map[string]struct {
		page    api.Principal
		headers []string
		want    string
	}{
		"the page":           {"local:bailiwick-web", []string{api.FromHeader, "192.0.2.7"}, "192.0.2.7"},
		"a mapped address":   {"local:bailiwick-web", []string{api.FromHeader, "::ffff:192.0.2.7"}, "192.0.2.7"},
		"another account":    {"local:other", []string{api.FromHeader, "192.0.2.7"}, ""},
		"no address":         {"local:bailiwick-web", []string{api.FromHeader, "192.0.2.7, sudo"}, ""},
		"two addresses":      {"local:bailiwick-web", []string{api.FromHeader, "192.0.2.7", api.FromHeader, "192.0.2.8"}, ""},
		"without the header": {"local:bailiwick-web", nil, ""},
	} {
		h, _ := newPaged(t, c.page)
		h.server.cfg.Passkeys, h.server.callers.Passkeys = nil, login.NewPasskeys(h.registry, "s", h.now)
		a := h.call("POST", "/v1/login/passkey/finish", `{"id": "x", "assertion": {"authenticatorData": "eA==", "clientDataJSON": "eA==", "credentialId": "eA==", "signature": "eA=="}}`, c.headers...)
		list := h.logged(record.KindAuthRefused)
		if a.status != http.StatusUnauthorized || len(list) != 1 {
			t.Fatalf("%s: %+v, %d entries", name, a, len(list))
		}
		line := list[0].Entry.Line(list[0].Seq)
		if c.want == "" && strings.Contains(line, "from") || c.want != "" && !strings.Contains(line, "from "+c.want+`"`) {
			t.Errorf("%s: %s", name, line)
		}
	}
}
