package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/run/dispatch"
	"github.com/bailiwick-dev/bailiwick/internal/run/executor"
	"github.com/bailiwick-dev/bailiwick/internal/run/orchestrator"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/budget"
	"github.com/bailiwick-dev/bailiwick/internal/state/inforce"
	"github.com/bailiwick-dev/bailiwick/internal/state/operator"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/tool/gateway"
)

// TestMain also runs as another process that makes a call: SOCKET METHOD PATH BODY
// and headers as NAME: VALUE.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "call" {
		os.Exit(m.Run())
	}
	header := http.Header{}
	for _, line := range os.Args[6:] {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	a, err := call(os.Args[2], os.Args[3], os.Args[4], os.Args[5], header)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d %s", a.status, a.body)
}

// reply is a response of the service.
type reply struct {
	status int
	body   string
}

func (r reply) err(t *testing.T) (e api.Error) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &e); err != nil {
		t.Fatalf("%d %q: %v", r.status, r.body, err)
	}
	return e
}

func call(socket, method, path, body string, header http.Header) (reply, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://bailiwick"+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(b)}, err
}

// house is a service with a registry on a socket and a clock that the test advances.
type house struct {
	t        *testing.T
	dir      string
	socket   string
	clock    atomic.Int64
	store    *store.Store
	ledger   *audit.Ledger
	registry *operator.Registry
	server   *Server
	operator seal.Signer
	service  seal.Signer
	adding   sync.Mutex
}

func (h *house) now() time.Time       { return time.Unix(0, h.clock.Load()).UTC() }
func (h *house) pass(d time.Duration) { h.clock.Add(int64(d)) }
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newHouse(t *testing.T, change ...func(*house, *Config)) *house {
	t.Helper()
	dir, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket is short, and other accounts reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // G302: see above
		t.Fatal(err)
	}
	h := &house{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	h.clock.Store(time.Now().UnixNano()) // deadlines of sockets go by it too
	h.operator, h.service = must[seal.Signer](t)(seal.NewEphemeral()), must[seal.Signer](t)(seal.NewEphemeral())
	if err := seal.CreateTrustRoot(filepath.Join(dir, "operators.json"), seal.RootOf(seal.KeyOf(h.operator, ""))); err != nil {
		t.Fatal(err)
	}
	h.store = must[*store.Store](t)(store.Create(t.Context(), store.Config{
		Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{audit.Migration(), dispatch.Migration(), gateway.Migration(), budget.Migration(), operator.Migration(), orchestrator.Migration()},
	}))
	t.Cleanup(func() { _ = h.store.Close() })
	h.ledger = must[*audit.Ledger](t)(audit.Open(t.Context(), audit.Config{Store: h.store, Now: h.now}))
	h.registry = must[*operator.Registry](t)(operator.Open(t.Context(), operator.Config{
		Root: filepath.Join(dir, "operators.json"), Service: h.service.KeyID(), Store: h.store, Ledger: h.ledger, Now: h.now,
	}))
	blobs := must[*blob.Store](t)(blob.Create(blob.Config{Dir: filepath.Join(dir, "blobs"), Private: true}))
	t.Cleanup(func() { _ = blobs.Close() })
	logger := slog.New(slog.DiscardHandler)
	dirs := api.Dirs{Data: dir, State: dir}
	rules := must[*inforce.Reader](t)(inforce.Open(t.Context(), inforce.Config{Dirs: dirs, Store: h.store, Ledger: h.ledger, Operator: "local:root", Logger: logger}))
	d := must[*dispatch.Service](t)(dispatch.Open(t.Context(), dispatch.Config{
		Dirs: dirs, InForce: rules, Store: h.store, Ledger: h.ledger, Blobs: blobs, Key: h.service, Operator: "local:root", Registry: h.registry, Tools: noTools{}, People: nobody{}, Secrets: noSecrets{}, Observer: noObserver{},
		Executor: &executor.Local{Logger: logger}, Sweep: func() {}, Now: h.now, Logger: logger,
	}))
	t.Cleanup(func() { _ = d.Close() })
	cfg := Config{
		Reader:   orchestrator.NewArchive(orchestrator.ArchiveConfig{Store: h.store, Ledger: h.ledger, Rules: d, Now: h.now}),
		Dispatch: d, InForce: rules, Registry: h.registry, Ledger: h.ledger, Now: h.now, Logger: logger, Stop: func() {},
		Login:  func(uid uint32) (string, error) { return map[uint32]string{0: "root"}[uid], nil },
		Status: func(context.Context) (api.ServiceStatus, error) { return api.ServiceStatus{}, nil },
	}
	for _, f := range change {
		f(h, &cfg)
	}
	h.server = New(cfg)
	l := must[*net.UnixListener](t)(net.ListenUnix("unix", &net.UnixAddr{Name: h.socket, Net: "unix"}))
	if err := os.Chmod(h.socket, 0o666); err != nil { //nolint:gosec // G302: other accounts call too
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- h.server.Serve(l) }()
	t.Cleanup(func() {
		if err := h.server.Shutdown(context.Background(), nil); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

// decide adds an operator's decision through the API.
func (h *house) decide(verb api.OperatorVerb, fill func(*api.OperatorRecord)) reply {
	h.t.Helper()
	h.adding.Lock()
	defer h.adding.Unlock()
	head := h.registry.Head()
	rec := api.OperatorRecord{V: 1, Service: head.Service, Number: head.Number + 1, Previous: head.Digest, At: h.now(), Verb: verb}
	fill(&rec)
	payload := must[[]byte](h.t)(canon.Marshal(rec))
	envelope := must[[]byte](h.t)(seal.Sign(h.t.Context(), seal.Operator, payload, h.operator))
	body := must[[]byte](h.t)(json.Marshal(api.OperatorRequest{Envelope: envelope}))
	a := h.call("POST", "/v1/operator/records", string(body))
	if a.status != http.StatusOK {
		h.t.Fatalf("%s: %+v", verb, a)
	}
	return a
}

func (h *house) call(method, path, body string, headers ...string) reply {
	h.t.Helper()
	header := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Add(headers[i], headers[i+1])
	}
	a, err := call(h.socket, method, path, body, header)
	if err != nil {
		h.t.Fatal(err)
	}
	return a
}

// elsewhere makes a call from another process, and from another account unless uid
// is 0.
func (h *house) elsewhere(uid int, method, path, body string, headers ...string) reply {
	h.t.Helper()
	exe := must[string](h.t)(os.Executable())
	// A copy that every account may execute.
	program := filepath.Join(h.dir, "caller")
	if _, err := os.Stat(program); err != nil {
		if err := os.WriteFile(program, must[[]byte](h.t)(os.ReadFile(exe)), 0o755); err != nil { //nolint:gosec // G306: see above
			h.t.Fatal(err)
		}
	}
	args := []string{"call", h.socket, method, path, body}
	for i := 0; i+1 < len(headers); i += 2 {
		args = append(args, headers[i]+": "+headers[i+1])
	}
	cmd := exec.Command(program, args...) //nolint:gosec // G204: this program
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} //nolint:gosec // G115: a uid
	}
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	status, said, _ := strings.Cut(string(out), " ")
	return reply{must[int](h.t)(strconv.Atoi(status)), said}
}

// token creates a token of p, and adds p first if needed.
func (h *house) token(p api.Principal, good time.Duration) (string, api.TokenID) {
	h.t.Helper()
	if !h.registry.Principal(p).Known {
		h.decide(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = p })
	}
	var b [32]byte
	_, _ = rand.Read(b[:])
	text := api.TokenText(b)
	id := api.TokenID("t-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:12])
	h.decide(api.VerbTokenCreate, func(r *api.OperatorRecord) {
		r.Principal, r.Token = p, &api.TokenRecord{ID: id, Hash: api.DigestOf([]byte(text)), ExpiresAt: h.now().Add(good)}
	})
	return text, id
}

func (h *house) exchange(token string) reply {
	h.t.Helper()
	return h.call("POST", "/v1/session", `{"token":"`+token+`"}`)
}

// session exchanges a valid token.
func (h *house) session(token string) (s api.Session) {
	h.t.Helper()
	a := h.exchange(token)
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.status != http.StatusOK {
		h.t.Fatalf("a good token is refused: %+v", a)
	}
	return s
}

// who returns the caller that the service establishes for these headers.
func (h *house) who(headers ...string) (w api.Who, a reply) {
	h.t.Helper()
	a = h.call("GET", "/v1/runtime/who", "", headers...)
	_ = json.Unmarshal([]byte(a.body), &w)
	return w, a
}

// logged returns the entries of a kind.
func (h *house) logged(kind record.Kind) []audit.Committed {
	h.t.Helper()
	return must[[]audit.Committed](h.t)(h.ledger.List(h.t.Context(), audit.Query{Kind: kind, Limit: 1000}))
}

// unauthenticated fails the test unless a is a logged refusal with these words.
func (h *house) unauthenticated(what string, a reply, words ...string) {
	h.t.Helper()
	e := a.err(h.t)
	if a.status != http.StatusUnauthorized || e.Code != api.CodeUnauthenticated || e.Hint == "" || e.AuditEntry == nil {
		h.t.Errorf("%s: %+v", what, a)
		return
	}
	list := h.logged(record.KindAuthRefused)
	if len(list) == 0 || list[len(list)-1].Seq != *e.AuditEntry {
		h.t.Errorf("%s: the log has no entry of it", what)
		return
	}
	for _, w := range words {
		if !strings.Contains(a.body+list[len(list)-1].Line().Text, w) {
			h.t.Errorf("%s: neither the answer nor the log says %q: %s", what, w, a.body)
		}
	}
	h.pass(time.Second) // so that the next has an entry of its own
}

// proves R-T4
func TestATokenGivesItsPrincipalAndAHandleIsGoodForItsProcessOnly(t *testing.T) {
	h := newHouse(t)
	text, id := h.token("agent:claude", 24*time.Hour)
	s := h.session(text)
	if s.Principal != "agent:claude" || s.Ceiling != api.Observe || !s.ExpiresAt.Equal(h.now().Add(10*time.Minute)) || len(s.Handle) != 64 {
		t.Errorf("the session is %+v", s)
	}
	if w, a := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:claude" || w.Ceiling != api.Observe {
		t.Errorf("a request with the handle is of %+v: %+v", w, a)
	}
	if w, _ := h.who(); w.Principal != "local:root" {
		t.Errorf("a request without a handle is of %+v", w)
	}
	// The control: the other process is accepted without the handle.
	if a := h.elsewhere(0, "GET", "/v1/runtime/who", ""); a.status != http.StatusOK || !strings.Contains(a.body, "local:root") {
		t.Errorf("positive control: another process is refused anyway: %+v", a)
	}
	h.unauthenticated("another process", h.elsewhere(0, "GET", "/v1/runtime/who", "", api.SessionHeader, s.Handle), "another process", string(id))
	h.unauthenticated("another account", h.elsewhere(64321, "GET", "/v1/runtime/who", "", api.SessionHeader, s.Handle), "another process")
	if w, a := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:claude" {
		t.Errorf("after others tried it, the handle is not good any more: %+v", a)
	}
	// The handle expires.
	h.pass(10*time.Minute - 1 - 2*time.Second)
	if w, a := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:claude" {
		t.Errorf("just before its end: %+v", a)
	}
	h.pass(1)
	_, a := h.who(api.SessionHeader, s.Handle)
	h.unauthenticated("an expired handle", a, "has expired", "present the token again")
	again := h.session(text)
	if w, _ := h.who(api.SessionHeader, again.Handle); w.Principal != "agent:claude" || again.Handle == s.Handle {
		t.Error("the same token does not give another handle")
	}
}

// A handle ends with its process; another process with the same pid cannot use it.
//
// proves R-T4
func TestAHandleEndsWithItsProcess(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("agent:claude", time.Hour)
	lives := h.session(text).Handle
	a := h.elsewhere(0, "POST", "/v1/session", `{"token":"`+text+`"}`)
	var s api.Session
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.status != http.StatusOK {
		t.Fatalf("%+v", a)
	}
	// Pretend that its pid is ours now.
	here := peer{uid: 0, pid: int32(os.Getpid())} //nolint:gosec // G115: a process
	find := func(handle string) *api.Error {
		hash := sha256.Sum256([]byte(handle))
		h.server.callers.sessions.mu.Lock()
		o := h.server.callers.sessions.open[hash]
		o.peer = here
		h.server.callers.sessions.open[hash] = o
		h.server.callers.sessions.mu.Unlock()
		_, err := h.server.callers.sessions.find([]string{handle}, here)
		return err
	}
	if err := find(lives); err != nil {
		t.Errorf("positive control: %v", err)
	}
	if err := find(s.Handle); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("the handle of a process that has ended: %v", err)
	}
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range list {
			if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(to, "pidfd") {
				n++
			}
		}
		return n
	}
	before := open()
	for range 2 * maxSessions {
		h.session(text)
		h.exchange("bwt_")
	}
	if n := open(); n > maxSessions+1 || n < 10 || before < 1 {
		t.Errorf("%d processes are held on to, after %d", n, before)
	}
	if err := h.server.Shutdown(t.Context(), nil); err != nil || open() != 0 {
		t.Errorf("at the end %d processes are held on to: %v", open(), err)
	}
}

// A request with an invalid handle never falls back to the account.
//
// proves R-T4
func TestAnInvalidHandleIsRefused(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("agent:claude", time.Hour)
	s := h.session(text)
	for name, headers := range map[string][]string{
		"unknown":            {api.SessionHeader, strings.Repeat("0", 64)},
		"empty":              {api.SessionHeader, ""},
		"twice":              {api.SessionHeader, s.Handle, api.SessionHeader, s.Handle},
		"twice, one unknown": {api.SessionHeader, s.Handle, api.SessionHeader, "x"},
		"the token itself":   {api.SessionHeader, text},
		"two in one":         {api.SessionHeader, s.Handle + "," + s.Handle},
		"in capitals":        {api.SessionHeader, strings.ToUpper(s.Handle)},
		"with a blank":       {api.SessionHeader, s.Handle + " x"},
	} {
		for _, path := range []string{"/v1/runtime/who", "/v1/operator/status", "/v1/none"} {
			h.unauthenticated(name+" at "+path, h.call("GET", path, "", headers...), "session: ")
		}
	}
	for _, c := range h.logged(record.KindAuthRefused) {
		if strings.Contains(string(c.Leaf), text) || strings.Contains(string(c.Leaf), s.Handle) {
			t.Errorf("the log has a secret: %s", c.Leaf)
		}
	}
	if w, _ := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:claude" {
		t.Error("positive control: the handle is not good")
	}
}

// Whatever ends a token ends its handles at once.
//
// proves R-T4
func TestAHandleEndsWithItsToken(t *testing.T) {
	for name, end := range map[string]func(*house, api.TokenID){
		"revoked": func(h *house, id api.TokenID) {
			h.decide(api.VerbTokenRevoke, func(r *api.OperatorRecord) { r.Principal, r.Replaces = "agent:claude", id })
		},
		"rotated": func(h *house, id api.TokenID) {
			h.decide(api.VerbTokenRotate, func(r *api.OperatorRecord) {
				r.Principal, r.Replaces = "agent:claude", id
				r.Token = &api.TokenRecord{ID: "t-aaaaaaaaaaaa", Hash: api.DigestOf([]byte("another")), ExpiresAt: h.now().Add(time.Hour)}
			})
		},
		"expired": func(h *house, _ api.TokenID) { h.pass(5 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			text, id := h.token("agent:claude", 5*time.Minute)
			other, _ := h.token("agent:claude", time.Hour)
			s, kept := h.session(text), h.session(other)
			if w, _ := h.who(api.SessionHeader, s.Handle); w.Principal != "agent:claude" {
				t.Fatal("positive control: the handle is not good")
			}
			end(h, id)
			_, a := h.who(api.SessionHeader, s.Handle)
			h.unauthenticated("the handle", a, "no longer active", string(id))
			h.unauthenticated("the token", h.exchange(text), string(id)+" is "+name)
			if w, a := h.who(api.SessionHeader, kept.Handle); w.Principal != "agent:claude" {
				t.Errorf("the handle of another token ended too: %+v", a)
			}
		})
	}
}

// Guessing tokens is throttled and does not fill the log; a valid token never waits.
//
// proves R-T4, R-A3
func TestBadTokensAreThrottledAndSummarized(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("agent:claude", 24*time.Hour)
	const n = 2000
	single, throttled := 0, 0
	guess := func(i int) {
		t.Helper()
		switch a := h.exchange(fmt.Sprintf("%s%064x", api.TokenPrefix, i)); a.status {
		case http.StatusUnauthorized:
			if single++; a.err(t).AuditEntry == nil {
				t.Error("a refusal names no entry")
			}
		case http.StatusTooManyRequests:
			if throttled++; a.err(t).Code != api.CodeThrottled {
				t.Error(a)
			}
		default:
			t.Fatal(a)
		}
	}
	for i := range n {
		guess(i)
		if i%100 == 0 {
			h.session(text)
		}
	}
	if single != 10 || throttled != n-10 {
		t.Errorf("%d were answered and %d throttled", single, throttled)
	}
	// A second later one more refusal is logged.
	h.pass(time.Second)
	guess(n)
	guess(n + 1)
	if list := h.logged(record.KindAuthRefused); single != 11 || len(list) != 11 || !strings.Contains(list[0].Line().Text, "no token of ours") {
		t.Errorf("%d were answered, and the log has %d entries", single, len(list))
	}
	if err := h.server.summarize(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := h.logged(record.KindAuthRefused)
	if want := fmt.Sprintf("and %d more", throttled); len(list) != 12 || !strings.Contains(list[11].Line().Text, want) {
		t.Errorf("%d entries, the last is %s, want one that says %q", len(list), list[len(list)-1].Line().Text, want)
	}
	if err := h.server.summarize(t.Context()); err != nil || len(h.logged(record.KindAuthRefused)) != 12 {
		t.Errorf("nothing is summed up: %v", err)
	}
	// Shutdown logs the summary of the rest.
	for i := range 20 {
		guess(2*n + i)
	}
	if err := h.server.Shutdown(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if list := h.logged(record.KindAuthRefused); !strings.Contains(list[len(list)-1].Line().Text, "and 20 more") {
		t.Errorf("the last entry is %s", list[len(list)-1].Line().Text)
	}
}

// A token outside the body of its one request is refused, valid or not, and never
// logged.
//
// proves R-T4, R-T6
func TestATokenOutsideItsRequestIsRefused(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("agent:claude", time.Hour)
	escaped := "%62" + text[1:]
	for name, a := range map[string]func() reply{
		"in the query":                  func() reply { return h.call("GET", "/v1/runtime/who?token="+text, "") },
		"escaped in the query":          func() reply { return h.call("GET", "/v1/runtime/who?access_token="+escaped, "") },
		"escaped twice in the query":    func() reply { return h.call("GET", "/v1/runtime/who?x="+strings.Replace(escaped, "%", "%25", 1), "") },
		"another issuer's in the query": func() reply { return h.call("GET", "/v1/runtime/who?Access_Token=eyJhbGciOiJub25lIn0.e30.", "") },
		"in the path":                   func() reply { return h.call("GET", "/v1/runtime/dispatches/"+text, "") },
		"in the query of a session":     func() reply { return h.call("POST", "/v1/session?token="+text, `{"token":"`+text+`"}`) },
		"in Authorization":              func() reply { return h.call("GET", "/v1/runtime/who", "", "Authorization", "Bearer "+text) },
		"in Authorization of a session": func() reply {
			return h.call("POST", "/v1/session", `{"token":"`+text+`"}`, "Authorization", "Bearer "+text)
		},
		"beside a good handle": func() reply {
			return h.call("GET", "/v1/runtime/who", "", api.SessionHeader, h.session(text).Handle, "Authorization", "Bearer "+text)
		},
		"in a cookie": func() reply { return h.call("GET", "/v1/operator/status", "", "Cookie", "token="+text) },
	} {
		h.unauthenticated(name, a(), "looks like a token")
	}
	// In another body or shape it is not logged.
	for _, body := range []string{
		`{"token":"` + text + `","ceiling":"irreversible"}`, `{"token":"` + text + `","token":"` + text + `"}`, `{"` + text + `":1}`, `"` + text + `"`, text, `{"token":["` + text + `"]}`, ``,
	} {
		if a := h.call("POST", "/v1/session", body); a.status != http.StatusBadRequest || strings.Contains(a.body, text) {
			t.Errorf("%s: %+v", body, a)
		}
	}
	leak := func() bool {
		n := must[uint64](t)(h.ledger.Len(t.Context()))
		for seq := range n {
			c := must[audit.Committed](t)(h.ledger.Get(t.Context(), seq))
			if bytes.Contains(c.Leaf, []byte(text[1:])) {
				return true
			}
		}
		return false
	}
	if leak() {
		t.Error("the log has the token")
	}
	if w, _ := h.who(api.SessionHeader, h.session(text).Handle); w.Principal != "agent:claude" {
		t.Error("positive control: the token is not good")
	}
	h.decide(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal, r.Reason = "agent:x", text })
	if !leak() {
		t.Error("positive control: the sweep does not find a token in the log")
	}
}

// A declared ceiling only lowers; an invalid one is the lowest.
//
// proves R-T5
func TestAHeaderOnlyLowersTheCeiling(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("agent:claude", time.Hour)
	stateful := api.Stateful
	h.decide(api.VerbCeilingSet, func(r *api.OperatorRecord) { r.Principal, r.Ceiling = "agent:claude", &stateful })
	handle := h.session(text).Handle
	for name, c := range map[string]struct {
		given []string
		want  api.Tier
	}{
		"none":                  {nil, api.Stateful},
		"the same":              {[]string{"stateful"}, api.Stateful},
		"a higher one":          {[]string{"irreversible"}, api.Stateful},
		"a lower one":           {[]string{"reversible"}, api.Reversible},
		"the lowest":            {[]string{"observe"}, api.Observe},
		"misspelt":              {[]string{"Stateful"}, api.Observe},
		"a number":              {[]string{"3"}, api.Observe},
		"empty":                 {[]string{""}, api.Observe},
		"twice the same":        {[]string{"stateful", "stateful"}, api.Observe},
		"first lower, then not": {[]string{"reversible", "irreversible"}, api.Observe},
		"a list":                {[]string{"stateful,stateful"}, api.Observe},
	} {
		headers := []string{api.SessionHeader, handle}
		for _, v := range c.given {
			headers = append(headers, api.CeilingHeader, v)
		}
		if w, a := h.who(headers...); w.Principal != "agent:claude" || w.Ceiling != c.want {
			t.Errorf("%s: %+v, want %s: %+v", name, w, c.want, a)
		}
	}
	if w, _ := h.who(api.CeilingHeader, "irreversible"); w.Principal != "local:root" || w.Ceiling != api.Observe {
		t.Errorf("an account without consent is %+v", w)
	}
}

// Operator calls are for the operator's account, whatever the token.
//
// proves R-T4, R-B9
func TestOperatorCallsAreDeniedByToken(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("human:root", time.Hour)
	handle := h.session(text).Handle
	verbs := 0
	for _, pattern := range api.Calls() {
		if pattern.Class() != api.ClassOperator {
			continue
		}
		verbs++
		a := h.call(pattern.Method(), pattern.Path("human:root"), "", api.SessionHeader, handle)
		if a.status != http.StatusForbidden {
			t.Errorf("%s by token: %+v", pattern, a)
			continue
		}
		if e := a.err(t); e.AuditEntry == nil {
			t.Errorf("%s by token: %+v", pattern, a)
		} else if c := must[audit.Committed](t)(h.ledger.Get(t.Context(), *e.AuditEntry)); !strings.Contains(c.Line().Text, `denied by policy "token"`) {
			t.Errorf("%s: %s", pattern, c.Line().Text)
		}
	}
	if a := h.call("GET", "/v1/operator/tokens", ""); verbs < 8 || a.status != http.StatusOK {
		t.Errorf("positive control: %d verbs, and the operator's account gets %+v", verbs, a)
	}
	if a := h.elsewhere(64321, "GET", "/v1/operator/records/head", ""); a.status != http.StatusForbidden {
		t.Errorf("another account: %+v", a)
	}
}

// A refused record is logged, and the caller learns why.
//
// proves R-A3
func TestARecordThatIsRefusedIsLogged(t *testing.T) {
	h := newHouse(t)
	a := h.call("POST", "/v1/operator/records", `{"envelope":"e30="}`)
	e := a.err(t)
	if e.Code != api.CodeIntegrity || e.AuditEntry == nil {
		t.Fatalf("%+v", a)
	}
	if c := must[audit.Committed](t)(h.ledger.Get(t.Context(), *e.AuditEntry)); c.Entry.Kind != record.KindRequestInvalid || !strings.Contains(c.Line().Text, "operator.record") {
		t.Errorf("the log says %s", c.Line().Text)
	}
	if a := h.decide(api.VerbPrincipalAdd, func(r *api.OperatorRecord) { r.Principal = "agent:x" }); !strings.Contains(a.body, `"number":1`) {
		t.Errorf("positive control: %+v", a)
	}
}

// The typed client makes all of these calls.
func TestTheClientExchangesATokenAndDeclaresACeiling(t *testing.T) {
	h := newHouse(t)
	text, _ := h.token("agent:claude", time.Hour)
	tier, low := api.Irreversible, api.Reversible
	h.decide(api.VerbCeilingSet, func(r *api.OperatorRecord) { r.Principal, r.Ceiling = "agent:claude", &tier })
	conn := client.New(client.Config{Socket: h.socket, UIDs: []int{os.Getuid()}})
	defer conn.Close()
	s, err := conn.Exchange(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r    client.Runtime
		want api.Who
	}{
		{conn.Runtime(), api.Who{Principal: "local:root", Auth: api.AuthAccount, Operator: true}},
		{conn.Runtime().With(s.Handle, nil), api.Who{Principal: "agent:claude", Ceiling: api.Irreversible, Consent: api.Irreversible, Auth: api.AuthToken}},
		{conn.Runtime().With(s.Handle, &low), api.Who{Principal: "agent:claude", Ceiling: api.Reversible, Consent: api.Irreversible, Auth: api.AuthToken}},
		{conn.Runtime().With(s.Handle, &low).With("", &tier), api.Who{Principal: "agent:claude", Ceiling: api.Reversible, Consent: api.Irreversible, Auth: api.AuthToken}},
	} {
		if w, err := c.r.Who(t.Context()); err != nil || !reflect.DeepEqual(w, c.want) {
			t.Errorf("%+v, %v, want %+v", w, err, c.want)
		}
	}
	bad := api.Tier(17)
	if w, err := conn.Runtime().With(s.Handle, &bad).With("", &tier).Who(t.Context()); err != nil || w.Ceiling != api.Observe {
		t.Errorf("what is no tier: %+v, %v", w, err)
	}
	if _, err := conn.Exchange(t.Context(), "x"); api.CodeOf(err) != api.CodeUnauthenticated {
		t.Errorf("a bad token: %v", err)
	}
	list, err := conn.Operator().Tokens(t.Context())
	if err != nil || len(list) != 1 || list[0].State != api.TokenActive {
		t.Errorf("%+v, %v", list, err)
	}
	if i, err := conn.Operator().Principal(t.Context(), "agent:claude"); err != nil || !i.Known || i.Ceiling != api.Irreversible || len(i.Tokens) != 1 {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := conn.Operator().Principal(t.Context(), "human:nobody"); err != nil || i.Known || i.Ceiling != api.Observe {
		t.Errorf("%+v, %v", i, err)
	}
}
