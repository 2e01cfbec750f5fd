package capture

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bomb is a tree of ten folders of ten folders of ten files, all with the same content
// of 1 MiB: 1,000 MiB from a repository of a few KiB.
func bomb(t *testing.T, s *scene) string {
	t.Helper()
	put := func(input string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", s.src}, args...)...)
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.Output()
		must(t, err)
		return strings.TrimSpace(string(out))
	}
	entry := "100644 blob " + put(strings.Repeat("\x00", 1<<20), "hash-object", "-w", "--stdin")
	for range 3 {
		var list strings.Builder
		for i := range 10 {
			fmt.Fprintf(&list, "%s\td%d\n", entry, i)
		}
		entry = "040000 tree " + put(list.String(), "mktree")
	}
	return strings.TrimPrefix(entry, "040000 tree ")
}

// A checkout is bounded by the size of all its files before one is written. In
// the control one directory of the tree has room, and is written.
//
// proves R-S2
func TestACheckoutIsBoundedBeforeItIsWritten(t *testing.T) {
	s := newScene(t, "sha1", small)
	tree := bomb(t, s)
	s.work = t.TempDir()
	s.repo.MaxCheckout = 999 << 20
	err := s.repo.Checkout(t.Context(), tree, s.work)
	var large *TooLargeError
	if !errors.As(err, &large) || large.Bytes != 1000<<20+111*4096 || large.LargestBytes != 1<<20 {
		t.Fatalf("%+v, %v", large, err)
	}
	for _, want := range []string{"need 1049030656 bytes", "limits.disk is 1047527424", "raise limits.disk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from %v", want, err)
		}
	}
	if left := describe(t, s.work); len(left) != 0 {
		t.Errorf("written: %v", left)
	}
	sub := git(t, s.src, "rev-parse", tree+":d0")
	s.repo.MaxCheckout = 101 << 20
	if err := s.repo.Checkout(t.Context(), sub, s.work); err != nil {
		t.Errorf("control: %v", err)
	}
	var st unix.Stat_t
	must(t, unix.Stat(s.work+"/d0/d0", &st))
	if st.Size != 1<<20 || st.Blocks*512 > st.Size {
		t.Errorf("a file has %d bytes and %d blocks", st.Size, st.Blocks)
	}
}

// The ordinary repository fits, and one byte less than it needs does not.
func TestTheSizeOfACheckoutIsExact(t *testing.T) {
	s := newScene(t, "sha1", small)
	s.work = t.TempDir()
	s.checkout()
	x, err := s.repo.IndexCheckout(t.Context(), s.commit, s.work)
	must(t, err)
	for most, ok := range map[int64]bool{x.Size(): true, x.Size() - 1: false} {
		s.repo.MaxCheckout = most
		if err := s.repo.Checkout(t.Context(), s.commit, t.TempDir()); (err == nil) != ok {
			t.Errorf("%d bytes for %d: %v", most, x.Size(), err)
		}
		if err := s.repo.Fits(x); (err == nil) != ok {
			t.Errorf("a finished checkout of %d bytes under %d: %v", x.Size(), most, err)
		}
	}
}

// Outputs count at their full size, also where a file has holes.
//
// proves R-S2
func TestOutputsWithHolesCountWhole(t *testing.T) {
	w := t.TempDir()
	must(t, os.Mkdir(w+"/outputs", 0o755))
	for i := range 5 {
		f, err := os.Create(fmt.Sprintf("%s/outputs/%d", w, i))
		must(t, err)
		must(t, f.Truncate(1<<20))
		must(t, f.Close())
	}
	for most, want := range map[int64]int{2<<20 + 5: 2, 5 << 20: 5} {
		got, left, err := takeAll(t, w, OutputConfig{MaxTotal: most, Setting: "limits.disk"})
		must(t, err)
		if len(got) != want || len(left) != 5-want || want < 5 && !strings.Contains(leftOut(left), "more than 2097157 bytes in total; raise limits.disk") {
			t.Errorf("at most %d bytes: %d files kept, left out %s", most, len(got), leftOut(left))
		}
	}
}
