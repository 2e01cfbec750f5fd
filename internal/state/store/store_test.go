package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func pairs() []Migration {
	return []Migration{{"pair", []string{"CREATE TABLE pair (id INTEGER PRIMARY KEY, v TEXT NOT NULL) STRICT"}}}
}

func config(dir string) Config { return Config{Dir: dir, Migrations: pairs()} }

func create(t *testing.T) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state ?%#&x=1") // no character of a path means anything to SQLite
	s, err := Create(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

func reopen(t *testing.T, s *Store, dir string) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func insert(v string) func(*Tx) error {
	return func(tx *Tx) error {
		_, err := tx.Exec("INSERT INTO pair (v) VALUES (?)", v)
		return err
	}
}

func values(t *testing.T, s *Store) string {
	t.Helper()
	var all []string
	err := s.Read(t.Context(), func(v *View) error {
		return v.Each("SELECT v FROM pair ORDER BY id", nil, func(scan Scan) error {
			var v string
			err := scan(&v)
			all = append(all, v)
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestACommittedUpdateIsThereAfterReopening(t *testing.T) {
	s, dir := create(t)
	for _, v := range []string{"a", "b"} {
		if err := s.Update(t.Context(), insert(v)); err != nil {
			t.Fatal(err)
		}
	}
	if got := values(t, reopen(t, s, dir)); got != "a b" {
		t.Errorf("after reopening: %q", got)
	}
}

func TestCreateIsNotOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := Open(t.Context(), config(dir)); !errors.Is(err, ErrNotExist) {
		t.Errorf("Open of nothing: %v, want ErrNotExist", err)
	}
	s, err := Create(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), config(dir)); !errors.Is(err, ErrExist) {
		t.Errorf("Create over state: %v, want ErrExist", err)
	}
	// What a killed Create leaves is not state.
	if err := os.Rename(filepath.Join(dir, fileName), filepath.Join(dir, fileName+".new")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), config(dir)); !errors.Is(err, ErrNotExist) {
		t.Errorf("Open of unfinished state: %v, want ErrNotExist", err)
	}
	if s, err = Create(t.Context(), config(dir)); err != nil {
		t.Errorf("Create after a killed Create: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheOwnerMayReadTheState(t *testing.T) {
	s, dir := create(t)
	if err := s.Update(t.Context(), insert("x")); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v: want the database, its log, its index and the lock", files, err)
	}
	for _, f := range files {
		if fi, err := f.Info(); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", f.Name(), fi.Mode(), err)
		}
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("directory: mode %v, %v; want 0700", fi.Mode(), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, filepath.Join(dir, fileName)} {
		fi, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, fi.Mode().Perm()|0o040); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), config(dir)); err == nil || !strings.Contains(err.Error(), "chmod") {
			t.Errorf("%s readable by its group: %v, want a refusal that says chmod", p, err)
		}
		if err := os.Chmod(p, fi.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	if s, err = Open(t.Context(), config(dir)); err != nil { // the control
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestReadersSeeASnapshotAndCannotWrite(t *testing.T) {
	s, _ := create(t)
	if err := s.Update(t.Context(), insert("a")); err != nil {
		t.Fatal(err)
	}
	err := s.Read(t.Context(), func(v *View) error {
		var before, after int
		if err := v.Get("SELECT count(*) FROM pair", nil, &before); err != nil {
			return err
		}
		if err := s.Update(t.Context(), insert("b")); err != nil {
			return err
		}
		if err := v.Get("SELECT count(*) FROM pair", nil, &after); err != nil {
			return err
		}
		if before != 1 || after != 1 {
			t.Errorf("the snapshot changed from %d to %d rows", before, after)
		}
		if err := v.Get("INSERT INTO pair (v) VALUES ('c') RETURNING id", nil, &after); err == nil {
			t.Error("a reader wrote")
		}
		if err := v.Get("SELECT id FROM pair WHERE v = ?", Args{"none"}, &after); !errors.Is(err, ErrNoRow) {
			t.Errorf("no row: %v, want ErrNoRow", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := values(t, s); got != "a b" {
		t.Errorf("after: %q", got)
	}
}

// proves R-O1 (the state has one owner)
func TestASecondOwnerIsRefusedWithThePIDOfTheFirst(t *testing.T) {
	s, dir := create(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	owner := helper(t, "own", dir)
	stdin, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil { // it has the state
		t.Fatal(err)
	}
	for name, open := range map[string]func(context.Context, Config) (*Store, error){"Open": Open, "Create": Create} {
		_, err = open(t.Context(), config(dir))
		if owned, ok := errors.AsType[*OwnedError](err); !ok || owned.PID != owner.Process.Pid {
			t.Errorf("%s beside process %d: %v, want an OwnedError that names it", name, owner.Process.Pid, err)
		}
	}
	_ = stdin.Close()
	if err := owner.Wait(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), config(dir)); err != nil { // the control
		t.Fatalf("after the owner ended: %v", err)
	}
	_ = s.Close()
}

// A process that a killed owner was starting has the lock until its exec. The next
// owner waits for that, but no longer.
func TestOpenWaitsForTheLockOfAKilledOwner(t *testing.T) {
	s, dir := create(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, lockName)
	if err := os.WriteFile(path, []byte(strconv.Itoa(dead.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	// A child that holds the lock, as between fork and exec, and then lets go.
	child := exec.Command("flock", path, "sh", "-c", "echo held; read line")
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		s, err := Open(t.Context(), config(dir))
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Errorf("opened while the child holds the lock: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesDamageAndNamesTheFix(t *testing.T) {
	s, dir := create(t)
	for range 200 {
		if err := s.Update(t.Context(), insert(strings.Repeat("v", 500))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fileName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	flip := func(at int) []byte { return edit(func(b []byte) []byte { b[at] ^= 0x10; return b }) }
	for name, b := range map[string][]byte{
		"empty":                        {},
		"cut in the header":            good[:50],
		"cut in a page":                good[:len(good)-5000],
		"not a database":               bytes.Repeat([]byte("nonsense"), 1000),
		"another program's":            edit(func(b []byte) []byte { copy(b[68:], "OTHR"); return b }),
		"flipped: magic":               flip(3),
		"flipped: kind of page 3":      flip(2 * 4096),
		"flipped: cells of page 3":     flip(2*4096 + 4),
		"flipped: a pointer in page 4": flip(3*4096 + 9),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), config(dir))
		if _, ok := errors.AsType[*CorruptError](err); !ok || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "restore") {
			t.Errorf("%s: %v, want a CorruptError that names %s and what to do", name, err, path)
		}
		if err == nil {
			_ = s.Close()
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), config(dir)); err != nil { // the control
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	_ = s.Close()
}

func TestMigrationsAreAppliedOnceAndOnlyForwards(t *testing.T) {
	s, dir := create(t)
	if err := s.Update(t.Context(), insert("a")); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	try := func(m ...Migration) error {
		s, err := Open(t.Context(), Config{Dir: dir, Migrations: m})
		if err == nil {
			err = s.Close()
		}
		return err
	}
	two := Migration{"pair", append(pairs()[0].Steps, "ALTER TABLE pair ADD COLUMN w TEXT")}
	broken := Migration{"pair", append(two.Steps, "CREATE TABLE more (x INTEGER)", "CREATE TABLE pair (x INTEGER)")}
	if err := try(broken); err == nil || !strings.Contains(err.Error(), `step 4 of "pair"`) {
		t.Errorf("a failing step: %v", err)
	}
	if err := try(pairs()[0]); err != nil {
		t.Errorf("a failed migration was not rolled back: %v", err)
	}
	if err := try(two, Migration{"other", []string{"CREATE TABLE other (x INTEGER)"}}); err != nil {
		t.Errorf("a newer program: %v", err)
	}
	if err := try(pairs()[0]); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("an older program: %v, want a refusal that says to use a newer one", err)
	}
	if err := try(two); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a program without an existing schema: %v", err)
	}
	edited := Migration{"pair", []string{two.Steps[0] + " ", two.Steps[1]}}
	if err := try(edited, Migration{"other", []string{"CREATE TABLE other (x INTEGER)"}}); err == nil || !strings.Contains(err.Error(), "step 1") {
		t.Errorf("a released step was edited: %v", err)
	}
	if err := try(two, two); err == nil {
		t.Error("two owners of one name were accepted")
	}
}

// helper returns a command that runs TestHelper in another process.
func helper(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
	cmd.Env = append(os.Environ(), "STORE_TEST_HELPER="+strings.Join(args, "\n"))
	cmd.Stderr = os.Stderr
	return cmd
}
