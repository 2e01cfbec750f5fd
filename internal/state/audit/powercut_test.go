package audit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/faultdisk"
)

var errOwn = errors.New("its own error")

// helpCut is the child process. Its arguments are the directory, the number of
// commits and of concurrent writers. Of every eight commits one is denied, one
// fails in its own function, and one is a fact. It prints each attempt ("try ID")
// and result ("admitted ID SEQ", "denied ID SEQ", "recorded ID SEQ", "no ID WHY").
func helpCut(t *testing.T, dir, count, width string) {
	total, err := strconv.Atoi(count)
	must(t, err)
	wide, err := strconv.Atoi(width)
	must(t, err)
	must(t, faultdisk.Join())
	s, err := store.Create(t.Context(), config(dir))
	if err != nil {
		say("not open")
		return
	}
	l, err := Open(t.Context(), Config{Store: s, Now: now})
	if err != nil {
		say("not open")
		return
	}
	say("open")
	allowed, denied := decide(t, "local:root"), decide(t, "local:eve")
	var wg sync.WaitGroup
	for w := range wide {
		wg.Go(func() {
			for i := w; i < total; i += wide {
				id := fmt.Sprintf("d-%05d", i)
				say("try %s", id)
				switch i % 8 {
				case 3:
					a, err := l.Commit(context.Background(), denied, accepted(id), pair(id))
					tell(id, a, err)
				case 5:
					a, err := l.Commit(context.Background(), allowed, accepted(id), func(tx *store.Tx) error {
						_ = pair(id)(tx)
						return errOwn
					})
					tell(id, a, err)
				case 7:
					seq, err := l.Record(context.Background(), stopped(), pair(id))
					if err != nil {
						tell(id, Admission{}, err)
						continue
					}
					say("recorded %s %d", id, seq)
				default:
					a, err := l.Commit(context.Background(), allowed, accepted(id), pair(id))
					tell(id, a, err)
				}
			}
		})
	}
	wg.Wait()
	_ = s.Close()
}

func tell(id string, a Admission, err error) {
	var e *api.Error
	switch {
	case err == nil && a.Redeem(record.KindDispatchAccepted, api.DispatchID(id), api.DigestOf([]byte(id))) == nil:
		say("admitted %s %d", id, a.Seq())
	case a != Admission{}:
		say("no %s with an admission", id)
	case errors.As(err, &e) && e.Code == api.CodeDenied && e.AuditEntry != nil:
		say("denied %s %d", id, *e.AuditEntry)
	case errors.Is(err, errOwn):
		say("no %s own", id)
	case api.CodeOf(err) == api.CodeAuditUnavailable && errors.Is(err, store.ErrPoisoned) && errors.Is(err, store.ErrUncertain):
		say("no %s uncertain", id)
	case api.CodeOf(err) == api.CodeAuditUnavailable && errors.Is(err, store.ErrPoisoned):
		say("no %s poisoned", id)
	default:
		say("no %s other: %q", id, fmt.Sprint(err))
	}
}

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func journal(t *testing.T, count, width int, fault func(int, faultdisk.Op) faultdisk.Fault) []faultdisk.Op {
	t.Helper()
	root := t.TempDir()
	cmd := helper(t, "cut", filepath.Join(root, "state"), strconv.Itoa(count), strconv.Itoa(width))
	ops, err := faultdisk.Run(t.Context(), cmd, root, fault)
	must(t, err)
	return ops
}

// claims are the attempts and results of the child up to some moment.
type claims struct {
	open     bool
	tried    map[string]bool
	at       map[string]uint64 // number of the entry, if admitted, denied or recorded
	verb     map[string]string // "admitted", "denied", "recorded", or the error
	late     []string          // tried after the first failure of the disk
	refusing bool
}

func newClaims() *claims {
	return &claims{tried: map[string]bool{}, at: map[string]uint64{}, verb: map[string]string{}}
}

func (c *claims) hear(op faultdisk.Op) {
	if op.Kind != faultdisk.Say {
		return
	}
	for line := range strings.Lines(op.Text) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, rest, _ := strings.Cut(rest, " ")
		switch verb {
		case "open":
			c.open = true
		case "try":
			c.tried[id] = true
			if c.refusing {
				c.late = append(c.late, id)
			}
		case "admitted", "denied", "recorded":
			c.verb[id] = verb
			c.at[id], _ = strconv.ParseUint(rest, 10, 64)
		case "no":
			c.verb[id] = rest
			c.refusing = c.refusing || rest != "own"
		}
	}
}

// verify opens the log as a restarted service would, compares it with the claims,
// and returns the accepted dispatches.
func (c *claims) verify(t *testing.T, dir string) (there []string, err error) {
	s, err := store.Open(t.Context(), config(dir))
	if errors.Is(err, store.ErrNotExist) && !c.open {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	l, err := Open(t.Context(), Config{Store: s, Now: now})
	if err != nil {
		return nil, err
	}
	n, err := l.Check(t.Context()) // contiguous from 0, every hash
	if err != nil {
		return nil, err
	}
	var entries []Committed
	for from := uint64(0); from < n; from += maxLimit {
		page, err := l.List(t.Context(), Query{From: from, Limit: maxLimit})
		if err != nil {
			return nil, err
		}
		entries = append(entries, page...)
	}
	there, err = c.compare(entries, rows(t, s))
	if err != nil {
		return there, err
	}
	for id, seq := range c.at {
		if c.verb[id] == "admitted" {
			if _, err := l.Readmit(t.Context(), record.KindDispatchAccepted, seq); err != nil {
				return there, err
			}
		}
	}
	a, err := l.Commit(t.Context(), decide(t, "local:root"), accepted("d-after"), pair("d-after"))
	if err == nil && a.Seq() != n {
		err = fmt.Errorf("the next entry is #%d after %d", a.Seq(), n)
	}
	return there, err
}

func (c *claims) compare(entries []Committed, state []string) (there []string, err error) {
	facts := 0
	for _, e := range entries {
		id := string(e.Entry.Dispatch)
		switch {
		case e.Entry.Kind == record.KindServiceStopped:
			facts++
			continue
		case !c.tried[id] || c.verb[id] == "own" || c.verb[id] == "poisoned":
			return nil, fmt.Errorf("unexpected entry #%d of %s: tried %v, %q", e.Seq, id, c.tried[id], c.verb[id])
		case e.Entry.Decision == record.Allow:
			there = append(there, id)
		}
	}
	for id, seq := range c.at {
		switch {
		case seq >= uint64(len(entries)):
			return nil, fmt.Errorf("%s was %s as #%d, but the log has %d entries", id, c.verb[id], seq, len(entries))
		case c.verb[id] != "recorded" && string(entries[seq].Entry.Dispatch) != id:
			return nil, fmt.Errorf("%s was %s as #%d, which belongs to another dispatch", id, c.verb[id], seq)
		case (c.verb[id] == "admitted") != (entries[seq].Entry.Decision == record.Allow):
			return nil, fmt.Errorf("%s was %s as #%d, which has decision %q", id, c.verb[id], seq, entries[seq].Entry.Decision)
		case (c.verb[id] != "denied") != slices.Contains(state, id):
			return nil, fmt.Errorf("%s was %s, row exists: %v", id, c.verb[id], slices.Contains(state, id))
		}
	}
	// Each row has its entry and each entry its row.
	rest := slices.DeleteFunc(slices.Clone(state), func(id string) bool { return slices.Contains(there, id) })
	if len(rest) != facts || len(state) != len(there)+facts {
		return nil, fmt.Errorf("%d rows for %d accepted and %d facts", len(state), len(there), facts)
	}
	return there, nil
}

// cutAt verifies the disk as the given operations leave it.
func cutAt(t *testing.T, disk *faultdisk.Disk, c *claims, seed uint64, what faultdisk.Survivors) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	defer os.RemoveAll(dir) //nolint:errcheck // many
	must(t, disk.Image(dir, rand.New(rand.NewPCG(seed, 1)), what))
	return c.verify(t, filepath.Join(dir, "state"))
}

// proves R-A2 (one transaction; an effect only after its entry is durable): the
// power fails at any moment. Each admitted dispatch is in the log under its
// number, with its state; no refused one is; and the log has no gap.
func TestStateAndEntryAreAtomicAcrossPowerCuts(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, job := range []struct{ count, width, cuts int }{{24, 1, 120}, {100, 8, 120}, {400, 2, 20}} { // the last one checkpoints the write-ahead log
		ops := journal(t, job.count, job.width, nil)
		if folds := slices.ContainsFunc(ops[len(ops)/3:len(ops)-40], func(op faultdisk.Op) bool {
			return op.Kind == faultdisk.Write && filepath.Base(op.Path) == "state.db"
		}); folds != (job.count == 400) {
			t.Errorf("%d commits: the write-ahead log was checkpointed: %v", job.count, folds)
		}
		disk, err := faultdisk.Load(t.TempDir())
		must(t, err)
		points := make([]int, job.cuts)
		for i := range points {
			points[i] = rng.IntN(len(ops) + 1)
		}
		slices.Sort(points)
		c, done := newClaims(), 0
		for i, at := range points {
			for ; done < at; done++ {
				disk.Apply(ops[done])
				c.hear(ops[done])
			}
			if _, err := cutAt(t, disk, c, seed+uint64(i), faultdisk.Random); err != nil {
				t.Fatalf("seed %d, %d commits by %d, cut %d of %d: %v", seed, job.count, job.width, at, len(ops), err)
			}
		}
		t.Logf("%d operations, %d told, %d cuts", len(ops), len(c.verb), job.cuts)
	}
}

// Control: on a disk that lies about syncs, the same cuts are detected.
func TestALogLostByALyingDiskIsDetected(t *testing.T) {
	t.Parallel()
	ops := journal(t, 60, 4, nil)
	disk, err := faultdisk.Load(t.TempDir())
	must(t, err)
	disk.Lies = true
	c, noticed := newClaims(), 0
	for i, op := range ops {
		disk.Apply(op)
		c.hear(op)
		if i%20 == 0 {
			if _, err := cutAt(t, disk, c, uint64(i), faultdisk.Some); err != nil {
				noticed++
			}
		}
	}
	if noticed < len(ops)/20/4 {
		t.Errorf("%d of %d cuts were detected", noticed, len(ops)/20)
	}
}

// proves R-A2 (if the log cannot be written, nothing is allowed): any write or
// sync fails, with or without effect. Nothing is admitted or answered otherwise
// from then on, and each uncertain group is complete or absent.
func TestNothingIsAdmittedAfterAFailedWriteOrSync(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	failed := 0
	for range 24 / shrink {
		n, kept, kind := rng.IntN(24), rng.IntN(2) == 0, []faultdisk.Kind{faultdisk.Write, faultdisk.Sync}[rng.IntN(2)]
		errno := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[rng.IntN(2)]
		opened, left := false, n
		ops := journal(t, 48, 1+rng.IntN(6), func(_ int, op faultdisk.Op) faultdisk.Fault {
			opened = opened || op.Kind == faultdisk.Say && strings.HasPrefix(op.Text, "open")
			if !opened || op.Kind != kind || !strings.HasSuffix(op.Path, "-wal") {
				return faultdisk.Fault{}
			}
			if left--; left != -1 {
				return faultdisk.Fault{}
			}
			return faultdisk.Fault{Errno: errno, Kept: kept}
		})
		disk, err := faultdisk.Load(t.TempDir())
		must(t, err)
		c := newClaims()
		for _, op := range ops {
			disk.Apply(op)
			c.hear(op)
		}
		what := fmt.Sprintf("seed %d, %s %d, kept %v, errno %d", seed, kind, n, kept, errno)
		if c.refusing {
			failed++
		}
		uncertain := checkRefusals(t, what, c)
		for i, survivors := range []faultdisk.Survivors{faultdisk.None, faultdisk.All, faultdisk.Some} {
			there, err := cutAt(t, disk, c, seed+uint64(i), survivors)
			if err != nil {
				t.Errorf("%s, survivors %d: %v", what, survivors, err)
			}
			whole := slices.DeleteFunc(slices.Clone(uncertain), func(id string) bool { return slices.Contains(there, id) })
			if len(whole) > 0 && len(whole) < len(uncertain) {
				t.Errorf("%s: a group is torn: %v, want %v", what, uncertain, whole)
			}
		}
	}
	if failed < 12/shrink {
		t.Errorf("%d of %d failures reached a caller", failed, 24/shrink)
	}
}

// checkRefusals returns the dispatches whose acceptance is uncertain.
func checkRefusals(t *testing.T, what string, c *claims) (uncertain []string) {
	t.Helper()
	for _, id := range c.late {
		if c.verb[id] != "poisoned" {
			t.Errorf("%s: %s was tried after the failure and got %q", what, id, c.verb[id])
		}
	}
	for id, verb := range c.verb {
		i, err := strconv.Atoi(strings.TrimPrefix(id, "d-"))
		must(t, err)
		switch verb {
		case "admitted", "denied", "recorded", "own", "poisoned":
		case "uncertain":
			if i%8 != 3 && i%8 != 5 && i%8 != 7 {
				uncertain = append(uncertain, id)
			}
		default:
			t.Errorf("%s: %s got %q", what, id, verb)
		}
	}
	return uncertain
}
