package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var (
	nfpmProgram      = toolProgram("nfpm-2.45.1")
	cyclonedxProgram = toolProgram("cyclonedx-gomod-1.10.0")
)

// Two builds of a commit give the same packages, whatever the directory, the umask, the
// zone and the time are; another commit gives others. What they carry can be read by the
// tools of the distributions.
func TestTwoBuildsOfACommitGiveTheSamePackages(t *testing.T) {
	nfpm := succeed(t, nfpmProgram)
	cyclonedx := succeed(t, cyclonedxProgram)
	programs := strings.Fields(runIn(t, "..", nil, "sed", "-n", "s/^PROGRAMS := //p", "Makefile"))
	build := func(prepare, umask, zone string) (out, sums string) {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "work", zone)
		out = filepath.Join(t.TempDir(), "out")
		runIn(t, ".", nil, "git", "clone", "-q", "--no-hardlinks", "..", dir)
		if prepare != "" {
			runIn(t, dir, nil, "sh", "-c", prepare)
		}
		env := append(os.Environ(), "NFPM="+nfpm, "CYCLONEDX="+cyclonedx, "ARCHES=amd64", "BIN="+bin, "TZ="+zone, "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0")
		runIn(t, dir, env, append([]string{"sh", "-c", "umask " + umask + `; exec scripts/dist "$@"`, "sh", out}, programs...)...)
		return out, readText(t, filepath.Join(out, "SHA256SUMS"))
	}
	out, first := build("", "022", "UTC")
	if _, second := build("", "077", "Asia/Tokyo"); first != second || strings.Count(first, "\n") != 4 {
		t.Errorf("two builds differ:\n%s\n%s", first, second)
	}
	// The control: a change of one program shows.
	const change = `sed -i 's/^const release = "/&9/' api/version.go && git -c user.name=t -c user.email=t@t commit -q --no-verify -am change`
	if _, third := build(change, "022", "UTC"); first == third {
		t.Error("another commit gives the same packages")
	}
	checkPackages(t, out)
}

func checkPackages(t *testing.T, out string) {
	t.Helper()
	one := func(pattern string) string {
		list, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v", pattern, list)
		}
		return list[0]
	}
	deb, rpm := one("*_amd64.deb"), one("*.x86_64.rpm")
	root := t.TempDir()
	runIn(t, root, nil, "dpkg-deb", "-x", deb, root)
	want := runIn(t, root, nil, "dpkg-deb", "--fsys-tarfile", deb)
	if len(want) == 0 {
		t.Error("an empty package")
	}
	if said := runIn(t, root, nil, filepath.Join(root, "usr/bin/bailiwick"), "version"); !strings.HasPrefix(said, "bailiwick ") {
		t.Errorf("the program of the package says %q", said)
	}
	files := runIn(t, root, nil, "rpm", "-qpl", rpm)
	for _, path := range []string{"/usr/lib/bailiwick/bailiwickd", "/usr/bin/bailiwick", "/usr/lib/systemd/system/bailiwick.service", "/usr/lib/sysusers.d/bailiwick.conf", "/usr/share/man/man1/bailiwick.1.gz"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err != nil {
			t.Errorf("deb: %v", err)
		}
		if !strings.Contains(files, path+"\n") {
			t.Errorf("rpm lacks %s", path)
		}
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		control := t.TempDir()
		runIn(t, control, nil, "dpkg-deb", "-e", deb, control)
		runIn(t, control, nil, "sh", "-n", filepath.Join(control, script))
	}
	// Each module of each program is in the bill of materials, and each file in the statement.
	modules := runIn(t, out, nil, "go", "version", "-m", filepath.Join(root, "usr/lib/bailiwick/bailiwickd"))
	bill := readText(t, one("*_amd64.cdx.json"))
	for line := range strings.Lines(modules) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" && !strings.Contains(bill, `"pkg:golang/`+f[1]+"@"+f[2]) {
			t.Errorf("the bill of materials lacks %s %s", f[1], f[2])
		}
	}
	statement := readText(t, one("provenance.intoto.json"))
	sums := runIn(t, out, nil, "sha256sum", filepath.Base(deb), filepath.Base(rpm))
	for line := range strings.Lines(sums) {
		if digest, _, _ := strings.Cut(line, " "); !strings.Contains(statement, digest) {
			t.Errorf("the provenance lacks %s", line)
		}
	}
	runIn(t, out, nil, "sha256sum", "--quiet", "-c", "SHA256SUMS")
}

// runIn runs a program to its end and returns what it prints.
func runIn(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", argv, err, out, errs.String())
	}
	return string(out)
}

func succeed(t *testing.T, fn func() (string, error)) string {
	t.Helper()
	v, err := fn()
	must(t, err)
	return v
}

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}
