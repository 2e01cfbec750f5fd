package audit

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// world is a state directory with its key.
type world struct {
	dir    string
	key    seal.Signer
	store  *store.Store
	ledger *Ledger
	log    *Tree
	n      int // entries written

	mu  sync.Mutex
	now time.Time // guarded by mu
}

func storeConfig(dir string) store.Config {
	return store.Config{Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{Migration(), TreeMigration()}}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	key, err := seal.CreateServiceKey(dir)
	must(t, err)
	w := &world{dir: dir, key: key, now: time.Date(2026, 11, 21, 14, 22, 11, 0, time.UTC)}
	w.openStore(t)
	t.Cleanup(w.close)
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) openStore(t testing.TB) {
	t.Helper()
	st, err := store.Open(t.Context(), storeConfig(w.dir))
	if errors.Is(err, store.ErrNotExist) {
		st, err = store.Create(t.Context(), storeConfig(w.dir))
	}
	must(t, err)
	w.store = st
	w.ledger, err = Open(t.Context(), Config{Store: st, Now: w.clock})
	must(t, err)
}

func (w *world) config() TreeConfig {
	return TreeConfig{
		Dir: w.path("log"), Ledger: w.ledger, Signer: w.key, Origin: seal.LogOrigin(w.key.KeyID()), Now: w.clock,
		Interval: 20 * time.Millisecond, Retry: time.Millisecond,
	}
}

// open opens the state and the tree with changes to the configuration.
func (w *world) open(t testing.TB, changes ...func(*TreeConfig)) error {
	t.Helper()
	if w.store == nil {
		w.openStore(t)
	}
	cfg := w.config()
	for _, change := range changes {
		change(&cfg)
	}
	var err error
	w.log, err = OpenTree(t.Context(), cfg)
	if err != nil {
		w.log = nil
	}
	return err
}

func (w *world) close() {
	if w.log != nil {
		_ = w.log.Close()
	}
	if w.store != nil {
		_ = w.store.Close()
	}
	w.log, w.store, w.ledger = nil, nil, nil
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// grow writes entries.
func (w *world) grow(t testing.TB, count int) {
	t.Helper()
	for count > 0 {
		var list []Item
		for range min(count, 500) {
			list = append(list, Item{Entry: record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: fmt.Sprintf("entry %d", w.n)}}})
			w.n++
		}
		must(t, w.ledger.CommitAll(t.Context(), list, nil))
		count -= len(list)
	}
}

// covered waits until a checkpoint covers all entries, and returns it.
func (w *world) covered(t testing.TB) logproof.Checkpoint {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, w.log.Wait(ctx, uint64(w.n)))
	_, c := w.log.Latest()
	return c
}

// built returns a closed world with that many entries, and its checkpoint.
func built(t testing.TB, count int) (*world, logproof.Checkpoint) {
	t.Helper()
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, count)
	c := w.covered(t)
	w.close()
	return w, c
}

// edit changes the table bypassing the service.
func (w *world) edit(t testing.TB, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path("store", "state.db")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer db.Close()
	for _, s := range append([]string{"DROP TRIGGER IF EXISTS audit_entry_update", "DROP TRIGGER IF EXISTS audit_entry_delete"}, statements...) {
		_, err := db.ExecContext(t.Context(), s)
		must(t, err)
	}
}

// rewrite changes the text of entry seq, and its hash accordingly.
func (w *world) rewrite(t testing.TB, seq int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path("store", "state.db")+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer db.Close()
	var leaf string
	must(t, db.QueryRowContext(t.Context(), "SELECT leaf FROM audit_entry WHERE seq = ?", seq).Scan(&leaf))
	other := strings.Replace(leaf, "entry", "Entry", 1)
	if other == leaf {
		t.Fatalf("nothing to change in %s", leaf)
	}
	hash := logproof.LeafHash([]byte(other))
	w.edit(t)
	_, err = db.ExecContext(t.Context(), "UPDATE audit_entry SET leaf = ?, hash = ? WHERE seq = ?", other, hash[:], seq)
	must(t, err)
}

// reference returns the root of the first size entries of the table.
func (w *world) reference(t testing.TB, size uint64) logproof.Hash {
	t.Helper()
	sum := logproof.NewRange()
	for sum.Size() < size {
		list, err := w.ledger.Leaves(t.Context(), sum.Size(), int(size-sum.Size()))
		must(t, err)
		for i := range list {
			must(t, sum.Add(logproof.LeafHash(list[i].Leaf)))
		}
	}
	root, err := sum.Root()
	must(t, err)
	return root
}

// copyTree copies a directory.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.CopyFS(to, os.DirFS(from)))
	must(t, filepath.WalkDir(to, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(name, 0o700)
		}
		return os.Chmod(name, 0o600)
	}))
}

// brokenSigner fails while err is set.
type brokenSigner struct {
	seal.Signer
	mu  sync.Mutex
	err error // guarded by mu
}

func (s *brokenSigner) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *brokenSigner) Sign(ctx context.Context, message []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.Signer.Sign(ctx, message)
}

// kill starts a process that writes entries and keeps the tree, and kills it after
// that many lines of output.
func kill(t *testing.T, dir, round string, lines int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestTreeHelper$")
	cmd.Env = append(os.Environ(), "TREE_TEST_HELPER="+dir, "TREE_TEST_ROUND="+round)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	said := bufio.NewScanner(out)
	for n := 0; n < lines && said.Scan(); n++ {
		if strings.Contains(said.Text(), "FAIL") {
			t.Error(said.Text())
		}
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
}

// TestTreeHelper is the child process of kill.
func TestTreeHelper(t *testing.T) {
	dir := os.Getenv("TREE_TEST_HELPER")
	if dir == "" {
		return
	}
	key, err := seal.OpenServiceKey(dir)
	must(t, err)
	w := &world{dir: dir, key: key, now: time.Date(2026, 11, 21, 14, 22, 11, 0, time.UTC)}
	must(t, w.open(t))
	for {
		w.grow(t, 20)
		fmt.Println("grown")
	}
}

func public(s seal.Signer) ed25519.PublicKey { return s.Public() }

// until waits until holds returns true.
func until(t testing.TB, what string, l *Tree, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("timeout: %s", what)
		}
	}
}
