package deploycli

import (
	"os"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
)

// What agent install installs is what the end-to-end tests run.
func TestPinnedProgramsAreThoseOfTheTests(t *testing.T) {
	b, err := os.ReadFile("../../../e2e/agents/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	tested, err := parseLock(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range installable() {
		b, err := packages.ReadFile("agents/" + name + "/package-lock.json")
		if err != nil {
			t.Fatal(err)
		}
		pinned, err := parseLock(b)
		if err != nil {
			t.Fatal(err)
		}
		if main := pinned.Packages[mainPackage(name)]; main.Integrity == "" || main != tested.Packages[mainPackage(name)] {
			t.Errorf("%s: %s is %+v, the tests run %+v", name, mainPackage(name), main, tested.Packages[mainPackage(name)])
		}
		for path, p := range pinned.Packages {
			if path != "" && p.Integrity == "" {
				t.Errorf("%s: %s has no digest", name, path)
			}
		}
	}
	if len(installable()) != len(agent.Names())-1 {
		t.Errorf("installable: %q", installable())
	}
}
