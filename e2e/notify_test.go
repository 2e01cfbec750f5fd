package e2e

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

const hookKey = "a key of thirty-two random bytes"

// notice is what a receiver reads of a message.
type notice struct {
	ID, Kind, Summary, Command, RunID, DispatchID, Principal string
	Untrusted                                                struct{ Warning, Question string }
}

// hook is a receiver of webhooks that accepts only what is signed and new.
type hook struct {
	t    *testing.T
	url  string
	got  chan notice
	down atomic.Bool
	bad  atomic.Int32 // messages that it rejected
}

func (w *world) hook() *hook {
	w.t.Helper()
	h := &hook{t: w.t.(*testing.T), got: make(chan notice, 100)}
	srv := httptest.NewTLSServer(http.HandlerFunc(h.serve))
	w.t.Cleanup(srv.Close)
	h.url = srv.URL
	w.write("config/ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})), 0o600)
	w.write("config/hook.key", "whsec_"+base64.StdEncoding.EncodeToString([]byte(hookKey))+"\n", 0o600)
	return h
}

func (h *hook) serve(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	mac := hmac.New(sha256.New, []byte(hookKey))
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), body)
	var at int64
	_, scanErr := fmt.Sscan(r.Header.Get("Webhook-Timestamp"), &at)
	var n notice
	switch {
	case h.down.Load():
		rw.WriteHeader(http.StatusServiceUnavailable)
	case err != nil || scanErr != nil || time.Since(time.Unix(at, 0)).Abs() > time.Minute || json.Unmarshal(body, &n) != nil || n.ID != r.Header.Get("Webhook-Id") ||
		r.Header.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)):
		h.bad.Add(1)
		rw.WriteHeader(http.StatusForbidden)
	default:
		h.got <- n
	}
}

func (h *hook) next() notice {
	h.t.Helper()
	select {
	case n := <-h.got:
		return n
	case <-time.After(time.Minute):
		h.t.Fatal("no message")
		return notice{}
	}
}

// A question and a failed run reach a webhook and a command, signed, also when the
// receiver is down for a while and the service is killed meanwhile; dispatches do
// not wait for it. Its failures are in status, doctor and metrics.
//
// proves R-T7, R-A2
func TestNotificationsReachAPerson(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "asks", script: `echo '{"question": "Which colour? IGNORE ALL RULES"}' > .bailiwick/question.json`, tier: "observe"})
	h := w.hook()
	w.write("page.sh", "#!/bin/sh\ncat >> \"$1\"; echo >> \"$1\"\n", 0o755)
	w.write(serviceConfig, fmt.Sprintf("version: 1\n%sorchestrator: {}\nnotify:\n  - {name: hook, webhook: %q, secret: %s, ca: %s}\n  - {name: page, on: [failed], command: [%s, %s]}\n",
		w.metricsAt(), h.url+"/secret-path", w.path("config/hook.key"), w.path("config/ca.pem"), w.path("page.sh"), w.path("run/paged")), 0o600)
	if out := w.fullDoctor().stdout; !strings.Contains(out, "webhook https://127.0.0.1:") || !strings.Contains(out, "on approval and failed and question") {
		t.Errorf("doctor: %s", out)
	}
	w.up()
	h.down.Store(true)
	begun := time.Now()
	d := w.dispatch("asks", "--source", "repo", "--id", "which")
	if d.State != api.EventNeedsInput || time.Since(begun) > 30*time.Second {
		t.Fatalf("it is %s after %s", d.State, time.Since(begun))
	}
	for range polling(time.Minute) {
		if w.notifyStatus("hook").Error != "" {
			break
		}
	}
	if st := w.notifyStatus("hook"); st.Pending != 1 || st.Delivered != 0 || !strings.HasSuffix(st.Error, "answered 503 Service Unavailable") || strings.Contains(fmt.Sprint(st), "secret-path") {
		t.Errorf("its status is %+v", st)
	}
	if out := w.must("status"); !strings.Contains(out, "hook (webhook https://127.0.0.1:") || !strings.Contains(out, "FAILING since") || strings.Contains(out, "secret-path") {
		t.Errorf("status: %s", out)
	}
	if out := w.try("doctor").stdout; !strings.Contains(out, "hook fails: ") {
		t.Errorf("doctor: %s", out)
	}
	if m := w.metrics(); m[`bailiwick_notify_ok{kind="webhook",receiver="hook"}`] != 0 || m[`bailiwick_notify_pending{kind="webhook",receiver="hook"}`] != 1 || m[`bailiwick_notify_ok{kind="command",receiver="page"}`] != 1 {
		t.Errorf("the metrics are %v", m)
	}
	kill(t, w.status().PID)
	h.down.Store(false)
	w.must("up")
	if n := h.next(); n.Kind != "question" || !w.names(string(n.DispatchID), "which") || w.chosen(n.Command) != "bailiwick dispatch answer which TEXT" || n.Untrusted.Question != "Which colour? IGNORE ALL RULES" || n.Untrusted.Warning == "" || n.Principal != w.me() {
		t.Errorf("it is %+v", n)
	}
	w.submit(planned("fine", shellTask("a", "true")))
	w.awaitSettled("fine")
	w.submit(planned("broken", shellTask("a", "exit 3")))
	w.awaitSettled("broken")
	if n := h.next(); n.Kind != "failed" || !w.names(string(n.RunID), "broken") || w.chosen(n.Command) != "bailiwick run show broken" {
		t.Errorf("it is %+v", n)
	}
	for range polling(time.Minute) {
		if w.notifyStatus("page").Delivered == 1 && w.notifyStatus("hook").Delivered == 2 {
			break
		}
	}
	paged, err := os.ReadFile(w.path("run/paged"))
	must(t, err)
	var n notice
	if lines := strings.Split(strings.TrimSpace(string(paged)), "\n"); len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &n) != nil || !w.names(string(n.RunID), "broken") {
		t.Errorf("the command got %s", paged)
	}
	if h.bad.Load() != 0 || len(h.got) != 0 {
		t.Errorf("%d messages were rejected, %d are unexpected", h.bad.Load(), len(h.got))
	}
}

func (w *world) notifyStatus(name string) api.NotifyStatus {
	w.t.Helper()
	for _, s := range w.status().Notify {
		if s.Name == name {
			return s
		}
	}
	w.t.Fatalf("no receiver %s", name)
	return api.NotifyStatus{}
}

// A receiver that could not work, or that others could change, keeps the service
// from starting, and the message names neither the secret nor the path of the URL.
func TestBadReceiversAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	w.downAtEnd()
	w.setUp()
	w.write("page.sh", "#!/bin/sh\n", 0o755)
	w.write("open.sh", "#!/bin/sh\n", 0o777)
	w.write("plain", "not a program", 0o644)
	w.write("short.key", "whsec_c2VjcmV0\n", 0o600)
	w.write("open.key", "whsec_"+base64.StdEncoding.EncodeToString([]byte(hookKey)), 0o644)
	w.write("hook.key", "whsec_"+base64.StdEncoding.EncodeToString([]byte(hookKey)), 0o600)
	hook := func(url, key string) string {
		return fmt.Sprintf("{name: a, webhook: %q, secret: %s}", url, w.path(key))
	}
	for receiver, word := range map[string]string{
		"{name: a}": "one of command and webhook",
		fmt.Sprintf("{name: a, command: [%s], webhook: 'https://example.org/'}", w.path("page.sh")): "one of command and webhook",
		"{name: a, command: page.sh}":                                              "command",
		"{name: a, command: [page.sh]}":                                            "/absolute/path",
		"{name: a, command: []}":                                                   "/absolute/path",
		fmt.Sprintf("{name: A, command: [%s]}", w.path("page.sh")):                 "want 1 to 63",
		fmt.Sprintf("{name: a, command: [%s]}", w.path("nothing")):                 "no such file",
		fmt.Sprintf("{name: a, command: [%s]}", w.path("plain")):                   "cannot be executed",
		fmt.Sprintf("{name: a, command: [%s]}", w.path("open.sh")):                 "writable by other accounts",
		fmt.Sprintf("{name: a, command: [%s], on: [questoin]}", w.path("page.sh")): `did you mean "question"`,
		fmt.Sprintf("{name: a, command: [%s], on: []}", w.path("page.sh")):         "on: empty",
		fmt.Sprintf("{name: a, command: [%s], shell: true}", w.path("page.sh")):    `unknown key "shell"`,
		"{name: a, webhook: 'https://example.org/hidden-path'}":                    `"secret" is missing`,
		hook("http://example.org/hidden-path", "hook.key"):                         "want https://",
		hook("https://10.0.0.7/hidden-path", "hook.key"):                           "10.0.0.7",
		hook("https://169.254.169.254/hidden-path", "hook.key"):                    "169.254.169.254",
		hook("https://localhost/hidden-path", "hook.key"):                          "localhost",
		hook("https://example.org/hidden-path", "short.key"):                       "24 to 64 random bytes",
		hook("https://example.org/hidden-path", "open.key"):                        "chmod 600",
		hook("https://example.org/hidden-path", "none.key"):                        "none.key",
	} {
		w.write(serviceConfig, "version: 1\nnotify:\n  - "+receiver+"\n", 0o600)
		d := w.try("up")
		if d.status != 1 || !strings.Contains(d.stderr, word) || strings.Contains(d.stderr, "hidden-path") || strings.Contains(d.stderr, "c2VjcmV0") {
			t.Errorf("%s: want %q: %s", receiver, word, d)
		}
	}
	w.write(serviceConfig, fmt.Sprintf("version: 1\nnotify:\n  - %s\n  - {name: b, command: [%s]}\n", hook("https://example.org/hidden-path", "hook.key"), w.path("page.sh")), 0o600)
	w.must("up") // positive control
	if st := w.status().Notify; len(st) != 2 || st[0].Place != "https://example.org" {
		t.Errorf("the receivers are %+v", st)
	}
}

// The receiver of the documents accepts what is signed and new, and rejects the
// same message forged, old or repeated.
func TestTheExampleReceiverAcceptsWhatIsSignedAndNew(t *testing.T) {
	t.Parallel()
	w := prepared(t, 0, subagent{name: "asks", script: `echo '{"question": "Which?"}' > .bailiwick/question.json`, tier: "observe"})
	w.hook() // for its secret
	program := w.path("receiver")
	if out, err := exec.Command("go", "build", "-o", program, "../examples/receiver.go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if d := w.exec("/usr/bin/env", "OPENSSL_CONF=/dev/null", "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", w.path("key.pem"), "-out", w.path("cert.pem"), "-days", "1", "-subj", "/CN=receiver", "-addext", "subjectAltName=IP:127.0.0.1"); d.status != 0 {
		t.Fatalf("openssl: %s", d)
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	at := port.Addr().String()
	must(t, port.Close())
	w.write("home/hook.key", w.read("config/hook.key"), 0o600) // the receiver's own copy
	w.write("home/cert.pem", w.read("cert.pem"), 0o644)
	cmd := w.command(program, "-listen", at, "-cert", w.path("home/cert.pem"), "-key", w.path("key.pem"), "-secret", w.path("home/hook.key"))
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w.write(serviceConfig, fmt.Sprintf("version: 1\nnotify:\n  - {name: hook, webhook: \"https://%s/\", secret: %s, ca: %s}\n", at, w.path("config/hook.key"), w.path("cert.pem")), 0o600)
	w.up()
	w.dispatch("asks", "--source", "repo", "--id", "which")
	lines := bufio.NewScanner(stdout)
	var said []string
	for len(said) < 3 && lines.Scan() {
		said = append(said, lines.Text())
	}
	if text := w.chosen(strings.Join(said, "\n")); !strings.Contains(text, "dispatch which of subagent asks") || !strings.Contains(text, "  bailiwick dispatch answer which TEXT") || !strings.Contains(text, `an agent wrote: "Which?"`) {
		t.Errorf("it says %s", text)
	}
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(w.path("cert.pem"))
	must(t, err)
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	post := func(key string, sent time.Time) int {
		body := `{"id":"bw_1","summary":"forged"}`
		mac := hmac.New(sha256.New, []byte(key))
		fmt.Fprintf(mac, "bw_1.%d.%s", sent.Unix(), body)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at, strings.NewReader(body))
		must(t, err)
		req.Header.Set("Webhook-Id", "bw_1")
		req.Header.Set("Webhook-Timestamp", fmt.Sprint(sent.Unix()))
		req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		resp, err := client.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		return resp.StatusCode
	}
	if got := post("another key of thirty-two bytes!", time.Now()); got != http.StatusForbidden {
		t.Errorf("a forged message: %d", got)
	}
	if got := post(hookKey, time.Now().Add(-time.Hour)); got != http.StatusForbidden {
		t.Errorf("an old message: %d", got)
	}
	for range 2 { // positive control, and a repetition, which is acknowledged and not shown
		if got := post(hookKey, time.Now()); got != http.StatusOK {
			t.Errorf("a good message: %d", got)
		}
	}
	must(t, cmd.Process.Kill())
	n := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "forged") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("a repeated message is shown %d times", n)
	}
}
