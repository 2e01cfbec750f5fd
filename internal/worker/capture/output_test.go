package capture

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

func takeAll(t *testing.T, dir string, cfg OutputConfig) (map[string]string, []api.LeftOut, error) {
	t.Helper()
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close() //nolint:errcheck // a test's
	type answer struct {
		out []api.LeftOut
		err error
	}
	got, done := map[string]string{}, make(chan answer, 1)
	go func() {
		out, err := Outputs(t.Context(), root, cfg, func(o Output, r io.Reader) error {
			b, err := io.ReadAll(r)
			got[o.Path] = string(b)
			return err
		})
		done <- answer{out, err}
	}()
	select {
	case a := <-done:
		return got, a.out, a.err
	case <-time.After(30 * time.Second):
		t.Fatal("blocks")
		return nil, nil, nil
	}
}

// The control is os.ReadFile, which does read the file outside.
//
// proves R-S4
func TestOutputsAreOnlyRegularFiles(t *testing.T) {
	w, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/shadow", "SECRET")
	write(t, w+"/outputs/ok/result.json", "{}")
	write(t, w+"/outputs/new\nline", "x")
	write(t, w+"/outputs/bad\xff", "x")
	write(t, w+"/outputs/rtl\u202e", "x")
	must(t, unix.Mkfifo(w+"/outputs/fifo", 0o644))
	must(t, os.Symlink(outside+"/shadow", w+"/outputs/shadow"))
	must(t, os.Symlink("/etc/shadow", w+"/outputs/etc"))
	must(t, os.Symlink(outside, w+"/outputs/dir"))
	must(t, os.Symlink("/proc/self/root", w+"/outputs/magic"))
	big, err := os.Create(w + "/outputs/sparse")
	must(t, err)
	must(t, big.Truncate(1<<40))
	must(t, big.Close())
	got, left, err := takeAll(t, w, OutputConfig{})
	must(t, err)
	if len(got) != 1 || got["ok/result.json"] != "{}" {
		t.Errorf("taken: %v", got)
	}
	if len(left) != 9 || strings.Count(leftOut(left), "a symbolic link") != 4 || strings.Count(leftOut(left), "not printable") != 3 {
		t.Errorf("left out:\n%s", leftOut(left))
	}
	if b, err := os.ReadFile(w + "/outputs/shadow"); err != nil || string(b) != "SECRET" {
		t.Errorf("control: %q %v", b, err)
	}
}

// proves R-S4
func TestOutputsRefusesALinkInPlaceOfTheDirectory(t *testing.T) {
	w, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/shadow", "SECRET")
	must(t, os.Symlink(outside, w+"/outputs"))
	got, left, err := takeAll(t, w, OutputConfig{})
	must(t, err)
	if len(got) != 0 || leftOut(left) != "outputs: a symbolic link\n" {
		t.Errorf("taken %v, left out %s", got, leftOut(left))
	}
	must(t, os.Remove(w+"/outputs"))
	must(t, unix.Mkfifo(w+"/outputs", 0o644))
	if _, left, err = takeAll(t, w, OutputConfig{}); err != nil || leftOut(left) != "outputs: not a directory\n" {
		t.Errorf("a fifo: %v %v", left, err)
	}
	must(t, os.Remove(w+"/outputs"))
	if got, left, err = takeAll(t, w, OutputConfig{}); err != nil || len(got)+len(left) != 0 {
		t.Errorf("none: %v %v %v", got, left, err)
	}
}

func TestOutputsBeyondABoundAreLeftOut(t *testing.T) {
	w := t.TempDir()
	for _, n := range []string{"a", "b", "c", "d"} {
		write(t, w+"/outputs/"+n, "12345")
	}
	write(t, w+"/outputs/large", strings.Repeat("x", 100))
	got, left, err := takeAll(t, w, OutputConfig{MaxFiles: 2, MaxFile: 50})
	if err != nil || len(got) != 2 || len(left) != 3 {
		t.Errorf("by number: %v %v %v", got, left, err)
	}
	got, left, err = takeAll(t, w, OutputConfig{MaxTotal: 12, MaxFile: 50})
	if err != nil || len(got) != 2 || len(left) != 3 {
		t.Errorf("by size: %v %v %v", got, left, err)
	}
	root, err := os.Open(w)
	must(t, err)
	defer root.Close() //nolint:errcheck // a test's
	stop := errors.New("stop")
	if _, err := Outputs(t.Context(), root, OutputConfig{}, func(Output, io.Reader) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of take: %v", err)
	}
}
