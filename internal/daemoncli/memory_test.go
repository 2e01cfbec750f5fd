package daemoncli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/store"
)

// A start that waits for the state uses what the state remembers when it owns it. It read
// its settings before that, and a start that came first has changed the memory since.
// Control: if nothing came first, it has the same settings as before.
//
// proves R-A6
func TestAStartReadsItsSettingsWhenItOwnsTheState(t *testing.T) {
	const anchored = "version: 1\nanchors:\n  - {name: legal, kind: file, path: /mnt/legal}\n"
	for name, c := range map[string]struct {
		again   bool // the service opens its state again
		another bool // another service was started with a configuration meanwhile
	}{
		"nothing came first":       {false, false},
		"another start came first": {false, true},
		"opened again":             {true, false},
		"opened again, and another start came in between": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			tr, file := memoryWorld(t, anchored)
			set, err := tr.settings()
			if err != nil || set.File != "" {
				t.Fatalf("control: %+v, %v", set, err)
			}
			want := ""
			if c.another {
				want = file
				startedWith(t, tr, file)
			}
			s := openedState(t, tr, set, c.again)
			if s.set.File != want || (len(s.set.Anchors.List) == 1) != c.another {
				t.Errorf("the service has the configuration %q, anchors %+v; want %q", s.set.File, s.set.Anchors, want)
			}
		})
	}
}

// A service that opens its state again keeps its configuration, also if its file is
// broken meanwhile, and compares the anchors that a start in between remembered.
func TestAServiceThatOpensItsStateAgainKeepsItsConfiguration(t *testing.T) {
	tr, file := memoryWorld(t, "version: 1\nanchors:\n  - {name: legal, kind: file, path: /mnt/legal}\n")
	set := startedWith(t, tr, file)
	tr.config = file
	if err := os.WriteFile(file, []byte("version: 1\nanchors: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := startedWith(t, tr, file) // removes the anchor
	if err := (&service{t: tr, set: other}).remember([]anchorSettings{{Name: "disk", Kind: "file", Path: "/mnt/disk"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("version: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openedState(t, tr, set, true)
	if len(s.set.Anchors.List) != 1 || len(s.set.former) != 1 || s.set.former[0].Name != "disk" {
		t.Errorf("anchors %+v, former %+v", s.set.Anchors, s.set.former)
	}
}

// openedState returns a service that was given settings and then opened its state.
func openedState(t *testing.T, tr *tree, set settings, again bool) *service {
	t.Helper()
	s, err := tryState(t, tr, set, again)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryState(t *testing.T, tr *tree, set settings, again bool) (*service, error) {
	t.Helper()
	tr.Now, tr.Stderr = time.Now, io.Discard
	s := &service{t: tr, set: set, again: again, logger: slog.New(slog.DiscardHandler), reserve: store.NewReserve(tr.Dirs.State)}
	err := s.openState(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		if s.store == nil {
			return
		}
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, err
}
