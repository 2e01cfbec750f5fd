package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

// After a failed sync the kernel may have dropped the pages. The caller gets
// ErrUncertain, and no later call succeeds, although the next sync would.
//
// proves R-A2 (no degraded mode)
func TestAFailedSyncPoisonsAndIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"fsync", "write"} {
		_, dir := closedState(t)
		out, err := helper(t, "fault", dir, fault).Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", fault, err, out)
		}
		if !strings.Contains(string(out), "as it should be") {
			t.Errorf("%s: %s", fault, out)
		}
		s, err := Open(t.Context(), config(dir))
		if err != nil {
			t.Fatalf("%s: open after the fault: %v", fault, err)
		}
		if got := values(t, s); got != "before" && got != "before uncertain" {
			t.Errorf("%s: stored: %q", fault, got)
		}
		if err := s.Update(t.Context(), insert("after")); err != nil {
			t.Errorf("%s: after a restart: %v", fault, err)
		}
		_ = s.Close()
	}
}

// proves R-A2 (acknowledged means durable), after a kill
func TestAKillLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	_, dir := closedState(t)
	acknowledged := 0
	for round := range 10 {
		cmd := helper(t, "write", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 5+37*round && lines.Scan(); n++ {
			acknowledged++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			acknowledged++
		}
		_ = cmd.Wait()
	}
	s, err := Open(t.Context(), config(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if n := len(strings.Fields(values(t, s))); n < acknowledged || n > acknowledged+10*4 {
		t.Errorf("%d rows for %d acknowledgements", n, acknowledged)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func closedState(t *testing.T) (*Store, string) {
	t.Helper()
	s, dir := create(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// TestHelper is the child process of the tests above.
func TestHelper(t *testing.T) {
	args := strings.Split(os.Getenv("STORE_TEST_HELPER"), "\n")
	switch args[0] {
	case "":
		return
	case "cut":
		helpCut(t, args[1:])
		return
	}
	s, err := Open(t.Context(), config(args[1]))
	if err != nil {
		t.Fatal(err)
	}
	switch args[0] {
	case "own":
		fmt.Println("mine")
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = s.Close()
	case "write":
		for i := range 4 {
			go func() {
				for s.Update(context.Background(), insert(strconv.Itoa(i))) == nil {
					_, _ = os.Stdout.WriteString("ok\n")
				}
			}()
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		select {}
	case "fault":
		if err := s.Update(t.Context(), insert("before")); err != nil {
			t.Fatal(err)
		}
		if err := faultdisk.Refuse(args[2]); err != nil {
			t.Fatal(err)
		}
		err := s.Update(t.Context(), insert("uncertain"))
		if !errors.Is(err, ErrUncertain) || !errors.Is(err, ErrPoisoned) {
			t.Errorf("the failed commit: %v", err)
		}
		if err := s.Update(t.Context(), insert("refused")); !errors.Is(err, ErrPoisoned) || errors.Is(err, ErrUncertain) {
			t.Errorf("after it: %v", err)
		}
		if err := s.Read(t.Context(), func(*View) error { return nil }); !errors.Is(err, ErrPoisoned) {
			t.Errorf("reading after it: %v", err)
		}
		if !t.Failed() {
			fmt.Println("as it should be")
		}
		os.Exit(map[bool]int{true: 1}[t.Failed()]) // without a clean close
	}
}
