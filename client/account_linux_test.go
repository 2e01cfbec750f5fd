package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// nobody is an account without rights on any file of this test.
const nobody = 65534

// asNobody calls f on a thread of account nobody where this test runs as root, since
// permissions do not bind root. Everything that f does stays on that thread, which ends.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		defer close(done)
		if os.Getuid() == 0 {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
				done <- errno
				return
			}
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A caller of another account than the service's is told so, and what to do, whether it
// may connect to the socket, may not, or cannot even see it. It starts no service then.
// Control: the service's own account connects, and an unreadable directory of the
// caller's own account is not called another account's.
func TestASocketOfAnotherAccountIsNamed(t *testing.T) {
	me := os.Getuid()
	for name, c := range map[string]struct {
		dir, socket os.FileMode
		trusted     int  // the account whose services the caller uses
		nobody      bool // the caller cannot pass permissions
		code        api.Code
		other       bool // the error is about another account
	}{
		"its own account":                         {0o755, 0o600, me, false, "", false},
		"another account that may connect":        {0o755, 0o666, me + 1, false, api.CodeUnauthenticated, true},
		"another account that may not connect":    {0o755, 0o000, me + 1, true, api.CodeUnavailable, true},
		"another account that cannot see it":      {0o000, 0o600, me + 1, true, api.CodeUnavailable, true},
		"an unreadable directory of its own":      {0o000, 0o600, me, true, api.CodeUnavailable, false},
		"a socket of its own that it cannot open": {0o755, 0o000, me, true, api.CodeUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			base, err := os.MkdirTemp("", "bw-") //nolint:usetesting // the path of a socket is short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			dir := filepath.Join(base, "d")
			socket := filepath.Join(dir, "s")
			if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(dir, 0o755)); err != nil { //nolint:gosec // G302: others reach it
				t.Fatal(err)
			}
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{} //nolint:gosec // G112: only this test calls
			go srv.Serve(l)       //nolint:errcheck // ends with the test
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700); _ = srv.Close() })
			if err := errors.Join(os.Chmod(socket, c.socket), os.Chmod(dir, c.dir)); err != nil {
				t.Fatal(err)
			}
			conn := New(Config{Socket: socket, UIDs: []int{c.trusted}})
			t.Cleanup(conn.Close)
			call := func() { _, err = conn.Find(t.Context()) }
			if c.nobody {
				asNobody(t, call)
			} else {
				call()
			}
			e, _ := errors.AsType[*api.Error](err)
			if c.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e == nil || e.Code != c.code || NoService(err) {
				t.Fatalf("error %v, want code %s and no other service started", err, c.code)
			}
			want := fmt.Sprintf("socket %s belongs to another account (uid %d)", socket, me)
			if got := strings.HasPrefix(e.Message, want) && strings.Contains(e.Hint, "a token") && strings.Contains(e.Hint, "as that account"); got != c.other {
				t.Errorf("%s (hint: %s): about another account %t, want %t", e.Message, e.Hint, got, c.other)
			}
		})
	}
}
