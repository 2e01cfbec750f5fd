package installation

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// below returns stat of a machine whose root is dir.
func below(dir string) func(string) (fs.FileInfo, error) {
	return func(path string) (fs.FileInfo, error) { return os.Stat(filepath.Join(dir, path)) }
}

// A machine with a trust root has one installation for all its people; a variable
// chooses another, and an unknown value chooses none.
func TestATrustRootOfTheMachineChoosesItsInstallation(t *testing.T) {
	t.Parallel()
	without, with := t.TempDir(), t.TempDir()
	machine := api.SystemDirs(func(string) string { return "" })
	for _, dir := range []string{machine.Trust, machine.State} {
		if err := os.MkdirAll(filepath.Join(with, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(with, machine.TrustRoot()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(filepath.Join(with, machine.State), 64321, 64321); err != nil {
			t.Fatal(err)
		}
	}
	service := 64321
	if os.Getuid() != 0 {
		service = os.Getuid()
	}
	for _, c := range []struct {
		root, variable string
		system         bool
		uids           []int
	}{
		{without, "", false, []int{1000}},
		{without, "system", true, []int{0}},
		{with, "", true, []int{0, service}},
		{with, "system", true, []int{0, service}},
		{with, "same-user", false, []int{1000}},
	} {
		got := find(env(map[string]string{"HOME": "/home/p", api.ModeVariable: c.variable}), 1000, below(c.root))
		if err := got.Dirs.Check(); err != nil || got.Dirs.System() != c.system || !slices.Equal(got.UIDs, c.uids) {
			t.Errorf("%s=%q: %+v, %v", api.ModeVariable, c.variable, got, err)
		}
		if want := "/home/p/.config/bailiwick/deploy.key"; got.Dirs.DeployKey() != want {
			t.Errorf("%s=%q: the person's key is at %s, want %s", api.ModeVariable, c.variable, got.Dirs.DeployKey(), want)
		}
	}
	if got := find(env(map[string]string{"HOME": "/home/p", api.ModeVariable: "System"}), 1000, below(with)); got.Dirs.Check() == nil || got.Dirs.System() {
		t.Errorf("an unknown mode was taken: %+v", got)
	}
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}
