package e2e

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/scriptmodel"
)

// closedPort returns the address of a reserved loopback port, which refuses connections
// until open is called.
func closedPort(t *testing.T) (address string, open func() net.Listener) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), "port")
	t.Cleanup(func() { _ = f.Close() })
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(fd)
	must(t, err)
	at := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	return at.String(), func() net.Listener {
		t.Helper()
		must(t, syscall.Listen(fd, 16))
		l, err := net.FileListener(f)
		must(t, err)
		return l
	}
}

// An agent retries silently while its model's host takes no connection. The record of its
// dispatch and the tree of its run name host and reason, also after a restart of the
// service, and no longer once the model answers. TestAConnectionToTheModelIsBounded has the
// bound of time.
func TestALostNetworkIsShownWhileTheAgentRetries(t *testing.T) {
	t.Parallel()
	address, open := closedPort(t)
	w := prepared(t, 0)
	const more = "    prompt: \"{{.do}}\"\n    model: local/small\n"
	retries := "until (\n" + asker + "\n) 2>/dev/null; do sleep 0.2; done\n"
	w.runManifest(subagent{name: "patient", script: retries, more: more})
	w.replace(manifest, "version: 1\n", "version: 1\nmodels:\n  - {name: local, api: openai-chat, endpoint: \"http://"+address+"\", levels: {small: scripted-1}}\n")
	w.must("catalog", "apply", "-f", w.path(manifest))
	w.upRuns()
	w.downAtEnd()

	begun := time.Now()
	id := w.submit(planned("lost", shellTask("one", "say", as("patient"))))
	awaitUnreachable := func(want bool) api.RunTask {
		t.Helper()
		for late := range polling(60 * time.Second) {
			if got := task(t, w.run(id), "one"); (got.Unreachable != nil) == want {
				return got
			}
			if late {
				t.Fatalf("%+v", task(t, w.run(id), "one"))
			}
		}
		panic("unreachable")
	}
	seen := awaitUnreachable(true)
	u := seen.Unreachable
	if u.Host != address || u.Model != "local" || !strings.Contains(u.Error, "connection refused") || u.Tries < 1 || u.Since.Before(begun.Add(-time.Second)) {
		t.Errorf("%+v", u)
	}
	for _, args := range [][]string{{"dispatch", "show", string(seen.DispatchID)}, {"run", "show", string(id)}} {
		if out := w.must(args...); !strings.Contains(out, "local at "+address+" cannot be reached: ") {
			t.Errorf("%s: %s", args, out)
		}
	}
	if out := w.must("dispatch", "network", string(seen.DispatchID)); !strings.Contains(out, "connection refused") {
		t.Error(out)
	}
	w.must("down")
	w.upRuns()
	if again := awaitUnreachable(true).Unreachable; !again.Since.Equal(u.Since) || again.Tries < u.Tries {
		t.Errorf("after a restart %+v, before %+v", again, u)
	}

	srv := httptest.NewUnstartedServer(http.Handler(&scriptmodel.Server{Script: scriptmodel.Say("hello")}))
	_ = srv.Listener.Close()
	srv.Listener = open()
	srv.Start()
	t.Cleanup(srv.Close)
	awaitUnreachable(false)
	wantStates(t, w.awaitSettled(id), "done; one done")
}
