package daemoncli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
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
	if err := newMemory(tr.Dirs.State, other, []anchorSettings{{Name: "disk", Kind: "file", Path: "/mnt/disk"}}).write(tr.memoryPath()); err != nil {
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

// logStart adds the start of a service with settings to the log of a state, as announce
// does.
func logStart(t *testing.T, tr *tree, c *record.ServiceConfig) {
	t.Helper()
	st, err := openOrCreate(t.Context(), store.Config{Dir: tr.Dirs.Store(), Migrations: migrations()})
	if err != nil {
		t.Fatal(err)
	}
	ledger, err := audit.Open(t.Context(), audit.Config{Store: st, Now: time.Now})
	if err == nil {
		_, err = ledger.Record(t.Context(), record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{Config: c, Mode: api.ModeSameUser, Version: "1"}}, nil)
	}
	if err = errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
}

// An emptied or removed memory neither starts a state without its configuration nor hides
// an anchor of its last start. Next to it the ordinary situations: the first start, a start
// after a version that did not log its configuration, an anchor that was removed on
// purpose, and a start that was killed before it was in the log.
//
// proves R-A6
func TestTheLogKnowsWhatTheMemoryForgot(t *testing.T) {
	const anchored, without = "version: 1\nanchors:\n  - {name: legal, kind: file, path: /mnt/legal}\n", "version: 1\nanchors: []\n"
	empty := func(tr *tree) error { return os.WriteFile(tr.memoryPath(), []byte("{}"), 0o600) }
	remove := func(tr *tree) error { return os.Remove(tr.memoryPath()) }
	keep := func(*tree) error { return nil }
	for name, c := range map[string]struct {
		logged string // the configuration in the log; "": none
		memory func(*tree) error
		config bool   // the start names a configuration without anchors
		want   string // in the error; "": it is not refused for its memory
		former string // the anchor to compare once more
	}{
		"memory kept":                           {anchored, keep, false, "", ""},
		"memory kept, another configuration":    {anchored, keep, true, "", "legal"},
		"memory empty":                          {anchored, empty, false, "names no configuration: by the log", ""},
		"memory empty, another configuration":   {anchored, empty, true, "", "legal"},
		"memory removed":                        {anchored, remove, false, "is missing: by the log", ""},
		"memory removed, another configuration": {anchored, remove, true, "", "legal"},
		"removed on purpose":                    {without, empty, true, "", ""},
		"an older version did not log it":       {"", empty, false, "", ""},
		"killed before it was in the log":       {"", keep, true, "", "legal"},
	} {
		t.Run(name, func(t *testing.T) {
			tr, file := memoryWorld(t, anchored)
			set := startedWith(t, tr, file)
			var logged *record.ServiceConfig
			if c.logged != "" {
				now, err := parseSettings(file, []byte(c.logged))
				if err != nil {
					t.Fatal(err)
				}
				logged = now.logged(tr.Dirs.State)
			}
			logStart(t, tr, logged)
			if err := c.memory(tr); err != nil {
				t.Fatal(err)
			}
			if c.config {
				tr.config = filepath.Join(filepath.Dir(file), "other.yaml")
				if err := os.WriteFile(tr.config, []byte(without), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := tryState(t, tr, set, false)
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if c.want != "" {
				return
			}
			var former string
			for _, a := range s.set.former {
				former += a.Name
			}
			if err != nil || former != c.former {
				t.Errorf("compares %q, want %q; %v", former, c.former, err)
			}
		})
	}
	tr, _ := memoryWorld(t, anchored)
	if s := openedState(t, tr, settings{}, false); len(s.set.former) != 0 {
		t.Errorf("the first start compares %+v", s.set.former)
	}
}

// Every kind of anchor that keeps something comes back from the log as it was configured.
// An anchor that the log has only in part is refused, unless the configuration or the memory
// has it. An anchor in the state moves with it.
//
// proves R-A6
func TestAnchorsComeBackFromTheLog(t *testing.T) {
	text := "version: 1\nanchors:\n  - {name: inside, kind: file, path: /s/in}\n  - {name: disk, kind: file, path: /mnt/a b}\n" +
		"  - {name: history, kind: git, repository: /srv/anchors.git, branch: main}\n" +
		"  - {name: worm, kind: s3, endpoint: \"https://s3.example.com\", region: eu-1, bucket: anchors, prefix: log/, credentials: /c, ca: /ca, retain: 30d}\n" +
		"  - {name: whole, kind: s3, endpoint: \"https://s3.example.com\", region: eu-1, bucket: whole, credentials: /c}\n" +
		"  - {name: time, kind: tsa, url: \"https://tsa.example.com/tsr\", roots: /r}\n"
	set, err := parseSettings("/f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(slices.Clone(set.Anchors.List), func(a anchorSettings) bool { return a.Name == "time" })
	if got, err := unlisted(api.ModeSameUser, "/s", set.logged("/s"), want); err != nil || len(got) != 0 {
		t.Errorf("control: all are configured: %+v, %v", got, err)
	}
	got, err := unlisted(api.ModeSameUser, "/moved", set.logged("/s"), nil)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, a := range want {
		if a.Name == "inside" {
			a.Path = "/moved/in"
		}
		i := slices.IndexFunc(got, a.samePlace)
		if i < 0 || got[i].Credentials != a.Credentials || got[i].CA != a.CA || got[i].Region != a.Region || a.Kind == "s3" && got[i].Retain != a.Retain {
			t.Errorf("%+v is not in %+v", a, got)
		}
	}
	long := anchorSettings{Name: "long", Kind: "file", Path: "/" + strings.Repeat("x", 5000)}
	cut := settings{Anchors: anchorsSettings{Set: true, List: []anchorSettings{long}}}
	e := record.Entry{Kind: record.KindServiceStarted, Decision: record.NoDecided, At: time.Unix(1, 0).UTC(), Detail: record.ServiceStart{Config: cut.logged("/s"), Mode: api.ModeSameUser, Version: "1"}}
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if e, err = record.DecodeEntry(b); err != nil {
		t.Fatal(err)
	}
	c := e.Detail.(record.ServiceStart).Config //nolint:forcetypeassert // of its kind
	if got, err := unlisted(api.ModeSameUser, "/s", c, nil); err == nil || !strings.Contains(err.Error(), `the anchor "long"`) {
		t.Errorf("the log has a part of it: %+v, %v", got, err)
	}
	if got, err := unlisted(api.ModeSameUser, "/s", c, []anchorSettings{long}); err != nil || len(got) != 0 {
		t.Errorf("the memory has it: %+v, %v", got, err)
	}
}
