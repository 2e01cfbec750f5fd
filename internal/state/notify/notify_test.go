package notify

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/egress"
	"github.com/bailiwick-dev/bailiwick/internal/base/hostcommand"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// house is a state with a log, and what messages say.
type house struct {
	t      *testing.T
	dir    string
	store  *store.Store
	ledger *audit.Ledger
	cfg    Config

	mu         sync.Mutex
	dispatches map[api.DispatchID]api.Dispatch // guarded by mu
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, dir: filepath.Join(t.TempDir(), "store"), dispatches: map[api.DispatchID]api.Dispatch{}}
	st, err := store.Create(t.Context(), store.Config{Dir: h.dir, Migrations: []store.Migration{audit.Migration(), Migration()}})
	must(t, err)
	must(t, st.Close())
	h.open()
	return h
}

func (h *house) open() {
	var err error
	h.store, err = store.Open(h.t.Context(), store.Config{Dir: h.dir, Migrations: []store.Migration{audit.Migration(), Migration()}})
	must(h.t, err)
	h.t.Cleanup(func() { _ = h.store.Close() })
	h.ledger, err = audit.Open(h.t.Context(), audit.Config{Store: h.store, Now: time.Now})
	must(h.t, err)
	h.cfg = Config{
		Store: h.store, Ledger: h.ledger, Log: "test.example/log", Now: time.Now, Retry: 10 * time.Millisecond,
		Dispatch: func(_ context.Context, id api.DispatchID) (api.Dispatch, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.dispatches[id], nil
		},
		Run: func(_ context.Context, id api.RunID) (api.Run, error) {
			return api.Run{RunID: id, Principal: "ci:main", State: api.RunFailed, Total: 3, Counts: map[api.TaskState]int{api.TaskDone: 2, api.TaskFailed: 1}}, nil
		},
	}
}

func (h *house) keeper(subs ...Subscription) *Keeper {
	h.t.Helper()
	for i := range subs {
		subs[i].On = slices.Concat(subs[i].On, []api.WaitingKind{api.WaitingQuestion, api.WaitingFailed})
	}
	h.cfg.Subscriptions = subs
	k, err := Open(h.t.Context(), h.cfg)
	must(h.t, err)
	h.t.Cleanup(k.Close)
	return k
}

// asks logs a question.
func (h *house) asks(id api.DispatchID, q api.Question) uint64 {
	h.t.Helper()
	h.mu.Lock()
	h.dispatches[id] = api.Dispatch{ID: id, State: api.EventNeedsInput, Attempt: 1, Principal: "agent:claude", Subagent: "edit", Question: &q}
	h.mu.Unlock()
	seq, err := h.ledger.Record(h.t.Context(), record.Entry{Kind: record.KindDispatchNeedsInput, Dispatch: id, Attempt: 1, Detail: record.DispatchEnd{}}, nil)
	must(h.t, err)
	return seq
}

func (h *house) settled(id api.RunID, state api.RunState) {
	h.t.Helper()
	_, err := h.ledger.Record(h.t.Context(), record.Entry{Kind: record.KindRunSettled, Run: string(id), Detail: record.RunEnd{State: string(state)}}, nil)
	must(h.t, err)
}

// inbox is a receiver that keeps what it gets, after the errors of fail.
type inbox struct {
	got  chan Message
	fail func(*Message) error

	mu   sync.Mutex
	last []byte // the last body; guarded by mu
}

func (i *inbox) body() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last
}

func newInbox() *inbox { return &inbox{got: make(chan Message, 1000)} }

func (i *inbox) Send(_ context.Context, m *Message, body []byte) error {
	i.mu.Lock()
	i.last = body
	i.mu.Unlock()
	if i.fail != nil {
		if err := i.fail(m); err != nil {
			return err
		}
	}
	i.got <- *m
	return nil
}
func (*inbox) Kind() string  { return "test" }
func (*inbox) Place() string { return "here" }

func (i *inbox) next(t *testing.T) Message {
	t.Helper()
	select {
	case m := <-i.got:
		return m
	case <-time.After(30 * time.Second):
		t.Fatal("no message")
		return Message{}
	}
}

func (i *inbox) none(t *testing.T) {
	t.Helper()
	select {
	case m := <-i.got:
		t.Fatalf("an unexpected message: %+v", m)
	case <-time.After(2 * idle):
	}
}

// A question and a failed run give a message each; a run that is done, a question
// that is answered, and what was logged before the receiver was configured give
// none.
func TestWhatWaitsForAPersonIsNotified(t *testing.T) {
	h, in := newHouse(t), newInbox()
	h.settled("old", api.RunFailed)
	h.keeper(Subscription{Receiver: in, Name: "in"})
	h.settled("fine", api.RunDone)
	seq := h.asks("d1", api.Question{Question: "Which?", Options: []string{"a", "b"}})
	m := in.next(t)
	if m.Kind != api.WaitingQuestion || m.Entry != seq || m.Command != "bailiwick dispatch answer d1 --option N" || m.Untrusted.Question != "Which?" || m.Untrusted.Warning == "" || len(m.Untrusted.Options) != 2 {
		t.Errorf("it is %+v", m)
	}
	h.settled("broken", api.RunFailed)
	if m := in.next(t); m.Kind != api.WaitingFailed || m.RunID != "broken" || m.Command != "bailiwick run show broken" || m.Untrusted != nil {
		t.Errorf("it is %+v", m)
	}
	h.mu.Lock()
	d := h.dispatches["d1"]
	d.State = api.EventAccepted
	h.dispatches["d1"] = d
	h.mu.Unlock()
	_, err := h.ledger.Record(t.Context(), record.Entry{Kind: record.KindDispatchNeedsInput, Dispatch: "d1", Attempt: 1, Detail: record.DispatchEnd{}}, nil)
	must(t, err)
	in.none(t)
}

// A receiver that was down gets every message once it is up, one that refuses a
// message gets the others meanwhile, and a restart loses and repeats nothing.
func TestDeliveryContinuesOverFailuresAndRestarts(t *testing.T) {
	h, in := newHouse(t), newInbox()
	var mu sync.Mutex
	down := true
	in.fail = func(m *Message) error {
		mu.Lock()
		defer mu.Unlock()
		if down || m.RunID == "poison" {
			return errors.New("no thanks")
		}
		return nil
	}
	k := h.keeper(Subscription{Receiver: in, Name: "in"})
	h.settled("poison", api.RunFailed)
	h.settled("a", api.RunFailed)
	for k.Status()[0].Pending != 2 || k.Status()[0].Error == "" {
		time.Sleep(time.Millisecond)
	}
	if st := k.Status()[0]; st.Error != "no thanks" || st.FailingSince == nil || st.Delivered != 0 {
		t.Errorf("its status is %+v", st)
	}
	k.Close()
	must(t, h.store.Close())
	h.open()
	mu.Lock()
	down = false
	mu.Unlock()
	k = h.keeper(Subscription{Receiver: in, Name: "in"})
	if m := in.next(t); m.RunID != "a" {
		t.Errorf("it is %+v", m)
	}
	h.settled("b", api.RunFailed)
	if m := in.next(t); m.RunID != "b" {
		t.Errorf("behind one that is refused: %+v", m)
	}
	k.Close()                      // which waits for what is being sent
	h.cfg.Expire = time.Nanosecond // the poison has expired
	k = h.keeper(Subscription{Receiver: in, Name: "in"})
	for k.Status()[0].Dropped != 1 {
		time.Sleep(time.Millisecond)
	}
	in.none(t)
	if st := k.Status()[0]; st.Pending != 0 || st.Delivered != 2 {
		t.Errorf("its status is %+v", st)
	}
}

// A message that was sent and not acknowledged before a kill is sent again with
// the same id.
func TestARepeatedMessageHasTheSameID(t *testing.T) {
	h, in := newHouse(t), newInbox()
	k := h.keeper(Subscription{Receiver: in, Name: "in"})
	h.settled("r", api.RunFailed)
	first := in.next(t)
	k.Close()
	must(t, h.store.Update(t.Context(), func(tx *store.Tx) error { // as a kill before the last commit leaves it
		_, err := tx.Exec("UPDATE notify_receiver SET next = 0")
		return err
	}))
	h.keeper(Subscription{Receiver: in, Name: "in"})
	if again := in.next(t); again.ID != first.ID {
		t.Errorf("the ids are %s and %s", first.ID, again.ID)
	}
}

// A receiver that hangs holds up neither the log nor another receiver, and what is
// pending in memory is bounded. Close does not wait for it.
func TestAHangingReceiverHoldsUpNothing(t *testing.T) {
	h, stuck, in := newHouse(t), newInbox(), newInbox()
	k := h.keeper(Subscription{Receiver: &hanging{stuck}, Name: "stuck"}, Subscription{Receiver: in, Name: "in"})
	const many = 3*maxPending + 7
	for i := range many {
		h.settled(api.RunID(fmt.Sprint("r", i)), api.RunFailed)
	}
	for i := range many {
		if m := in.next(t); m.RunID != api.RunID(fmt.Sprint("r", i)) {
			t.Fatalf("message %d is %+v", i, m)
		}
	}
	if n := k.Status()[0].Pending; n == 0 || n > maxPending {
		t.Errorf("%d messages are pending", n)
	}
	k.Close()
}

// hanging never answers.
type hanging struct{ *inbox }

func (*hanging) Send(ctx context.Context, _ *Message, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

// What an agent wrote is cut at a character, valid, and marked.
func TestAgentTextIsBoundedAndMarked(t *testing.T) {
	h, in := newHouse(t), newInbox()
	h.keeper(Subscription{Receiver: in, Name: "in"})
	long := strings.Repeat("ä", maxQuestion)
	h.asks("d1", api.Question{Question: "x" + long, Options: slices.Repeat([]string{long}, maxOptions+1)})
	m := in.next(t)
	if u := m.Untrusted; len(u.Question) > maxQuestion || !strings.HasSuffix(u.Question, "ä") || len(u.Options) != maxOptions || len(u.Options[0]) > maxOption || !u.Cut {
		t.Errorf("it is %+v", m.Untrusted)
	}
	if n := len(in.body()); n > 32<<10 {
		t.Errorf("the body has %d bytes", n)
	}
	h.asks("d2", api.Question{Question: "short \x1b[31m\u202e"})
	if m := in.next(t); m.Untrusted.Cut {
		t.Errorf("positive control: %+v", m.Untrusted)
	}
	for _, b := range in.body() {
		if b < ' ' || b > '~' {
			t.Errorf("the body has the byte %#x", b)
		}
	}
}

// peer is a receiver of webhooks on loopback.
func peer(t *testing.T, h http.HandlerFunc, key []byte) *Webhook {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	d, err := egress.Only(netip.MustParseAddrPort(srv.Listener.Addr().String()))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	w, err := NewWebhook(WebhookConfig{
		URL: srv.URL + "/hook?secret=in-the-url", Secret: func() ([]byte, error) { return key, nil }, Version: "1", Now: time.Now,
		Client: egress.Client(egress.ClientConfig{Dial: d.DialContext, Roots: pool, Timeout: time.Second}),
	})
	must(t, err)
	return w
}

// openssl computes the signature independently.
//
// proves R-T7
func TestAWebhookIsSigned(t *testing.T) {
	key, err := ParseSecret([]byte("whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" + "\n"))
	must(t, err)
	headers, bodies := make(chan http.Header, 1), make(chan []byte, 1)
	w := peer(t, func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		headers <- r.Header
		bodies <- b
		rw.WriteHeader(http.StatusNoContent)
	}, key)
	h := newHouse(t)
	h.keeper(Subscription{Receiver: w, Name: "hook"})
	h.settled("r", api.RunFailed)
	header, body := <-headers, <-bodies
	var m Message
	must(t, json.Unmarshal(body, &m))
	if header.Get("Webhook-Id") != m.ID || strings.Contains(m.ID, ".") {
		t.Errorf("the ids are %q and %q", header.Get("Webhook-Id"), m.ID)
	}
	sign := func(body []byte) string {
		cmd := exec.Command("bash", "-c", "openssl dgst -sha256 -mac HMAC -macopt key:0123456789abcdef0123456789abcdef -binary | openssl base64 -A")
		cmd.Stdin = strings.NewReader(m.ID + "." + header.Get("Webhook-Timestamp") + "." + string(body))
		out, err := cmd.Output()
		must(t, err)
		return "v1," + string(out)
	}
	if got, want := header.Get("Webhook-Signature"), sign(body); got != want {
		t.Errorf("the signature is %s, openssl says %s", got, want)
	}
	if header.Get("Webhook-Signature") == sign(append(body, ' ')) {
		t.Error("positive control: a changed body has the same signature")
	}
}

// A peer that is dead, slow, refuses or redirects to a private address is an error
// without the secret path of the URL, within the time of one exchange; the redirect
// is not followed.
//
// proves R-T7
func TestABadPeerIsAnError(t *testing.T) {
	reached := false
	inner := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(inner.Close)
	hang := make(chan struct{})
	for name, handle := range map[string]http.HandlerFunc{
		"redirect to a private address": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, inner.URL, http.StatusTemporaryRedirect)
		},
		"redirect to metadata": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://169.254.169.254/", http.StatusFound)
		},
		"refuses": func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) },
		"slow":    func(_ http.ResponseWriter, r *http.Request) { <-hang },
	} {
		err := peer(t, handle, []byte("key")).Send(t.Context(), &Message{ID: "m"}, []byte("{}"))
		if err == nil || strings.Contains(err.Error(), "in-the-url") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(name, "redirect") && !errors.Is(err, egress.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(hang)
	if reached {
		t.Error("a redirect to a private address was followed")
	}
	if err := peer(t, func(http.ResponseWriter, *http.Request) {}, []byte("key")).Send(t.Context(), &Message{ID: "m"}, []byte("{}")); err != nil {
		t.Errorf("positive control: %v", err)
	}
	dead, err := NewWebhook(WebhookConfig{URL: "https://127.0.0.1:9/x", Secret: func() ([]byte, error) { return nil, nil }, Now: time.Now, Client: egress.Client(egress.ClientConfig{})})
	must(t, err)
	if err := dead.Send(t.Context(), &Message{}, nil); !errors.Is(err, egress.ErrRefused) {
		t.Errorf("the public dialer reaches loopback: %v", err)
	}
}

// A command gets the message on standard input, no shell, the fixed environment and
// nothing of the service's own; one that fails or hangs is an error, and nothing of
// it stays.
func TestACommandIsBounded(t *testing.T) {
	t.Setenv("SECRET_OF_THE_SERVICE", "planted")
	dir := t.TempDir()
	script := func(text string) string {
		path := filepath.Join(dir, fmt.Sprintf("s%d", len(text)))
		must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700)) //nolint:gosec // G306: a program
		return path
	}
	run := func(timeout time.Duration, argv ...string) error {
		return NewCommand(hostcommand.Command{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}, Timeout: timeout}).Send(t.Context(), nil, []byte(`{"id":"m"}`))
	}
	out := filepath.Join(dir, "out")
	must(t, run(0, script(`{ cat; echo; echo "$1"; env; pwd; } > "$2"`), "$(touch pwned); '", out))
	b, err := os.ReadFile(out) //nolint:gosec // G304: a temporary file
	must(t, err)
	if got := string(b); !strings.HasPrefix(got, "{\"id\":\"m\"}\n$(touch pwned); '\n") || strings.Contains(got, "SECRET_OF_THE_SERVICE") || !strings.HasSuffix(got, "/\n") {
		t.Errorf("it got %q", got)
	}
	if err := run(0, script("yes noise | head -c 10000000 >&2; echo why >&2; exit 3")); err == nil || !strings.Contains(err.Error(), "exit status 3") || len(err.Error()) > 2*maxOutput {
		t.Errorf("a failure: %v", err)
	}
	pids := filepath.Join(dir, "pids")
	begun := time.Now()
	err = run(300*time.Millisecond, script(`sleep 1000 & echo $! > "$1"; echo $$ >> "$1"; wait`), pids)
	if err == nil || !strings.Contains(err.Error(), "killed after 300ms") || time.Since(begun) > 20*time.Second {
		t.Errorf("one that hangs: %v after %s", err, time.Since(begun))
	}
	left, err := os.ReadFile(pids) //nolint:gosec // G304: a temporary file
	must(t, err)
	for pid := range strings.FieldsSeq(string(left)) {
		// The kernel ends a process some time after the signal: on a busy machine
		// later than the call returns.
		for alive(pid) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("process %s is left", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestASecretIsLongAndNeverQuoted(t *testing.T) {
	for _, text := range []string{"", "whsec_", "whsec_c2hvcnQ=", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_not base64 at all, but rather long"} {
		if _, err := ParseSecret([]byte(text)); err == nil || len(text) > 6 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
