//go:build linux

package jail

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/uidblock"
)

// fingerprint is everything about a tree that a jail must not change.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintln(sum, path, st.Mode, st.Uid, st.Gid, st.Size, st.Mtim, st.Nlink)
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum.Write(text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// proves R-S2
func TestTheLowerDirectoriesAreMergedAndNeverChanged(t *testing.T) {
	for _, forced := range []bool{false, true} {
		t.Run("copy "+strconv.FormatBool(forced), func(t *testing.T) {
			top := lowerDir(t, map[string]string{"both": "top", "dir/top": "1", "replaced/file": "x", "private": "p"})
			bottom := lowerDir(t, map[string]string{"both": "bottom", "dir/bottom": "2", "deep/a/b/c": "3", "replaced": "a file below a directory"})
			if err := os.Chmod(filepath.Join(top, "private"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/etc/passwd", filepath.Join(bottom, "link")); err != nil {
				t.Fatal(err)
			}
			before := fingerprint(t, top) + fingerprint(t, bottom)
			j := mustStart(t, Spec{Lower: []string{top, bottom}, Copy: forced})
			want := "workspace: overlay"
			if forced {
				want = "workspace: copy"
			}
			if layers := strings.Join(j.Isolation().Layers, "\n"); !strings.Contains(layers, want) {
				t.Errorf("layers say %s", layers)
			}
			out, exit := shell(t, j, `set -e; cat both dir/top dir/bottom deep/a/b/c replaced/file private; echo; readlink link
				echo new > both; rm dir/bottom; mv dir/top moved; echo more >> deep/a/b/c; chmod 755 private; rm -r replaced; mkdir made; ln both hard
				rm link; ln -s /etc/shadow link; stat -c %u:%g:%a private deep`)
			if exit.Code != 0 || out != "top123xp\n/etc/passwd\n1000:1000:755\n1000:1000:755\n" {
				t.Errorf("%+v %q", exit, out)
			}
			if after := fingerprint(t, top) + fingerprint(t, bottom); after != before {
				t.Error("a lower directory was changed")
			}
			dir := int(j.Workspace().Fd())
			how := &unix.OpenHow{Flags: unix.O_RDONLY, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
			look := func(stage string) {
				fd, err := unix.Openat2(dir, "deep/a/b/c", how)
				if err != nil {
					t.Fatalf("%s: %v", stage, err)
				}
				buf := make([]byte, 16)
				n, _ := unix.Read(fd, buf)
				_ = unix.Close(fd)
				if string(buf[:n]) != "3more\n" {
					t.Errorf("%s: read %q", stage, buf[:n])
				}
				if _, err := unix.Openat2(dir, "link", how); !errors.Is(err, unix.ELOOP) {
					t.Errorf("%s: a hostile link opened with %v", stage, err)
				}
				names, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", dir))
				if err != nil || len(names) < 5 {
					t.Errorf("%s: %v %v", stage, names, err)
				}
			}
			look("after the command")
			if err := j.process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-j.ended
			look("after the last process")
		})
	}
}

func TestACopyRefusesSpecialFiles(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err := Start(t.Context(), Spec{Lower: []string{dir}, Copy: true}); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("%v %v", j, err)
	}
}

func TestCommonToolsRunInside(t *testing.T) {
	dir := lowerDir(t, map[string]string{
		"go.mod": "module example.test/x\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { println(\"built inside\") }\n",
	})
	j := mustStart(t, Spec{Lower: []string{dir}, ReadOnly: []string{"/usr/local/go"}})
	out, exit := shell(t, j, `set -e; go version; go run .; git init -q .; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; git log --oneline | wc -l; perl -e 'print "perl\n"'`)
	if exit.Code != 0 || !strings.Contains(out, "built inside\n1\nperl\n") {
		t.Errorf("%+v %s", exit, out)
	}
}

func TestReadOnlyPathsAreBoundReadOnlyInPlace(t *testing.T) {
	dir := lowerDir(t, map[string]string{"shown/file": "visible", "hidden": marker})
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	file := filepath.Join(dir, "shown")
	j := mustStart(t, Spec{ReadOnly: []string{file}})
	out, exit := shell(t, j, "cat "+file+"/file; ls "+dir+"; echo x > "+file+"/file")
	if exit.Code == 0 || !strings.HasPrefix(out, "visibleshown\n") || strings.Contains(out, "hidden") {
		t.Errorf("%+v %q", exit, out)
	}
}

func TestTwentyConcurrentJailsAreIsolated(t *testing.T) {
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			j, err := Start(t.Context(), Spec{})
			if err != nil {
				t.Error(err)
				return
			}
			defer func() {
				if err := j.Close(); err != nil {
					t.Error(err)
				}
			}()
			out, exit := shell(t, j, fmt.Sprintf("echo %d > mine; ls /workspace /tmp; cat mine; ls -d /proc/[0-9]* | wc -l", i))
			if exit.Code != 0 || !strings.HasPrefix(out, fmt.Sprintf("/tmp:\n\n/workspace:\nmine\n%d\n", i)) {
				t.Errorf("%+v %q", exit, out)
			}
		})
	}
	all.Wait()
}

// proves R-S1, R-S2
func TestAKilledOwnerLeavesNothingBehind(t *testing.T) {
	owner := exec.Command("/proc/self/exe", attackName, "owner of a jail")
	pipe, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(pipe)
	in.Scan()
	pid, err := strconv.Atoi(in.Text())
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for in.Scan() && in.Text() != "end" {
		groups = append(groups, in.Text())
	}
	init, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	poll := []unix.PollFd{{Fd: int32(init), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 5000); n != 1 {
		t.Fatalf("pid 1 of the jail outlived its owner by five seconds: %v", err)
	}
	for _, g := range groups {
		text, err := os.ReadFile(g + "/cgroup.procs")
		if err == nil && len(text) > 0 {
			t.Errorf("%s still has processes %s", g, text)
		}
		sweep(filepath.Dir(g)) // as every start does
		if _, err := os.Stat(g); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", g, err)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), "/workspace") {
		t.Errorf("a mount is left on the host: %v", err)
	}
}

func TestCloseRemovesGroupsAndIsIdempotent(t *testing.T) {
	j, err := Start(t.Context(), Spec{})
	if err != nil {
		t.Fatal(err)
	}
	dirs := j.groups.dirs
	for range 3 {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, d := range dirs {
		if _, err := os.Stat(d.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", d.path, err)
		}
	}
	if _, err := j.Run(t.Context(), Command{Argv: []string{"/bin/true"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("run in a closed jail: %v", err)
	}
}

// proves R-S1
func TestAMissingLayerIsAnErrorWithItsFix(t *testing.T) {
	cmd := exec.Command("/usr/bin/unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec /proc/self/fd/3 "+attackName+" 'start refused'")
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = self.Close() }()
	cmd.ExtraFiles = []*os.File{self}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 10 || !strings.Contains(string(out), "layer: user namespace fix: allow user namespaces") {
		t.Errorf("%v %s", err, out)
	}
}

// proves R-S1
func TestProbeReportsTheLayersOfThisMachine(t *testing.T) {
	report := Probe(t.Context())
	if !report.Full || len(report.Layers) < 10 {
		t.Errorf("%+v", report)
	}
	if r := refused(&MissingError{Layer: "landlock", Detail: "d", Fix: "f"}); r.Full || r.Layers[0].Fix != "f" {
		t.Errorf("%+v", r)
	}
}

// proves R-S2
func TestJailsOfRootHaveSeparateHostUids(t *testing.T) {
	if !realRoot() {
		return // an ordinary user has one uid to give, a block three
	}
	seen := map[uint32]bool{}
	for range 3 {
		j := mustStart(t, Spec{})
		var pid1 unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/root", j.process.Pid), &pid1); err != nil {
			t.Fatal(err)
		}
		if _, exit := shell(t, j, "touch mine"); exit.Code != 0 {
			t.Fatal(exit)
		}
		var mine unix.Stat_t
		if err := unix.Fstatat(int(j.Workspace().Fd()), "mine", &mine, 0); err != nil {
			t.Fatal(err)
		}
		if mine.Uid < firstID || mine.Uid == pid1.Uid || seen[mine.Uid] {
			t.Errorf("agent %d, pid 1 %d, seen %v", mine.Uid, pid1.Uid, seen)
		}
		seen[mine.Uid] = true
	}
}

// proves R-S1, R-S2
func TestAJailInABlockHasItsOtherUids(t *testing.T) {
	if !uidblock.Inside() {
		return // TestAllTestsPassInABlock runs it there
	}
	j := mustStart(t, Spec{Lower: []string{lowerDir(t, map[string]string{"a": "text"})}})
	var pid1, mine, lower unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/root", j.process.Pid), &pid1); err != nil {
		t.Fatal(err)
	}
	if out, exit := shell(t, j, "touch mine && echo more >>a && cat a"); exit.Code != 0 || out != "textmore\n" {
		t.Fatal(out, exit)
	}
	at := int(j.Workspace().Fd())
	if err := errors.Join(unix.Fstatat(at, "mine", &mine, 0), unix.Fstatat(at, "a", &lower, 0)); err != nil {
		t.Fatal(err)
	}
	t.Log("limits: ", strings.Join(j.Isolation().Limits, "; "))
	for _, limit := range j.Isolation().Limits {
		if what, by, _ := strings.Cut(limit, ": "); (what == "memory" || what == "processes") && len(hierarchies()) > 0 && !strings.HasPrefix(by, "cgroup ") {
			t.Errorf("limit %s is held by %s", what, by)
		}
	}
	if own := j.Isolation().Layers[0]; os.Geteuid() != 0 || pid1.Uid != 1 || mine.Uid != 2 || lower.Uid != 2 || !strings.Contains(own, "separate host uids") {
		t.Errorf("worker %d, pid 1 %d, agent %d, its lower files %d: %s", os.Geteuid(), pid1.Uid, mine.Uid, lower.Uid, own)
	}
}

// proves R-S2
func TestLimitsApplyPerProcessWithoutControlGroups(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}, Limits: Limits{Memory: 512 << 20, Processes: 60}, noCgroup: true})
	if limits := strings.Join(j.Isolation().Limits, "\n"); !strings.Contains(limits, "memory: watchdog") {
		t.Errorf("limits say %s", limits)
	}
	for _, name := range []string{"load memory bomb", "load fork bomb"} {
		exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, name}, Env: plainEnv()})
		if err != nil || exit.Code == 0 && exit.Signal == 0 {
			t.Errorf("%s: %+v %v", name, exit, err)
		}
		usable(t, j)
	}
}

func TestACommandThatCannotStartIsAnError(t *testing.T) {
	j := mustStart(t, Spec{})
	for _, c := range []Command{
		{},
		{Argv: []string{"no-such-program"}, Env: plainEnv()},
		{Argv: []string{"/etc/passwd"}},
		{Argv: []string{"/bin/true"}, Dir: "/nowhere"},
		{Argv: []string{"/bin/true"}, Dir: "relative"},
		{Argv: []string{"a\x00b"}},
	} {
		if exit, err := j.Run(t.Context(), c); err == nil {
			t.Errorf("%q in %q: %+v", c.Argv, c.Dir, exit)
		}
	}
	usable(t, j)
	for _, s := range []Spec{{Lower: []string{"relative"}}, {Lower: []string{"/nowhere/at/all"}}, {ReadOnly: []string{"/proc/1"}}, {ReadOnly: []string{"/"}}, {Limits: Limits{Memory: 1}}, {Limits: Limits{CPU: -1}}} {
		if j, err := Start(t.Context(), s); err == nil {
			_ = j.Close()
			t.Errorf("%+v started", s)
		}
	}
}

func TestASignalThatEndsTheCommandIsReported(t *testing.T) {
	j := mustStart(t, Spec{})
	if _, exit := shell(t, j, "kill -SEGV $$"); exit.Signal != syscall.SIGSEGV || exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
}
