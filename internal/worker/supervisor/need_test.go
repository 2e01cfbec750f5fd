package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// What a task takes over is what its manifest names, byte by byte, or the
// worker ends before anything of the dispatch runs. The first is the control.
//
// proves R-O2, R-D2
func TestNeedIsCopiedOnlyAsTheManifestSays(t *testing.T) {
	const content = "what another task has left\n"
	for name, c := range map[string]struct {
		spoil func(t *testing.T, file string)
		need  func(*record.Need)
		ok    bool
	}{
		"as it is":           {ok: true},
		"swapped":            {spoil: func(t *testing.T, f string) { t.Helper(); write(t, f, strings.ToUpper(content)) }},
		"longer":             {spoil: func(t *testing.T, f string) { t.Helper(); write(t, f, content+"more") }},
		"shorter":            {spoil: func(t *testing.T, f string) { t.Helper(); write(t, f, content[1:]) }},
		"empty":              {spoil: func(t *testing.T, f string) { t.Helper(); write(t, f, "") }},
		"absent":             {spoil: func(t *testing.T, f string) { t.Helper(); check(t, os.Remove(f)) }},
		"another's digest":   {need: func(n *record.Need) { n.Digest = api.DigestOf([]byte("else")) }},
		"another's size":     {need: func(n *record.Need) { n.Size++ }},
		"an empty one, said": {need: func(n *record.Need) { n.Size, n.Digest = 0, api.DigestOf(nil) }},
		"a link to the same": {spoil: func(t *testing.T, f string) {
			t.Helper()
			check(t, os.Rename(f, f+".else"))
			check(t, os.Symlink(f+".else", f))
		}},
		"a pipe": {spoil: func(t *testing.T, f string) {
			t.Helper()
			check(t, errors.Join(os.Remove(f), syscall.Mkfifo(f, 0o600)))
		}},
		"a folder": {spoil: func(t *testing.T, f string) {
			t.Helper()
			check(t, errors.Join(os.Remove(f), os.Mkdir(f, 0o700)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := record.Need{Name: "a", Task: "up", Dispatch: "d-up", Kind: record.NeedPatch, Digest: api.DigestOf([]byte(content)), Size: int64(len(content))}
			if c.need != nil {
				c.need(&n)
			}
			ws, layer := needing(t, n)
			file := filepath.Join(ws.dir, record.WorkNeed+"a")
			write(t, file, content)
			if c.spoil != nil {
				c.spoil(t, file)
			}
			err := ws.layNeeds(layer)
			if !c.ok {
				var f *failure
				if !errors.As(err, &f) || f.reason != api.ReasonIntegrity || !strings.Contains(err.Error(), `need "a", the patch of task up`) {
					t.Errorf("%v", err)
				}
				return
			}
			got, readErr := layer.ReadFile("inputs/a")
			info, statErr := layer.Lstat("inputs/a")
			if err := errors.Join(err, readErr, statErr); err != nil || string(got) != content || info.Mode() != 0o644 {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A need takes no place that something has. What it is called is checked with
// the manifest.
func TestNeedCannotReplaceAnotherFile(t *testing.T) {
	for name, want := range map[api.Name]bool{"a": true, "taken": false} {
		ws, layer := needing(t, record.Need{Name: name, Task: "up", Kind: record.NeedPatch, Digest: api.DigestOf(nil)})
		check(t, layer.WriteFile("inputs/taken", []byte("the worker's own"), 0o600))
		write(t, filepath.Join(ws.dir, record.WorkNeed+string(name)), "")
		if err := ws.layNeeds(layer); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := layer.ReadFile("inputs/taken"); err != nil || string(got) != "the worker's own" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// needing is a workspace with these needs, and the layer that they go to.
func needing(t *testing.T, needs ...record.Need) (*workspace, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "overlay", inputsDir), 0o755))
	layer, err := os.OpenRoot(filepath.Join(dir, "overlay"))
	check(t, err)
	t.Cleanup(func() { _ = layer.Close() })
	return &workspace{dir: dir, manifest: &record.Manifest{Needs: needs}}, layer
}

func write(t *testing.T, path, content string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(content), 0o600))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
