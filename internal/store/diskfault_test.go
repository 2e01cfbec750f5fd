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

	"github.com/bailiwick-dev/bailiwick/internal/faultdisk"
)

// nth makes the n-th operation that matches fail, and says which one it was.
type nth struct {
	n     int
	match func(opened bool, op faultdisk.Op) bool
	with  faultdisk.Fault

	opened bool
	hit    string // the operation; empty where there was none
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

// heard is what the callers were told.
type heard struct {
	by    map[string][]int // updates, by the kind of answer
	order []string         // the kinds, in the order they were told
	late  []int            // updates that were asked for after somebody was refused
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

// refusal is where in the order somebody is refused for the disk's sake, or -1.
func (h *heard) refusal() int {
	return slices.IndexFunc(h.order, func(kind string) bool { return kind != "yes" && kind != "own" })
}

// afterFault checks what a fault after opening does, in whatever it hit, and
// what a restart finds: on what is durable, on everything, and on some of it.
func afterFault(t *testing.T, base string, ops []faultdisk.Op, f *nth) error {
	t.Helper()
	return afterFaultOf(t, base, newTold(), ops, f)
}

// afterFaultOf is afterFault for a state that has something already.
func afterFaultOf(t *testing.T, base string, before *told, ops []faultdisk.Op, f *nth) error {
	t.Helper()
	h := hear(ops)
	for kind := range h.by {
		if !slices.Contains([]string{"yes", "own", "uncertain", "poisoned"}, kind) {
			return fmt.Errorf("somebody was told %q", kind)
		}
	}
	if h.refusal() >= 0 {
		for _, k := range h.late {
			if !slices.Contains(h.by["poisoned"], k) {
				return fmt.Errorf("update %d came after the failure and was not refused", k)
			}
		}
		if !slices.Contains(h.other, "read poisoned") {
			return errors.New("reading went on after the failure")
		}
		for _, op := range ops[f.at+1:] {
			if op.Kind != faultdisk.Say && strings.HasPrefix(filepath.Base(op.Path), fileName) && !strings.HasSuffix(op.Path, "-shm") {
				return fmt.Errorf("after the failure there is a %s of %s", op.Kind, op.Path)
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
				return fmt.Errorf("update %d was refused for certain and is there", k)
			}
		}
		uncertain := slices.DeleteFunc(slices.Clone(h.by["uncertain"]), refuses)
		there := slices.DeleteFunc(slices.Clone(uncertain), func(k int) bool { return !slices.Contains(has, k) })
		if len(there) > 0 && len(there) < len(uncertain) {
			return fmt.Errorf("of one group %v only %v is there", uncertain, there)
		}
	}
	return nil
}

// proves R-A2 (no degraded mode): in both flavours, the caller is told that it
// is uncertain, everything after it is refused, nothing is tried again (not
// even by closing), and a restart finds each group whole or not at all.
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

// proves R-A2 (acknowledged means durable): a name that was not kept takes the
// file with it, whatever was synced in it. SQLite ignores it when the directory
// that it made its log in cannot be synced; the store does not.
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
		t.Error("no failure was noticed")
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

// proves R-A2 (no degraded mode): any one operation fails, from the first of
// Create to the last of Close, reads among them.
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

// A log that is damaged ends where the damage is: SQLite takes it for one that
// a power cut tore. What came before is there and whole, and a start works or
// is refused. What was acknowledged after it is gone without a trace in this
// file, which is why the audit log has anchors elsewhere.
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
		t.Error("no flip did anything")
	}
}

// proves R-A2 (no degraded mode): a file that ends where it did not is damage.
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
		t.Error("no short read was noticed")
	}
}
