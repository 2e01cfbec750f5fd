package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
)

// undisturbed returns a trial after one undisturbed dispatch, with its story
// and the whole log.
func undisturbed(t *testing.T) (*trial, *story, []entry) {
	t.Helper()
	k := newTrial(t, 0, *seedFlag)
	k.up(func() {})
	j := &job{id: k.id("d", "good"), kind: kinds()[0]}
	k.run(j, 0)
	must(t, j.err)
	hits, _ := k.hits(0)
	log := k.log(-1)
	s := k.story(j, log, hits, nil, nil)
	if bad := slices.Concat(s.wrong(), gaps(log)); len(bad) > 0 {
		t.Fatalf("an undisturbed dispatch: %q", bad)
	}
	return k, s, log
}

// The positive control of the kill harness: its checks report each single fault
// planted in a good story.
func TestKillChecksDetectPlantedFaults(t *testing.T) {
	t.Parallel()
	_, genuine, log := undisturbed(t)
	find := func(s *story, kind string) *entry {
		for i := range s.entries {
			if s.entries[i].Kind == kind {
				return &s.entries[i]
			}
		}
		t.Fatalf("no %s in %+v", kind, s.entries)
		return nil
	}
	without := func(s *story, name failpoint.Name) {
		s.hits = slices.DeleteFunc(s.hits, func(h hit) bool { return h.name == name })
	}
	// refuse adds a refused request in front of the end.
	refuse := func(s *story, number int64) {
		e := entry{Kind: "egress.refused", Attempt: 1}
		e.Detail.Number = number
		s.entries = slices.Insert(s.entries, 2, e)
	}
	for name, c := range map[string]struct {
		plant func(s *story)
		want  string
	}{
		"no record":         {func(s *story) { s.record = nil }, "LOST: it was accepted"},
		"no accepted entry": {func(s *story) { find(s, "dispatch.accepted").Kind = "x" }, "accepted 0 times"},
		"accepted twice":    {func(s *story) { s.entries = append(s.entries, *find(s, "dispatch.accepted")) }, "accepted 2 times"},
		"started twice":     {func(s *story) { s.entries = append(s.entries, *find(s, "dispatch.started")) }, "was started 2 times"},
		"ended twice":       {func(s *story) { s.entries = append(s.entries, *find(s, "dispatch.finished")) }, "ended 2 times"},
		"never ended":       {func(s *story) { find(s, "dispatch.finished").Kind = "x" }, "ended 0 times"},
		"agent ran twice": {func(s *story) {
			s.hits = append(s.hits, s.hits[slices.IndexFunc(s.hits, func(h hit) bool { return h.name == failpoint.WorkerAgent })])
		}, "agent of attempt 1 was started 2 times"},
		"lost and not killed": {func(s *story) {
			find(s, "dispatch.finished").Kind = "dispatch.failed"
			find(s, "dispatch.failed").Detail.Reason = "lost"
		}, "UNTRUE: attempt 1 ended with failed lost"},
		"finished without an agent": {func(s *story) { without(s, failpoint.WorkerAgent) }, "its agent was never started"},
		"finished and never sealed": {func(s *story) { without(s, failpoint.WorkerResultPlaced) }, "UNTRUE: attempt 1 ended with finished"},
		"killed before it sealed": {func(s *story) {
			without(s, failpoint.WorkerResultPlaced)
			s.killed = map[int]bool{s.did(1, failpoint.WorkerBegin)[0]: true}
		}, "it must be one of [failed lost]"},
		"record contradicts the log": {func(s *story) { s.record.State, s.record.Reason = api.EventFailed, api.ReasonAgent }, "UNTRUE: its record says"},
		"different patch":            {func(s *story) { s.patch[3] ^= 1 }, "LOST: its patch has the digest"},
		"no patch":                   {func(s *story) { s.record.Outcome.Patch = nil }, "LOST: it has no patch"},
		"patch does not apply":       {func(s *story) { s.applied = "error" }, "UNTRUE: its patch: error"},
		"different patch in the log": {func(s *story) { find(s, "dispatch.finished").Refs["patch"] = api.DigestOf(nil) }, "UNTRUE: the record has the patch"},
		"no result in the log":       {func(s *story) { delete(find(s, "dispatch.finished").Refs, "result") }, "UNTRUE: the record has the result"},
		"half of the log":            {func(s *story) { s.log = "begun\n" }, "LOST: its log is"},
		"cancelled without a caller": {func(s *story) { s.record.State = api.EventCancelled }, "UNTRUE: cancelled without a caller"},
		"refused request twice":      {func(s *story) { s.kind.calls = 2; refuse(s, 1); refuse(s, 1) }, "DOUBLED: the log has the refused requests [1 1]"},
		"refused request lost":       {func(s *story) { s.kind.calls = 3; refuse(s, 1); refuse(s, 3) }, "LOST: the log has the refused requests [1 3]"},
		"refused after the end": {func(s *story) {
			s.kind.calls = 1
			refuse(s, 1)
			e := s.entries[2]
			s.entries = append(slices.Delete(s.entries, 2, 3), e)
		}, "UNTRUE: request 1 of attempt 1 was refused after its end"},
		"sealed result not collected": {func(s *story) { s.record.Result = "" }, "LOST: its worker sealed a result"},
	} {
		record, outcome := *genuine.record, *genuine.record.Outcome
		record.Outcome = &outcome
		s := *genuine
		s.record, s.patch, s.hits, s.entries = &record, slices.Clone(s.patch), slices.Clone(s.hits), slices.Clone(s.entries)
		for i := range s.entries {
			s.entries[i].Refs = maps.Clone(s.entries[i].Refs)
		}
		c.plant(&s)
		if bad := strings.Join(s.wrong(), "\n"); !strings.Contains(bad, c.want) {
			t.Errorf("%s: the check says %q, want %q", name, bad, c.want)
		}
	}
	if len(gaps(slices.Delete(slices.Clone(log), 2, 3))) == 0 || len(gaps(log[1:])) == 0 {
		t.Error("a missing entry is not reported")
	}
	other := slices.Clone(log)
	other[1].leaf += " "
	if len(changed(log, other)) == 0 || len(changed(log, log[:len(log)-1])) == 0 || len(changed(log, log)) != 0 {
		t.Error("a changed or truncated log is not reported")
	}
	if bad := genuine.wrong(); len(bad) > 0 {
		t.Errorf("faults planted in copies changed the story itself: %q", bad)
	}
}

// The positive control of the leftover check: it finds each planted leftover.
func TestLeftoverSearchFindsPlantedLeftovers(t *testing.T) {
	t.Parallel()
	k, s, _ := undisturbed(t)
	hits, _ := k.hits(0)
	clean := func(what string) {
		t.Helper()
		if left := settled(func() []string { return k.remains(hits) }); len(left) > 0 {
			t.Fatalf("%s: left behind: %q", what, left)
		}
	}
	clean("at first")
	found := func(what, want string) {
		t.Helper()
		if left := strings.Join(k.remains(hits), "\n"); !strings.Contains(left, want) {
			t.Errorf("%s is not found: %q", what, left)
		}
	}
	for what, cmd := range map[string]*exec.Cmd{
		"a process that names the world":       exec.Command("sleep", "300"),
		"a process of a dispatch of the world": exec.Command("sleep", "300"),
	} {
		cmd.Env = []string{"BAILIWICK_DISPATCH=" + s.id}
		if strings.Contains(what, "names") {
			cmd.Env = []string{"HOME=" + k.path("home")}
		}
		must(t, cmd.Start())
		found(what, fmt.Sprintf("process %d", cmd.Process.Pid))
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		clean(what)
	}
	group := ""
	for _, h := range hits {
		if h.name == failpoint.JailGroup {
			group = h.subject
		}
	}
	if group != "" && os.Mkdir(group, 0o755) == nil {
		lock := lockedGroup(t, group)
		found("a control group", "control group "+group)
		must(t, os.Remove(group))
		must(t, lock.Close())
	}
	for _, name := range []string{"tmp/x", "state/bailiwick/dispatches/x", "state/bailiwick/blobs/ingest/x.part", "state/bailiwick/scratch/x", "state/bailiwick/x", "state/bailiwick/store/x", "state/bailiwick/blobs/x"} {
		k.write(name, "", 0o644)
		found(name, "file")
		must(t, os.Remove(k.path(name)))
	}
	k.mkdir("state/bailiwick/dispatches/at")
	must(t, syscall.Mount("tmpfs", k.path("state/bailiwick/dispatches/at"), "tmpfs", 0, ""))
	found("a mount", "mount ")
	must(t, syscall.Unmount(k.path("state/bailiwick/dispatches/at"), 0))
	must(t, os.Remove(k.path("state/bailiwick/dispatches/at")))
	clean("at last")
}

// lockedGroup creates a control group and returns it locked. Without the lock
// the jails of parallel tests would remove the group as a leftover; one that
// they removed before it was locked is created again.
func lockedGroup(t *testing.T, group string) *os.File {
	t.Helper()
	for range 100 {
		if err := os.Mkdir(group, 0o755); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		f, err := os.Open(group)
		if err != nil {
			continue
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			locked, err := f.Stat()
			must(t, err)
			if there, err := os.Stat(group); err == nil && os.SameFile(locked, there) {
				return f
			}
		}
		must(t, f.Close())
	}
	t.Fatalf("control group %s: removed by other jails each time", group)
	return nil
}

// After a kill during the very first start the next service starts normally.
//
// proves R-O6
func TestKilledFirstStartIsRetried(t *testing.T) {
	t.Parallel()
	k := newTrial(t, 0, *seedFlag)
	kills := map[failpoint.Name]int{}
	for _, name := range []failpoint.Name{
		failpoint.JailGroup, failpoint.JailGrouped, failpoint.JailLaunched, failpoint.JailClosed, failpoint.BlobWritten, failpoint.BlobPlaced,
		failpoint.StoreCommit, failpoint.StoreCommitted, failpoint.RecoverBegin, failpoint.ServiceOpened, failpoint.ServiceListening,
	} {
		for n := 1; ; n++ {
			for _, old := range []string{"state/bailiwick", "disk", "anchors.git"} { // a new log needs its own anchors
				must(t, os.RemoveAll(k.path(old)))
			}
			k.configure("")
			_, from := k.hits(0)
			k.arm(fmt.Sprintf("%s %d kill", name, n))
			killed := k.up(func() {})
			k.arm()
			if killed == 0 {
				k.stopAll()
				break // it is passed fewer times
			}
			kills[name]++
			hits, _ := k.hits(from)
			k.must("ceiling", "set", k.me(), "reversible") // in the new state
			j := &job{id: k.id("d", name, n), kind: kinds()[0]}
			k.run(j, 0)
			must(t, j.err)
			for _, bad := range slices.Concat(settled(func() []string { return k.remains(hits) }), gaps(k.log(-1))) {
				t.Errorf("%s %d: %s", name, n, bad)
			}
			k.stopAll()
			if n == 6 {
				break
			}
		}
	}
	t.Logf("kills: %v", kills)
	passed := []failpoint.Name{failpoint.StoreCommit, failpoint.StoreCommitted}
	if k.unit == nil { // the service of a machine stores no rules of its own account
		passed = append(passed, failpoint.BlobWritten, failpoint.BlobPlaced)
	}
	for _, name := range passed {
		if kills[name] == 0 {
			t.Errorf("no process was killed at %s", name)
		}
	}
}
