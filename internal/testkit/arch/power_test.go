package arch

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// powers lists, by package, the objects that execute or fork a program, sign, read or
// write a file, speak to the service other than by run-time calls, or make a system
// call by its number.
func powers() map[string][]string {
	numbers := []string{"Syscall", "Syscall6", "RawSyscall", "RawSyscall6", "SYS_EXECVE", "SYS_EXECVEAT", "SYS_FORK", "SYS_VFORK", "SYS_CLONE", "SYS_CLONE3"}
	return map[string][]string{
		"os/exec": {"Command", "CommandContext", "Cmd", "LookPath"},
		"os": {
			"StartProcess", "FindProcess", "ReadFile", "WriteFile", "Open", "OpenFile", "OpenRoot", "OpenInRoot", "Root", "Create", "CreateTemp", "DirFS", "CopyFS",
			"Rename", "Link", "Symlink",
		},
		"syscall":                       {"ForkExec", "StartProcess", "Exec", "Open", "Openat"},
		"golang.org/x/sys/unix":         append([]string{"Exec", "Open", "Openat", "Openat2"}, numbers...),
		"crypto":                        {"Signer", "SignMessage", "PrivateKey"},
		"crypto/ed25519":                {"Sign", "PrivateKey", "NewKeyFromSeed", "GenerateKey"},
		"crypto/ecdsa":                  {"Sign", "SignASN1", "PrivateKey", "GenerateKey"},
		"crypto/rsa":                    {"SignPKCS1v15", "SignPSS", "PrivateKey", "GenerateKey"},
		"crypto/tls":                    {"LoadX509KeyPair", "X509KeyPair"},
		"crypto/x509":                   {"ParsePKCS8PrivateKey", "ParsePKCS1PrivateKey", "ParseECPrivateKey"},
		module + "client":               {"New", "Conn", "Operator", "OperatorLog", "OperatorRecords", "OperatorRuns", "OperatorSchedules"},
		module + "internal/base/egress": {"Local", "Unix"},
	}
}

// powersAllowed lists what packages of bailiwick-mcp use of powers, with reasons. An
// unused exception is an error.
func powersAllowed() map[string]map[string]string {
	return map[string]map[string]string{
		"cmd/bailiwick-mcp":       {"syscall.Exec": "executes itself again, without variables that debug Go"},
		"internal/front/mcpserve": {"os.OpenFile": "reads the files that --principal-token-file and --server-ca name"},
		"internal/base/httpguard": {
			module + "internal/base/egress.Unix": "finds out whether a socket's server has exited",
			"crypto/tls.LoadX509KeyPair":         "the certificate that --tls-key names: the server signs handshakes with it",
		},
		// What the package defines itself is not in the table of its uses: the symbols of the
		// program are checked for operator calls.
		"client": {
			module + "internal/base/egress.Local": "speaks to the service",
			module + "internal/base/egress.Unix":  "likewise",
		},
	}
}

// powersOf returns what packages of a program use of powers, by package.
func (w *world) powersOf(t *testing.T, program, in, planted string) (found []finding) {
	t.Helper()
	denied, bad := w.objects(powers())
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	names := slices.Collect(maps.Values(denied))
	for _, path := range append([]string{module + program}, w.pkgs[module+program].Deps...) {
		name, ours := strings.CutPrefix(path, module)
		if !ours || in != "" && name != in {
			continue
		}
		all, _ := w.inspect(w.pkgs[path], denied, planted)
		for _, f := range all {
			if slices.Contains(names, f.what) || f.what == "go:linkname" || f.what == "package C" {
				found = append(found, f)
			}
		}
	}
	return found
}

// The packages of the MCP server use no power but those listed, each for its reason.
//
// proves R-B4
func TestTheMCPServerUsesNoPower(t *testing.T) {
	w := loadWorld(t)
	allowed, used := powersAllowed(), map[string]bool{}
	for _, f := range w.powersOf(t, "cmd/bailiwick-mcp", "", "") {
		if _, ok := allowed[f.pkg][f.what]; !ok {
			t.Errorf("%s", f)
		}
		used[f.pkg+" "+f.what] = true
	}
	for pkg, list := range allowed {
		for what := range list {
			if !used[pkg+" "+what] {
				t.Errorf("%s does not use %s: remove the exception", pkg, what)
			}
		}
	}
}

// planted are powers that somebody puts into the MCP server, as functions of its main
// package, and what the two checks say.
func plantedPowers() map[string]struct{ imports, body, uses, links string } {
	return map[string]struct{ imports, body, uses, links string }{
		"a program": {`"os/exec"`, `func planted() { _ = exec.Command("/bin/true").Run() }`, "os/exec.Command", "os/exec."},
		"a fork":    {`"syscall"`, `func planted() { _, _ = syscall.ForkExec("/bin/true", nil, nil) }`, "syscall.ForkExec", "syscall.forkExec"},
		"a signature with a deploy key": {
			`("crypto/ed25519"; "os")`,
			`func planted() { b, _ := os.ReadFile("deploy.key"); _, _ = os.Stdout.Write(ed25519.Sign(ed25519.NewKeyFromSeed(b[:32]), b)) }`,
			"crypto/ed25519.Sign", "crypto/ed25519.",
		},
		"an operator call": {
			`("context"; "github.com/bailiwick-dev/bailiwick/api"; "github.com/bailiwick-dev/bailiwick/client")`,
			`func planted() { _, _ = client.New(client.Config{}).Operator().Engage(context.Background(), api.StopRequest{}) }`,
			module + "client.Operator", module + "client.Operator.",
		},
		"a call of a part of the operator's face": {
			`("context"; "github.com/bailiwick-dev/bailiwick/client")`,
			`func planted() { _, _ = client.OperatorRuns{}.PauseRun(context.Background(), "") }`,
			module + "client.OperatorRuns", module + "client.OperatorRuns.",
		},
	}
}

// The control: each planted power is found, also in a package that the server imports.
//
// proves R-B4
func TestAPlantedPowerIsFound(t *testing.T) {
	w := loadWorld(t)
	for name, c := range plantedPowers() {
		for in, pkg := range map[string]string{"cmd/bailiwick-mcp": "main", "internal/front/mcpserve": "mcpserve"} {
			src := "package " + pkg + "\n\nimport " + c.imports + "\n\n" + c.body + "\n"
			found := w.powersOf(t, "cmd/bailiwick-mcp", in, src)
			hit := slices.ContainsFunc(found, func(f finding) bool {
				_, ok := powersAllowed()[f.pkg][f.what]
				return !ok && (strings.Contains(f.what, c.uses) || strings.Contains(f.what, module+"client."))
			})
			if !hit {
				t.Errorf("%s in %s is not found: %v", name, in, found)
			}
			t.Logf("planted in %s: %s: found", in, name)
		}
	}
}

// powerful matches the linked symbols that execute, fork, sign, read keys, or are
// operator calls.
var powerful = regexp.MustCompile(`^(os/exec\.|os\.(StartProcess|startProcess|FindProcess)|syscall\.(forkExec|forkAndExec|ForkExec|StartProcess|rawVfork|runtime_BeforeFork|Exec$)|` +
	`crypto/(ed25519|ecdsa|rsa)\.(.*[sS]ign|NewKeyFromSeed|newKeyFromSeed|GenerateKey)|crypto/(x509\.Parse.*PrivateKey|tls\..*KeyPair)|` +
	regexp.QuoteMeta(module) + `(deploy|internal/(document/seal|state/(operator|secret|store)))\b|` + regexp.QuoteMeta(module) + `client\.(Operator\w*\.|\(\*Operator\w*\)|\(\*Conn\)\.Operator))`)

// linkedPowers lists the symbols of a program that powerful matches. overlay replaces
// sources, as the flag of go build.
func linkedPowers(t *testing.T, program, overlay string) (found []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay, "-o", file, "./"+program)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command("go", "tool", "nm", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		name, _, _ := strings.Cut(strings.Join(fields[2:], " "), "[") // without type arguments
		if powerful.MatchString(name) && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// linkedAllowed are the symbols of powerful that bailiwick-mcp links.
func linkedAllowed(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/mcp-powers.txt")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(string(b)), "\n"), func(s string) bool { return strings.HasPrefix(s, "#") })
}

// overlaid returns the overlay that adds a file to the main package of the MCP server,
// with an initializer that calls it, so that the linker keeps it.
func overlaid(t *testing.T, imports, body string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "cmd/bailiwick-mcp"))
	if err != nil {
		t.Fatal(err)
	}
	src, overlay := filepath.Join(t.TempDir(), "planted.go"), filepath.Join(t.TempDir(), "overlay.json")
	text := "package main\n\nimport " + imports + "\n\n" + body + "\n\nfunc init() { planted() }\n"
	doc, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(dir, "planted.go"): src}})
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string][]byte{src: []byte(text), overlay: doc} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// The linked program has no symbol that executes, forks, signs or is an operator call
// but those listed: the TLS of the standard library, with which --http serves.
// The control: each planted power adds symbols.
//
// proves R-B4
func TestTheMCPServerHasNoPowerInItsSymbols(t *testing.T) {
	touch(t)
	allowed := linkedAllowed(t)
	more := func(overlay string) []string {
		return slices.DeleteFunc(linkedPowers(t, "cmd/bailiwick-mcp", overlay), func(s string) bool { return slices.Contains(allowed, s) })
	}
	if found := more(""); len(found) > 0 {
		t.Errorf("bailiwick-mcp links %s", strings.Join(found, "\n"))
	}
	for name, c := range plantedPowers() {
		found := more(overlaid(t, c.imports, c.body))
		if !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, c.links) }) {
			t.Errorf("%s is planted and not found: %q", name, found)
		}
		t.Logf("planted and linked: %s: found", name)
	}
}
