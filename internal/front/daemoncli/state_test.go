package daemoncli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// A state directory that others can write, or that this account cannot use, is refused
// with a fix, by the service and by doctor.
func TestAStateDirectoryWritableByOthersIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string) error
		want string // empty: it is taken
	}{
		"one of its own":    {func(dir string) error { return os.Mkdir(dir, 0o700) }, ""},
		"one to look at":    {func(dir string) error { return os.Mkdir(dir, 0o755) }, ""},
		"none yet":          {func(string) error { return nil }, ""},
		"everybody's":       {func(dir string) error { return os.Chmod(made(dir), 0o777) }, "run: chmod go-w "},
		"its group's":       {func(dir string) error { return os.Chmod(made(dir), 0o770) }, "run: chmod go-w "},
		"another account's": {func(dir string) error { return os.Chown(made(dir), 64321, 64321) }, "chown -R "},
		"a file":            {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "XDG_STATE_HOME"},
		"below a file":      {func(dir string) error { return os.WriteFile(filepath.Dir(dir), nil, 0o600) }, "XDG_STATE_HOME"},
	} {
		parent := filepath.Join(t.TempDir(), "parent")
		dir := filepath.Join(parent, "state")
		if name != "below a file" {
			made(parent)
		}
		if err := c.make(dir); err != nil {
			t.Fatal(err)
		}
		tr := &doctor{&tree{Config: Config{UID: os.Getuid(), Dirs: api.Dirs{State: dir}}}}
		said := tr.stateCheck()
		err := tr.ownState()
		if c.want == "" && (err != nil || !said.ok) {
			t.Errorf("%s: %v, %+v", name, err, said)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || said.ok || !strings.Contains(said.fix, c.want)) {
			t.Errorf("%s: %v, %+v", name, err, said)
		}
	}
}

// made creates a directory and returns its path.
func made(dir string) string {
	_ = os.Mkdir(dir, 0o700) // an error shows in its use
	return dir
}

// Verbs about a stopped service say that there is no state, and create none.
func TestStoppedVerbsNeedState(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	tr := &tree{Config: Config{UID: os.Geteuid(), Output: console.Output{Now: time.Now, Stderr: io.Discard}, Dirs: api.Dirs{State: dir, Config: dir}}}
	for _, name := range []string{"no directory", "an empty directory"} {
		if _, err := tr.openStopped(t.Context(), "rotate the key"); api.CodeOf(err) != api.CodeNotFound || !strings.Contains(err.Error(), "no service state in "+dir) {
			t.Errorf("%s: %v", name, err)
		}
		if list, _ := os.ReadDir(dir); len(list) > 0 {
			t.Errorf("%s: created %v", name, list)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
