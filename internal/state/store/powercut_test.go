package store

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

// The workload: update k inserts a number of rows derived from k and takes the next
// number of a sequence. Every fifth fails after it wrote, every seventeenth
// panics. It prints its outcome in lines: "try k", then "yes k", or "no k" and the
// error.
const (
	lineTry, lineYes, lineNo = "try ", "yes ", "no "
	parts                    = 3
)

var errOwn = errors.New("its own error")

func cutConfig(dir string) Config {
	return Config{Dir: dir, Migrations: []Migration{{"cut", []string{
		"CREATE TABLE part (k INTEGER, n INTEGER, v BLOB NOT NULL, PRIMARY KEY (k, n)) STRICT",
		"CREATE TABLE done (seq INTEGER PRIMARY KEY, k INTEGER NOT NULL UNIQUE) STRICT",
	}}}}
}

func refuses(k int) bool { return k%5 == 4 || k%17 == 16 }

// value is part n of update k: usually small, sometimes many pages.
func value(k, n int) []byte {
	size := 20 + k*37%400
	if k%11 == 10 {
		size *= 40
	}
	return bytes.Repeat([]byte{byte(k), byte(k >> 8), byte(n), 0xa5}, size/4)
}

func cutUpdate(k int) func(*Tx) error {
	return func(tx *Tx) error {
		for n := range parts {
			if _, err := tx.Exec("INSERT INTO part (k, n, v) VALUES (?, ?, ?)", k, n, value(k, n)); err != nil {
				return err
			}
		}
		if _, err := tx.Exec("INSERT INTO done (seq, k) SELECT coalesce(max(seq) + 1, 0), ? FROM done", k); err != nil {
			return err
		}
		switch {
		case k%5 == 4:
			return errOwn
		case k%17 == 16:
			panic("boom")
		}
		return nil
	}
}

// do runs update k and prints its outcome.
func do(s *Store, k int) {
	say("%s%d", lineTry, k)
	if err := s.Update(context.Background(), cutUpdate(k)); err != nil {
		say("%s%d %s", lineNo, k, kindOf(err))
		return
	}
	say("%s%d", lineYes, k)
}

func kindOf(err error) string {
	var panicked *PanicError
	switch {
	case err == nil:
		return "nil"
	case errors.Is(err, ErrUncertain) && errors.Is(err, ErrPoisoned):
		return "uncertain"
	case errors.Is(err, ErrUncertain):
		return "uncertain without poison"
	case errors.Is(err, ErrPoisoned):
		return "poisoned"
	case errors.Is(err, errOwn), errors.As(err, &panicked):
		return "own"
	}
	return "other: " + strings.ReplaceAll(err.Error(), "\n", " ")
}

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

// helpCut is the child process: args are the directory, the first k, the number of
// updates, the concurrency, the checkpoint size in pages, and whether it creates
// the state, leaves it open, or does not sync.
func helpCut(t *testing.T, args []string) {
	num := func(i int) int { n, err := strconv.Atoi(args[i]); must(t, err); return n }
	dir, from, count, width, fold, how := args[0], num(1), num(2), num(3), num(4), args[5]
	must(t, faultdisk.Join())
	open := Open
	if strings.Contains(how, "create") {
		open = Create
	}
	s, err := open(t.Context(), cutConfig(dir))
	if err != nil {
		say("not open: %v", err)
		return
	}
	say("open")
	if strings.Contains(how, "unsynced") {
		if err := s.write.exec("PRAGMA synchronous = OFF"); err != nil {
			t.Fatal(err)
		}
	}
	s.checkpointPages, s.checkpointJobs = int64(fold), 1
	var wg sync.WaitGroup
	for w := range width {
		wg.Go(func() {
			for k := from + w; k < from+count; k += width {
				do(s, k)
			}
		})
	}
	wg.Wait()
	say("read %s", kindOf(s.Read(t.Context(), func(*View) error { return nil })))
	if !strings.Contains(how, "stay") {
		say("closing")
		_ = s.Close()
		say("closed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// job of the child process.
type cutJob struct {
	from, count, width, fold int
	how                      string
	fault                    func(at int, op faultdisk.Op) faultdisk.Fault
}

// record runs it on the state in root/state and returns its operations.
func (c cutJob) record(t *testing.T, root string) []faultdisk.Op {
	t.Helper()
	cmd := helper(t, "cut", filepath.Join(root, "var/state"), strconv.Itoa(c.from), strconv.Itoa(c.count), strconv.Itoa(c.width), strconv.Itoa(c.fold), c.how)
	ops, err := faultdisk.Run(t.Context(), cmd, root, c.fault)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(ops, len(ops)))
	}
	return ops
}

// told is the output of the process at some point.
type told struct {
	open       bool
	tried, yes map[int]bool
}

func newTold() *told { return &told{tried: map[int]bool{}, yes: map[int]bool{}} }

func (w *told) hear(op faultdisk.Op) {
	if op.Kind != faultdisk.Say {
		return
	}
	for line := range strings.Lines(op.Text) {
		line = strings.TrimSpace(line)
		k, _ := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		switch {
		case line == "open":
			w.open = true
		case strings.HasPrefix(line, lineTry):
			w.tried[k] = true
		case strings.HasPrefix(line, lineYes):
			w.yes[k] = true
		}
	}
}

// holds opens the image as a restarted service would and returns the updates that it
// has, or what is wrong with it.
func (w *told) holds(t *testing.T, dir string) (has []int, err error) {
	s, err := Open(t.Context(), cutConfig(dir))
	if errors.Is(err, ErrNotExist) && !w.open {
		if s, err = Create(t.Context(), cutConfig(dir)); err != nil {
			return nil, fmt.Errorf("create over the remains of a cut: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if has, err = w.content(t.Context(), s); err != nil {
		return nil, err
	}
	const next = 1_000_000_000 // one that is not refused
	if err := s.Update(t.Context(), cutUpdate(next)); err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	return has, errors.Join(integrity(t.Context(), s), s.Check(t.Context()))
}

func (w *told) content(ctx context.Context, s *Store) (has []int, err error) {
	err = s.Read(ctx, func(v *View) error {
		err := v.Each("SELECT seq, k FROM done ORDER BY seq", nil, func(scan Scan) error {
			var seq, k int
			if err := scan(&seq, &k); err != nil {
				return err
			}
			if seq != len(has) {
				return fmt.Errorf("number %d follows %d", seq, len(has)-1)
			}
			has = append(has, k)
			return nil
		})
		if err != nil {
			return err
		}
		return wholeParts(v, has)
	})
	if err != nil {
		return nil, err
	}
	for _, k := range has {
		if !w.tried[k] || refuses(k) {
			return nil, fmt.Errorf("update %d is stored: tried %v, failed by itself %v", k, w.tried[k], refuses(k))
		}
	}
	for k := range w.yes {
		if !slices.Contains(has, k) {
			return nil, fmt.Errorf("update %d was acknowledged and is lost", k)
		}
	}
	return has, nil
}

func wholeParts(v *View, has []int) error {
	found := map[int]int{}
	err := v.Each("SELECT k, n, v FROM part ORDER BY k, n", nil, func(scan Scan) error {
		var k, n int
		var b []byte
		if err := scan(&k, &n, &b); err != nil {
			return err
		}
		if n != found[k] || !bytes.Equal(b, value(k, n)) {
			return fmt.Errorf("part %d of update %d has other content", n, k)
		}
		found[k]++
		return nil
	})
	if err != nil {
		return err
	}
	for _, k := range has {
		if found[k] != parts {
			return fmt.Errorf("update %d has %d parts of %d", k, found[k], parts)
		}
	}
	if len(found) != len(has) {
		return fmt.Errorf("%d updates have parts and %d are done", len(found), len(has))
	}
	return nil
}

func integrity(ctx context.Context, s *Store) error {
	return s.Read(ctx, func(v *View) error {
		return v.Each("PRAGMA integrity_check", nil, func(scan Scan) error {
			var line string
			err := scan(&line)
			if err == nil && line != "ok" {
				err = errors.New(line)
			}
			return err
		})
	})
}

// tail describes the operations before a cut.
func tail(ops []faultdisk.Op, at int) string {
	var b strings.Builder
	for i := max(0, at-40); i < at; i++ {
		op := ops[i]
		fmt.Fprintf(&b, "%5d %s %s %s off %d len %d size %d %.60q\n", i, op.Kind, op.Path, op.To, op.Off, len(op.Data), op.Size, op.Text)
	}
	return b.String()
}

// cutter replays a journal and cuts it.
type cutter struct {
	disk *faultdisk.Disk
	ops  []faultdisk.Op
	at   int
	told *told
	cuts int
}

func newCutter(t *testing.T, base string, ops []faultdisk.Op) *cutter {
	t.Helper()
	disk, err := faultdisk.Load(base)
	must(t, err)
	return &cutter{disk: disk, ops: ops, told: newTold()}
}

func (c *cutter) to(at int) {
	for ; c.at < at; c.at++ {
		c.disk.Apply(c.ops[c.at])
		c.told.hear(c.ops[c.at])
	}
}

// cut creates an image at this point and returns what is wrong with it.
func (c *cutter) cut(t *testing.T, seed uint64, what faultdisk.Survivors) (has []int, err error) {
	t.Helper()
	dir := t.TempDir()
	defer os.RemoveAll(dir) //nolint:errcheck // many
	must(t, c.disk.Image(dir, rand.New(rand.NewPCG(seed, uint64(c.at))), what))
	c.cuts++
	has, err = c.told.holds(t, filepath.Join(dir, "var/state"))
	if err != nil {
		err = fmt.Errorf("cut %d of %d, seed %d, survivors %d: %w", c.at, len(c.ops), seed, what, err)
	}
	return has, err
}

// everyCut thins out the power cuts; make soak tries them all.
var everyCut = flag.Int("every", 4, "of the power cuts at each operation and at random, each so many is tried")

// proves R-A2 (acknowledged means durable, one transaction): a power cut at every
// operation from Create to a clean Close.
func TestAPowerCutAtAnyOperationLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	base := t.TempDir()
	ops := cutJob{count: 12, width: 3, fold: 4, how: "create"}.record(t, root)
	c := newCutter(t, base, ops)
	failures := 0
	for at := range len(ops) + 1 {
		if at%*everyCut > 0 && at < len(ops) {
			continue
		}
		c.to(at)
		for _, what := range []faultdisk.Survivors{faultdisk.None, faultdisk.All, faultdisk.Some} {
			if _, err := c.cut(t, uint64(at), what); err != nil && failures < 3 {
				failures++
				t.Errorf("%v\n%s", err, tail(ops, at))
			}
		}
	}
	if len(c.told.yes) < 8 {
		t.Errorf("only %d updates were acknowledged", len(c.told.yes))
	}
	t.Logf("%d operations, %d cuts", len(ops), c.cuts)
}

// proves R-A2 (acknowledged means durable, one transaction): concurrent writers,
// constant checkpoints, and random power cuts, also during recovery from one.
func TestRandomPowerCutsLoseNothingAcknowledged(t *testing.T) {
	t.Parallel()
	rng, seed := lots()
	rounds, cuts := 4, 60 / *everyCut
	c, how, base := &cutter{told: newTold()}, "create", t.TempDir()
	for round := range rounds {
		root := copyOf(t, base)
		ops := cutJob{from: round * 1000, count: 40 + rng.IntN(60), width: 1 + rng.IntN(12), fold: 1 + rng.IntN(60), how: how}.record(t, root)
		known := c.told
		c = newCutter(t, base, ops)
		c.told.have(known)
		points := make([]int, cuts)
		for i := range points {
			points[i] = rng.IntN(len(ops) + 1)
		}
		slices.Sort(points)
		var has []int
		for i, at := range points {
			c.to(at)
			var err error
			if has, err = c.cut(t, seed+uint64(i), faultdisk.Random); err != nil {
				t.Fatalf("seed %d, round %d: %v\n%s", seed, round, err, tail(ops, at))
			}
		}
		// What the last of them left is where the next service starts.
		base, how = t.TempDir(), ""
		must(t, c.disk.Image(base, rand.New(rand.NewPCG(seed+uint64(cuts-1), uint64(c.at))), faultdisk.Random))
		if !c.told.open {
			how, base = "create", t.TempDir()
		}
		c.told = newTold()
		c.told.keep(has)
		t.Logf("round %d: %d operations, %d updates after the last cut", round, len(ops), len(has))
	}
}

func lots() (*rand.Rand, uint64) {
	seed := rand.Uint64()
	return rand.New(rand.NewPCG(seed, 0)), seed
}

func copyOf(t *testing.T, base string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(base)))
	for _, p := range []string{"var/state", "var/state/state.db", "var/state/state.db-wal", "var/state/state.db-shm", "var/state/lock"} {
		if fi, err := os.Stat(filepath.Join(base, p)); err == nil {
			must(t, os.Chmod(filepath.Join(dir, p), fi.Mode()))
		}
	}
	return dir
}

// keep records what a restarted service has read, which must not be lost later.
func (w *told) keep(has []int) {
	for _, k := range has {
		w.tried[k], w.yes[k] = true, true
	}
}

func (w *told) have(before *told) {
	w.open = before.open || len(before.yes) > 0
	for k := range before.yes {
		w.tried[k], w.yes[k] = true, true
	}
}

// The control: on a disk that ignores syncs, and with a store that does not sync,
// the same cuts must be detected to lose acknowledged updates.
func TestPowerCutsWithoutSyncsAreNoticed(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{"the disk lies": "create stay", "the store does not sync": "create unsynced stay"} {
		ops := cutJob{count: 30, width: 4, fold: 8, how: how}.record(t, t.TempDir())
		c := newCutter(t, t.TempDir(), ops)
		c.disk.Lies = name == "the disk lies"
		lost, other, cuts := 0, 0, 60
		for i := range cuts {
			c.to(len(ops) * (i + 1) / cuts)
			switch _, err := c.cut(t, uint64(i), faultdisk.Random); {
			case err == nil:
			case strings.Contains(err.Error(), "acknowledged and is lost"):
				lost++
			default:
				other++
			}
		}
		if len(c.told.yes) == 0 || lost+other < cuts/4 || name == "the store does not sync" && lost == 0 {
			t.Errorf("%s: of %d cuts %d lost acknowledged updates and %d did other damage", name, cuts, lost, other)
		}
		t.Logf("%s: of %d cuts %d lost what was acknowledged, %d did other harm", name, cuts, lost, other)
	}
}
