package sourcefetch

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // G505: the checksum of git's index
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A server that takes over git in its jail could hand out an index in which the name of
// one object leads to another, and so pin a commit with other files. Git believes an
// index, as the control shows: the service makes its own.
//
// proves R-S4
func TestTheIndexOfAJailIsNotBelieved(t *testing.T) {
	work := t.TempDir()
	repo := filepath.Join(work, "repo")
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.example"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run(work, "init", "-q", repo)
	for name, text := range map[string]string{"good": "wanted\n", "evil": "forged\n"} {
		if err := os.WriteFile(filepath.Join(repo, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(repo, "add", ".")
	run(repo, "commit", "-qm", "x")
	run(repo, "repack", "-qad")
	commit, good, evil := run(repo, "rev-parse", "HEAD"), run(repo, "rev-parse", "HEAD:good"), run(repo, "rev-parse", "HEAD:evil")
	if err := os.Rename(filepath.Join(repo, ".git", "objects"), filepath.Join(work, "objects")); err != nil {
		t.Fatal(err)
	}
	jailed := filepath.Join(work, "jail", "repo")
	if err := os.MkdirAll(jailed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(work, "objects"), filepath.Join(jailed, "objects")); err != nil {
		t.Fatal(err)
	}
	swapOffsets(t, filepath.Join(jailed, "objects", "pack"), good, evil)

	control := filepath.Join(work, "control")
	run(work, "init", "-q", "--bare", control)
	if err := os.CopyFS(filepath.Join(control, "objects", "pack"), os.DirFS(filepath.Join(jailed, "objects", "pack"))); err != nil {
		t.Fatal(err)
	}
	if got := run(control, "cat-file", "blob", good); got != "forged" {
		t.Fatalf("the control reads %q: git compares what it reads with an index", got)
	}

	c := &cache{dir: filepath.Join(work, "cache")}
	workspace, err := os.Open(filepath.Join(work, "jail"))
	if err != nil {
		t.Fatal(err)
	}
	defer workspace.Close() //nolint:errcheck // only read
	if err := c.add(t.Context(), commit, workspace); err != nil {
		t.Fatal(err)
	}
	if got := run(c.git(), "cat-file", "blob", good); got != "wanted" {
		t.Errorf("the file of the commit reads %q", got)
	}
}

// swapOffsets makes the index of the only pack of dir lead from each name to the other
// object. The format is version 2 of gitformat-pack(5).
func swapOffsets(t *testing.T, dir, x, y string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.idx"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	b, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	const names = 8 + 256*4
	n := int(binary.BigEndian.Uint32(b[names-4:]))
	at := func(name string) []byte {
		raw, _ := hex.DecodeString(name)
		i := bytes.Index(b[names:names+20*n], raw) / 20
		offset := names + 24*n + 4*i // behind the names and checksums
		return b[offset : offset+4]
	}
	first := slices.Clone(at(x))
	copy(at(x), at(y))
	copy(at(y), first)
	sum := sha1.Sum(b[:len(b)-20]) //nolint:gosec // G401: as above
	copy(b[len(b)-20:], sum[:])
	if err := os.Chmod(paths[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
}
