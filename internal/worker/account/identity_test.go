package account

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A recorded process is the one that runs with all of its identity: a number alone, which other processes get, leads to none.
//
// proves R-O6
func TestAnIdentityIsOneProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := id.Open()
	if err != nil {
		t.Fatalf("control: the process itself: %v", err)
	}
	defer handle.Close() //nolint:errcheck // of a test
	if exited, err := AwaitExit(handle, 0); exited || err != nil {
		t.Errorf("it runs: %v, %v", exited, err)
	}
	for name, change := range map[string]func(i *Identity){
		"started at another time": func(i *Identity) { i.Start++ },
		"of another boot":         func(i *Identity) { i.Boot = "x" },
		"another process":         func(i *Identity) { i.PID = os.Getpid() },
		"no process":              func(i *Identity) { i.PID = 1 << 29 },
	} {
		other := id
		change(&other)
		if h, err := other.Open(); !errors.Is(err, ErrExited) {
			t.Errorf("%s: %v, %v", name, h, err)
		}
	}
	waited := make(chan bool)
	go func() {
		exited, err := AwaitExit(handle, -1)
		waited <- exited && err == nil
	}()
	if err := KillSession(handle, id.PID); err != nil {
		t.Fatal(err)
	}
	if !<-waited {
		t.Error("a wait without a limit ended before the process")
	}
	if exited, err := AwaitExit(handle, time.Minute); !exited || err != nil {
		t.Errorf("killed: %v, %v", exited, err)
	}
	if _, err := id.Open(); !errors.Is(err, ErrExited) {
		t.Errorf("a process that was not waited for: %v", err)
	}
	_ = cmd.Wait()
	if _, err := id.Open(); !errors.Is(err, ErrExited) {
		t.Errorf("after its end: %v", err)
	}
	if err := KillSession(handle, id.PID); err != nil {
		t.Errorf("again: %v", err)
	}
}

// The number of a process that has exited stays that of its session while a process is in it.
//
// proves R-O6
func TestTheLeaderOfASessionHasExited(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sleep 1000 & echo $!; read end")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var left int
	if _, err := fmt.Fscanln(out, &left); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(left, syscall.SIGKILL) }()
	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := id.Open()
	if err != nil {
		t.Fatalf("control: while it runs: %v", err)
	}
	_ = handle.Close()
	_ = in.Close()
	_ = cmd.Wait()
	if err := syscall.Kill(-id.PID, 0); err != nil {
		t.Fatalf("control: its group has a process: %v", err)
	}
	if _, err := id.Open(); !errors.Is(err, ErrExited) {
		t.Errorf("its leader has exited: %v", err)
	}
}
