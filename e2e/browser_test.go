package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a browser may take for one step before its test fails. It is no
// target: on a busy machine a page may wait for the processor.
const patience = 2 * time.Minute

// nowhere is an address where nothing listens.
const nowhere = "http://127.0.0.1:9/"

// browser is a headless Chromium with a profile of its own. The test drives it over two
// pipes with the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/):
// JSON messages that end with a NUL.
//
// Every name and address but loopback leads to a listener of the test, so whatever the
// browser or a page sends elsewhere is seen and goes no further.
type browser struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   *os.File
	errs bytes.Buffer

	mu     sync.Mutex
	next   int
	calls  map[int]chan<- devtools // that wait for their response
	tabs   map[string]*tab         // by session
	gone   bool                    // the pipe is closed
	strays []string                // what was sent beyond loopback, at most its first line
	change chan struct{}           // closed and replaced whenever something happened
}

// devtools is a message of the protocol: a call, its response or an event.
type devtools struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
		Data    string `json:"data"`
	} `json:"error,omitempty"`
}

// newBrowser starts a browser that ends with the test, with further flags.
func newBrowser(t testing.TB, flags ...string) *browser {
	t.Helper()
	return newBrowserAs(t, os.Getuid(), flags...)
}

// newBrowserAs is newBrowser under an account: a page that a person of a machine serves
// answers that person alone.
func newBrowserAs(t testing.TB, uid int, flags ...string) *browser {
	t.Helper()
	profile, err := os.MkdirTemp("", "p") //nolint:usetesting // a short name: Chromium makes a socket in it
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(profile)) })
	must(t, os.Chown(profile, uid, uid))
	b := &browser{t: t, calls: map[int]chan<- devtools{}, tabs: map[string]*tab{}, change: make(chan struct{})}
	elsewhere := b.listenElsewhere()
	// --disable-dev-shm-usage: containers have a small /dev/shm.
	b.cmd = exec.Command("chromium", "--headless=new", "--remote-debugging-pipe", "--user-data-dir="+profile,
		"--host-resolver-rules=MAP * "+elsewhere+", EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost",
		"--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
		"--disable-extensions", "--disable-breakpad", "--disable-crash-reporter", "--disable-domain-reliability", "--disable-client-side-phishing-detection",
		"--disable-features=OptimizationHints,MediaRouter,Translate,DialMediaRouteProvider,CertificateTransparencyComponentUpdater,AutofillServerCommunication,NetworkTimeServiceQuerying",
		"--metrics-recording-only", "--no-pings", "--password-store=basic", "--use-mock-keychain", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--mute-audio",
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--lang=en-GB",
		// Some of its own services have no switch: they get an address where nothing listens.
		"--gaia-url="+nowhere, "--google-apis-url="+nowhere, "--google-url="+nowhere, "--apps-gallery-update-url="+nowhere, "--component-updater=url-source="+nowhere)
	b.cmd.Args = append(append(b.cmd.Args, flags...), "about:blank")
	if os.Getuid() == 0 {
		b.cmd.Args = slices.Insert(b.cmd.Args, 1, "--no-sandbox") // Chromium's sandbox does not work for root
	}
	b.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + profile, "TMPDIR=" + profile, "XDG_RUNTIME_DIR=" + profile, "LC_ALL=C.UTF-8", "TZ=UTC"}
	b.cmd.Stderr = &b.errs
	if uid != os.Getuid() {
		b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}} //nolint:gosec // G115: uids of the tests
	}
	commands, in, err := os.Pipe()
	must(t, err)
	out, answers, err := os.Pipe()
	must(t, err)
	b.in, b.cmd.ExtraFiles = in, []*os.File{commands, answers} // file descriptors 3 and 4
	err = b.cmd.Start()
	must(t, errors.Join(commands.Close(), answers.Close()))
	if err != nil {
		t.Fatalf("start Chromium (scripts/setup installs it): %v", err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(out)
	}()
	t.Cleanup(func() {
		b.end(profile)
		<-read
		must(t, errors.Join(in.Close(), out.Close()))
	})
	var version struct{ Product string }
	b.must("", "Browser.getVersion", nil, &version)
	b.must("", "Browser.setDownloadBehavior", members{"behavior": "deny"}, nil)
	return b
}

// listenElsewhere returns the address that all names but those of loopback resolve to.
// What connects there is noted and refused.
func (b *browser) listenElsewhere() string {
	b.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(b.t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				first := make([]byte, 1024)
				n, _ := conn.Read(first) // a connection made in advance says nothing
				b.note(func() { b.strays = append(b.strays, fmt.Sprintf("a connection: %q", first[:n])) })
				_ = conn.Close() // the browser finds no server
			})
		}
	})
	b.t.Cleanup(func() {
		must(b.t, listener.Close())
		all.Wait()
	})
	return listener.Addr().String()
}

// end ends the browser and waits for its processes.
func (b *browser) end(profile string) {
	b.t.Helper()
	_, _ = b.call("", "Browser.close", nil) // it may have crashed
	exited := make(chan struct{})
	go func() {
		_ = b.cmd.Wait() // it has no result
		close(exited)
	}()
	select {
	case <-exited:
	case <-time.After(patience):
		_ = b.cmd.Process.Kill() // it may have exited just now
		<-exited
	}
	eventually(b.t, "Chromium's processes exit", func() bool { return len(processes(b.t, profile)) == 0 })
	if b.t.Failed() {
		b.t.Logf("Chromium's messages:\n%s", b.errs.String())
	}
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for late := range polling(patience) {
		if holds() {
			return
		}
		if late {
			t.Fatalf("after %v not yet: %s", patience, what)
		}
	}
}

// note changes the state of b and wakes up who waits for a change.
func (b *browser) note(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.change)
	b.change = make(chan struct{})
}

// read takes messages until the pipe is closed.
func (b *browser) read(from io.Reader) {
	messages := bufio.NewReader(from)
	for {
		raw, err := messages.ReadBytes(0)
		if err != nil {
			break
		}
		var m devtools
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			b.t.Errorf("message from Chromium: %v: %s", err, raw)
			break
		}
		b.note(func() {
			if call, ok := b.calls[m.ID]; ok && m.Method == "" {
				delete(b.calls, m.ID)
				call <- m
			} else if tab, ok := b.tabs[m.SessionID]; ok {
				tab.take(m)
			}
		})
	}
	b.note(func() {
		b.gone = true
		for _, call := range b.calls {
			close(call)
		}
		clear(b.calls)
	})
}

// call calls a method of the browser, or of a tab by its session.
func (b *browser) call(session, method string, params any) (json.RawMessage, error) {
	if params == nil {
		params = members{}
	}
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	answer := make(chan devtools, 1)
	b.mu.Lock()
	b.next++
	m := devtools{ID: b.next, SessionID: session, Method: method, Params: raw}
	if b.gone {
		close(answer)
	} else {
		b.calls[m.ID] = answer
	}
	b.mu.Unlock()
	raw, err = json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if _, err := b.in.Write(append(raw, 0)); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: Chromium has exited", method)
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s %s", method, m.Error.Message, m.Error.Data)
		}
		return m.Result, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s: no response within %v", method, patience)
	}
}

// must calls a method that must succeed; result, if not nil, receives its result.
func (b *browser) must(session, method string, params, result any) {
	b.t.Helper()
	raw, err := b.call(session, method, params)
	if err != nil {
		b.t.Fatal(err)
	}
	if result != nil {
		decode(b.t, string(raw), result)
	}
}

// elsewhere lists what was sent to another origin than those: requests of tabs, and
// connections beyond loopback by whatever in the browser.
func (b *browser) elsewhere(origins ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Clone(b.strays)
	for _, tab := range slices.SortedFunc(maps.Values(b.tabs), func(a, b *tab) int { return strings.Compare(a.session, b.session) }) {
		for _, r := range tab.requests {
			inside := slices.ContainsFunc(origins, func(o string) bool { return r.URL == o || strings.HasPrefix(r.URL, o+"/") })
			if !inside && r.URL != "about:blank" {
				out = append(out, r.Type+" "+r.URL)
			}
		}
	}
	return out
}
