package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What an agent left in its home directory is taken only from where the program keeps
// its session, without following links, and within bounds.
//
// proves R-D6
func TestSessionIsTakenAndRestored(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".codex/sessions/2026/a.jsonl", "{\"say\":\"SECRET\"}\n")
	write(".codex/config.toml", "outside")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, ".codex/sessions/link")); err != nil {
		t.Fatal(err)
	}
	a, _ := For("codex")
	home, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	clean := func(b []byte) ([]byte, bool) {
		return bytes.ReplaceAll(b, []byte("SECRET"), []byte("[redacted]")), bytes.Contains(b, []byte("SECRET"))
	}
	s, err := a.TakeSession(home, "s-1", clean)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := s.Pack(&archive); err != nil {
		t.Fatal(err)
	}
	got, err := a.ParseSession(archive.Bytes())
	if err != nil || got.ID != "s-1" || len(got.Files) != 1 || got.Files[0].Path != ".codex/sessions/2026/a.jsonl" || string(got.Files[0].Content) != "{\"say\":\"[redacted]\"}\n" {
		t.Fatalf("%+v %v", got, err)
	}
	write(".codex/sessions/b", "\xff\xfeSECRET")
	if _, err := a.TakeSession(home, "s-1", clean); err == nil || !strings.Contains(err.Error(), "secret") {
		t.Errorf("a binary file with a secret: %v", err)
	}
	write(".codex/sessions/b", strings.Repeat("x", MaxSession))
	if _, err := a.TakeSession(home, "s-1", clean); err == nil || !strings.Contains(err.Error(), "MiB") {
		t.Errorf("too much: %v", err)
	}
	for _, bad := range []Session{
		{ID: "--help"},
		{ID: ""},
		{ID: "a b"},
		{ID: "s", Files: []File{{".bashrc", nil}}},
		{ID: "s", Files: []File{{".codex/sessions/../../.bashrc", nil}}},
		{ID: "s", Files: []File{{"/etc/passwd", nil}}},
	} {
		var archive bytes.Buffer
		if err := bad.Pack(&archive); err != nil {
			t.Fatal(err)
		}
		if _, err := a.ParseSession(archive.Bytes()); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}
