package sourcefetch

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

const token = "planted-token-5f0c1d"

// certificate is that of the servers, which the process trusts.
var certificate tls.Certificate //nolint:gochecknoglobals // made by TestMain

func TestMain(m *testing.M) {
	jail.Main()
	dir, err := os.MkdirTemp("", "fetch")
	if err == nil {
		certificate, err = trust(filepath.Join(dir, "roots.pem"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// trust makes a certificate of git.example.com, and path the roots of this process.
func trust(path string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "git.example.com"}, DNSNames: []string{"git.example.com", "other.example.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, errors.Join(
		os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.Setenv("SSL_CERT_FILE", path), os.Setenv("SSL_CERT_DIR", filepath.Dir(path)))
}

// host is a server of git repositories over HTTPS, by git's own http-backend.
type host struct {
	*httptest.Server
	t    *testing.T
	root string
	open bool // needs no token

	mu       sync.Mutex
	requests []*http.Request
	before   func(http.ResponseWriter, *http.Request) bool // answers instead
}

func newHost(t *testing.T) *host {
	h := &host{t: t, root: t.TempDir()}
	backend := &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend", Root: "/",
		Env: []string{"GIT_PROJECT_ROOT=" + h.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		h.requests = append(h.requests, r)
		h.mu.Unlock()
		if h.before != nil && h.before(w, r) {
			return
		}
		if user, got, _ := r.BasicAuth(); !h.open && (got != token || user != "bot") {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if p := r.Header.Get("Git-Protocol"); p != "" {
			r.Header.Set("Git-Protocol", p) // cgi passes it as HTTP_GIT_PROTOCOL
		}
		backend.ServeHTTP(w, r)
	}))
	h.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

// work runs git in a repository of the host.
func (h *host) work(name string, args ...string) string {
	h.t.Helper()
	dir := filepath.Join(h.root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.root}, gitexec.Identity("a", "a@b", "")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// commit adds a file to a repository, and returns the commit.
func (h *host) commit(repo, file, text string) string {
	h.t.Helper()
	if _, err := os.Stat(filepath.Join(h.root, repo, ".git")); err != nil {
		h.work(repo, "init", "-q", "-b", "main")
	}
	if err := os.WriteFile(filepath.Join(h.root, repo, file), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.work(repo, "add", "-A")
	h.work(repo, "commit", "-q", "-m", file)
	return h.work(repo, "rev-parse", "HEAD")
}

// client fetches from hosts into a state of its own.
type client struct {
	t      *testing.T
	dirs   api.Dirs
	places map[string]string // where the network leads: host:port to an address
	dialed []string
	mu     sync.Mutex
}

func newClient(t *testing.T, places map[string]string) *client {
	return &client{t: t, dirs: api.Dirs{State: t.TempDir()}, places: places}
}

func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	c.dialed = append(c.dialed, address)
	c.mu.Unlock()
	to, ok := c.places[address]
	if !ok {
		return nil, errors.New(address + " is nowhere")
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

func (c *client) fetch(s api.Source, secret, commit string) record.FetchResult {
	c.t.Helper()
	line, err := json.Marshal(record.FetchRequest{Source: s, Commit: commit, Secret: secret})
	if err != nil {
		c.t.Fatal(err)
	}
	in, service := io.Pipe()
	go func() { _, _ = service.Write(append(line, '\n')) }()
	defer service.Close() //nolint:errcheck // a pipe
	var out bytes.Buffer
	if err := Run(c.t.Context(), Config{Dirs: c.dirs, In: in, Out: &out, Dial: c.dial}); err != nil {
		c.t.Fatal(err)
	}
	var result record.FetchResult
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		c.t.Fatal(err)
	}
	return result
}

// must fetches, and compares the tree of the commit with files.
func (c *client) must(s api.Source, secret, commit, want string, files map[string]string) {
	c.t.Helper()
	r := c.fetch(s, secret, commit)
	if r.Error != "" || r.Commit != want {
		c.t.Fatalf("%s: got %+v, want %s", commit, r, want)
	}
	c.holds(s, want, files)
}

func (c *client) holds(s api.Source, commit string, files map[string]string) {
	c.t.Helper()
	repo, err := capture.CreateRepo(c.t.Context(), filepath.Join(c.t.TempDir(), "repo"), c.dirs.Repository(s))
	if err != nil {
		c.t.Fatal(err)
	}
	tree := c.t.TempDir()
	if err := repo.Checkout(c.t.Context(), commit, tree); err != nil {
		c.t.Fatal(err)
	}
	got := map[string]string{}
	entries, _ := os.ReadDir(tree)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join(tree, e.Name()))
		got[e.Name()] = string(text)
	}
	if fmt.Sprint(got) != fmt.Sprint(files) {
		c.t.Errorf("commit %s: got %v, want %v", commit, got, files)
	}
}

// refused fetches, and wants an error with words in it, and without the secret.
func (c *client) refused(s api.Source, secret, commit string, words ...string) {
	c.t.Helper()
	r := c.fetch(s, secret, commit)
	if r.Commit != "" || strings.Contains(r.Error, token) {
		c.t.Errorf("%s: got %+v", commit, r)
	}
	for _, w := range words {
		if !strings.Contains(r.Error, w) {
			c.t.Errorf("%s: want %q, got: %s", commit, w, r.Error)
		}
	}
}

func private() api.Source {
	return api.Source{Name: "app", Repo: "https://git.example.com/team/app", User: "bot", Secret: "git"}
}

// proves R-S4, R-T7
func TestACommitIsFetchedOnceAndIncrementally(t *testing.T) {
	h := newHost(t)
	first := h.commit("team/app", "one", "1")
	h.work("team/app", "tag", "-a", "-m", "x", "v1")
	h.work("team/app", "branch", "side")
	large := strings.Repeat(rand.Text(), 40000)
	second := h.commit("team/app", "large", large)
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String()})
	c.must(private(), token, "", second, map[string]string{"one": "1", "large": large})
	third := h.commit("team/app", "two", "2")
	before := c.size(private())
	c.must(private(), token, "main", third, map[string]string{"one": "1", "two": "2", "large": large})
	if grown := c.size(private()) - before; grown > 20_000 {
		t.Errorf("the second fetch added %d bytes to %d", grown, before)
	}
	c.must(private(), token, "v1", first, map[string]string{"one": "1"})
	c.must(private(), token, "refs/heads/side", first, map[string]string{"one": "1"})
	c.must(private(), token, "HEAD", third, map[string]string{"one": "1", "two": "2", "large": large})
	n := len(h.requests)
	// What is there needs no network, also when the history upstream is another.
	h.work("team/app", "checkout", "-q", "--orphan", "new")
	h.work("team/app", "branch", "-D", "main", "side")
	h.work("team/app", "tag", "-d", "v1")
	rewritten := h.commit("team/app", "other", "3")
	h.work("team/app", "reflog", "expire", "--expire=now", "--all")
	h.work("team/app", "gc", "-q", "--prune=now")
	c.must(private(), token, second, second, map[string]string{"one": "1", "large": large})
	if len(h.requests) != n {
		t.Errorf("%d requests for what is there", len(h.requests)-n)
	}
	c.must(private(), token, "", rewritten, map[string]string{"one": "1", "two": "2", "large": large, "other": "3"})
	c.refused(private(), token, "main", "no such branch or tag")
	c.refused(private(), token, strings.Repeat("0123456789", 4), "no such commit")
	c.refused(private(), token, rewritten[:12], "give the full name")
	// Sources that differ in the credential share nothing.
	other := private()
	other.Secret = ""
	c.refused(other, "", second, "needs a secret")
}

func (c *client) size(s api.Source) int64 {
	c.t.Helper()
	cache, err := openCache(c.t.Context(), c.dirs.Fetched(s))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cache.close()
	n, err := cache.size()
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// proves R-S4, R-T7, R-D8
func TestAFetchReachesOneRepositoryOfOneHost(t *testing.T) {
	h, other := newHost(t), newHost(t)
	commit := h.commit("team/app", "one", "1")
	other.open = true
	other.commit("team/app", "one", "2")
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String(), "other.example.com:443": other.Listener.Addr().String()})
	redirect := func(to string) {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, to, http.StatusFound)
			return true
		}
	}
	redirect("https://other.example.com/team/app/info/refs?service=git-upload-pack")
	c.refused(private(), token, "", "git.example.com answers 302 Found, to https://other.example.com/team/app, which is not followed")
	redirect("http://127.0.0.1:1/latest/meta-data")
	c.refused(private(), token, "", "which is not followed")
	h.before = nil
	if len(other.requests) != 0 || slices.Contains(c.dialed, "other.example.com:443") {
		t.Errorf("a redirect was followed: %q", c.dialed)
	}
	c.refused(private(), "wrong", "", "401 Unauthorized", `secret "git", with the user bot, may not read it`)
	gone := private()
	gone.Repo = "https://git.example.com/team/none"
	c.refused(gone, token, "", "404 Not Found")
	away := private()
	away.Repo = "https://away.example.com/team/app"
	c.refused(away, token, "", "away.example.com:443 is nowhere")
	// The control: the same repository, with the token.
	c.must(private(), token, "", commit, map[string]string{"one": "1"})
	for _, r := range h.requests {
		if user, got, ok := r.BasicAuth(); ok && (user != "bot" || got != token && got != "wrong") {
			t.Errorf("%s: %s %s", r.URL, user, got)
		}
	}
}

// What took over git in the jail can read that repository, and nothing else.
//
// proves R-T7, R-D8
func TestTheWayOutIsTwoRequests(t *testing.T) {
	h := newHost(t)
	h.commit("team/app", "one", "1")
	h.commit("team/app/other", "one", "1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String()})
	u, _ := url.Parse(private().Repo)
	p := newProxy(l, c.dial, u, record.FetchRequest{Source: private(), Secret: token})
	defer p.close()
	ask := func(method, target string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+l.Addr().String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Opaque, r.Host = target, "other.example.com"
		r.Header.Set("X-Forwarded-Host", "other.example.com")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	const refs = "/info/refs?service=git-upload-pack"
	for _, r := range []string{
		"GET /team/other" + refs, "GET /team/app/other" + refs, "GET /team/app/../other" + refs, "GET /team/app/%2e%2e/other" + refs, "GET /team/app/%2finfo/refs?service=git-upload-pack",
		"GET /team/app/info/refs?service=git-receive-pack", "GET /team/app/info/refs", "GET /team/app/info/refs?service=git-upload-pack&service=git-receive-pack",
		"POST /team/app/git-receive-pack", "PUT /team/app/git-upload-pack", "POST /team/app" + refs, "GET /team/app/HEAD", "GET /", "GET https://other.example.com/team/app" + refs, "CONNECT other.example.com:443",
	} {
		method, target, _ := strings.Cut(r, " ")
		if got := ask(method, target); got == http.StatusOK {
			t.Errorf("%s: %d", r, got)
		}
	}
	if len(h.requests) != 0 {
		t.Errorf("passed on: %v", h.requests[0].URL)
	}
	if got := ask("GET", "/team/app"+refs); got != http.StatusOK || len(h.requests) != 1 || h.requests[0].Host != "git.example.com" || h.requests[0].Header.Get("X-Forwarded-Host") != "" {
		t.Errorf("control: %d %+v", got, h.requests)
	}
}

// The server says the secret back, in a header, a body, and in git's own messages.
//
// proves R-D8
func TestTheSecretIsInNoMessage(t *testing.T) {
	h := newHost(t)
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String()})
	packet := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	for _, status := range []int{200, 302, 401, 500} {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			_, got, _ := r.BasicAuth()
			w.Header().Set("Location", "https://git.example.com/"+got)
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, packet("# service=git-upload-pack\n")+"0000"+packet("ERR your token is "+got+" in "+r.Header.Get("Authorization")+"\n"))
			return true
		}
		c.refused(private(), token, "")
	}
	h.before = nil
	h.commit("team/app", "one", "1")
	if r := c.fetch(private(), token, ""); r.Error != "" {
		t.Errorf("control: %+v", r)
	}
	// Nothing of it is in the state.
	if out, err := exec.Command("grep", "-r", token, c.dirs.State).CombinedOutput(); err == nil {
		t.Errorf("%s", out)
	}
}

// proves R-S4
func TestAHostileServerFailsTheFetchAlone(t *testing.T) {
	h := newHost(t)
	commit := h.commit("team/app", "one", "1")
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String()})
	instead := func(kind, body string) {
		h.before = func(w http.ResponseWriter, r *http.Request) bool {
			if kind == "pack" && r.Method != http.MethodPost {
				return false
			}
			w.Header().Set("Content-Type", "application/x-git-upload-pack-"+map[string]string{"pack": "result", "refs": "advertisement"}[kind])
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	instead("refs", "this is no git")
	c.refused(private(), token, "")
	instead("refs", "001e# service=git-upload-pack\n0000")
	c.refused(private(), token, "")
	instead("pack", "0008NAK\nPACK but not quite")
	c.refused(private(), token, commit)
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, "0008N") // git would refuse a whole packet before it reads on
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	c.refused(private(), token, commit, "breaks off")
	h.before = nil
	c.must(private(), token, "", commit, map[string]string{"one": "1"})
}

// What a killed fetch leaves, and a damaged cache.
func TestAnInterruptedFetchIsRepeated(t *testing.T) {
	h := newHost(t)
	commit := h.commit("team/app", "one", "1")
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String()})
	c.must(private(), token, "", commit, map[string]string{"one": "1"})
	packs, err := filepath.Glob(filepath.Join(c.dirs.Repository(private()), "objects/pack/*"))
	if err != nil || len(packs) != 2 {
		t.Fatal(packs, err)
	}
	for _, p := range packs {
		if err := os.Rename(p, p+".new"); err != nil {
			t.Fatal(err)
		}
	}
	c.must(private(), token, "", commit, map[string]string{"one": "1"})
	if packs, err = filepath.Glob(filepath.Join(c.dirs.Repository(private()), "objects/pack/pack-*[kx]")); err != nil || len(packs) != 2 {
		t.Fatal(packs, err)
	}
	for _, p := range packs {
		if err := errors.Join(os.Chmod(p, 0o600), os.Truncate(p, 30)); err != nil {
			t.Fatal(err)
		}
	}
	c.must(private(), token, "", commit, map[string]string{"one": "1"})
	h.commit("team/app", "two", "2")
	c.must(private(), token, "", h.work("team/app", "rev-parse", "HEAD"), map[string]string{"one": "1", "two": "2"})
}

// The service's death ends the fetch.
func TestAFetchEndsWithTheService(t *testing.T) {
	h := newHost(t)
	asked := make(chan struct{})
	h.before = func(_ http.ResponseWriter, r *http.Request) bool {
		close(asked)
		<-r.Context().Done()
		return true
	}
	in, service := io.Pipe()
	line, _ := json.Marshal(record.FetchRequest{Source: private(), Secret: token})
	go func() {
		_, _ = service.Write(append(line, '\n'))
		<-asked
		_ = service.Close()
	}()
	c := newClient(t, map[string]string{"git.example.com:443": h.Listener.Addr().String()})
	var out bytes.Buffer
	if err := Run(t.Context(), Config{Dirs: c.dirs, In: in, Out: &out, Dial: c.dial}); err != nil || !strings.Contains(out.String(), errAbandoned.Error()) {
		t.Errorf("%v %s", err, out.String())
	}
}

const ordinaryEnv = "FETCH_TEST_ORDINARY"

// The tests over HTTPS pass as a user without any right, too.
func TestAnOrdinaryUserFetches(t *testing.T) {
	if os.Getenv(ordinaryEnv) != "" || os.Geteuid() != 0 {
		return // this is that run
	}
	home, err := os.MkdirTemp("", "o") //nolint:usetesting // the directories above are private
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o777); err != nil { //nolint:gosec // G302: another account writes there
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.run=Commit|Host|Secret|Server|Interrupted|Service")
	cmd.Dir, cmd.Env = "/", []string{ordinaryEnv + "=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("PASS: TestACommitIsFetchedOnceAndIncrementally")) || bytes.Contains(out, []byte("FAIL")) {
		t.Errorf("%v\n%s", err, out)
	}
}
