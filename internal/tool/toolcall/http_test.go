package toolcall

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// keyed lets only requests with the key in force pass, and notes the others.
type keyed struct {
	mu      sync.Mutex
	key     string
	refused int
}

func (k *keyed) wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		admits := r.Header.Get("X-Key") == k.key
		if !admits {
			k.refused++
		}
		k.mu.Unlock()
		if !admits {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (k *keyed) set(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key = key
}

func (w *world) secret(value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets["file:db"] = value
}

// A credential that was replaced is read again when the server refuses the old one: by a
// tool host that starts again, since only its start reads secrets. A value that is wrong
// too is a fault, once.
//
// proves R-G5
func TestACredentialIsReadAgain(t *testing.T) {
	now := &clock{at: time.Unix(1_700_000_000, 0)}
	w := newWorld(t, func(c *Config) { c.Now = now.now })
	k := &keyed{key: "Bearer " + password}
	w.overHTTP(t, k.wrap)
	w.server.HTTP.Header = &api.Credential{Header: "X-Key", Prefix: "Bearer ", Secret: "db"}
	if got := w.text(password); got != `{"v":"[redacted]"}` {
		t.Fatal(got)
	}
	before := hosts(t)
	k.set("Bearer another one")
	w.secret("another one")
	now.add(renewTime)
	if got := w.text("y"); got != `{"v":"y"}` {
		t.Error(got)
	}
	if k.refused != 1 {
		t.Errorf("%d requests with an old key", k.refused)
	}
	eventually(t, "the tool host with the old value has exited", func() bool { return !slices.Contains(hosts(t), before[0]) })
	if got := w.text("another one"); got != `{"v":"[redacted]"}` {
		t.Errorf("the new value is not redacted: %s", got)
	}
	k.set("Bearer a third one")
	_, err := w.call("z")
	fault(t, err, "could not be reached", true)
	if n := k.refused; n > 3 || strings.Contains(w.log.String(), "another one") {
		t.Errorf("%d requests; %s", n, w.log)
	}
}

// Sessions with a server over HTTP share a tool host. The control is a server that runs in
// jails: two sessions are two tool hosts.
//
// proves R-G5
func TestSessionsOverHTTPShareAToolHost(t *testing.T) {
	w := newWorld(t, nil)
	w.overHTTP(t, func(h http.Handler) http.Handler { return h })
	both := func() {
		t.Helper()
		for _, d := range []api.DispatchID{"d-01", "d-02"} {
			if _, err := w.callAs(d, "do", "x"); err != nil {
				t.Fatal(err, w.log)
			}
		}
	}
	both()
	if n := len(hosts(t)); n != 1 || w.pool.Sessions() != 2 {
		t.Errorf("%d tool hosts with %d sessions", n, w.pool.Sessions())
	}
	w.pool.End("d-01")
	if _, err := w.callAs("d-02", "do", "x"); err != nil {
		t.Error("the other session has ended too: ", err)
	}
	host := hosts(t)[0]
	if p, err := os.FindProcess(host); err != nil || p.Kill() != nil {
		t.Fatal(err)
	}
	eventually(t, "the session has ended", func() bool { return w.pool.Sessions() == 0 })
	both() // a new one
	w.pool.End("d-01")
	w.pool.End("d-02")
	eventually(t, "the tool host ends with its last session", func() bool { return len(hosts(t)) == 0 })
	w.hostile("honest")
	both()
	if n := len(hosts(t)); n != 2 {
		t.Errorf("control: %s", fmt.Sprint(n, " tool hosts"))
	}
}
