package mcpserve

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

// proves R-T5
func TestTheLowestDeclaredCeilingApplies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := new(sessionCeiling)
		lowest := api.Irreversible + 1
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			tier := api.Tier(rapid.IntRange(int(api.Observe), int(api.Irreversible)).Draw(t, "tier"))
			got := h.lower(&tier)
			if lowest = min(lowest, tier); *got != lowest {
				t.Fatalf("ceiling %s, want %s", *got, lowest)
			}
			if got := h.lower(nil); *got != lowest {
				t.Fatalf("an empty declaration changed it to %s", *got)
			}
		}
	})
}

// Only the four tiers, under the exact key, declare a ceiling above the lowest.
func FuzzDeclared(f *testing.F) {
	f.Add(`{"io.bailiwick/consentCeiling":"stateful"}`)
	f.Add(`{"io.bailiwick/consentCeiling":{"ceiling":"irreversible"}}`)
	f.Add(`{"io.bailiwick/consentceiling":"irreversible"}`)
	f.Add(`{"IO.Bailiwick/x":1,"io.bailiwick/consentCeiling":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var meta map[string]any
		if json.Unmarshal([]byte(text), &meta) != nil {
			return
		}
		got := declared(meta)
		if got == nil || *got == api.Observe {
			return
		}
		value := meta[ceilingKey]
		if m, ok := value.(map[string]any); ok {
			value = m["ceiling"]
		}
		if value != got.String() {
			t.Fatalf("%s declares %s", text, got)
		}
	})
}

// tokenService exchanges a token for handles and lists an empty catalog.
type tokenService struct {
	mu      sync.Mutex
	token   string          // the valid one; guarded by mu
	issued  int             // guarded by mu
	handles map[string]bool // guarded by mu
}

func (s *tokenService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var req api.SessionRequest
	if r.URL.Path == "/v1/session" && json.NewDecoder(r.Body).Decode(&req) == nil && req.Token == s.token {
		s.issued++
		handle := strconv.Itoa(s.issued)
		s.handles[handle] = true
		_ = json.NewEncoder(w).Encode(api.Session{Handle: handle, Principal: "agent:ann", ExpiresAt: time.Now().Add(10 * time.Minute)})
		return
	}
	if !s.handles[r.Header.Get(api.SessionHeader)] {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(api.Errorf(api.CodeUnauthenticated, "no"))
		return
	}
	_ = json.NewEncoder(w).Encode(api.ListingPage{Items: []api.Listing{}})
}

// set changes the state between requests.
func (s *tokenService) set(token string, handles map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.handles = token, handles
}

// One handle is used until shortly before it expires or until the service
// refuses it.
func TestAHandleIsRenewedInTime(t *testing.T) {
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	token := api.TokenText([32]byte{1})
	service := &tokenService{token: token, handles: map[string]bool{}}
	srv := &http.Server{Handler: service} //nolint:gosec // G112: only this test connects
	go srv.Serve(l)                       //nolint:errcheck // ends with the test
	conn := client.NewRuntime(client.Config{Socket: socket, UIDs: []int{os.Getuid()}})
	t.Cleanup(func() { conn.Close(); _ = srv.Close() })
	now := time.Now()
	server, err := New(Config{Conn: conn, Now: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := &call{caller: server.newCaller(token), progress: func(context.Context, float64, string) {}}
	for _, step := range []struct {
		what  string
		setup func()
		want  int
	}{
		{"the first call", func() {}, 1},
		{"the next call", func() {}, 1},
		{"shortly before it expires", func() { now = now.Add(10*time.Minute - RenewBefore/2) }, 2},
		{"after a restart of the service", func() { service.set(token, map[string]bool{}) }, 3},
	} {
		step.setup()
		if _, err := server.envs(t.Context(), c, listInput{}); err != nil {
			t.Fatal(err)
		}
		if service.issued != step.want {
			t.Errorf("%s: the token was presented %d times, want %d", step.what, service.issued, step.want)
		}
	}
	service.set("revoked", map[string]bool{})
	if _, err := server.envs(t.Context(), c, listInput{}); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("with a revoked token: %v", err)
	}
}
