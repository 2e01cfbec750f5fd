package e2e

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var (
	nfpmProgram      = toolProgram("nfpm-2.45.1")
	cyclonedxProgram = toolProgram("cyclonedx-gomod-1.10.0")
)

// Two builds of a commit give the same packages, whatever the directory, the umask, the
// zone and the time are; another commit gives others. What they carry can be read by the
// tools of the distributions.
//
// proves R-P8
func TestTwoBuildsOfACommitGiveTheSamePackages(t *testing.T) {
	nfpm := succeed(t, nfpmProgram)
	cyclonedx := succeed(t, cyclonedxProgram)
	programs := strings.Fields(runIn(t, "..", nil, "sed", "-n", "s/^PROGRAMS := //p", "Makefile"))
	clone := func() string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "work", "clone")
		runIn(t, ".", nil, "git", "clone", "-q", "--no-hardlinks", "..", dir)
		return dir
	}
	build := func(umask, zone string) (out, sums string) {
		t.Helper()
		dir := clone()
		out = filepath.Join(t.TempDir(), "out")
		env := append(os.Environ(), "NFPM="+nfpm, "CYCLONEDX="+cyclonedx, "ARCHES=amd64", "BIN="+bin, "TZ="+zone, "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0")
		runIn(t, dir, env, append([]string{"sh", "-c", "umask " + umask + `; exec scripts/dist "$@"`, "sh", out}, programs...)...)
		return out, readText(t, filepath.Join(out, "SHA256SUMS"))
	}
	out, first := build("022", "UTC")
	if _, second := build("077", "Asia/Tokyo"); first != second || strings.Count(first, "\n") != 4 {
		t.Errorf("two builds differ:\n%s\n%s", first, second)
	}
	// The control: a program that is built from another commit differs from the package's, and
	// from the same commit it is equal.
	const change = `sed -i 's/^const release = "/&9/' api/version.go && git -c user.name=t -c user.email=t@t commit -q --no-verify -am change`
	was := readText(t, filepath.Join(unpacked(t, out), "usr/lib/bailiwick/bailiwick-tool"))
	for same, prepare := range map[bool]string{true: ":", false: change} {
		dir, program := clone(), filepath.Join(t.TempDir(), "bailiwick-tool")
		runIn(t, dir, append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0"), "sh", "-c", prepare+` && go build -ldflags "-s -w -X github.com/bailiwick-dev/bailiwick/api.commit=$(git rev-parse --short=12 HEAD)" -o "$1" ./cmd/bailiwick-tool`, "sh", program)
		if (readText(t, program) == was) != same {
			t.Errorf("equal to the program of the package: %t, want %t", !same, same)
		}
	}
	checkPackages(t, out)
	checkBill(t, out)
	checkByManagers(t, out)
}

// unpacked returns a directory with the files of the Debian package in out.
func unpacked(t *testing.T, out string) string {
	t.Helper()
	root := t.TempDir()
	runIn(t, out, nil, "sh", "-c", `dpkg-deb -x *.deb "$1"`, "sh", root)
	return root
}

// checkBill validates the bill of materials by the schema of CycloneDX, which is in the module
// that made it. The control is the same bill with a component of no known type.
func checkBill(t *testing.T, out string) {
	t.Helper()
	dir := strings.TrimSpace(runIn(t, "../packaging/cyclonedx", nil, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go"))
	load := func(name string) (*jsonschema.Schema, error) {
		s := new(jsonschema.Schema)
		b, err := os.ReadFile(filepath.Join(dir, "schema", name))
		if err == nil {
			err = json.Unmarshal(b, s)
		}
		return s, err
	}
	schema, err := load("bom-1.6.schema.json")
	must(t, err)
	resolved, err := schema.Resolve(&jsonschema.ResolveOptions{Loader: func(uri *url.URL) (*jsonschema.Schema, error) {
		if name := path.Base(uri.Path); name != "jsf-0.82.schema.json" {
			return load(name)
		}
		// For signatures, which our bills do not have. The module has it under another name.
		return &jsonschema.Schema{ID: uri.String(), Definitions: map[string]*jsonschema.Schema{"signature": {Not: &jsonschema.Schema{}}}}, nil
	}})
	must(t, err)
	bills, err := filepath.Glob(filepath.Join(out, "*.cdx.json"))
	if err != nil || len(bills) != 1 {
		t.Fatalf("%v, %v", bills, err)
	}
	text := readText(t, bills[0])
	for valid, bill := range map[bool]string{true: text, false: strings.Replace(text, `"type": "library"`, `"type": "nonsense"`, 1)} {
		var doc any
		must(t, json.Unmarshal([]byte(bill), &doc))
		if err := resolved.Validate(doc); (err == nil) != valid {
			t.Errorf("a bill that is valid: %t: %v", valid, err)
		}
	}
}

// checkByManagers lets rpm and dpkg install the packages into directories, where they compare
// each file with what the package says. The control is a file that changed.
func checkByManagers(t *testing.T, out string) {
	t.Helper()
	const mine = "usr/lib/bailiwick/bailiwickd"
	for manager, script := range map[string]struct{ install, verify, says string }{
		"rpm": {
			`rpm -K --nosignature "$PWD"/*.rpm && rpm --root "$1" --initdb && rpm --root "$1" -i --nodeps --noscripts --nosignature *.rpm`,
			`rpm --root "$1" -V --nodeps --noscripts bailiwick`, "S.5",
		},
		"dpkg": {
			`mkdir -p "$1/var/lib/dpkg/info" "$1/var/lib/dpkg/updates" && : > "$1/var/lib/dpkg/status" && dpkg --root="$1" --force-depends --log=/dev/null --unpack *.deb`,
			`dpkg --root="$1" --verify bailiwick`, "5",
		},
	} {
		root := t.TempDir()
		run := func(script string) string {
			got, err := exec.CommandContext(t.Context(), "sh", "-c", "cd \"$2\" && "+script+" 2>&1", "sh", root, out).CombinedOutput()
			if err != nil && strings.Contains(script, "install") {
				t.Fatalf("%s: %v\n%s", manager, err, got)
			}
			return string(got)
		}
		installed := run(script.install + " # install")
		if st, err := os.Stat(filepath.Join(root, mine)); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v %v\n%s", manager, st, err, installed)
		}
		if said := run(script.verify); strings.Contains(said, mine) {
			t.Errorf("%s: %s", manager, said)
		}
		must(t, os.WriteFile(filepath.Join(root, mine), []byte("changed"), 0o755))
		if said := run(script.verify); !strings.Contains(said, mine) || !strings.Contains(said, script.says) {
			t.Errorf("positive control: %s says of a changed file: %q", manager, said)
		}
	}
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
	for _, file := range []string{"/usr/lib/bailiwick/bailiwickd", "/usr/bin/bailiwick", "/usr/lib/systemd/system/bailiwick.service", "/usr/lib/sysusers.d/bailiwick.conf", "/usr/share/man/man1/bailiwick.1.gz"} {
		if _, err := os.Lstat(filepath.Join(root, file)); err != nil {
			t.Errorf("deb: %v", err)
		}
		if !strings.Contains(files, file+"\n") {
			t.Errorf("rpm lacks %s", file)
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

func readText(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	return string(b)
}
