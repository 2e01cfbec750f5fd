package daemoncli

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// asManager makes the test binary a service manager: it listens on the path that the
// variable names, and becomes bailiwickd with that socket.
const asManager = "DAEMONCLI_TEST_AS_MANAGER"

func passSocket() {
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	l, err := net.Listen("unix", os.Getenv(asManager)) //nolint:noctx // it only binds
	fail(err)
	f, err := l.(*net.UnixListener).File() //nolint:forcetypeassert // of a unix socket
	fail(err)
	fail(unix.Dup2(int(f.Fd()), 3)) //nolint:gosec // G115: a descriptor
	fail(os.Unsetenv(asManager))
	env := append(os.Environ(), asProgram+"=1", "LISTEN_FDS=1", "LISTEN_PID="+strconv.Itoa(os.Getpid()), "LISTEN_FDNAMES=api")
	fail(syscall.Exec("/proc/self/exe", os.Args, env)) //nolint:gosec // G204: this test
}

// testSupervisor is the supervisor that cmd/bailiwickd passes.
func testSupervisor() (s Supervisor) {
	s.Sockets = activation.Files(true)
	s.Notify = func(state string) error { _, err := daemon.SdNotify(false, state); return err }
	s.Watchdog, _ = daemon.SdWatchdogEnabled(false)
	return s
}

// A service manager passes the socket, and is notified when the service is ready, that it
// is alive and that it stops. The socket stays when the service has stopped.
func TestAServiceManagerIsToldWhatTheServiceDoes(t *testing.T) {
	m, program := installed(t)
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.Path("/run/notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close() //nolint:errcheck // of a test
	if err := os.Chmod(m.Path("/run/notify"), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cmd := m.Command(ctx, machine.Service, program, "serve", "--system")
	cmd.Env = append(cmd.Env, asManager+"=/run/bailiwick/api.sock", "NOTIFY_SOCKET=/run/notify", "WATCHDOG_USEC=300000")
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next := func() string {
		b := make([]byte, 1<<10)
		_ = told.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := told.Read(b)
		if err != nil {
			stop()
			_ = cmd.Wait()
			t.Fatalf("%v\n%s", err, errs.String())
		}
		return string(b[:n])
	}
	var said []string
	for !slices.Contains(said, notifyReady) || !slices.Contains(said, notifyAlive) {
		said = append(said, next())
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for next() != notifyStopping { //nolint:revive // what comes before is about life
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
	if st, err := os.Lstat(m.Path("/run/bailiwick/api.sock")); err != nil || st.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket of the manager: %v, %v", st, err)
	}
}

// A socket on another path than the one that callers use keeps the service from starting.
func TestASocketOfAnotherPathIsRefused(t *testing.T) {
	m, program := installed(t)
	cmd := m.Command(t.Context(), machine.Service, "timeout", "20", program, "serve", "--system")
	cmd.Env = append(cmd.Env, asManager+"=/run/bailiwick/other.sock")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "want one on /run/bailiwick/api.sock") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The watchdog hears of a service that answers, also with an error, and not of one that
// accepts connections and is stuck.
func TestTheWatchdogHearsOnlyOfAServiceThatAnswers(t *testing.T) {
	t.Parallel()
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		alive  bool
	}{
		"an answer": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("{}")) }, true},
		"an error": {func(w http.ResponseWriter) {
			w.WriteHeader(503)
			_, _ = w.Write([]byte(`{"code":"service_unavailable"}`))
		}, true},
		"silence": {func(http.ResponseWriter) { <-stuck }, false},
	} {
		dir, err := os.MkdirTemp("", "w") //nolint:usetesting // short: a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path := filepath.Join(dir, "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }), ReadHeaderTimeout: time.Minute}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close() })
		told := make(chan string, 1000)
		tr := &tree{Config: Config{UID: os.Getuid(), Dirs: api.Dirs{}, Supervisor: Supervisor{Watchdog: 600 * time.Millisecond, Notify: func(state string) error { told <- state; return nil }}}}
		ctx, stop := context.WithCancel(t.Context())
		limit := time.Minute
		if !c.alive {
			limit = 200 * time.Millisecond
		}
		if err := tr.ask(ctx, limit, path); (err == nil) != c.alive {
			t.Errorf("%s: %v", name, err)
		}
		end := tr.supervised(ctx, slog.New(slog.DiscardHandler), path)
		if c.alive {
			if state := <-told; state != notifyAlive {
				t.Errorf("%s: told %q", name, state)
			}
		}
		stop()
		end()
		if !c.alive && len(told) > 0 {
			t.Errorf("%s: told %q", name, <-told)
		}
	}
}
