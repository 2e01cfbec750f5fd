package executor

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// A worker of another account may put links into its directory: the service connects to no socket, and writes to no file, that
// they lead to.
//
// proves R-S1
func TestTheServiceFollowsNoLinkOfAWorker(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, other} {
		l, err := listen(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // of a test
	}
	conn, err := dial(t.Context(), dir) // the ordinary case
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	socket, file := filepath.Join(dir, record.WorkSocket), filepath.Join(dir, record.WorkErrors)
	victim := filepath.Join(other, "file")
	for _, step := range []error{
		os.Remove(socket), os.Symlink(filepath.Join(other, record.WorkSocket), socket),
		os.WriteFile(victim, []byte("mine"), 0o600), os.Symlink(victim, file),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if conn, err := dial(t.Context(), dir); err == nil {
		_ = conn.Close()
		t.Error("connected to the socket of another attempt")
	}
	conn, err = (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatalf("control: an ordinary connect follows the link: %v", err)
	}
	_ = conn.Close()
	if err := write(file, os.O_APPEND, func(w io.Writer) error { _, err := io.WriteString(w, "killed"); return err }); err == nil {
		t.Error("wrote through a link")
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}
