package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// vmCopy is a copy of what scripts/vm reads, for a test to change. The virtual
// machine itself is started by make vm alone.
func vmCopy(t *testing.T) (dir string, run func(args ...string) (string, error)) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.CopyFS(filepath.Join(dir, "e2e/vm"), os.DirFS("vm")))
	script, err := os.ReadFile("../scripts/vm")
	must(t, err)
	must(t, os.Mkdir(filepath.Join(dir, "scripts"), 0o755))
	must(t, writeFile(filepath.Join(dir, "scripts/vm"), script, 0o755))
	return dir, func(args ...string) (string, error) {
		out, err := exec.Command(filepath.Join(dir, "scripts/vm"), args...).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
}

func TestTheImageOfTheMachineIsNamedByItsInput(t *testing.T) {
	t.Parallel()
	dir, run := vmCopy(t)
	key := func() string {
		t.Helper()
		out, err := run("key")
		if err != nil || len(out) != 16 {
			t.Fatalf("key: %q, %v", out, err)
		}
		return out
	}
	first := key()
	files, err := filepath.Glob(filepath.Join(dir, "e2e/vm/image/*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("files of the image: %q, %v", files, err)
	}
	seen := map[string]string{first: "the files as they are"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, append(text, '\n'), 0o600))
		if other := seen[key()]; other != "" {
			t.Errorf("a change of %s gives the image of %s", filepath.Base(file), other)
		}
		seen[key()] = filepath.Base(file)
		must(t, os.WriteFile(file, text, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(dir, "e2e/vm/steps/10-boot"), []byte("true\n"), 0o600))
	if key() != first {
		t.Error("a change of a step builds another image")
	}
}

func TestTheMachinesScriptsParse(t *testing.T) {
	t.Parallel()
	dir, _ := vmCopy(t)
	files := []string{filepath.Join(dir, "scripts/vm"), filepath.Join(dir, "e2e/vm/run"), filepath.Join(dir, "e2e/vm/tests.sh")}
	for _, pattern := range []string{"e2e/vm/steps/*", "e2e/vm/image/build", "e2e/vm/image/vm-run"} {
		more, err := filepath.Glob(filepath.Join(dir, pattern))
		must(t, err)
		files = append(files, more...)
	}
	for _, file := range files {
		if out, err := exec.Command("bash", "-n", file).CombinedOutput(); err != nil {
			t.Errorf("bash -n: %v: %s", err, out)
		}
	}
	must(t, os.WriteFile(files[0], []byte("if true; then\n"), 0o600))
	if exec.Command("bash", "-n", files[0]).Run() == nil {
		t.Error("control: bash -n passes a script without its end")
	}
}

// make vm succeeds only if every step passed; a step without a result has failed.
func TestARunOfTheMachineFailsUnlessEachStepPassed(t *testing.T) {
	t.Parallel()
	dir, run := vmCopy(t)
	const (
		passed  = `{"step":"10-boot","result":"ok","status":0,"seconds":6.2,"figures":{"kernel":"6.1"}}` + "\n"
		failed  = `{"step":"20-jail","result":"failed","status":1,"seconds":1,"figures":{}}` + "\n"
		end     = `{"end": true}` + "\n"
		machine = `{"machine": {"accelerator": "tcg", "seconds": 30, "status": 0}}` + "\n"
	)
	last := filepath.Join(dir, ".cache/vm/last")
	must(t, os.MkdirAll(last, 0o755))
	for _, c := range []struct {
		name, record string
		ok           bool
	}{
		{"every step passed", passed + end + machine, true},
		{"a step failed", passed + failed + end + machine, false},
		{"the machine stopped before the end", passed + machine, false},
		{"the machine had to be stopped", passed + end + strings.Replace(machine, `"status": 0`, `"status": 124`, 1), false},
		{"no step", end + machine, false},
		{"nothing", "", false},
		{"half a line", passed + end + machine + `{"step":`, false},
	} {
		must(t, os.WriteFile(filepath.Join(last, "record.jsonl"), []byte(c.record), 0o600))
		out, err := run("report")
		if (err == nil) != c.ok {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
		if c.ok && !strings.Contains(out, "| 10-boot | ok | 6.2 | kernel: 6.1 |") {
			t.Errorf("%s: %s", c.name, out)
		}
	}
}
