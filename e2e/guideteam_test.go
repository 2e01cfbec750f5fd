package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// teamFlag has docs/guide-team.md executed on this machine, which it changes for good.
var teamFlag = flag.Bool("team", false, "execute docs/guide-team.md on this machine, with the packages of -prebuilt: in the virtual machine of make vm")

const teamGuide = "../docs/guide-team.md"

// The guide installs a package and sets a machine up, so make vm executes it; elsewhere
// it is only read.
func TestTheTeamsGuideRuns(t *testing.T) {
	text, err := os.ReadFile(teamGuide)
	must(t, err)
	steps, skipped, err := parseGuide(strings.Split(string(text), "\n"))
	if err != nil || skipped > 0 || len(steps) < 10 {
		t.Fatalf("%s: %d steps, %d left out, %v", teamGuide, len(steps), skipped, err)
	}
	if !*teamFlag {
		return
	}
	w := newGuideWorld(t)
	w.env[0] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	w.env = append(w.env, "DEBIAN_FRONTEND=noninteractive")
	packages, err := filepath.Glob(filepath.Join(*prebuiltFlag, "dist/*.deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages %q, %v", packages, err)
	}
	content, err := os.ReadFile(packages[0])
	must(t, err)
	w.write(filepath.Join("home", filepath.Base(packages[0])), string(content), 0o644)
	outputs := w.shell(steps)
	for i, s := range steps {
		got := outputs[i]
		t.Logf("%s:%d: $ %s\n%s", teamGuide, s.line+1, s.script, strings.Join(got, "\n"))
		if !s.checked && len(got) > 0 && strings.HasPrefix(got[len(got)-1], "(") || s.checked && !outputMatches(s.want, got) {
			t.Errorf("%s:%d: $ %s\nshows\n%s", teamGuide, s.line+1, s.script, strings.Join(s.want, "\n"))
		}
	}
}
