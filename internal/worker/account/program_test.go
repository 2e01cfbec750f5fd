package account

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// takeover system, worker: no read work
//
// proves R-S1, R-S2
func TestAProgramIsRootOnlyInItsBlock(t *testing.T) {
	b := block(t)
	text, code := run(t, Program{Block: &b, Env: []string{"A=b"}}, "say")
	if code != 0 {
		t.Fatal(text)
	}
	var f facts
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err, text)
	}
	if want := fmt.Sprintf("0 %d 3", b.First); strings.Join(strings.Fields(f.Map), " ") != want {
		t.Errorf("uid_map %q, want %q", f.Map, want)
	}
	if f.UID != 0 || f.GID != 0 || len(f.Groups) != 0 || f.Session != f.PID || !f.NoNewPrivs {
		t.Errorf("%+v", f)
	}
	if !reflect.DeepEqual(f.Env, []string{"A=b"}) {
		t.Errorf("environment %q", f.Env)
	}
	t.Log(f.Root, f.Descriptors)
}

// takeover system, worker: no read work
//
// proves R-S1
func TestADirectoryKeepsItsOwnerOnDisk(t *testing.T) {
	const service = 4242
	b := block(t)
	own, other := dir(t, service, "a", "mine"), dir(t, service, "a", "another's")
	view := "/run/view"
	mounts := []Mount{
		{At: own, From: opened(t, own), As: Self, Write: true},
		{At: view, From: opened(t, own), As: Agent},
	}
	text, code := run(t, Program{Block: &b, Mounts: mounts}, "write", own+"/new", own+"/a")
	if code != 0 {
		t.Fatal(text)
	}
	st, err := os.Stat(filepath.Join(own, "new"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := ownerOf(st); uid != service {
		t.Errorf("a new file is of uid %d on disk, want %d", uid, service)
	}
	for _, refused := range [][]string{{"write", view + "/new"}, {"write", "/new"}, {"read", other + "/a"}, {"write", "/usr/x"}} {
		if text, code := run(t, Program{Block: &b, Mounts: mounts}, refused[0], refused[1:]...); code == 0 {
			t.Errorf("%q: %s", refused, text)
		}
	}
}

// The units of systemd have the umask 077, and a program passes the directories above its own.
func TestAProgramReachesItsDirectoryUnderAnyUmask(t *testing.T) {
	const service = 4242
	b := block(t)
	own := dir(t, service, "a", "mine")
	defer unix.Umask(unix.Umask(0o077))
	if text, code := run(t, Program{Block: &b, Mounts: []Mount{{At: own, From: opened(t, own), As: Self}}}, "read", own+"/a"); code != 0 {
		t.Error(text)
	}
}

// Children of the caller that end with the thread that started them outlive the start of others: a thread that exits would
// end them.
func TestAPlainStartEndsNoOtherChild(t *testing.T) {
	for range 100 {
		child := exec.CommandContext(t.Context(), "/usr/bin/sleep", "1000")
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			p, err := Start(Program{Path: "/usr/bin/true"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		id, err := Identify(child.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		handle, err := id.Open()
		if err != nil {
			t.Fatal("it was ended")
		}
		_ = handle.Close()
		_ = child.Process.Kill()
		_ = child.Wait()
	}
}
