package mcpserve

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// proves R-T3, R-T4
func TestASessionIsItsClientsAlone(t *testing.T) {
	f := newFront(t, nil)
	const version = "2025-11-25"
	id := f.open(goodToken(1), version, "")
	f.want("its own", old(version, id, oldList), 200)
	for name, other := range map[string]string{"another principal": goodToken(2), "another token of the principal": goodToken(3)} {
		f.service.with(func() { f.service.refused = nil })
		r := old(version, id, oldList)
		r.token = other
		foreign := f.want(name, r, 404)
		f.service.with(func() {
			if len(f.service.refused) != 1 || !strings.Contains(f.service.refused[0], "belongs to another client") {
				t.Errorf("%s: logged: %q", name, f.service.refused)
			}
		})
		r = old(version, strings.Repeat("0", 32), oldList)
		r.token = other
		if none := f.want("one that there is not", r, 404); none.body != foreign.body {
			t.Errorf("%s: %s and %s", name, foreign, none)
		}
		r = rawRequest{method: "DELETE", token: other, header: []string{"Mcp-Session-Id: " + id}}
		f.want(name+" ends it", r, 404)
		r = rawRequest{token: other, header: []string{"Mcp-Session-Id: " + id}}
		f.want(name+" in a revision without sessions", r, 404)
		r = old(version, id, initialize(version, ""))
		r.token = other
		f.want(name+" initialises", r, 404)
	}
	f.want("its own, still", old(version, id, oldList), 200)
	f.want("none", old(version, "", oldList), 400, "initialize")
	f.want("none, and no revision", rawRequest{body: oldList, without: "Mcp-Protocol-Version,Mcp-Method"}, 400, "initialize")
	f.want("in another case", old(version, strings.ToUpper(id), oldList), 404)
	f.want("it is ended", rawRequest{method: "DELETE", header: []string{"Mcp-Session-Id: " + id}}, 204)
	f.want("after its end", old(version, id, oldList), 404)
	f.want("it is ended twice", rawRequest{method: "DELETE", header: []string{"Mcp-Session-Id: " + id}}, 404)
	f.want("none is ended", rawRequest{method: "DELETE"}, 400)
}

// proves R-T5
func TestWhatWasDeclaredHoldsForAnHourOfSilence(t *testing.T) {
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
			t.Error("sessions")
		}
		s.end(other, first)
		if s.use(ann, first) != sessionOwn {
			t.Error("another ended it")
		}
		s.end(ann, first)
		for range 2 * maxSessions {
			s.begin(ann, nil)
		}
		holds("its session is ended, and there are many others", "reversible")
		if len(s.byID) != maxSessions {
			t.Errorf("%d sessions", len(s.byID))
		}
		time.Sleep(59 * time.Minute)
		s.begin(ann, nil)
		holds("one that declared nothing does not renew it", "reversible")
		time.Sleep(2 * time.Minute)
		holds("an hour later", "none")
		time.Sleep(2 * time.Hour)
		if s.sweepNow(); len(s.byID)+len(s.owners) != 0 {
			t.Errorf("left: %d, %d", len(s.byID), len(s.owners))
		}
	})
}

// sweepNow is what any use begins with.
func (s *sessions) sweepNow() { s.ceiling(owner{}) }
