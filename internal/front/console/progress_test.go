package console

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// screen is a writer that a test can look at while others write.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func TestProgressMakesRoomForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := (&Output{Stderr: s, Terminal: true, Now: time.Now}).NewProgress("under way")
		time.Sleep(1100 * time.Millisecond) // the bubble's clock
		if _, err := p.Write([]byte("half a line")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.Close()
		out := s.b.String()
		if !strings.Contains(out, "under way, 1s"+erase+"half a line") {
			t.Errorf("%q: the progress line stays", out)
		}
		if !strings.HasSuffix(out, "half a line\n") {
			t.Errorf("%q: the progress line was drawn into an unfinished line", out)
		}
	})
}

func TestProgressIsSilentWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &screen{}
		p := (&Output{Stderr: s, Terminal: false, Now: time.Now}).NewProgress("under way")
		time.Sleep(time.Minute) // the bubble's clock
		_, _ = p.Write([]byte("a line\n"))
		p.Close()
		if got := s.b.String(); got != "a line\n" {
			t.Errorf("%q", got)
		}
	})
}

// A note is a line of its own: what an agent writes behind it, or before it, cannot
// become a part of it.
func TestANoteWaitsForTheEndOfTheLine(t *testing.T) {
	s := &screen{}
	p := (&Output{Stderr: s, Now: time.Now}).NewProgress("under way")
	for _, step := range []func() error{
		func() error { return p.Note("first") },
		func() error { _, err := p.Write([]byte("| half")); return err },
		func() error { return p.Note("replaced") },
		func() error { return p.Note("second") },
		func() error { _, err := p.Write([]byte(" a line\n| more\n")); return err },
		func() error { _, err := p.Write([]byte("| open")); return err },
		func() error { return p.Note("last") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	if got, want := s.b.String(), "first\n| half a line\n| more\nsecond\n| open\nlast\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
