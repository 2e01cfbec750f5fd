package eventstream

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// split writes a stream in parts of a size.
func split(t *testing.T, stream string, size int) (events []string, other int) {
	t.Helper()
	s := &Splitter{
		Most:  1 << 10,
		Event: func(data []byte) error { events = append(events, string(data)); return nil },
		Other: func(size int) error { other += size; return nil },
	}
	for rest := stream; rest != ""; {
		n := min(size, len(rest))
		if wrote, err := s.Write([]byte(rest[:n])); err != nil || wrote != n {
			t.Fatal(wrote, err)
		}
		rest = rest[n:]
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return events, other
}

func TestAStreamIsSplitIntoEvents(t *testing.T) {
	for stream, want := range map[string][]string{
		"":                                    nil,
		"data: a\n\ndata:b\n\n":               {"a", "b"},
		"data: a\r\rdata: b\r\n\r\n":          {"a", "b"},
		"data: a\ndata:  b\n\n":               {"a\n b"},
		"event: x\nid: 7\ndata: a\n\n\n\n":    {"a"},
		": a comment\n\ndata: a\n\n":          {"a"},
		"data\n\ndata:\n\n":                   {"", ""},
		"\ufeffdata: a\n\n":                   {"a"},
		"datax: a\nxdata: b\n\n":              {},
		"data: a\n\ndata: without the end":    {"a", "without the end"},
		"data: a\nevent: within\ndata: b\n\n": {"a\nb"},
	} {
		for size := 1; size <= len(stream)+1; size++ {
			if got, _ := split(t, stream, size); !slices.Equal(got, want) {
				t.Errorf("%q in parts of %d: %q, want %q", stream, size, got, want)
			}
		}
	}
}

func TestLinesWithoutDataAreCounted(t *testing.T) {
	if _, other := split(t, ": 12345\nevent: x\n\ndata: a\n\nid: 1\n", 3); other != len(": 12345")+len("event: x")+len("id: 1") {
		t.Errorf("%d bytes", other)
	}
}

func TestAnEventIsBounded(t *testing.T) {
	long := strings.Repeat("x", 100)
	for name, stream := range map[string]string{"a line": "data: " + long, "lines": strings.Repeat("data: x\n", 60), "a comment": ":" + long} {
		s := &Splitter{Most: 100, Event: func([]byte) error { return nil }}
		if _, err := s.Write([]byte(stream)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
		s = &Splitter{Most: 200, Event: s.Event} // control
		if _, err := s.Write([]byte(stream)); err != nil {
			t.Errorf("%s, with a larger bound: %v", name, err)
		}
	}
}

func TestAnErrorOfTheReceiverEndsTheStream(t *testing.T) {
	stop := errors.New("stop")
	s := &Splitter{Most: 100, Event: func([]byte) error { return stop }}
	if _, err := s.Write([]byte("data: a\n\ndata: b\n\n")); !errors.Is(err, stop) {
		t.Error(err)
	}
	s = &Splitter{Most: 100, Other: func(int) error { return stop }}
	if _, err := s.Write([]byte(": a\n")); !errors.Is(err, stop) {
		t.Error(err)
	}
}

// FuzzSplit: the borders of writes have no effect, and no event is larger than the bound.
func FuzzSplit(f *testing.F) {
	f.Add("data: a\r\n\r\n: x\ndata:b\rdata\r\r", 3)
	f.Fuzz(func(t *testing.T, stream string, size int) {
		if len(stream) > 1<<10 {
			return
		}
		whole, n := split(t, stream, len(stream)+1)
		parts, m := split(t, stream, 1+max(size, -size)%64)
		if !slices.Equal(whole, parts) || n != m {
			t.Fatalf("%q: %q and %q", stream, whole, parts)
		}
	})
}
