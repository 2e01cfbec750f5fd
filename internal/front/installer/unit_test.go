package installer

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
	"github.com/bailiwick-dev/bailiwick/packaging"
)

// The Makefile builds the programs that an installation has, and no others.
func TestAnInstallationHasTheProgramsOfTheMakefile(t *testing.T) {
	b, err := os.ReadFile("../../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^PROGRAMS := (.*)$`).FindSubmatch(b)
	if m == nil {
		t.Fatal("the Makefile names no programs")
	}
	built := map[string]bool{}
	for p := range strings.FieldsSeq(string(m[1])) {
		built[p] = true
	}
	for _, p := range Programs() {
		if !built[p] {
			t.Errorf("%s is installed and not built", p)
		}
		delete(built, p)
	}
	for p := range built {
		t.Errorf("%s is built and not installed", p)
	}
}

// staged returns a directory with the units, and an empty program for each that they name.
func staged(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	files, err := Tree{Prefix: "/usr"}.units()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Programs() {
		files = append(files, file{path: "lib/bailiwick/" + p, content: []byte("#!/bin/sh\n"), mode: 0o755})
	}
	for _, f := range files {
		if err := f.write(filepath.Join(root, "usr", f.path)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func exposure(t *testing.T, path string) float64 {
	t.Helper()
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", path).CombinedOutput()
	m := regexp.MustCompile(`Overall exposure level for \S+ (\d+\.\d)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	level, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return level
}

// The service and the page have hardly any of the system's power, and the document has
// the figures of all units. The control is a unit without a sandbox.
//
// proves R-S2
func TestUnitsAreHardened(t *testing.T) {
	root := staged(t)
	doc, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	for unit, limit := range map[string]float64{"bailiwick.service": 2, "bailiwick-web.service": 2, "bailiwick-launch.service": 10} {
		level := exposure(t, filepath.Join(root, "usr/lib/systemd/system", unit))
		if level >= limit {
			t.Errorf("%s: exposure %.1f, want below %.1f", unit, level, limit)
		}
		if want := fmt.Sprintf("| `%s` | %.1f |", unit, level); !strings.Contains(string(doc), want) {
			t.Errorf("docs/install.md lacks %s", want)
		}
	}
	bare := filepath.Join(root, "bare.service")
	if err := os.WriteFile(bare, []byte("[Service]\nExecStart=/bin/true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if level := exposure(t, bare); level < 9 {
		t.Errorf("positive control: a unit without a sandbox has exposure %.1f", level)
	}
}

// Systemd understands every line of every unit. The control has a line that it does not.
func TestSystemdUnderstandsTheUnits(t *testing.T) {
	root := staged(t)
	dir := filepath.Join(root, "usr/lib/systemd/system")
	verify := func(units ...string) string {
		cmd := exec.Command("systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=no"}, units...)...)
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, _ := cmd.CombinedOutput()
		var own []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "bailiwick") && !strings.Contains(line, "is not executable") { // the programs are not at /usr
				own = append(own, line)
			}
		}
		return strings.Join(own, "")
	}
	entries, err := fs.ReadDir(packaging.Systemd, "systemd")
	if err != nil {
		t.Fatal(err)
	}
	var units []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".conf") {
			units = append(units, filepath.Join(dir, e.Name()))
		}
	}
	if said := verify(units...); said != "" {
		t.Error(said)
	}
	broken := filepath.Join(dir, "bailiwick-broken.service")
	if err := os.WriteFile(broken, []byte("[Service]\nExecStart=/bin/true\nProtectSytem=strict\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := verify(broken); !strings.Contains(said, "ProtectSytem") {
		t.Errorf("positive control: %s", said)
	}
}

// Accounts and directories are those that the service checks at its start.
func TestAccountsAndDirectoriesAreMade(t *testing.T) {
	m := machine.New(t)
	for name, content := range map[string]string{
		"/etc/passwd": "root:x:0:0::/root:/bin/sh\n", "/etc/group": "root:x:0:\n", "/etc/shadow": "", "/etc/gshadow": "",
	} {
		m.Write(name, content, 0, 0, 0o644)
	}
	for _, kind := range []string{"sysusers", "tmpfiles"} {
		b, err := packaging.Systemd.ReadFile("systemd/" + kind + ".conf")
		if err != nil {
			t.Fatal(err)
		}
		m.MkdirAll("/etc/"+kind+".d", 0, 0, 0o755)
		m.Write("/etc/"+kind+".d/bailiwick.conf", string(b), 0, 0, 0o644)
	}
	h := []string{"sh", "-c", "systemd-sysusers bailiwick.conf && systemd-tmpfiles --create bailiwick.conf && stat -c '%n %U:%G %a' /etc/bailiwick /var/lib/bailiwick* /run/bailiwick*"}
	for range 2 { // what exists stays
		out, err := m.Run(machine.Root, h...)
		const want = `/etc/bailiwick root:root 755
/var/lib/bailiwick bailiwick:bailiwick 700
/var/lib/bailiwick-catalog root:bailiwick-deploy 2775
/var/lib/bailiwick-launch root:root 700
/run/bailiwick bailiwick:bailiwick 755
/run/bailiwick-launch root:root 755
`
		if err != nil || !strings.HasSuffix(out, want) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	passwd, err := os.ReadFile(m.Path("/etc/passwd"))
	if err != nil || !regexp.MustCompile(`(?m)^bailiwick:.*:/var/lib/bailiwick:/usr/sbin/nologin$`).Match(passwd) {
		t.Errorf("%v\n%s", err, passwd)
	}
}
