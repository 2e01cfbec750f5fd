package faultdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestHelper is the process whose calls are recorded.
func TestHelper(t *testing.T) {
	dir := os.Getenv("FAULTDISK_TEST_DIR")
	if dir == "" {
		return
	}
	must(t, Join())
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(in("sub"), 0o750))
	f, err := os.OpenFile(in("sub/a"), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	_, err = f.WriteAt([]byte("hello"), 3)
	fmt.Println("wrote", errno(err))
	_, err = f.WriteString("start")
	must(t, err)
	fmt.Println("synced", errno(f.Sync()))
	n, _ := f.ReadAt(make([]byte, 4), 0)
	fmt.Println("read", n)
	must(t, f.Truncate(6))
	must(t, os.Rename(in("sub/a"), in("sub/b")))
	_, err = f.WriteAt([]byte("!"), 6)
	must(t, err)
	log, err := os.OpenFile(in("log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(t, err)
	for range 2 {
		_, err = log.WriteString("line\n")
		must(t, err)
	}
	must(t, os.WriteFile(in("gone"), []byte("x"), 0o600))
	must(t, os.Remove(in("gone")))
	_ = os.Remove(in("sub")) // not empty: nothing happens
	d, err := os.Open(in("sub"))
	must(t, err)
	must(t, d.Sync())
	must(t, os.WriteFile(filepath.Join(os.TempDir(), "elsewhere"), nil, 0o600))
	fmt.Println("done")
}

func errno(err error) string {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return "ok"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func record(t *testing.T, dir string, fault func(int, Op) Fault) []Op {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$", "-test.count=1")
	cmd.Env = append(os.Environ(), "FAULTDISK_TEST_DIR="+dir, "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	ops, err := Run(t.Context(), cmd, dir, fault)
	must(t, err)
	return ops
}

func replay(t *testing.T, ops []Op) *Disk {
	t.Helper()
	d, err := Load(t.TempDir())
	must(t, err)
	for _, op := range ops {
		d.Apply(op)
	}
	return d
}

// tree lists the files of dir with what is in them.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || rel == ".":
			return err
		case e.IsDir():
			all = append(all, rel+"/")
		default:
			b, err := os.ReadFile(path)
			must(t, err)
			all = append(all, fmt.Sprintf("%s=%q", rel, b))
		}
		return nil
	}))
	return strings.Join(all, " ")
}

func survive(t *testing.T, d *Disk, seed uint64, what Survivors) string {
	t.Helper()
	dir := t.TempDir()
	must(t, d.Image(dir, rand.New(rand.NewPCG(seed, 0)), what))
	return tree(t, dir)
}

func TestEverythingThatAProcessDoesIsWrittenDown(t *testing.T) {
	dir := t.TempDir()
	ops := record(t, dir, nil)
	d := replay(t, ops)
	if got, want := survive(t, d, 0, All), tree(t, dir); got != want {
		t.Errorf("replayed: %s\nwant      %s", got, want)
	}
	if want := `log="line\nline\n" sub/ sub/b="startl!"`; tree(t, dir) != want {
		t.Errorf("the process left %s, want %s", tree(t, dir), want)
	}
	// The names in sub are synced, and sub's own is not.
	if got := survive(t, d, 0, None); got != "" {
		t.Errorf("without what was not synced: %s, want nothing", got)
	}
	d.Apply(Op{Kind: Sync, Path: "."})
	if got, want := survive(t, d, 0, None), `log="" sub/ sub/b="startllo"`; got != want {
		t.Errorf("with the names synced: %s, want %s", got, want)
	}
	var said []string
	for _, op := range ops {
		if op.Kind == Say {
			said = append(said, strings.TrimSpace(op.Text))
		}
	}
	if want := []string{"wrote ok", "synced ok", "read 4", "done"}; !slices.Equal(said[:4], want) {
		t.Errorf("it said %q", said)
	}
}

func TestACallFailsWithAndWithoutHavingBeenDone(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		fault Fault
		said  string
		kept  string // of sub/b, of what was synced
	}{
		{Sync, Fault{Errno: syscall.EIO}, "synced input/output error", ``},
		{Sync, Fault{Errno: syscall.EIO, Kept: true}, "synced input/output error", `startllo`},
		{Write, Fault{Errno: syscall.ENOSPC}, "wrote no space left on device", `start`},
		{Write, Fault{Errno: syscall.EIO, Kept: true}, "wrote input/output error", `startllo`},
		{Read, Fault{Empty: true}, "read 0", `startllo`},
	} {
		dir, hit := t.TempDir(), false
		ops := record(t, dir, func(_ int, op Op) Fault {
			if op.Kind == c.kind && op.Path == "sub/a" && !hit {
				hit = true
				return c.fault
			}
			return Fault{}
		})
		if !slices.ContainsFunc(ops, func(op Op) bool { return op.Kind == Say && strings.HasPrefix(op.Text, c.said) }) {
			t.Errorf("%s %+v: it did not say %q", c.kind, c.fault, c.said)
		}
		d := replay(t, append(ops, Op{Kind: Sync, Path: "."}))
		if got, want := survive(t, d, 0, None), fmt.Sprintf(`log="" sub/ sub/b=%q`, c.kept); got != want {
			t.Errorf("%s %+v: %s, want %s", c.kind, c.fault, got, want)
		}
	}
}

func TestASyncKeepsWhatItIsOfAndNothingElse(t *testing.T) {
	write := func(path, data string) Op { return Op{Kind: Write, Path: path, Data: []byte(data)} }
	made := []Op{{Kind: Mkdir, Path: "d", Mode: 0o700}, {Kind: Create, Path: "d/f", Mode: 0o600}, write("d/f", "new")}
	named := append(slices.Clip(made), Op{Kind: Sync, Path: "."}, Op{Kind: Sync, Path: "d"}, Op{Kind: Sync, Path: "d/f"})
	for name, c := range map[string]struct {
		ops  []Op
		want string
	}{
		"nothing synced":            {made, ``},
		"the file only":             {append(slices.Clip(made), Op{Kind: Sync, Path: "d/f"}), ``},
		"the file and its name":     {append(slices.Clip(made), Op{Kind: Sync, Path: "d/f"}, Op{Kind: Sync, Path: "d"}), ``},
		"all three":                 {named, `d/ d/f="new"`},
		"names only":                {append(slices.Clip(made), Op{Kind: Sync, Path: "."}, Op{Kind: Sync, Path: "d"}), `d/ d/f=""`},
		"written over":              {append(slices.Clip(named), write("d/f", "NEW")), `d/ d/f="new"`},
		"shortened, not synced":     {append(slices.Clip(named), Op{Kind: Truncate, Path: "d/f"}), `d/ d/f="new"`},
		"shortened and grown again": {append(slices.Clip(named), Op{Kind: Truncate, Path: "d/f"}, Op{Kind: Truncate, Path: "d/f", Size: 2}, Op{Kind: Sync, Path: "d/f"}), `d/ d/f="\x00\x00"`},
		"removed, not synced":       {append(slices.Clip(named), Op{Kind: Remove, Path: "d/f"}), `d/ d/f="new"`},
		"removed and synced":        {append(slices.Clip(named), Op{Kind: Remove, Path: "d/f"}, Op{Kind: Sync, Path: "d"}), `d/`},
		"moved, not synced":         {append(slices.Clip(named), Op{Kind: Rename, Path: "d/f", To: "d/g"}), `d/ d/f="new"`},
		"moved and synced":          {append(slices.Clip(named), Op{Kind: Rename, Path: "d/f", To: "d/g"}, Op{Kind: Sync, Path: "d"}), `d/ d/g="new"`},
		"moved across and synced":   {append(slices.Clip(named), Op{Kind: Rename, Path: "d/f", To: "g"}, Op{Kind: Sync, Path: "."}), `d/ g="new"`},
		"a sync that failed":        {append(slices.Clip(named), write("d/f", "NEW"), Op{Kind: SyncLost, Path: "d/f"}, Op{Kind: Sync, Path: "d/f"}), `d/ d/f="new"`},
	} {
		if got := survive(t, replay(t, c.ops), 0, None); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	lying := &Disk{Lies: true, root: newDir(0o700)}
	for _, op := range named {
		lying.Apply(op)
	}
	if got := survive(t, lying, 0, None); got != `` || lying.Pending() != 3 {
		t.Errorf("a disk that lies keeps %s, %d pending", got, lying.Pending())
	}
}

func TestWhatWasPendingSurvivesInManyWays(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 3*sector)
	d := replay(t, []Op{
		{Kind: Create, Path: "f", Mode: 0o600},
		{Kind: Write, Path: "f", Data: []byte("old")},
		{Kind: Sync, Path: "f"},
		{Kind: Sync, Path: "."},
		{Kind: Write, Path: "f", Off: 100, Data: data},
		{Kind: Truncate, Path: "f", Size: 5000},
		{Kind: Create, Path: "g", Mode: 0o600},
	})
	seen := map[string]bool{}
	for seed := range uint64(400) {
		got := survive(t, d, seed, Some)
		if again := survive(t, d, seed, Some); again != got {
			t.Fatalf("seed %d: once %s, once %s", seed, got, again)
		}
		content := strings.TrimPrefix(strings.Fields(got)[0], `f="old`)
		_, n := strings.CutSuffix(got, `g=""`)
		seen[fmt.Sprintf("with g: %v", n)] = true
		seen[fmt.Sprintf("length %d", min(len(content), 2))] = true
		if x := strings.Count(content, "x"); x > 0 && x < len(data) && !strings.Contains(content, `\x01\x`) {
			seen["torn"] = true
		}
	}
	for _, want := range []string{"with g: true", "with g: false", "torn", "length 1", "length 2"} {
		if !seen[want] {
			t.Errorf("never seen: %s (%v)", want, seen)
		}
	}
}
