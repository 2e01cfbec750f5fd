package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linked returns the packages of this module with symbols in a program.
func linked(t *testing.T, program string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(program))
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", file, "./"+program)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("go", "tool", "nm", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		_, rest, ours := strings.Cut(fields[2], module)
		if !ours {
			continue
		}
		dir, last := "", rest
		if slash := strings.LastIndex(rest[:strings.IndexAny(rest+"(", "(*[]{,")], "/"); slash >= 0 {
			dir, last = rest[:slash+1], rest[slash+1:]
		}
		name, _, _ := strings.Cut(last, ".")
		if name = dir + name; !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// linksOnly fails the test if a program links a package that is not in its closure, or
// lacks one of those that it must have.
func linksOnly(t *testing.T, program string, must ...string) {
	t.Helper()
	allowed, got := closure()[program], linked(t, program)
	for _, name := range got {
		if !slices.Contains(allowed, name) {
			t.Errorf("%s links %s", program, name)
		}
	}
	for _, name := range must {
		if !slices.Contains(got, name) {
			t.Errorf("the check does not find %s in %s: %q", name, program, got)
		}
	}
}

// What browsers speak to. TestTheMCPServerHasNoPowerLinked has the control.
func TestThePageHasNoPowerLinked(t *testing.T) {
	touch(t)
	linksOnly(t, "cmd/bailiwick-web", "api", "client", "internal/base/httpguard", "internal/front/webpage")
}

// The symbols of the linked program are the final evidence. The control: the same
// check finds the forbidden packages in the daemon and the deploy program.
//
// takeover both modes, AI client: no rewrite the log, forge evidence
//
// proves R-B4
func TestTheMCPServerHasNoPowerLinked(t *testing.T) {
	touch(t)
	linksOnly(t, "cmd/bailiwick-mcp", "api", "client", "internal/front/mcphttp", "internal/front/mcpserve")
	for program, powers := range map[string][]string{
		"cmd/bailiwickd": {"internal/state/store", "internal/document/seal", "internal/run/dispatch"}, "cmd/bailiwick-deploy": {"deploy", "internal/document/seal"},
	} {
		there := linked(t, program)
		for _, power := range powers {
			if !slices.Contains(there, power) {
				t.Errorf("the check does not find %s in %s: %q", power, program, there)
			}
		}
	}
}

// The public packages for defining and for dispatching are separate, too.
//
// proves R-B8
func TestTheSDKsTwoHalvesAreSeparate(t *testing.T) {
	touch(t)
	pkgs := graph(t, loaded(t))
	for half, other := range map[string]string{"client": "deploy", "deploy": "client"} {
		if p, ok := pkgs[half]; !ok || slices.Contains(p.Deps, module+other) {
			t.Errorf("%s reaches %s", half, other)
		}
	}
	// The control: the check finds the packages that import them.
	if !slices.Contains(pkgs["internal/front/mcpserve"].Deps, module+"client") || !slices.Contains(pkgs["internal/front/deploycli"].Deps, module+"deploy") {
		t.Error("the check does not find the packages that import them")
	}
}
