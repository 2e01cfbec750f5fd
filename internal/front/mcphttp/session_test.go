package mcphttp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// proves R-T3, R-T4
func TestASessionBelongsToOneClient(t *testing.T) {
	f := newTestServer(t, nil)
	const version = "2025-11-25"
	id := f.open(goodToken(1), version, "")
	f.want("its own", withSession(version, id, plainList), 200)
	for name, other := range map[string]string{"another principal": goodToken(2), "another token of the principal": goodToken(3)} {
		f.service.with(func() { f.service.refused = nil })
		r := withSession(version, id, plainList)
		r.token = other
		foreign := f.want(name, r, 404)
		f.service.with(func() {
			if len(f.service.refused) != 1 || !strings.Contains(f.service.refused[0], "belongs to another client") {
				t.Errorf("%s: logged: %q", name, f.service.refused)
			}
		})
		r = withSession(version, strings.Repeat("0", 32), plainList)
		r.token = other
		if none := f.want("an unknown session", r, 404); none.body != foreign.body {
			t.Errorf("%s: %s and %s", name, foreign, none)
		}
		r = rawRequest{method: "DELETE", token: other, header: []string{"Mcp-Session-Id: " + id}}
		f.want(name+" ends it", r, 404)
		r = rawRequest{token: other, header: []string{"Mcp-Session-Id: " + id}}
		f.want(name+" in a revision without sessions", r, 404)
		r = withSession(version, id, initialize(version, ""))
		r.token = other
		f.want(name+" initialises", r, 404)
	}
	f.want("its own, still", withSession(version, id, plainList), 200)
	f.want("none", withSession(version, "", plainList), 400, "initialize")
	f.want("none, and no revision", rawRequest{body: plainList, without: "Mcp-Protocol-Version,Mcp-Method"}, 400, "initialize")
	f.want("in another case", withSession(version, strings.ToUpper(id), plainList), 404)
	f.want("ended", rawRequest{method: "DELETE", header: []string{"Mcp-Session-Id: " + id}}, 204)
	f.want("after it ended", withSession(version, id, plainList), 404)
	f.want("ended twice", rawRequest{method: "DELETE", header: []string{"Mcp-Session-Id: " + id}}, 404)
	f.want("DELETE without a session", rawRequest{method: "DELETE"}, 400)
}

// proves R-T5
func TestADeclaredCeilingExpiresAnHourAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions(time.Now)
		ann, other := owner{principal: "agent:ann"}, owner{principal: "agent:ann", token: [32]byte{1}}
		holds := func(why string, want string) {
			t.Helper()
			got := "none"
			if c := s.ceiling(ann); c != nil {
				got = c.String()
			}
			if got != want {
				t.Errorf("%s: %s, want %s", why, got, want)
			}
		}
		reversible, observe := api.Reversible, api.Observe
		first := s.begin(ann, &reversible)
		second := s.begin(ann, &observe)
		holds("the lowest", "observe")
		time.Sleep(40 * time.Minute)
		s.use(ann, first)
		time.Sleep(40 * time.Minute)
		holds("the lower one was not used for an hour", "reversible")
		if s.use(ann, second) != sessionUnknown || s.use(other, first) != sessionForeign {
			t.Error("session states after an hour")
		}
		s.end(other, first)
		if s.use(ann, first) != sessionOwn {
			t.Error("ended by another owner")
		}
		s.end(ann, first)
		for range 2 * maxSessions {
			s.begin(ann, nil)
		}
		holds("its session has ended, and there are many others", "reversible")
		if len(s.byID) != maxSessions {
			t.Errorf("%d sessions", len(s.byID))
		}
		time.Sleep(59 * time.Minute)
		s.begin(ann, nil)
		holds("a session that declared nothing does not renew it", "reversible")
		time.Sleep(2 * time.Minute)
		holds("an hour later", "none")
		time.Sleep(2 * time.Hour)
		if s.sweepNow(); len(s.byID)+len(s.owners) != 0 {
			t.Errorf("left: %d, %d", len(s.byID), len(s.owners))
		}
	})
}

// sweepNow drops what has expired, as any use does.
func (s *sessions) sweepNow() { s.ceiling(owner{}) }
