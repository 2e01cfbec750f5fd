package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

// nth makes the n-th matching operation fail, and records which one it was.
type nth struct {
	n     int
	match func(opened bool, op faultdisk.Op) bool
	with  faultdisk.Fault

	opened bool
	hit    string // the operation; empty: none matched
	at     int    // in the journal
}

func (f *nth) fault(at int, op faultdisk.Op) faultdisk.Fault {
	if op.Kind == faultdisk.Say && strings.HasPrefix(op.Text, "open") {
		f.opened = true
	}
	if f.hit != "" || op.Kind == faultdisk.Say || !f.match(f.opened, op) {
		return faultdisk.Fault{}
	}
	if f.n--; f.n >= 0 {
		return faultdisk.Fault{}
	}
	f.hit, f.at = fmt.Sprintf("%s of %s", op.Kind, op.Path), at
	return f.with
}

func flavours() map[string]faultdisk.Fault {
	return map[string]faultdisk.Fault{
		"failed and not persisted": {Errno: syscall.EIO},
		"failed but persisted":     {Errno: syscall.EIO, Kept: true},
	}
}

// heard is what the callers got as answers.
type heard struct {
	by    map[string][]int // updates, by the kind of answer
	order []string         // the kinds, in the order they were told
	late  []int            // updates requested after a refusal
	other []string         // what else the process said
}

func hear(ops []faultdisk.Op) *heard {
	h := &heard{by: map[string][]int{}}
	for _, op := range ops {
		if op.Kind == faultdisk.Say {
			for line := range strings.Lines(op.Text) {
				h.line(strings.TrimSpace(line))
			}
		}
	}
	return h
}

func (h *heard) line(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	number, kind, _ := strings.Cut(rest, " ")
	k, _ := strconv.Atoi(number)
	switch verb + " " {
	case lineTry:
		if h.refusal() >= 0 {
			h.late = append(h.late, k)
		}
		return
	case lineYes:
		kind = "yes"
	case lineNo:
	default:
		h.other = append(h.other, line)
		return
	}
	h.by[kind] = append(h.by[kind], k)
	h.order = append(h.order, kind)
}

// refusal returns the index of the first answer that reports a disk failure, or -1.
func (h *heard) refusal() int {
	return slices.IndexFunc(h.order, func(kind string) bool { return kind != "yes" && kind != "own" })
}

// afterFault checks the answers after a fault, and what a restart finds with none,
// all and some of the pending writes.
func afterFault(t *testing.T, base string, ops []faultdisk.Op, f *nth) error {
	t.Helper()
	return afterFaultOf(t, base, newTold(), ops, f)
}

// afterFaultOf is afterFault for a state with content.
func afterFaultOf(t *testing.T, base string, before *told, ops []faultdisk.Op, f *nth) error {
	t.Helper()
	h := hear(ops)
	for kind := range h.by {
		if !slices.Contains([]string{"yes", "own", "uncertain", "poisoned"}, kind) {
			return fmt.Errorf("an answer was %q", kind)
		}
	}
	if h.refusal() >= 0 {
		for _, k := range h.late {
			if !slices.Contains(h.by["poisoned"], k) {
				return fmt.Errorf("update %d after the failure was not refused", k)
			}
		}
		if !slices.Contains(h.other, "read poisoned") {
			return errors.New("a read succeeded after the failure")
		}
		for _, op := range ops[f.at+1:] {
			if op.Kind != faultdisk.Say && strings.HasPrefix(filepath.Base(op.Path), fileName) && !strings.HasSuffix(op.Path, "-shm") {
				return fmt.Errorf("%s of %s after the failure", op.Kind, op.Path)
			}
		}
	}
	c := newCutter(t, base, ops)
	c.told.have(before)
	c.to(len(ops))
	for i, what := range []faultdisk.Survivors{faultdisk.None, faultdisk.All, faultdisk.Some, faultdisk.Some} {
		has, err := c.cut(t, uint64(i), what)
		if err != nil {
			return err
		}
		for _, k := range h.by["poisoned"] {
			if slices.Contains(has, k) {
				return fmt.Errorf("update %d was refused, but is stored", k)
			}
		}
		uncertain := slices.DeleteFunc(slices.Clone(h.by["uncertain"]), refuses)
		there := slices.DeleteFunc(slices.Clone(uncertain), func(k int) bool { return !slices.Contains(has, k) })
		if len(there) > 0 && len(there) < len(uncertain) {
			return fmt.Errorf("of the group %v only %v is stored", uncertain, there)
		}
	}
	return nil
}

// proves R-A2 (no degraded mode): whether the failed call took effect or not, the
// caller gets ErrUncertain, later calls are refused, nothing is retried (not even
// by Close), and a restart finds each group whole or not at all.
func TestAFailedWriteOrSyncIsFinal(t *testing.T) {
	t.Parallel()
	file := func(kind faultdisk.Kind, name string) func(bool, faultdisk.Op) bool {
		return func(opened bool, op faultdisk.Op) bool {
			return opened && op.Kind == kind && filepath.Base(op.Path) == name
		}
	}
	for _, c := range []struct {
		name  string
		match func(bool, faultdisk.Op) bool
		n     int
		told  string // the first that is refused
	}{
		{"a commit's sync", file(faultdisk.Sync, "state.db-wal"), 3, "uncertain"},
		{"a commit's first write", file(faultdisk.Write, "state.db-wal"), 0, "uncertain"},
		{"a commit's later write", file(faultdisk.Write, "state.db-wal"), 7, "uncertain"},
		{"a checkpoint's write", file(faultdisk.Write, "state.db"), 1, "poisoned"},
		{"a checkpoint's sync", file(faultdisk.Sync, "state.db"), 0, "poisoned"},
		{"a later checkpoint's sync", file(faultdisk.Sync, "state.db"), 1, "poisoned"},
	} {
		for flavour, with := range flavours() {
			for _, width := range []int{1, 6} {
				f := &nth{n: c.n, match: c.match, with: with}
				base := t.TempDir()
				ops := cutJob{count: 30, width: width, fold: 4, how: "create", fault: f.fault}.record(t, t.TempDir())
				h := hear(ops)
				switch first := h.refusal(); {
				case f.hit == "":
					t.Errorf("%s, %s: did not happen", c.name, flavour)
				case first < 0 || h.order[first] != c.told && width == 1:
					t.Errorf("%s, %s: %v, want %q", c.name, flavour, h.order, c.told)
				}
				if err := afterFault(t, base, ops, f); err != nil {
					t.Errorf("%s (%s), %s, %d at once: %v\n%s", c.name, f.hit, flavour, width, err, tail(ops, min(len(ops), f.at+30)))
				}
			}
		}
	}
}

// proves R-A2 (acknowledged means durable): a file whose name is not durable is lost
// with its synced content. SQLite ignores a failure to sync the directory of its
// log; the store does not.
func TestADirectoryThatCannotBeSyncedLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	refused := 0
	for flavour, with := range flavours() {
		for n := 0; ; n++ {
			f := &nth{n: n, with: with, match: func(_ bool, op faultdisk.Op) bool { return op.Kind == faultdisk.Sync && filepath.Ext(op.Path) == "" }}
			base := t.TempDir()
			ops := cutJob{count: 8, width: 1, fold: 4, how: "create stay", fault: f.fault}.record(t, t.TempDir())
			if err := afterFault(t, base, ops, f); err != nil {
				t.Errorf("%d (%s), %s: %v\n%s", n, f.hit, flavour, err, tail(ops, min(len(ops), f.at+30)))
			}
			if !slices.Contains(hear(ops).other, "open") {
				refused++
			}
			if f.hit == "" {
				break
			}
		}
	}
	if refused == 0 {
		t.Error("no failure was detected")
	}
	// A clean end removes the log, so the next service makes another.
	root, before := t.TempDir(), newTold()
	before.keep(hear(cutJob{count: 8, width: 1, fold: 4, how: "create"}.record(t, root)).by["yes"])
	for n := 0; ; n++ {
		f := &nth{n: n, with: faultdisk.Fault{Errno: syscall.EIO}, match: func(_ bool, op faultdisk.Op) bool { return op.Kind == faultdisk.Sync && filepath.Ext(op.Path) == "" }}
		base := copyOf(t, root)
		ops := cutJob{from: 100, count: 8, width: 1, fold: 4, how: "stay", fault: f.fault}.record(t, copyOf(t, root))
		if err := afterFaultOf(t, base, before, ops, f); err != nil {
			t.Errorf("again, %d (%s): %v\n%s", n, f.hit, err, tail(ops, min(len(ops), f.at+30)))
		}
		if f.hit == "" {
			break
		}
	}
}

// proves R-A2 (no degraded mode): any single operation fails, from the first of
// Create to the last of Close, reads included.
func TestAnySingleOperationMayFail(t *testing.T) {
	t.Parallel()
	rng, seed := lots()
	all := &nth{n: 1 << 30, match: func(bool, faultdisk.Op) bool { return true }}
	job := cutJob{count: 8, width: 1, fold: 4, how: "create", fault: all.fault}
	job.record(t, t.TempDir())
	total := 1<<30 - all.n
	for range 40 {
		f := &nth{n: rng.IntN(total), match: all.match, with: faultdisk.Fault{Errno: []syscall.Errno{syscall.EIO, syscall.ENOSPC}[rng.IntN(2)]}}
		kept := rng.IntN(2) == 0
		job.fault = func(at int, op faultdisk.Op) faultdisk.Fault {
			with := f.fault(at, op)
			with.Kept = kept && with.Errno != 0 && (op.Kind == faultdisk.Write || op.Kind == faultdisk.Sync)
			return with
		}
		base := t.TempDir()
		ops := job.record(t, t.TempDir())
		if err := afterFault(t, base, ops, f); err != nil {
			t.Errorf("seed %d: %s at %d, kept %v, errno %d: %v\n%s", seed, f.hit, f.at, kept, f.with.Errno, err, tail(ops, min(len(ops), f.at+30)))
		}
	}
}

// SQLite takes a damaged write-ahead log for one torn by a power cut, which ends at
// the damage. Earlier commits are intact, and a start works or is refused. Later
// commits are lost without a trace in this file, which is why the audit log has
// anchors elsewhere.
func TestAFlippedBitInTheLogLosesOnlyLaterCommits(t *testing.T) {
	t.Parallel()
	rng, seed := lots()
	root := t.TempDir()
	ops := cutJob{count: 30, width: 3, fold: 1 << 20, how: "create stay"}.record(t, root)
	c := newCutter(t, t.TempDir(), ops)
	c.to(len(ops))
	whole, err := c.cut(t, 0, faultdisk.None)
	must(t, err)
	c.told.yes = map[int]bool{}
	shorter := 0
	for range 25 {
		dir := copyOf(t, root)
		path := filepath.Join(dir, "var/state/state.db-wal")
		b, err := os.ReadFile(path)
		must(t, err)
		at := 32 + rng.IntN(len(b)-32) // frames; a flip in the header empties the log
		b[at] ^= 1 << rng.IntN(8)
		must(t, os.WriteFile(path, b, 0o600))
		has, err := c.told.holds(t, filepath.Dir(path))
		if err != nil && strings.Contains(err.Error(), "no such table") && at < 32+8*4120 {
			continue // the schema was in what is gone
		}
		if err != nil || !slices.Equal(has, whole[:len(has)]) {
			t.Errorf("seed %d, bit of byte %d of %d: %v of %v, %v", seed, at, len(b), has, whole, err)
		}
		if len(has) < len(whole) {
			shorter++
		}
	}
	if shorter == 0 {
		t.Error("no flip had an effect")
	}
}

// proves R-A2 (no degraded mode): a shortened file is corruption.
func TestAShortReadIsNotTakenForAnEmptyPage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	before := newTold()
	before.keep(hear(cutJob{count: 20, width: 1, fold: 4, how: "create"}.record(t, root)).by["yes"])
	rng, _ := lots()
	refused := 0
	for n := rng.IntN(4); ; n += 4 { // every fourth read, another each time
		f := &nth{n: n, with: faultdisk.Fault{Empty: true}, match: func(_ bool, op faultdisk.Op) bool {
			return op.Kind == faultdisk.Read && strings.HasPrefix(filepath.Base(op.Path), fileName)
		}}
		base := copyOf(t, root)
		ops := cutJob{from: 100, count: 10, width: 1, fold: 4, how: "stay", fault: f.fault}.record(t, copyOf(t, root))
		if err := afterFaultOf(t, base, before, ops, f); err != nil {
			t.Errorf("%d (%s): %v\n%s", n, f.hit, err, tail(ops, min(len(ops), f.at+30)))
		}
		if f.hit == "" {
			break
		}
		if h := hear(ops); h.refusal() >= 0 || !slices.Contains(h.other, "open") {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no short read was detected")
	}
}
