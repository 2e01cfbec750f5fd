//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func tContext() context.Context { return context.Background() }

// load runs one of the load programs in a jail of its own.
func load(t *testing.T, name string, l Limits) (string, Exit, *Jail) {
	t.Helper()
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}, Limits: l})
	var out bytes.Buffer
	exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, name}, Env: append(plainEnv(), "GOMAXPROCS=2"), Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	t.Log(strings.TrimSpace(out.String()), exit)
	return out.String(), exit, j
}

// usable shows that a jail survived what was done in it.
func usable(t *testing.T, j *Jail) {
	t.Helper()
	if out, exit := shell(t, j, "echo alive"); out != "alive\n" || exit.Code != 0 {
		t.Errorf("the jail did not survive: %q %+v", out, exit)
	}
}

// proves R-S2
func TestTheProcessLimitStopsAForkBomb(t *testing.T) {
	for _, name := range []string{"load fork bomb", "load endless forks"} {
		t.Run(name, func(t *testing.T) {
			_, exit, j := load(t, name, Limits{Processes: 60})
			// Without a control group the limit is noticed by looking now and then, so only a lasting bomb surely is.
			if !slices.Contains(exit.Hit, HitProcesses) && (j.groups.has(processGroup) || name == "load fork bomb") {
				t.Errorf("hit %v", exit.Hit)
			}
			usable(t, j)
		})
	}
}

// proves R-S2
func TestTheMemoryLimitStopsAMemoryBomb(t *testing.T) {
	_, exit, j := load(t, "load memory bomb", Limits{Memory: 512 << 20})
	if exit.Code == 0 && exit.Signal == 0 {
		t.Errorf("4 GiB were had under a limit of 512 MiB: %+v", exit)
	}
	if j.groups.has(memoryGroup) && !slices.Contains(exit.Hit, HitMemory) {
		t.Errorf("hit %v", exit.Hit)
	}
	usable(t, j)
}

// proves R-S2
func TestTheDiskLimitCoversAllWritableSpace(t *testing.T) {
	out, exit, j := load(t, "load disk filler", Limits{Disk: 64 << 20})
	if exit.Code != 10 || !strings.Contains(out, "no space left") || !slices.Contains(exit.Hit, HitDisk) {
		t.Errorf("%+v %s", exit, out)
	}
	usable(t, j)
}

// proves R-S2
func TestASparseTebibyteIsRefused(t *testing.T) {
	out, exit, _ := load(t, "load sparse file", Limits{})
	if exit.Code != 10 || !strings.Contains(out, "file too large") {
		t.Errorf("%+v %s", exit, out)
	}
}

// proves R-S2
func TestTheFileLimitBoundsInodesAndDepth(t *testing.T) {
	for _, name := range []string{"load many files", "load deep directories"} {
		t.Run(name, func(t *testing.T) {
			out, exit, j := load(t, name, Limits{Files: 2000})
			if exit.Code != 10 || !strings.Contains(out, "no space left") || !slices.Contains(exit.Hit, HitFiles) {
				t.Errorf("%+v %s", exit, out)
			}
			usable(t, j)
		})
	}
}

// proves R-S2
func TestDescriptorsAreBoundedAndNoHardLimitCanBeRaised(t *testing.T) {
	out, exit, _ := load(t, "load descriptors", Limits{OpenFiles: 100})
	if exit.Code != 10 || !strings.Contains(out, "too many open files") {
		t.Errorf("%+v %s", exit, out)
	}
	if out, exit, _ := load(t, "load own limits", Limits{}); exit.Code != 10 {
		t.Errorf("%+v %s", exit, out)
	}
}

// proves R-S2
func TestTheCPULimitSlowsDown(t *testing.T) {
	_, exit, j := load(t, "cpu", Limits{CPU: 0.2})
	if j.groups.has(cpuGroup) && exit.CPU > 600*time.Millisecond {
		t.Errorf("one second of work at a fifth of a core took %v of it", exit.CPU)
	}
}

// proves R-D9
func TestTheEnvironmentIsNotInherited(t *testing.T) {
	t.Setenv("BAILIWICK_TEST_SECRET", marker)
	j := mustStart(t, Spec{})
	var out bytes.Buffer
	if _, err := j.Run(t.Context(), Command{Argv: []string{"/usr/bin/env"}, Env: []string{"ONE=1"}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "ONE=1\n" {
		t.Errorf("environment %q", out.String())
	}
	if out, _ := shell(t, j, "cat /proc/*/environ"); strings.Contains(out, marker) {
		t.Error("a variable of the owner is readable inside")
	}
}

// notify closes once when word has been written.
type notify struct {
	word string
	once chan struct{}
	text []byte
}

func (n *notify) Write(p []byte) (int, error) {
	n.text = append(n.text, p...)
	if n.once != nil && strings.Contains(string(n.text), n.word) {
		close(n.once)
		n.once = nil
	}
	return len(p), nil
}

// proves R-S2
func TestACancelledCommandEndsEvenIfItIgnoresSIGTERM(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan struct{})
	out := &notify{word: "deaf", once: started}
	go func() { <-started; cancel() }()
	began := time.Now()
	exit, err := j.Run(ctx, Command{Argv: []string{"./" + attackName, attackName, "load deaf"}, Env: plainEnv(), Stdout: out, Grace: 200 * time.Millisecond})
	if !errors.Is(err, context.Canceled) || exit.Signal != syscall.SIGKILL {
		t.Errorf("%+v %v", exit, err)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	usable(t, j)
}

func TestACancelledCommandMayExitWithinItsGrace(t *testing.T) {
	j := mustStart(t, Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan struct{})
	out := &notify{word: "ready", once: started}
	go func() { <-started; cancel() }()
	exit, err := j.Run(ctx, Command{
		Argv: []string{"sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"}, Env: plainEnv(), Stdout: out, Grace: time.Minute,
	})
	if !errors.Is(err, context.Canceled) || exit.Code != 7 {
		t.Errorf("%+v %v", exit, err)
	}
}

// proves R-S2
func TestAJailWithoutACgroupIsPinnedToProcessors(t *testing.T) {
	processors := func(spec Spec) string {
		j := mustStart(t, spec)
		out, _ := shell(t, j, "nproc; taskset -p 3 $$ >/dev/null 2>&1; nproc")
		return strings.Join(strings.Fields(out), " ")
	}
	// The control: without a limit the jail has what the machine has.
	if got, all := processors(Spec{noCgroup: true}), strconv.Itoa(runtime.NumCPU()); got != all+" "+all {
		t.Errorf("without a limit: %s, want all %s", got, all)
	}
	if got := processors(Spec{noCgroup: true, Limits: Limits{CPU: 0.5}}); got != "1 1" {
		t.Errorf("with half a processor: %s, before and after trying to have more", got)
	}
}

// proves R-S2
func TestADaemonisedGrandchildDoesNotOutliveTheCommand(t *testing.T) {
	_, exit, j := load(t, "load daemon", Limits{})
	if exit.Code != 0 {
		t.Fatalf("%+v", exit)
	}
	out, _ := shell(t, j, "for p in /proc/[0-9]*; do cat $p/comm; done")
	if strings.Contains(out, "sleep") {
		t.Errorf("still there: %s", out)
	}
}

func TestHugeOutputAndUnreadInputDoNotBlock(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	var out bytes.Buffer
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }() // never written: a reader that never returns must not hold Run
	defer func() { _ = reader.Close() }()
	exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, "load output"}, Env: plainEnv(), Stdin: reader, Stdout: &out})
	if err != nil || exit.Code != 0 || out.Len() < 32<<20 {
		t.Errorf("%+v %v %d", exit, err, out.Len())
	}
	endless := io.MultiReader(strings.NewReader(strings.Repeat("y", 1<<20)), bytes.NewReader(make([]byte, 8<<20)))
	if exit, err := j.Run(t.Context(), Command{Argv: []string{"/bin/true"}, Stdin: endless}); err != nil || exit.Code != 0 {
		t.Errorf("%+v %v", exit, err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("reader is gone") }

func TestAFailingWriterIsReportedAndDoesNotBlockTheAgent(t *testing.T) {
	j := mustStart(t, Spec{Lower: []string{attackDir(t)}})
	exit, err := j.Run(t.Context(), Command{Argv: []string{"./" + attackName, attackName, "load output"}, Env: plainEnv(), Stdout: failing{}})
	if err == nil || !strings.Contains(err.Error(), "reader is gone") || exit.Code != 0 {
		t.Errorf("%+v %v", exit, err)
	}
}

// proves R-D4
func TestACommandEndsEvenIfPid1Hangs(t *testing.T) {
	j := mustStart(t, Spec{reapTime: 10 * time.Millisecond})
	if err := j.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	exit, err := j.Run(ctx, Command{Argv: []string{"sleep", "1000"}, Env: plainEnv(), Grace: 10 * time.Millisecond})
	if !errors.Is(err, ErrClosed) || exit.Signal != syscall.SIGKILL {
		t.Errorf("%+v %v", exit, err)
	}
}
