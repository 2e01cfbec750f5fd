//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// proves R-S2
func TestNoMemoryIsTakenBeyondTheLimit(t *testing.T) {
	for _, way := range []struct {
		name string
		spec Spec
	}{{"control groups", Spec{}}, {"no control group", Spec{noCgroup: true}}} {
		if way.name == "control groups" && os.Geteuid() != 0 {
			continue // an ordinary user has none here
		}
		spec := way.spec
		spec.Lower, spec.Limits = []string{attackDir(t)}, Limits{Memory: takeLimit}
		for _, name := range slices.Sorted(maps.Keys(takeAttacks())) {
			if name == "take a little" {
				continue // a part of another
			}
			if name == takeHuge && (way.name == "control groups" || !hugePages()) {
				continue // the kernel splits them when the group has reached its limit
			}
			t.Run(way.name+"/"+name, func(t *testing.T) {
				j := mustStart(t, spec)
				var out bytes.Buffer
				exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, name}, Env: append(plainEnv(), "GOMAXPROCS=2"), Stdout: &out, Stderr: &out})
				// The kernel may choose pid 1 where the memory belongs to no process.
				closed := errors.Is(err, ErrClosed) && slices.Contains(exit.Hit, HitMemory)
				if err != nil && !closed || exit.Code == 0 && exit.Signal == 0 {
					t.Errorf("%d MiB under a limit of %d: %+v %v %s", takeBytes>>20, takeLimit>>20, exit, err, out.String())
				}
				if exit.Why != "" && !slices.Contains(exit.Hit, HitMemory) {
					t.Errorf("ended for %q without a limit: %+v", exit.Why, exit)
				}
				t.Log(strings.TrimSpace(out.String()), exit)
				if !closed && name != "take files" && name != "take names of files" { // they are still there
					usable(t, j)
				}
				if way.name != "control groups" && realRoot() {
					control(t, name, "{}")
				}
			})
		}
	}
}

// hugePages reports whether the machine gives transparent huge pages.
func hugePages() bool {
	text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !strings.Contains(string(text), "[never]")
}

// keeping runs an attack that keeps what it took, until the test ends, and returns what it said.
func keeping(t *testing.T, spec Spec, name string) (said func() string) {
	t.Helper()
	spec.Lower = []string{attackDir(t)}
	j := mustStart(t, spec)
	ctx, cancel := context.WithCancel(t.Context())
	kept, ended := make(chan struct{}), make(chan struct{})
	out := &notify{word: "kept", once: kept}
	go func() {
		defer close(ended)
		_, _ = j.Run(ctx, Command{Argv: []string{"./" + attackName, attackName, name}, Env: plainEnv(), Stdout: out})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-kept:
	case <-ended:
		t.Fatalf("%s ended: %s", name, out.text)
	case <-time.After(time.Minute):
		t.Fatalf("%s keeps nothing: %s", name, out.text)
	}
	return func() string { return string(out.text) }
}

// proves R-S2
func TestInotifyInstancesOfAnAccountAreNotTaken(t *testing.T) {
	said := keeping(t, Spec{}, "keep inotify instances")()
	if !strings.HasPrefix(said, "took 16 ") {
		t.Errorf("%s, want 16", said)
	}
	cmd := exec.Command("/proc/self/exe", attackName, "keep inotify instances")
	out := &notify{word: "kept", once: make(chan struct{})}
	kept := out.once
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-kept
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// The account has 128 by default, and the test and others may use some.
	if strings.HasPrefix(string(out.text), "took 0 ") || strings.HasPrefix(string(out.text), "took 16 ") {
		t.Errorf("outside, beside the jail: %s", out.text)
	}
}

// proves R-S2
func TestDescriptorsInFlightKeepNoJailFromStarting(t *testing.T) {
	said := keeping(t, Spec{}, "keep descriptors in flight")()
	if !strings.Contains(said, "too many references") {
		t.Fatalf("the attack did not reach the limit: %s", said)
	}
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	usable(t, j)
}

// proves R-S2
func TestACancelIsInTimeUnderLoad(t *testing.T) {
	for name, spec := range map[string]Spec{"all processors": {}, "a part of one": {Limits: Limits{CPU: 0.1}}, "no control group": {noCgroup: true, Limits: Limits{CPU: 1}}} {
		t.Run(name, func(t *testing.T) {
			spec.Lower = []string{attackDir(t)}
			j := mustStart(t, spec)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			kept := make(chan struct{})
			out := &notify{word: "kept", once: kept}
			var cancelled time.Time
			go func() {
				<-kept
				<-time.After(time.Second) // of load
				cancelled = time.Now()
				cancel()
			}()
			_, err := j.Run(ctx, Command{Argv: []string{"./" + attackName, attackName, "keep processors busy"}, Env: plainEnv(), Stdout: out, Grace: 100 * time.Millisecond})
			took := time.Since(cancelled)
			t.Log(took, err)
			if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed) || took > 5*time.Second {
				t.Errorf("a cancel took %v: %v", took, err)
			}
		})
	}
}
