package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// book is a table of records in a real state database.
type book struct {
	st *store.Store
	mu sync.Mutex
	// pinAfterLook is pinned after the next look; guarded by mu.
	pinAfterLook api.DispatchID
}

func bookMigration() store.Migration {
	return store.Migration{Owner: "book", Steps: []string{`
CREATE TABLE book (id TEXT PRIMARY KEY, ended INTEGER NOT NULL, pinned INTEGER NOT NULL DEFAULT 0, gone TEXT NOT NULL DEFAULT '', content TEXT NOT NULL, evidence TEXT NOT NULL) STRICT;`}}
}

func (b *book) Items(ctx context.Context, each func(Item) error) error {
	err := b.st.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT id, ended, pinned, gone, content, evidence FROM book", nil, func(scan store.Scan) error {
			var i Item
			var ended int64
			var gone string
			var content, evidence api.Digest
			if err := scan(&i.ID, &ended, &i.Pinned, &gone, &content, &evidence); err != nil {
				return err
			}
			if ended > 0 {
				i.Ended = time.Unix(0, ended)
			}
			if !strings.Contains(gone, "content") {
				i.Content = []api.Digest{content}
			}
			if !strings.Contains(gone, "evidence") {
				i.Evidence = []api.Digest{evidence}
			}
			return each(i)
		})
	})
	b.mu.Lock()
	id := b.pinAfterLook
	b.pinAfterLook = ""
	b.mu.Unlock()
	if err == nil && id != "" {
		err = b.st.Update(ctx, func(tx *store.Tx) error {
			_, err := tx.Exec("UPDATE book SET pinned = 1 WHERE id = ?", id)
			return err
		})
	}
	return err
}

func (b *book) MarkRemoved(tx *store.Tx, id api.DispatchID, r api.Removal) error {
	n, err := tx.Exec("UPDATE book SET gone = gone || ? WHERE id = ? AND pinned = 0 AND ended > 0", string(r.Class), id)
	if err == nil && n != 1 {
		err = ErrNotRemovable
	}
	return err
}

type world struct {
	*Collector
	*book
	t      *testing.T
	blobs  *blob.Store
	ledger *audit.Ledger
}

func newWorld(t *testing.T, rules Rules) world {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{audit.Migration(), Migration(), bookMigration()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	ledger, err := audit.Open(t.Context(), audit.Config{Store: st, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.Create(blob.Config{Dir: filepath.Join(dir, "blobs"), Private: true, Swept: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	w := world{t: t, book: &book{st: st}, blobs: blobs, ledger: ledger}
	w.open(rules)
	return w
}

func (w *world) open(rules Rules) {
	w.t.Helper()
	k, err := Open(w.t.Context(), Config{
		Store: w.st, Ledger: w.ledger, Blobs: w.blobs, Dispatches: w.book, Rules: rules, Database: filepath.Dir(w.blobs.Dir()), Attempts: w.t.TempDir(),
		Now: func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Collector = k
	w.t.Cleanup(func() { _ = k.Close() })
}

// put stores protected content and refers to it.
func (w *world) put(id, content string, daysAgo int) {
	w.t.Helper()
	ctx, release := w.blobs.Protect(w.t.Context())
	defer release()
	c, err := w.blobs.Put(ctx, []byte(content))
	e, errE := w.blobs.Put(ctx, []byte("evidence of "+id))
	if err = errors.Join(err, errE); err != nil {
		w.t.Error(err)
	}
	ended := int64(0)
	if daysAgo > 0 {
		ended = noon.Add(-time.Duration(daysAgo) * day).UnixNano()
	}
	if err := w.st.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("INSERT INTO book(id, ended, content, evidence) VALUES (?, ?, ?, ?)", id, ended, c, e)
		return err
	}); err != nil {
		w.t.Error(err)
	}
}

func (w *world) has(content string) bool {
	w.t.Helper()
	ok, err := w.blobs.Has(w.t.Context(), api.DigestOf([]byte(content)))
	if err != nil {
		w.t.Error(err)
	}
	return ok
}

func (w *world) log() (lines []string) {
	w.t.Helper()
	list, err := w.ledger.List(w.t.Context(), audit.Query{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range list {
		lines = append(lines, c.Entry.Line(c.Seq))
	}
	return lines
}

func (w *world) collect(by api.Principal, dryRun bool) api.GCReport {
	w.t.Helper()
	r, err := w.Collect(w.t.Context(), by, dryRun)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// proves R-A2
func TestCollectMarksLogsAndRemovesExactlyWhatRulesSelect(t *testing.T) {
	w := newWorld(t, Rules{Content: Limit{Age: 5 * day}, Evidence: 20 * day})
	w.put("d-old", "old", 9)
	w.put("d-older", "older", 30)
	w.put("d-shares", "old and new", 9)
	w.put("d-new", "old and new", 1)
	w.put("d-runs", "running", 0)
	dry := w.collect("local:op", true)
	if len(w.log()) != 0 || !w.has("old") || len(dry.Dispatches) != 4 {
		t.Fatalf("the dry run changed something: %q, %+v", w.log(), dry)
	}
	got := w.collect("local:op", false)
	if !slices.EqualFunc(got.Dispatches, dry.Dispatches, func(a, b api.GCRemoval) bool { return a == b }) || got.Unreferenced != dry.Unreferenced || got.Kept != dry.Kept {
		t.Errorf("collected %+v, the dry run predicted %+v", got, dry)
	}
	for content, want := range map[string]bool{
		"old": false, "older": false, "old and new": true, "running": true,
		"evidence of d-old": true, "evidence of d-older": false, "evidence of d-new": true,
	} {
		if w.has(content) != want {
			t.Errorf("%q exists: %t", content, !want)
		}
	}
	log := strings.Join(w.log(), "\n")
	for _, want := range []string{
		`local:op removes content of 3 dispatches (8 bytes) by rule "content.age 5d": d-older, d-old, d-shares`,
		`local:op removes evidence of 1 dispatch (19 bytes) by rule "evidence.age 20d": d-older`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if again := w.collect("", false); len(again.Dispatches) != 0 || again.Unreferenced.Blobs != 0 || len(w.log()) != 2 {
		t.Errorf("again: %+v\n%q", again, w.log())
	}
}

func TestWithoutRulesOnlyUnreferencedBlobsAreRemoved(t *testing.T) {
	w := newWorld(t, Rules{})
	w.put("d-old", "old", 9000)
	ctx, release := w.blobs.Protect(t.Context())
	if _, err := w.blobs.Put(ctx, []byte("orphan")); err != nil {
		t.Fatal(err)
	}
	if r := w.collect("", false); r.Unreferenced.Blobs != 0 || !w.has("orphan") || len(w.log()) != 0 {
		t.Fatalf("removed a blob that is being stored: %+v", r)
	}
	release()
	r := w.collect("", false)
	if r.Unreferenced.Blobs != 1 || w.has("orphan") || !w.has("old") {
		t.Errorf("%+v", r)
	}
	if log := w.log(); len(log) != 1 || !strings.Contains(log[0], "retention removes 1 unreferenced blob (6 bytes)") {
		t.Errorf("log %q", log)
	}
}

// A kill between the marks and the removal: the next service removes at once.
//
// proves R-A2
func TestAKillAfterMarkingIsFinishedByTheNextStart(t *testing.T) {
	rules := Rules{Content: Limit{Count: 1}}
	w := newWorld(t, rules)
	w.put("d-old", "old", 9)
	w.put("d-new", "new", 1)
	v, err := w.survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.mark(t.Context(), "", noon, rules.plan(v.removable, v.refCounts, noon), &api.GCReport{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || !w.has("old") {
		t.Fatal(err, "or it is gone too early")
	}
	if _, pending, err := w.lastRun(t.Context()); !pending || err != nil {
		t.Fatalf("no removal is pending: %v", err)
	}
	w.open(Rules{}) // whatever the rules are by now
	for {
		changed := w.st.Committed()
		if _, pending, err := w.lastRun(t.Context()); !pending || err != nil {
			break
		}
		<-changed
	}
	if w.has("old") || !w.has("new") {
		t.Error("the wrong ones are left")
	}
}

// proves R-A2
func TestNothingIsRemovedWhenTheEntryCannotBeWritten(t *testing.T) {
	w := newWorld(t, Rules{Content: Limit{Count: 1}})
	w.put("d-old", "old", 9)
	w.put("d-new", "new", 1)
	broken := w.cfg
	shut, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "store"), Migrations: []store.Migration{audit.Migration()}})
	if err != nil {
		t.Fatal(err)
	}
	if broken.Ledger, err = audit.Open(t.Context(), audit.Config{Store: shut, Now: broken.Now}); err != nil {
		t.Fatal(err)
	}
	if err := shut.Close(); err != nil {
		t.Fatal(err)
	}
	ok := w.cfg
	w.cfg = broken
	if _, err := w.Collect(t.Context(), "", false); api.CodeOf(err) != api.CodeAuditUnavailable || !w.has("old") {
		t.Fatalf("removed without an entry: %v", err)
	}
	w.cfg = ok // the control: the same with a log that works
	if w.collect("", false); w.has("old") {
		t.Error("not removed with one")
	}
}

func TestAPinBetweenSurveyAndMarkIsRespected(t *testing.T) {
	w := newWorld(t, Rules{Content: Limit{Age: day}})
	w.put("d-one", "one", 9)
	w.put("d-two", "two", 9)
	w.pinAfterLook = "d-one"
	r := w.collect("", false)
	if !w.has("one") || w.has("two") || r.Pinned != 1 || len(r.Dispatches) != 1 {
		t.Errorf("%+v, one %t, two %t", r, w.has("one"), w.has("two"))
	}
}

// Dispatches with shared content end while collections run in a loop: no
// referenced blob is ever missing.
func TestConcurrentCollectionsNeverRemoveReferencedBlobs(t *testing.T) {
	w := newWorld(t, Rules{Content: Limit{Count: 5}})
	var writers, collector sync.WaitGroup
	done := make(chan struct{})
	collector.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := w.Collect(t.Context(), "", false); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 4 {
		writers.Go(func() {
			for n := range 40 {
				w.put(fmt.Sprintf("d-%d-%d", i, n), fmt.Sprintf("content %d", (i+n)%7), 1+(i*n)%9)
			}
		})
	}
	writers.Wait()
	close(done)
	collector.Wait()
	check := func() (kept int) {
		if err := w.Items(t.Context(), func(i Item) error {
			for _, d := range slices.Concat(i.Content, i.Evidence) {
				if _, err := w.blobs.Stat(t.Context(), d); err != nil {
					t.Errorf("dispatch %s: %v", i.ID, err)
				}
			}
			if i.Content != nil {
				kept++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return kept
	}
	check()
	w.collect("", false)
	if n := check(); n != 5 {
		t.Errorf("%d dispatches have content, want 5", n)
	}
}

func TestNothingIsRemovedWhenReferencesCannotBeRead(t *testing.T) {
	w := newWorld(t, Rules{Content: Limit{Count: 1}})
	w.put("d-old", "old", 9)
	w.put("d-new", "new", 1)
	w.cfg.Dispatches = unreadable{w.book}
	if _, err := w.Collect(t.Context(), "", false); err == nil || !w.has("old") {
		t.Errorf("err %v, old exists: %t", err, w.has("old"))
	}
	if len(w.log()) != 0 {
		t.Errorf("log %q", w.log())
	}
}

type unreadable struct{ *book }

func (u unreadable) Items(ctx context.Context, each func(Item) error) error {
	return errors.Join(u.book.Items(ctx, each), errors.New("one of them cannot be read"))
}

func TestDiskUseIsMeasuredByClass(t *testing.T) {
	w := newWorld(t, Rules{Content: Limit{Count: 3}})
	w.put("d-a", "12345", 1)
	w.put("d-b", "12345", 1)
	w.put("d-c", "evidence of d-a", 1) // content here and evidence there
	if err := os.WriteFile(filepath.Join(w.cfg.Attempts, "f"), make([]byte, 777), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := w.DiskUse(t.Context())
	if err != nil || u == nil {
		t.Fatal(u, err)
	}
	if u.Content != 5 || u.Evidence != 45 || u.Unreferenced != 0 || u.Attempts != 777 || u.Database == 0 || u.Free == 0 || !u.MeasuredAt.Equal(noon) {
		t.Errorf("%+v", u)
	}
}

func TestDiskUseDoesNotWaitForASlowMeasurement(t *testing.T) {
	w := newWorld(t, Rules{})
	w.put("d-a", "12345", 1)
	if _, err := w.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.put("d-b", "123456", 1)
	w.mu.Lock()
	w.took = quick + 1
	w.mu.Unlock()
	if err := w.enter(t.Context()); err != nil { // as a long collection would
		t.Fatal(err)
	}
	u, err := w.DiskUse(t.Context())
	w.leave()
	if err != nil || u == nil || u.Content != 5 {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestAMeasurementThatNobodyWaitedForIsMadeInTheBackground(t *testing.T) {
	w := newWorld(t, Rules{})
	w.put("d-a", "12345", 1)
	w.mu.Lock()
	w.took = quick + 1
	w.mu.Unlock()
	for u, err := w.DiskUse(t.Context()); u == nil; u, err = w.DiskUse(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

// cache is a Checkouts with some in use.
type cache struct {
	list []checkoutcache.Entry
	busy string
}

func (c *cache) List() ([]checkoutcache.Entry, error) { return c.list, nil }
func (c *cache) Sweep() (int, error)                  { return 0, nil }
func (c *cache) Remove(e checkoutcache.Entry) error {
	if e.Key == c.busy {
		return fmt.Errorf("%s: %w", e.Key, checkoutcache.ErrInUse)
	}
	c.list = slices.DeleteFunc(c.list, func(o checkoutcache.Entry) bool { return o.Key == e.Key })
	return nil
}

func TestCheckoutsExpireByAgeThenSizeUnlessInUse(t *testing.T) {
	w := newWorld(t, Rules{Checkouts: Limit{Age: 5 * day, Size: 25}})
	entry := func(key string, days int) checkoutcache.Entry {
		return checkoutcache.Entry{Key: key, Bytes: 10, LastUsed: noon.Add(-time.Duration(days) * day)}
	}
	c := &cache{list: []checkoutcache.Entry{entry("one", 1), entry("two", 2), entry("three", 3), entry("six", 6), entry("seven", 7)}, busy: "seven"}
	w.cfg.Checkouts = c
	dry := w.collect("", true)
	if len(dry.Checkouts) != 3 || len(c.list) != 5 {
		t.Errorf("dry: %+v", dry.Checkouts)
	}
	r := w.collect("", false)
	var got []string
	for _, e := range r.Checkouts {
		got = append(got, e.Name+" "+e.Rule)
	}
	if want := []string{"six checkouts.age 5d", "three checkouts.size 25B"}; !slices.Equal(got, want) || r.Busy != 1 {
		t.Errorf("gone %q, busy %d; want %q", got, r.Busy, want)
	}
	if u, err := w.DiskUse(t.Context()); err != nil || u.Checkouts != 30 {
		t.Errorf("%+v %v", u, err)
	}
}
