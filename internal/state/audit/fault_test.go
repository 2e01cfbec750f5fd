package audit

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// proves R-A2, R-O6 (the log's part): kill -9 at random instants
func TestStateAndEntryAreAtomicAcrossKills(t *testing.T) {
	t.Parallel()
	_, s, dir := ledger(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var acknowledged []string
	for round := range 30 / shrink {
		cmd := helper(t, "write", dir, fmt.Sprint(round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 1+7*round && lines.Scan(); n++ {
			acknowledged = append(acknowledged, lines.Text())
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			acknowledged = append(acknowledged, lines.Text())
		}
		_ = cmd.Wait()
	}
	s, err := store.Open(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l := open(t, s)
	n, err := l.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var logged []string
	for c, err := range l.Watch(t.Context(), Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		logged = append(logged, string(c.Entry.Dispatch))
		if c.Seq == n-1 {
			break
		}
	}
	slices.Sort(logged)
	if state := rows(t, s); !slices.Equal(state, logged) {
		t.Errorf("%d rows and %d entries differ", len(state), len(logged))
	}
	for _, id := range acknowledged {
		if _, ok := slices.BinarySearch(logged, id); !ok {
			t.Errorf("%s was acknowledged and lost", id)
		}
	}
	t.Logf("%d acknowledged, %d durable", len(acknowledged), n)
}

// proves R-A2 (if the log cannot be written, nothing is allowed)
func TestFullDiskAdmitsNothingAndLosesNothing(t *testing.T) {
	withOwnMounts(t, helper(t, "full", t.TempDir()))
}

func TestAReadOnlyDiskIsRefused(t *testing.T) {
	withOwnMounts(t, helper(t, "readonly", t.TempDir()))
}

// withOwnMounts runs cmd in a new mount namespace.
func withOwnMounts(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "as it should be") {
		t.Errorf("%v\n%s", err, out)
	}
}

// proves R-A4 (nothing hides an entry): one bit of one leaf
func TestAFlippedBitInAnEntryIsFound(t *testing.T) {
	l, s, dir := ledger(t)
	for i := range 20 {
		if _, err := l.Commit(t.Context(), decide(t, "local:root"), accepted(fmt.Sprintf("d-%04d", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "state.db")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(b []byte) error {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), config(dir))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		_, err = Open(t.Context(), Config{Store: s, Now: now})
		return err
	}
	// The result is canonical JSON with another subagent. (Pages also contain stale
	// copies, so the bit is flipped in all of them.)
	bad := bytes.ReplaceAll(good, []byte(`"subagent":"code-edit"`), []byte(`"subagent":"code-ediu"`))
	if err := try(bad); err == nil || !strings.Contains(err.Error(), "hash differs") {
		t.Errorf("a flipped bit: %v", err)
	}
	if err := try(good); err != nil { // control
		t.Error(err)
	}
}

func TestAMissingEntryIsFound(t *testing.T) {
	for _, seq := range []int{0, 7, 19} {
		l, s, dir := ledger(t)
		for range 20 {
			if _, err := l.Record(t.Context(), stopped(), nil); err != nil {
				t.Fatal(err)
			}
		}
		// An attacker with write access to the file can drop the triggers.
		path := filepath.Join(dir, "state.db")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		raw(t, path, "DROP TRIGGER audit_entry_delete", fmt.Sprintf("DELETE FROM audit_entry WHERE seq = %d", seq))
		s, err := store.Open(t.Context(), config(dir))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), Config{Store: s, Now: now})
		// Truncation leaves no trace in the table; anchors reveal it.
		if found := err != nil && strings.Contains(err.Error(), fmt.Sprintf("entry #%d is missing", seq)); found != (seq != 19) {
			t.Errorf("without #%d: %v", seq, err)
		}
		_ = s.Close()
	}
}

// proves R-A2 (order as types): only a Ledger can make an Admission
func TestOnlyTheLedgerMintsAdmissions(t *testing.T) {
	const head = "package probe\n\nimport (\n\t\"context\"\n\n\t\"github.com/bailiwick-dev/bailiwick/internal/state/audit\"\n\t\"github.com/bailiwick-dev/bailiwick/internal/rule/policy\"\n\t\"github.com/bailiwick-dev/bailiwick/internal/document/record\"\n)\n\nvar _ = policy.Decision{}\nvar _ record.Entry\nvar _ context.Context\n\n"
	exported := exportData(t, "context", ".", "github.com/bailiwick-dev/bailiwick/internal/rule/policy", "github.com/bailiwick-dev/bailiwick/internal/document/record")
	for body, want := range map[string]string{
		"var A = audit.Admission{}\nvar D policy.Decision\nfunc f(l *audit.Ledger) (audit.Admission, error) { return l.Commit(context.Background(), D, record.Entry{}, nil) }\n": "", // control

		"var A = audit.Admission{seq: 1}\n":                     "cannot refer to unexported field seq",
		"var A = audit.Admission{1}\n":                          "implicit assignment to unexported field",
		"func f(a audit.Admission) { a.used = nil }\n":          "a.used undefined",
		"var A = audit.mint(1, nil)\n":                          "undefined: audit.mint",
		"var D = policy.Decision{valid: true, allowed: true}\n": "cannot refer to unexported field valid",

		"func f(l *audit.Ledger) { _, _ = l.Commit(context.Background(), true, record.Entry{}, nil) }\n": "cannot use true",
	} {
		if got := typeError(head+body, exported); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s\ngot %q, want %q", body, got, want)
		}
	}
}

// exportData returns an importer of the packages that the named ones consist of.
func exportData(t *testing.T, names ...string) types.Importer {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, names...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as the programs are built
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[name] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

// typeError type-checks source as a package and returns the first error.
func typeError(source string, imports types.Importer) string {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, "probe.go", source, parser.SkipObjectResolution)
	if err == nil {
		_, err = (&types.Config{Importer: imports}).Check("probe", files, []*ast.File{f}, nil)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func raw(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, q := range statements {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

func helper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
	cmd.Env = append(os.Environ(), "AUDIT_TEST_HELPER="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	return cmd
}

// TestHelper is the child process of the tests above.
func TestHelper(t *testing.T) {
	args := strings.Split(os.Getenv("AUDIT_TEST_HELPER"), "\n")
	switch args[0] {
	case "":
		return
	case "write":
		helpWrite(t, args[1], args[2])
	case "cut":
		helpCut(t, args[1], args[2], args[3])
	case "full":
		helpFull(t, args[1])
	case "readonly":
		helpReadOnly(t, args[1])
	}
	if !t.Failed() {
		fmt.Println("as it should be")
	}
}

func helpWrite(t *testing.T, dir, round string) {
	s, err := store.Open(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	l, d := open(t, s), decide(t, "local:root")
	for w := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("d-%s-%d-%d", round, w, i)
				if _, err := l.Commit(context.Background(), d, accepted(id), pair(id)); err != nil {
					return
				}
				_, _ = os.Stdout.WriteString(id + "\n")
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	select {}
}

// tmpfs mounts a small file system in this process's namespace.
func tmpfs(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Fatal(err)
	}
}

func remount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "", unix.MS_REMOUNT|flags, options); err != nil {
		t.Fatal(err)
	}
}

func helpFull(t *testing.T, dir string) {
	tmpfs(t, dir, "3m")
	state := filepath.Join(dir, "state")
	s, err := store.Create(t.Context(), config(state))
	if err != nil {
		t.Fatal(err)
	}
	l, d := open(t, s), decide(t, "local:root")
	n := 0
	var full error
	for ; full == nil && n < 5000; n++ {
		id := fmt.Sprintf("d-%05d", n)
		_, full = l.Commit(t.Context(), d, accepted(id), pair(id))
	}
	n-- // the last one was refused
	if api.CodeOf(full) != api.CodeAuditUnavailable || n < 100 {
		t.Fatalf("after %d: %v", n, full)
	}
	refused := func(when string) {
		a, err := l.Commit(t.Context(), d, accepted("d-late"), pair("late"))
		if a != (Admission{}) || api.CodeOf(err) != api.CodeAuditUnavailable || !errors.Is(err, store.ErrPoisoned) {
			t.Errorf("%s: %v, %v", when, a, err)
		}
		if _, err := l.Commit(t.Context(), decide(t, "local:eve"), accepted("d-eve"), nil); api.CodeOf(err) != api.CodeAuditUnavailable {
			t.Errorf("%s, a denial: %v", when, err)
		}
		if _, err := l.Record(t.Context(), stopped(), nil); api.CodeOf(err) != api.CodeAuditUnavailable {
			t.Errorf("%s, a fact: %v", when, err)
		}
	}
	refused("full")
	remount(t, dir, 0, "size=64m")
	refused("with space again, before a restart")
	_ = s.Close()
	if s, err = store.Open(t.Context(), config(state)); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	l = open(t, s)
	stored, err := l.Check(t.Context())
	if err != nil || stored < uint64(n) || stored > uint64(n)+1 || len(rows(t, s)) != int(stored) { //nolint:gosec // small
		t.Errorf("%d acknowledged, %d entries, %d rows, %v", n, stored, len(rows(t, s)), err)
	}
	if _, err := l.Commit(t.Context(), d, accepted("d-after"), pair("after")); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	_ = s.Close()
}

func helpReadOnly(t *testing.T, dir string) {
	tmpfs(t, dir, "32m")
	state := filepath.Join(dir, "state")
	s, err := store.Create(t.Context(), config(state))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	remount(t, dir, unix.MS_RDONLY, "")
	if s, err := store.Open(t.Context(), config(state)); err == nil {
		t.Error("a read-only state was opened")
		_ = s.Close()
	}
	remount(t, dir, 0, "")
	if s, err = store.Open(t.Context(), config(state)); err != nil { // control
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := open(t, s).Record(t.Context(), stopped(), nil); err != nil {
		t.Error(err)
	}
}
