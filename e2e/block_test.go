package e2e

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// underBlock is an attempt whose worker runs under a uid block, as root starts it for a service of another account.
type underBlock struct {
	w       *world
	dir     string
	scratch string
	block   account.Block
	group   *account.Group
	process *account.Process
	conn    net.Conn
}

// startUnderBlock starts a worker for a manifest that the service of w signed. Everything in the directory is the service's.
func startUnderBlock(t *testing.T, w *world, n int, manifest []byte, id api.DispatchID) *underBlock {
	t.Helper()
	u := &underBlock{w: w, dir: w.path("blocks", strconv.Itoa(n), string(id), "1"), block: account.Block{First: 0x58000000 + os.Getpid()%0x10000*0x100 + 3*n}}
	for _, d := range []string{"blocks", "blocks/" + strconv.Itoa(n), "blocks/" + strconv.Itoa(n) + "/" + string(id), "blocks/" + strconv.Itoa(n) + "/" + string(id) + "/1"} {
		w.mkdir(d)
	}
	must(t, os.Chmod(u.dir, 0o700))
	for name, content := range map[string][]byte{record.WorkManifest: manifest, record.WorkInput: []byte("{}"), record.WorkErrors: nil} {
		must(t, errors.Join(os.WriteFile(filepath.Join(u.dir, name), content, 0o600), os.Chown(filepath.Join(u.dir, name), w.uid, w.uid)))
	}
	output, err := os.OpenFile(filepath.Join(u.dir, record.WorkErrors), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer output.Close()
	at, err := os.Open(u.dir)
	must(t, err)
	defer at.Close()
	through := "/proc/self/fd/" + strconv.Itoa(int(at.Fd())) + "/" + record.WorkSocket
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "unix", through)
	must(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, os.Chown(through, w.uid, w.uid))
	socket, err := listener.(*net.UnixListener).File()
	must(t, err)
	must(t, listener.Close())
	defer socket.Close()
	secrets, to, err := os.Pipe()
	must(t, err)
	_, err = to.WriteString("{}")
	must(t, errors.Join(err, to.Close()))
	defer secrets.Close()
	began, err := os.CreateTemp(t.TempDir(), "began") // the launcher's
	must(t, err)
	defer began.Close()

	groups, err := account.OpenGroups("bailiwick-e2e-" + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(n))
	must(t, err)
	u.group, err = groups.Create(string(id)+".1", u.block, account.Limits{Processes: 2000})
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(u.group.Kill(), u.block.Kill(), u.group.Remove(), groups.Remove()); err != nil {
			t.Error(err)
		}
	})
	dirs := api.DirsFrom(w.getenv, w.uid)
	mounts, err := account.Open(w.uid, account.WorkerPaths(dirs, u.dir, at, w.path("repo"), nil))
	must(t, err)
	u.scratch = filepath.Join(t.TempDir(), "scratch")
	scratch, err := account.Scratch(u.scratch, u.block)
	must(t, err)
	mounts = append(mounts, scratch...)
	u.process, err = account.Start(account.Program{
		Path: filepath.Join(bin, "bailiwick-worker"), Args: []string{"--attempt", u.dir, "--manifest", string(api.DigestOf(manifest)), "--scratch", mounttree.Scratch}, Env: w.env,
		File: []*os.File{nil, output, output, socket, secrets, began}, Block: &u.block, Group: u.group, Mounts: mounts,
	})
	must(t, errors.Join(err, mounts.Close()))
	t.Cleanup(func() { _ = u.process.Close() })
	u.conn, err = net.Dial("unix", through)
	must(t, err)
	t.Cleanup(func() { _ = u.conn.Close() })
	return u
}

func (w *world) getenv(name string) string {
	for _, e := range w.env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// proceed tells the worker that its start is durable, and returns its events.
func (u *underBlock) proceed() *bufio.Scanner {
	_, err := u.conn.Write([]byte(`{"proceed":true}` + "\n"))
	must(u.w.t, err)
	lines := bufio.NewScanner(u.conn)
	lines.Buffer(nil, record.MaxWorkLine)
	return lines
}

// result waits for the exit and reads the result.
func (u *underBlock) result() record.Result {
	t := u.w.t
	t.Helper()
	_, err := u.process.Wait()
	must(t, err)
	sealed, err := os.ReadFile(filepath.Join(u.dir, record.WorkResult))
	if err != nil {
		out, _ := os.ReadFile(filepath.Join(u.dir, record.WorkErrors))
		t.Fatalf("no result: %v\n%s", err, out)
	}
	payload, err := seal.Payload(sealed, seal.Result)
	must(t, err)
	var r record.Result
	must(t, canon.Decode(payload, &r))
	return r
}

// asService runs a command as the service's account, without any right of root.
func (u *underBlock) asService(name string, args ...string) string {
	u.w.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.w.uid), Gid: uint32(u.w.uid)}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.w.t.Errorf("%s %q as the service: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// A worker under a uid block does a whole attempt: everything that it leaves is the service's, which removes it without root.
//
// proves R-S1, R-D2, R-D5
func TestAWorkerRunsUnderABlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ordinaryUID)
	w.repository("repo", map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
	w.catalog(
		subagent{name: "edit", script: `
set -e
test "$(id -u)" = 1000
printf 'ONE\n' > a.txt
mkdir private && echo hidden > private/c.txt && chmod 000 private/c.txt dir/b.txt && chmod 111 private
mkdir -p outputs && echo result > outputs/r.txt && chmod 000 outputs/r.txt`, more: "    verify: {command: [grep, -q, ONE, a.txt]}\n"},
		subagent{name: "wait", script: "echo begun; sleep 1000"},
	)
	w.up()
	manifests := map[string][]byte{}
	ids := map[string]api.DispatchID{}
	for _, name := range []string{"edit", "wait"} {
		id := api.DispatchID(w.detached(name, "--source", "repo"))
		if name == "edit" {
			w.awaitEnd(string(id))
		} else {
			w.awaitLog(string(id), "begun")
			w.must("dispatch", "cancel", string(id))
			w.awaitEnd(string(id))
		}
		var err error
		ids[name] = id
		manifests[name], err = os.ReadFile(w.path("state/bailiwick/blobs/blobs/sha256", w.show(string(id)).Manifest.Hex()))
		must(t, err)
	}
	u := startUnderBlock(t, w, 1, manifests["edit"], ids["edit"])
	for lines := u.proceed(); lines.Scan(); {
	}
	r := u.result()
	if r.Outcome != api.EventFinished || r.Summary.Verify == nil || !r.Summary.Verify.Passed || r.Summary.Patch == nil {
		t.Fatalf("%s %s %s: %+v", r.Outcome, r.Reason, r.Message, r.Summary)
	}
	layers := strings.Join(r.Summary.Isolation.Layers, "\n")
	if !strings.Contains(layers, "separate host uids, of the worker's own block") || !strings.Contains(layers, "workspace: overlay") {
		t.Errorf("layers:\n%s", layers)
	}
	patch, err := os.ReadFile(filepath.Join(u.dir, record.WorkOut, r.Summary.Patch.Digest.Hex()))
	must(t, err)
	for _, want := range []string{"+ONE", "private/c.txt", "+hidden"} {
		if !strings.Contains(string(patch), want) {
			t.Errorf("the patch lacks %q:\n%s", want, patch)
		}
	}
	u.wantService()
	u.asService("rm", "-r", u.dir)

	// Without what the service prepared, the worker makes its own, and adds nothing to what others use.
	must(t, os.RemoveAll(w.path("state/bailiwick/checkouts")))
	w.mkdir("state/bailiwick/checkouts")
	u = startUnderBlock(t, w, 2, manifests["wait"], ids["wait"])
	for lines := u.proceed(); lines.Scan() && !strings.Contains(lines.Text(), `"log"`); {
	}
	if pids, err := u.block.Processes(); err != nil || len(pids) < 3 {
		t.Errorf("worker, pid 1 of its jail and its agent: processes %v, %v", pids, err)
	}
	if list, err := os.ReadDir(filepath.Join(u.scratch, "checkouts")); err != nil || len(list) == 0 {
		t.Errorf("the worker's own checkouts: %v, %v", list, err)
	}
	if list, err := os.ReadDir(w.path("state/bailiwick/checkouts")); err != nil || len(list) > 0 {
		t.Errorf("the shared checkouts: %v, %v", list, err)
	}
	must(t, errors.Join(u.group.Kill(), u.block.Kill()))
	_, err = u.process.Wait()
	must(t, err)
	u.wantService()
	u.asService("rm", "-r", u.dir)
}

// wantService fails the test if something in the attempt's directory is of another account than the service's.
func (u *underBlock) wantService() {
	t := u.w.t
	t.Helper()
	must(t, filepath.WalkDir(u.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if int(st.Uid) != u.w.uid || int(st.Gid) != u.w.uid {
			t.Errorf("%s belongs to uid %d, gid %d", path, st.Uid, st.Gid)
		}
		return nil
	}))
}
