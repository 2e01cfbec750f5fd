package deploycli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/machine"
)

// worked returns a machine that is set up and whose service has worked.
func worked(t *testing.T) *machine.Machine {
	t.Helper()
	m := packaged(t)
	if out, err := setup(m); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, m, "one")
	return m
}

// write is work of the service: its state then says what.
func write(t *testing.T, m *machine.Machine, what string) {
	t.Helper()
	const script = `umask 077; cd /var/lib/bailiwick && mkdir -p store log/tile blobs/sha256 scratch dispatches/d1/1 checkouts/c
echo state $1 > store/state.db; echo wal $1 > store/state.db-wal; echo tile $1 > log/tile/0; echo $1 > blobs/sha256/$1; echo key > service.key
echo $1 > scratch/x; echo $1 > checkouts/c/f; echo $1 > dispatches/d1/1/result; ln -sfn /etc/passwd dispatches/d1/1/link; echo $1 >> high-water; echo a > address`
	if out, err := m.Run(machine.Service, "sh", "-c", script, "sh", what); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// listing describes the state: each file with its owner, mode and content.
func listing(t *testing.T, m *machine.Machine, dir string) string {
	t.Helper()
	out, err := m.Run(machine.Root, "sh", "-c", `cd "$1" && find . -path ./scratch -prune -o -path ./checkouts -prune -o -name lock -prune -o -path ./address -prune -o ! -path . -printf '%p %u:%g %m %l ' -exec sh -c 'test -f "$1" -a ! -L "$1" && tr "\n" " " < "$1"; echo' sh {} \; | LC_ALL=C sort`, "sh", dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

func deployRoot(m *machine.Machine, args ...string) (string, error) {
	return m.Run(machine.Root, append([]string{deployProgram}, args...)...)
}

// A backup brings the state back as it was, keeps the one that was there, and leaves the
// anchor, the marks, the catalog and the trust of the machine as they are.
//
// takeover system, backup: no read a secret
// takeover system, backup: yes read work
//
// proves R-P8
func TestABackupBringsTheStateBack(t *testing.T) {
	m := worked(t)
	was := listing(t, m, "/var/lib/bailiwick")
	if out, err := deployRoot(m, "backup", "/home/one.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if st, err := os.Stat(m.Path("/home/one.tar.gz")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v", st, err)
	}
	write(t, m, "two")
	m.Write("/var/lib/bailiwick-launch/marks", "7", 0, 0, 0o600)
	later := listing(t, m, "/var/lib/bailiwick")
	out, err := deployRoot(m, "restore", "/home/one.tar.gz")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	now := listing(t, m, "/var/lib/bailiwick")
	if want := strings.Replace(was, "one \n./log ", "one two \n./log ", 1); now != want {
		t.Errorf("the state is\n%s\nwant\n%s\n(with the anchor of the machine)", now, want)
	}
	kept, err := m.Run(machine.Root, "sh", "-c", "echo /var/lib/bailiwick.before-*")
	if err != nil || listing(t, m, strings.TrimSpace(kept)) != later {
		t.Errorf("the replaced state: %v %s", err, kept)
	}
	if b, err := os.ReadFile(m.Path("/var/lib/bailiwick-launch/marks")); err != nil || string(b) != "7" {
		t.Errorf("the marks of the launcher: %q, %v", b, err)
	}
	// On a machine without an installation it brings everything back but the key of the
	// secrets, and the trust root last.
	fresh := packaged(t)
	b, err := os.ReadFile(m.Path("/home/one.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	fresh.Write("/home/one.tar.gz", string(b), 0, 0, 0o600)
	if out, err := deployRoot(fresh, "restore", "/home/one.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if now, want := listing(t, fresh, "/var/lib/bailiwick"), without(was, "./high-water "); now != want {
		t.Errorf("the state is\n%s\nwant\n%s", now, want)
	}
	for _, path := range []string{"/etc/bailiwick/trust.json", "/etc/bailiwick/operators.json", "/var/lib/bailiwick-catalog/catalog/index.json"} {
		if _, err := os.Stat(fresh.Path(path)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(fresh.Path("/var/lib/bailiwick-launch/identity")); err == nil {
		t.Error("the archive has the key of the secrets, which it was not asked for")
	}
	if out, err := deployRoot(m, "backup", "--identity", "/home/two.tar.gz"); err != nil || !slices.Contains(names(t, m, "/home/two.tar.gz"), "launch/identity") {
		t.Errorf("with the key of the secrets: %v\n%s", err, out)
	}
}

func without(text, prefix string) (out string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			out += line
		}
	}
	return out
}

// A restore that is killed at any of its steps leaves one of the two states, whole; the
// next one completes it and has kept the other.
//
// proves R-P8
func TestAKilledRestoreIsRepeated(t *testing.T) {
	const calls = "rename,renameat,renameat2,link,linkat,mkdirat,unlinkat,fchownat"
	for n, killed := 1, true; killed; n += 4 {
		if n > 400 {
			t.Fatal("restore makes steps without end")
		}
		m := worked(t)
		if out, err := deployRoot(m, "backup", "/home/one.tar.gz"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		was := listing(t, m, "/var/lib/bailiwick")
		write(t, m, "two")
		later := listing(t, m, "/var/lib/bailiwick")
		want := strings.Replace(was, "one \n./log ", "one two \n./log ", 1)
		out, err := m.Run(machine.Root, "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace="+calls, "-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", calls, n), deployProgram, "restore", "/home/one.tar.gz")
		if killed = err != nil; killed && !strings.Contains(err.Error()+out, "killed") && !strings.Contains(err.Error(), "137") {
			t.Fatalf("%d: %v\n%s", n, err, out)
		}
		if now := listing(t, m, "/var/lib/bailiwick"); now != later && now != want {
			t.Fatalf("killed at %d: the state is\n%s", n, now)
		}
		if !killed {
			break
		}
		if out, err := deployRoot(m, "restore", "/home/one.tar.gz"); err != nil {
			t.Fatalf("killed at %d, then: %v\n%s", n, err, out)
		}
		if now := listing(t, m, "/var/lib/bailiwick"); now != want {
			t.Errorf("killed at %d, then the state is\n%s", n, now)
		}
		kept, err := m.Run(machine.Root, "sh", "-c", "ls -d /var/lib/bailiwick.*")
		found := false
		for dir := range strings.FieldsSeq(kept) {
			found = found || listing(t, m, dir) == later
		}
		if err != nil || !found {
			t.Errorf("killed at %d: the replaced state is lost: %v\n%s", n, err, kept)
		}
	}
}

// names lists the entries of an archive.
func names(t *testing.T, m *machine.Machine, path string) (list []string) {
	t.Helper()
	for _, e := range entries(t, m, path) {
		list = append(list, e.h.Name)
	}
	return list
}

type entry struct {
	h    *tar.Header
	body []byte
}

func entries(t *testing.T, m *machine.Machine, path string) (list []entry) {
	t.Helper()
	b, err := os.ReadFile(m.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(packed); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry{h, body})
	}
}

func pack(t *testing.T, m *machine.Machine, path string, list []entry) {
	t.Helper()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	out := tar.NewWriter(packed)
	for _, e := range list {
		e.h.Size = int64(len(e.body))
		if err := out.WriteHeader(e.h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	m.Write(path, b.String(), 0, 0, 0o600)
}

// An archive that is damaged, of others, newer, or that reaches outside is refused whole.
//
// proves R-P8
func TestABadArchiveChangesNothing(t *testing.T) {
	m := worked(t)
	if out, err := deployRoot(m, "backup", "/home/one.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	at := func(list []entry, name string) *entry {
		i := slices.IndexFunc(list, func(e entry) bool { return e.h.Name == name })
		if i < 0 {
			t.Fatalf("no entry %s", name)
		}
		return &list[i]
	}
	insert := func(list []entry, e entry) []entry { return slices.Insert(list, 1, e) }
	before := listing(t, m, "/var/lib")
	bad := map[string]struct {
		spoil func([]entry) []entry
		want  string
	}{
		"changed content": {func(l []entry) []entry { at(l, "state/store/state.db").body = []byte("stete one\n"); return l }, "digest mismatch"},
		"a missing file": {func(l []entry) []entry {
			return slices.DeleteFunc(l, func(e entry) bool { return e.h.Name == "state/service.key" })
		}, "digest mismatch"},
		"one file more": {func(l []entry) []entry { return insert(l, entry{&tar.Header{Name: "state/x", Mode: 0o600}, nil}) }, "its list of digests does not have"},
		"cut off":       {func(l []entry) []entry { return l[:len(l)-1] }, "cut off"},
		"above":         {func(l []entry) []entry { return insert(l, entry{&tar.Header{Name: "../x", Mode: 0o600}, nil}) }, "in no directory"},
		"above, later":  {func(l []entry) []entry { return insert(l, entry{&tar.Header{Name: "etc/../../x", Mode: 0o600}, nil}) }, "escapes"},
		"by a link": {func(l []entry) []entry {
			l = insert(l, entry{&tar.Header{Name: "state/l/x", Mode: 0o600}, nil})
			return insert(l, entry{&tar.Header{Name: "state/l", Linkname: "/etc", Typeflag: tar.TypeSymlink}, nil})
		}, "escapes"},
		"a device": {func(l []entry) []entry {
			return insert(l, entry{&tar.Header{Name: "state/d", Typeflag: tar.TypeChar}, nil})
		}, "unknown type"},
		"a newer version": {func(l []entry) []entry {
			l[0].body = bytes.Replace(l[0].body, []byte(`"version":"`), []byte(`"version":"9.1.0+`), 1)
			return l
		}, "a downgrade is not supported"},
		"another format": {func(l []entry) []entry {
			l[0].body = bytes.Replace(l[0].body, []byte(`"v":1`), []byte(`"v":2`), 1)
			return l
		}, "format 2"},
		"other people":    {func(l []entry) []entry { at(l, "etc/operators.json").body = []byte("{}\n"); return l }, "digest mismatch"},
		"another archive": {func(l []entry) []entry { return l[1:] }, "want an archive of bailiwick-deploy backup"},
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		pack(t, m, "/home/bad.tar.gz", bad[name].spoil(entries(t, m, "/home/one.tar.gz")))
		if out, err := deployRoot(m, "restore", "/home/bad.tar.gz"); err == nil || !strings.Contains(out, bad[name].want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if now := listing(t, m, "/var/lib"); now != before {
			t.Errorf("%s: changed\n%s", name, now)
		}
	}
	// A backup of another installation is whole, and its operators are others.
	other := worked(t)
	if out, err := deployRoot(other, "backup", "/home/one.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pack(t, m, "/home/other.tar.gz", entries(t, other, "/home/one.tar.gz"))
	if out, err := deployRoot(m, "restore", "/home/other.tar.gz"); err == nil || !strings.Contains(out, "backup of another installation") {
		t.Errorf("%v\n%s", err, out)
	}
	pack(t, m, "/home/good.tar.gz", entries(t, m, "/home/one.tar.gz"))
	if out, err := deployRoot(m, "restore", "/home/good.tar.gz"); err != nil {
		t.Errorf("positive control: %v\n%s", err, out)
	}
}

// A backup or a restore that runs out of space says so and changes nothing; one while the
// service runs is refused.
//
// proves R-P8
func TestABackupInTroubleChangesNothing(t *testing.T) {
	m := worked(t)
	if out, err := deployRoot(m, "backup", "/home/one.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, args := range [][]string{{"backup", "/home/two.tar.gz"}, {"restore", "/home/one.tar.gz"}, {"upgrade"}} {
		stampOf(m, "0.0.1")
		before := listing(t, m, "/var/lib")
		unchanged := func(what string) {
			t.Helper()
			if now := listing(t, m, "/var/lib"); now != before {
				t.Errorf("%s %s: changed\n%s", args, what, now)
			}
		}
		argv := []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=ENOSPC:when=1", deployProgram}
		if out, err := m.Run(machine.Root, append(argv, args...)...); err == nil || !strings.Contains(out, "no space left on device") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		unchanged("on a full disk")
		lock, err := durable.Lock(m.Path("/var/lib/bailiwick/store/lock"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := deployRoot(m, args...); err == nil || !strings.Contains(out, "sudo systemctl stop bailiwick.service") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		unchanged("beside a service")
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		if out, err := m.Run(machine.Alice, append([]string{deployProgram}, args...)...); err == nil || !strings.Contains(out, "sudo") {
			t.Errorf("%s by alice: %v\n%s", args, err, out)
		}
		unchanged("by alice")
	}
	for _, path := range []string{"/home/two.tar.gz", "/home/two.tar.gz.part"} {
		if _, err := os.Lstat(m.Path(path)); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

func stampOf(m *machine.Machine, version string) {
	m.Write("/var/lib/bailiwick-launch/version", version+"\n", 0, 0, 0o644)
}

// An upgrade keeps a copy of the state, which restore brings back with the content that
// the copy shares; a downgrade is refused by name.
//
// proves R-P8
func TestAnUpgradeKeepsACopyAndADowngradeIsRefused(t *testing.T) {
	m := worked(t)
	stampOf(m, "9.0.0+abc")
	before := listing(t, m, "/var/lib")
	if out, err := deployRoot(m, "upgrade"); err == nil || !strings.Contains(out, "9.0.0+abc") || !strings.Contains(out, "a downgrade is not supported") {
		t.Errorf("%v\n%s", err, out)
	}
	if now := listing(t, m, "/var/lib"); now != before {
		t.Errorf("the refused downgrade changed\n%s", now)
	}
	for i, version := range []string{"0.0.1", "0.0.2", "0.0.3"} {
		stampOf(m, version)
		was := listing(t, m, "/var/lib/bailiwick")
		out, err := deployRoot(m, "upgrade")
		if err != nil || !strings.Contains(out, "this machine runs version 1.0.0+test") {
			t.Fatalf("%v\n%s", err, out)
		}
		if now := listing(t, m, "/var/lib/bailiwick"); now != was {
			t.Errorf("the upgrade changed the state:\n%s", now)
		}
		copies, err := os.ReadDir(m.Path("/var/lib/bailiwick-launch"))
		if err != nil || len(copies) != 2+min(i+1, 2) { // with identity and version
			t.Errorf("%d copies: %v, %v", i+1, copies, err)
		}
	}
	was := listing(t, m, "/var/lib/bailiwick")
	if out, err := m.Run(machine.Service, "sh", "-c", "echo migrated > /var/lib/bailiwick/store/state.db"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := deployRoot(m, "restore", "/var/lib/bailiwick-launch/before-1.0.0+test-from-0.0.3.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if now := listing(t, m, "/var/lib/bailiwick"); now != without(was, "./dispatches/d1/1/link ") {
		t.Errorf("restored\n%s\nwant\n%s", now, was)
	}
}

// A purge asks, removes all data and says what stays; people keep their keys, and the
// machine can be set up again.
//
// proves R-P8
func TestAPurgeRemovesAllData(t *testing.T) {
	m := worked(t)
	if out, err := deployRoot(m, "purge"); err == nil || !strings.Contains(out, "nothing was ") {
		t.Errorf("without a yes: %v\n%s", err, out)
	}
	wantSetUp(t, m)
	out, err := deployRoot(m, "purge", "--yes")
	if err != nil || !strings.Contains(out, "removes /etc/bailiwick") || !strings.Contains(out, "accounts bailiwick and bailiwick-web") {
		t.Fatalf("%v\n%s", err, out)
	}
	if left, _ := m.Run(machine.Root, "sh", "-c", "ls -d /etc/bailiwick* /var/lib/bailiwick*"); strings.Contains(left, "\n/") {
		t.Errorf("left: %s", left)
	}
	if _, err := os.Stat(m.Path("/home/alice/.config/bailiwick/deploy.key")); err != nil {
		t.Error(err)
	}
	if out, err := setup(m); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	wantSetUp(t, m)
}

// The scripts of a package make what setup needs, keep data at a removal and name it, and
// remove it at a purge; each may run twice.
//
// proves R-P8
func TestThePackageKeepsDataUntilAPurge(t *testing.T) {
	m := packaged(t)
	for _, name := range []string{"postinstall", "preremove", "postremove"} {
		b, err := os.ReadFile("../../../packaging/scripts/" + name)
		if err != nil {
			t.Fatal(err)
		}
		m.Write("/usr/local/bin/"+name, string(b), 0, 0, 0o755)
	}
	script := func(args ...string) string {
		t.Helper()
		args[0] = "/usr/local/bin/" + args[0]
		var last string
		for range 2 {
			out, err := m.Run(machine.Root, args...)
			if err != nil {
				t.Fatalf("%s: %v\n%s", args, err, out)
			}
			last += out
		}
		return last
	}
	script("postinstall", "configure", "")
	if out, err := setup(m); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before := listing(t, m, "/var/lib")
	script("preremove", "upgrade", "1.0.1")
	script("postremove", "upgrade", "1.0.1")
	script("postinstall", "configure", "1.0.0")
	script("preremove", "remove")
	if out := script("postremove", "remove"); !strings.Contains(out, "bailiwick: /etc/bailiwick stays") || !strings.Contains(out, "/var/lib/bailiwick-catalog stays") {
		t.Errorf("a removal says %q", out)
	}
	if now := listing(t, m, "/var/lib"); now != before {
		t.Errorf("a removal changed\n%s", now)
	}
	wantSetUp(t, m)
	if out := script("postremove", "purge"); !strings.Contains(out, "accounts bailiwick and bailiwick-web") {
		t.Errorf("a purge says %q", out)
	}
	if left, _ := m.Run(machine.Root, "sh", "-c", "ls -d /etc/bailiwick* /var/lib/bailiwick*"); strings.Contains(left, "\n/") || strings.HasPrefix(left, "/") {
		t.Errorf("a purge leaves %s", left)
	}
}

// Links that the service's account puts into its state lead root nowhere: neither into a
// backup, nor into a restored state, nor to a file that root would create.
//
// proves R-B9
func TestLinksInTheStateLeadRootNowhere(t *testing.T) {
	m := worked(t)
	m.Write("/etc/secret-of-root", "the secret of root\n", 0, 0, 0o600)
	if out, err := deployRoot(m, "backup", "/home/one.tar.gz"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	attack := func(script string) {
		t.Helper()
		if out, err := m.Run(machine.Service, "sh", "-c", "cd /var/lib/bailiwick && "+script); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	finds := func(path string) (all string) {
		for _, e := range entries(t, m, path) {
			all += string(e.body)
		}
		return all
	}
	attack("ln -s /etc/secret-of-root log/tile/1; ln -s /etc log/etc; rm high-water; ln -s /etc/secret-of-root high-water")
	if out, err := deployRoot(m, "backup", "/home/two.tar.gz"); err != nil || strings.Contains(finds("/home/two.tar.gz"), "the secret of root") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := deployRoot(m, "restore", "/home/one.tar.gz"); err == nil || !strings.Contains(out, "escapes") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := m.Run(machine.Service, "sh", "-c", "cat /var/lib/bailiwick/high-water /var/lib/bailiwick.restore/*/high-water"); strings.Contains(out, "the secret of root") {
		t.Errorf("the service's account reads %s", out)
	}
	attack("rm high-water; rm -r store; ln -s /etc store")
	if out, err := deployRoot(m, "backup", "/home/three.tar.gz"); err == nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Lstat(m.Path("/etc/lock")); err == nil {
		t.Error("root created a file where a link of the service's account leads")
	}
	// The control: without links a lock is made, in the state.
	attack("rm store")
	if out, err := deployRoot(m, "backup", "/home/four.tar.gz"); err != nil || !strings.Contains(finds("/home/four.tar.gz"), "tile one") {
		t.Errorf("positive control: %v\n%s", err, out)
	}
	if _, err := os.Lstat(m.Path("/var/lib/bailiwick/store/lock")); err != nil {
		t.Errorf("positive control: %v", err)
	}
}
