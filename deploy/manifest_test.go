package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
)

// proves R-C6
func TestInvalidManifestsAreRefusedWithLineAndColumn(t *testing.T) {
	replace := func(old, now string) string {
		if !strings.Contains(goodManifest, old) {
			t.Fatalf("the good manifest has no %q", old)
		}
		return strings.Replace(goodManifest, old, now, 1)
	}
	tests := []struct{ name, text, want string }{
		{"unknown key", replace("tier: reversible", "teir: reversible"), `:12:5: subagents[0]: unknown key "teir"; did you mean "tier"?`},
		{"unknown section", goodManifest + "grant: []\n", `:26:1: manifest: unknown key "grant"; did you mean "grants"?`},
		{"unknown key that is near nothing", goodManifest + "zebra: 1\n", `:26:1: manifest: unknown key "zebra"` + "\n"},
		{"duplicate key", replace("    role: transform\n", "    role: transform\n    role: quality\n"), `:12:5: subagents[0]: duplicate key "role", first in line 11`},
		{"duplicate name", replace("roles: [quality, transform]", "roles: [quality, quality]"), `:19:18: role/quality: duplicate declaration`},
		{"duplicate grant by derived name", goodManifest + "  - {principal: \"agent:Claude\", subagents: [fixer]}\n", `:26:17: grants: agent:Claude and agent:claude in line 25 both get the name manifest-agent-claude; use one spelling`},
		{"number for text", replace("LOG_LEVEL: info", "LOG_LEVEL: 1"), `:18:39: values.LOG_LEVEL: want text, got the number 1; put it in quotes`},
		{"truth value for text", replace("LOG_LEVEL: info", "LOG_LEVEL: true"), `put it in quotes`},
		{"text for list", replace("capabilities: [tools]", "capabilities: tools"), `:13:19: capabilities: want a list, got the text "tools"`},
		{"list for mapping", replace("limits: {timeout: 30m, memory: 4GiB, processes: 256, cpu: 1.5}", "limits: [1]"), `limits: want a mapping`},
		{"tab", replace("    role: transform", "\trole: transform"), `:11:`},
		{"not YAML", "version: [1", `not valid YAML`},
		{"empty", "", `the file is empty`},
		{"comment only", "# nothing\n", `the file is empty`},
		{"two documents", goodManifest + "---\nversion: 1\n", `not valid YAML`},
		{"NUL", replace("Small tools", "Small\x00tools"), `not valid YAML`},
		{"not UTF-8", replace("Small tools", "Small\xfftools"), `not valid UTF-8`},
		{"hidden direction marks", replace("Small tools", `"Small\u202etools"`), `U+202E`},
		{"10 MiB", goodManifest + strings.Repeat("# padding\n", 1<<20), `larger than 1024 KiB`},
		{"alias", replace("values: {LOG_LEVEL: info}", "values: &a {LOG_LEVEL: info}"), `anchors and aliases are not supported`},
		{"bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nversion: 1\n", `anchors and aliases are not supported`},
		{"merge key", replace("{LOG_LEVEL: info}", "{<<: {A: b}}"), `values`},
		{"tag", replace("Small tools", "!!binary aGk="), `tags such as`},
		{"deep nesting", "version: 1\nroles: " + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "\n", `nested deeper`},
		{"no version", strings.TrimPrefix(goodManifest, "version: 1\n"), `the key "version" is missing`},
		{"version 2", replace("version: 1", "version: 2"), `this build reads version 1`},
		{"bad name", replace("name: fixer", "name: Fixer!"), `:5:11: name: name "Fixer!"`},
		{"later policies", goodManifest + "policies: x\n", `"policies" is not supported yet`},
		{"unknown agent", replace("agent: command", "agent: bash"), `unknown agent "bash"`},
		{"command missing", replace("    command: [./fix.sh]\n", ""), `needs a command`},
		{"role missing", replace("    role: transform\n", ""), `the key "role" is missing`},
		{"tier missing", replace("    tier: reversible\n", ""), `the key "tier" is missing`},
		{"unknown tier", replace("tier: reversible", "tier: harmless"), `:12:11: tier: tier "harmless"`},
		{"observe with verify", replace("tier: reversible", "tier: observe"), `:14:13: verify: a subagent of tier observe`},
		{"schema that does not compile", replace("type: object, required: [file]", "type: objekt, required: [file]"), `:10:12: input: not a JSON Schema: type "objekt"`},
		{"schema with a misspelt keyword", replace("required: [file]", "requird: [file]"), `input: not a JSON Schema: unknown keyword "requird"; did you mean "required"?`},
		{"schema with a misspelt type below", replace("{file: {type: string}}", "{type: {type: strng}}"), `type "strng"`},
		{"schema of a list", replace("type: object, required: [file], properties: {file: {type: string}}", "type: array, items: {}"), `is a JSON object`},
		{"schema without an end", replace("{file: {type: string}}", "{file: {$ref: \"#/properties/file\"}}"), `input: the schema at #/properties/file refers to itself`},
		{"schema elsewhere", replace("{file: {type: string}}", "{file: {$ref: \"https://example.com/x.json\"}}"), `the JSON Schema does not compile`},
		{"prompt that does not parse", replace("{{.file}}", "{{.file"), `:9:13: prompt: template`},
		{"prompt with a member that the input does not have", replace("{{.file}}", "{{.fiel}}"), `:9:13: prompt: .fiel: the input has no member "fiel"; did you mean "file"?`},
		{"source by scp form", replace("../service", "git@example.com:x.git"), `:21:27: repo: want a path, https://HOST/PATH or ssh://HOST/PATH; git@HOST:PATH is ssh://HOST/PATH with user: git`},
		{"source by http", replace("../service", "http://example.com/x.git"), `want a path, https://HOST/PATH`},
		{"level", replace("level: full", "level: none"), `level: "none" is not supported`},
		{"executor", replace("executor: jail", "executor: docker"), `executor: "docker" is not supported`},
		{"mode", replace("mode: guarded", "mode: yolo"), `mode "yolo"`},
		{"relative mount", replace("readOnly: [/usr/local/go]", "readOnly: [go]"), `want an absolute, clean path without a colon`},
		{"unclean mount", replace("readOnly: [/usr/local/go]", "readOnly: [/usr/../etc]"), `want an absolute, clean path`},
		{"mount of everything", replace("readOnly: [/usr/local/go]", "readOnly: [/]"), `the jail has its own`},
		{"mount of /proc", replace("readOnly: [/usr/local/go]", "readOnly: [/proc/1]"), `the jail has its own`},
		{"principal", replace("agent:claude", "root"), `principal "root"`},
		{"grant of nothing", replace("subagents: [fixer]", "subagents: []"), `lists no subagents`},
		{"negative limit", replace("processes: 256", "processes: -1"), `want a positive whole number`},
		{"timeout without a unit", replace("timeout: 30m, m", "timeout: 90, m"), `limits.timeout: duration 90 has no unit: write 90s for seconds, 90m for minutes or 90h for hours`},
		{"timeout in quotes without a unit", replace("timeout: 10m", `timeout: "90"`), `verify.timeout: duration 90 has no unit: write 90s`},
		{"timeout with a fraction", replace("timeout: 10m", `timeout: 1.5`), `verify.timeout: duration "1.5": want a positive duration such as 90s or 30m`},
		{"project that is not a name", "project: My Project\n" + goodManifest, `:1:10: project: name "My Project"`},
		{"empty project", "project: ''\n" + goodManifest, `:1:10: project: is empty`},
		{"zero timeout", replace("timeout: 30m", "timeout: 0s"), `duration "0s"`},
		{"size without sense", replace("memory: 4GiB", "memory: lots"), `size "lots"`},
		{"cpu not a number", replace("cpu: 1.5", "cpu: .nan"), `want a number above 0`},
		{"env name", replace("LOG_LEVEL: info", "\"LOG LEVEL\": info"), `not the name of an environment variable`},
		{"env name of the broker", replace("LOG_LEVEL: info", "https_proxy: x"), `values: https_proxy is reserved for the worker`},
		{"env name of the worker", replace("LOG_LEVEL: info", "BAILIWICK_TOOLS: x"), `reserved for the worker`},
		{"requirement of two", replace("{exec: go}", "{exec: go, git: worktree}"), `want either exec or git`},
		{"requirement by path", replace("{exec: go}", "{exec: /bin/sh}"), `want the name of a program`},
		{"absolute from", replace("from: caps/tools", "from: /etc"), `is absolute`},
		{"escaping from", replace("from: caps/tools", "from: ../x"), `leads out of the manifest's directory`},
		{"missing from", replace("from: caps/tools", "from: caps/none"), `:3:51: capability/tools: from: caps/none: no such file or directory; paths are relative to the manifest's directory`},
		{"from a file", replace("from: caps/tools", "from: fixer.md"), `want a directory`},
		{"escaping system", replace("system: fixer.md", "system: ../fixer.md"), `leads out`},
		{"absolute system", replace("system: fixer.md", "system: /etc/passwd"), `is absolute`},
		{"missing system", replace("system: fixer.md", "system: none.md"), `:8:13: subagent/fixer: system: none.md: no such file or directory; paths are relative to the manifest's directory`},
	}
	f := newFixture(t, 1, 1)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f.write("bailiwick.yaml", tt.text)
			_, err := f.load()
			var all Problems
			if !errors.As(err, &all) || api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("err = %v", err)
			}
			if !strings.Contains(err.Error()+"\n", tt.want) {
				t.Fatalf("err = %v\nwant %s", err, tt.want)
			}
		})
	}
	f.write("bailiwick.yaml", goodManifest)
	if _, err := f.load(); err != nil {
		t.Fatalf("positive control: %v", err)
	}
}

func TestAllProblemsAreReportedByLine(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.edit("agent: command", "agent: bash")
	f.edit("mode: guarded", "mode: yolo")
	f.edit("tier: reversible", "tier: harmless")
	_, err := f.load()
	var all Problems
	if !errors.As(err, &all) || len(all) != 4 { // the fourth is command without its agent
		t.Fatalf("err = %v", err)
	}
	for i := 1; i < len(all); i++ {
		if all[i].Line < all[i-1].Line {
			t.Fatalf("out of order: %v", all)
		}
	}
}

func TestUnresolvedReferencesAreReportedAtTheirPlace(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.edit("capabilities: [tools]", "capabilities: [tools, missing]")
	f.edit("subagents: [fixer]", "subagents: [fixer, ghost]")
	f.edit("role: transform", "role: nobody")
	m, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.open().Plan(t.Context(), m, Options{})
	for _, want := range []string{
		`:13:27: subagent/fixer: capabilities[1]: no such capability "missing"`,
		`:11:11: subagent/fixer: role: no such role "nobody"`,
		`:25:52: grant/manifest-agent-claude: subagents[1]: no such subagent "ghost"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v\nwant %s", err, want)
		}
	}
}

// proves R-C1
func TestCapabilitiesAcceptRegularFilesOnly(t *testing.T) {
	tests := []struct {
		name  string
		plant func(dir string) error
		want  string
	}{
		{"symlink to a file", func(d string) error { return os.Symlink("/etc/shadow", d+"/link") }, "caps/tools/link: is a symbolic link"},
		{"symlink inside", func(d string) error { return os.Symlink("fix.sh", d+"/link") }, "caps/tools/link: is a symbolic link"},
		{"symlink to a directory", func(d string) error { return os.Symlink("/etc", d+"/etc") }, "caps/tools/etc: is a symbolic link"},
		{"fifo", func(d string) error { return syscall.Mkfifo(d+"/pipe", 0o644) }, "caps/tools/pipe: is a fifo"},
		{"device", func(d string) error { return syscall.Mknod(d+"/null", syscall.S_IFCHR|0o644, 1<<8|3) }, "caps/tools/null: is a device"},
		{"socket", func(d string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d + "/sock", Net: "unix"})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		}, "caps/tools/sock: is a socket"},
		{"51 MiB", func(d string) error {
			if err := os.WriteFile(d+"/big", nil, 0o644); err != nil {
				return err
			}
			return os.Truncate(d+"/big", 51<<20)
		}, "caps/tools/big: with this file the capability is larger than 50 MiB"},
		{"51 MiB in two files", func(d string) error {
			for i, n := range []int64{30 << 20, 21 << 20} {
				name := fmt.Sprintf("%s/part%d", d, i)
				if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, n)); err != nil {
					return err
				}
			}
			return nil
		}, "larger than 50 MiB"},
		{"git configuration", func(d string) error {
			return errors.Join(os.Mkdir(d+"/.GIT", 0o755), os.WriteFile(d+"/.GIT/config", nil, 0o644))
		}, ".GIT is not allowed"},
		{"control character", func(d string) error { return os.WriteFile(d+"/a\nb", nil, 0o644) }, "unprintable character"},
		{"not UTF-8", func(d string) error { return os.WriteFile(d+"/\xff", nil, 0o644) }, "not valid UTF-8"},
		{"the directory itself is a link", func(d string) error {
			return errors.Join(os.Rename(d, d+".real"), os.Symlink(d+".real", d))
		}, "tools is a symbolic link"},
		{"nothing in it", func(d string) error { return errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o755)) }, "contains no files"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, 1, 1)
			if _, err := f.load(); err != nil {
				t.Fatalf("positive control: %v", err)
			}
			if err := tt.plant(filepath.Join(f.dir, "caps/tools")); err != nil {
				t.Fatal(err)
			}
			if _, err := f.load(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("err = %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestTooManyFilesAreRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	dir := filepath.Join(f.dir, "caps/tools/many")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		if err := os.WriteFile(fmt.Sprintf("%s/%05d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.load(); err == nil || !strings.Contains(err.Error(), "more than 10000 files") {
		t.Fatalf("err = %v", err)
	}
}

func TestASystemPromptIsARegularTextFileInTheDirectory(t *testing.T) {
	f := newFixture(t, 1, 1)
	p := filepath.Join(f.dir, "fixer.md")
	for name, plant := range map[string]func() error{
		"link": func() error { return os.Symlink("/etc/passwd", p) },
		"fifo": func() error { return syscall.Mkfifo(p, 0o644) },
		"NUL":  func() error { return os.WriteFile(p, []byte("a\x00b"), 0o644) },
		"big":  func() error { return os.WriteFile(p, make([]byte, strictyaml.MaxText+1), 0o644) },
	} {
		if err := errors.Join(os.Remove(p), plant()); err != nil {
			t.Fatal(err)
		}
		if _, err := f.load(); err == nil || !strings.Contains(err.Error(), "system: fixer.md") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// Any text gives a manifest or problems.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(goodManifest))
	f.Add([]byte(toolManifest))
	f.Add([]byte("version: 1\ntools: [{server: a, stdio: {command: [x]}, pin: sha256:" + strings.Repeat("0", 64) + ", allow: [{tool: b, roles: [c], tier: observe}]}]\n"))
	f.Add([]byte("version: 1\nroles: [a, {name: b}]\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("version: 1\nsubagents:\n  - input: {type: object, properties: {a: {$ref: '#'}}}\n"))
	dir := f.TempDir()
	path := filepath.Join(dir, "bailiwick.yaml")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Load(t.Context(), path)
		var all Problems
		if err != nil && !errors.As(err, &all) {
			t.Fatalf("err = %v", err)
		}
		if (m == nil) != (err != nil) {
			t.Fatalf("manifest %v, err %v", m, err)
		}
		if m != nil {
			pinAll(t, m)
		}
	})
}

// pinAll pins every server of a manifest. What is written is valid and means the same
// otherwise; what cannot be written leaves the file.
func pinAll(t *testing.T, m *Manifest) {
	var servers []Unpinned
	for _, d := range m.decls {
		if d.tool != nil && d.tool.Run == nil {
			servers = append(servers, Unpinned{Server: d.tool.Name, Pin: api.DigestOf([]byte(d.ref)), decl: d})
		}
	}
	if len(servers) == 0 {
		return
	}
	err := m.Pin(t.Context(), servers)
	after, errRead := os.ReadFile(m.path)
	if errRead != nil {
		t.Fatal(errRead)
	}
	if err != nil {
		if !bytes.Equal(after, m.text) {
			t.Fatalf("%v, and the file has changed", err)
		}
		return
	}
	again, err := load(t.Context(), m.shown, after)
	if err != nil {
		t.Fatalf("the pinned manifest is invalid: %v", err)
	}
	for i, d := range again.decls {
		if want := api.DigestOf([]byte(d.ref)); d.tool != nil && d.tool.Run == nil && d.pin != want || !bytes.Equal(d.doc, m.decls[i].doc) {
			t.Fatalf("%s: pin %s, want %s", d.ref, d.pin, want)
		}
	}
}

// Only a plan file decodes as one.
func FuzzPlanFile(f *testing.F) {
	f.Add([]byte(`{"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","plan":{},"v":1}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePlan(b)
		if (p == nil) != (err != nil) {
			t.Fatalf("plan %v, err %v", p, err)
		}
	})
}
