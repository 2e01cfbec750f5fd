package anchor

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// state is a state directory, open or not.
type state struct {
	dir     string
	key     seal.Signer
	store   *store.Store
	ledger  *audit.Ledger
	tree    *audit.Tree
	keeper  *Keeper
	log     lockedBuffer
	lost    map[string]api.Digest // what an operator named as lost
	unsent  bool                  // send nothing
	hurried bool                  // wait a second for an anchor, not a minute

	mu    sync.Mutex
	round chan struct{} // closed after the next round of any anchor; guarded by mu
}

// sent is called by the Keeper after each round.
func (s *state) sent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.round)
	s.round = make(chan struct{})
}

func (s *state) nextRound() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.round
}

// lockedBuffer is the output of the Keeper's logger.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newState(t testing.TB) *state {
	t.Helper()
	dir := t.TempDir()
	_, err := seal.CreateServiceKey(dir)
	must(t, err)
	return openState(t, dir)
}

func openState(t testing.TB, dir string) *state {
	t.Helper()
	s := &state{dir: dir, round: make(chan struct{})}
	var err error
	s.key, err = seal.OpenServiceKey(dir)
	must(t, err)
	cfg := store.Config{Dir: filepath.Join(dir, "store"), Migrations: []store.Migration{audit.Migration(), audit.TreeMigration(), Migration()}}
	s.store, err = store.Open(t.Context(), cfg)
	if errors.Is(err, store.ErrNotExist) {
		s.store, err = store.Create(t.Context(), cfg)
	}
	must(t, err)
	t.Cleanup(s.close)
	s.ledger, err = audit.Open(t.Context(), audit.Config{Store: s.store, Now: time.Now})
	must(t, err)
	s.tree, err = audit.OpenTree(t.Context(), audit.TreeConfig{Dir: filepath.Join(dir, "log"), Ledger: s.ledger, Signer: s.key, Origin: s.origin(), Now: time.Now, Interval: 10 * time.Millisecond})
	must(t, err)
	return s
}

func (s *state) origin() string { return seal.LogOrigin(s.key.KeyID()) }

func (s *state) close() {
	if s.keeper != nil {
		_ = s.keeper.Close()
	}
	if s.tree != nil {
		_ = s.tree.Close()
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	s.keeper, s.tree, s.store = nil, nil, nil
}

// snapshot copies a closed state.
func (s *state) snapshot(t testing.TB) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", s.dir, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return to
}

// grow writes entries, waits for their checkpoint and returns the size of the log.
func (s *state) grow(t testing.TB, count int, what string) uint64 {
	t.Helper()
	for i := range count {
		_, err := s.ledger.Record(t.Context(), record.Entry{Kind: record.KindServiceStopped, Detail: record.ServiceStop{Reason: fmt.Sprintf("%s %d", what, i)}}, nil)
		must(t, err)
	}
	n, err := s.ledger.Len(t.Context())
	must(t, err)
	must(t, s.tree.Wait(t.Context(), n))
	return n
}

// keeperConfig has an interval of 20 ms.
func (s *state) keeperConfig(anchors ...Anchor) Config {
	cfg := Config{
		Store: s.store, Len: s.ledger.Len, Log: s.tree, Origin: s.origin(), Keys: []ed25519.PublicKey{s.key.Public()}, Now: time.Now,
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)), ExchangeTimeout: time.Minute, Retry: 5 * time.Millisecond, CompareTimeout: time.Minute, TreeTimeout: time.Minute, sent: s.sent,
		Lost: func(name string, found api.Digest) bool { return found != "" && s.lost[name] == found },
	}
	every := 20 * time.Millisecond
	if s.unsent {
		every = time.Hour
	}
	if s.hurried {
		cfg.CompareTimeout, cfg.ExchangeTimeout = time.Second, time.Second
	}
	for _, a := range anchors {
		cfg.Anchors = append(cfg.Anchors, Schedule{a, every})
	}
	return cfg
}

// open opens a Keeper.
func (s *state) open(t testing.TB, anchors ...Anchor) error {
	t.Helper()
	k, err := Open(t.Context(), s.keeperConfig(anchors...))
	if err == nil {
		s.keeper = k
	}
	return err
}

// exec changes the state behind the back of the programs.
func (s *state) exec(t testing.TB, statement string) {
	t.Helper()
	must(t, s.store.Update(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(statement)
		return err
	}))
}

// until waits until is returns true for an anchor's status.
func (s *state) until(t testing.TB, name, what string, is func(Status) bool) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := s.nextRound()
		list, err := s.keeper.Status(ctx)
		must(t, err)
		for _, st := range list {
			if st.Name == name && is(st) {
				return st
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("timeout: anchor %s is not %s: %+v\n%s", name, what, list, s.log.String())
		}
	}
}

func (s *state) anchored(t testing.TB, name string, size uint64) {
	t.Helper()
	s.until(t, name, fmt.Sprintf("at %d", size), func(st Status) bool { return st.Size >= size && st.Err == nil })
}

// proves R-A6
func TestKeeperSendsCheckpointsAndKeepsReceipts(t *testing.T) {
	s, path, repo, tsa := newState(t), filepath.Join(t.TempDir(), "f"), repository(t), newTSA(t, tsaWish{})
	gw := newGateway(t)
	open := func() error {
		return s.open(t, openFile(t, path), openGit(t, repo), tsa.open(t), gw.open(t))
	}
	must(t, open())
	for range 3 {
		n := s.grow(t, 5, "a")
		for _, name := range []string{"disk", "history", "time", "worm"} {
			s.anchored(t, name, n)
		}
	}
	all, err := Newest(t.Context(), s.store)
	if err != nil || len(all) != 4 {
		t.Fatalf("%d receipts, %v", len(all), err)
	}
	for _, r := range all {
		cp, _, err := logproof.Open(r.Signed, s.origin(), s.key.Public())
		if err != nil || cp.Size != 15 {
			t.Errorf("%s: %+v, %v", r.Name, cp, err)
		}
	}
	// Covering returns the smallest checkpoint of each anchor that covers the entry.
	covering, err := Covering(t.Context(), s.store, 6)
	must(t, err)
	for _, r := range covering {
		if size := r.Checkpoint().Size; size < 6 || size > 10 {
			t.Errorf("%s: %d", r.Name, size)
		}
	}
	if none, err := Covering(t.Context(), s.store, 16); err != nil || len(none) != 0 || len(covering) != 4 {
		t.Errorf("%d and %d, %v", len(covering), len(none), err)
	}
	// After a restart the receipts are known, and nothing is sent again.
	s.close()
	s = openState(t, s.dir)
	must(t, open())
	list, err := s.keeper.Status(t.Context())
	must(t, err)
	for _, st := range list {
		if st.Size != 15 || st.Behind != 0 || st.Err != nil || st.At.IsZero() {
			t.Errorf("%+v", st)
		}
	}
}

// proves R-A6: Close sends the newest checkpoint before the interval ends.
func TestCloseAnchorsTheLastEntries(t *testing.T) {
	s, path := newState(t), filepath.Join(t.TempDir(), "f")
	k := s.config(t, Schedule{openFile(t, path), time.Hour})
	n := s.grow(t, 3, "a")
	must(t, k.Close())
	if cp, err := logproof.Peek(newestOf(t, openFile(t, path))); err != nil || cp.Size != n {
		t.Errorf("%+v, %v", cp, err)
	}
}

func (s *state) config(t testing.TB, anchors ...Schedule) *Keeper {
	t.Helper()
	k, err := Open(t.Context(), Config{Store: s.store, Len: s.ledger.Len, Log: s.tree, Origin: s.origin(), Keys: []ed25519.PublicKey{s.key.Public()}, Now: time.Now, Anchors: anchors, sent: s.sent})
	must(t, err)
	return k
}

// Every kind of anchor that keeps checkpoints refuses a restored state and a forked
// one, whatever their keys.
//
// takeover both modes, root; service account: until rewrite the log
// takeover both modes, backup: until widen, replay, rewrite the log
// takeover same-user, MCP program; a person's account; page; worker: until rewrite the log
//
// proves R-A6
func TestARestoredOrForkedLogIsRefused(t *testing.T) {
	path, repo, gw := filepath.Join(t.TempDir(), "f"), repository(t), newGateway(t)
	kinds := map[string]func() Anchor{
		"disk": func() Anchor { return openFile(t, path) }, "history": func() Anchor { return openGit(t, repo) }, "worm": func() Anchor { return gw.open(t) },
	}
	var all []Anchor
	for _, open := range kinds {
		all = append(all, open())
	}
	s := newState(t)
	must(t, s.open(t, all...))
	before := s.grow(t, 5, "shared")
	for name := range kinds {
		s.anchored(t, name, before)
	}
	s.close()
	old, fork := s.snapshot(t), s.snapshot(t)

	s = openState(t, s.dir)
	must(t, s.open(t, all...))
	n := s.grow(t, 4, "true")
	for name := range kinds {
		s.anchored(t, name, n)
	}
	s.close()

	for name, open := range kinds {
		restored := openState(t, old)
		err := restored.open(t, open())
		if wrong := new(MismatchError); !errors.As(err, &wrong) || wrong.Held != n || wrong.Local != before || !strings.Contains(err.Error(), fmt.Sprintf("of %d entries, the log here has %d", n, before)) {
			t.Errorf("%s: a restored state: %v", name, err)
		}
		restored.close()
	}
	forked := openState(t, fork)
	long := forked.grow(t, 9, "forged") // longer, signed with the real key
	for name, open := range kinds {
		err := forked.open(t, open())
		if wrong := new(MismatchError); !errors.As(err, &wrong) || wrong.Held != n || wrong.Local != long || !strings.Contains(err.Error(), "two histories") {
			t.Errorf("%s: a forked log: %v", name, err)
		}
	}
	// A Keeper of the forked state that was already running adds nothing.
	for name, open := range kinds {
		k := forked.config(t, Schedule{silent{open(), make(chan struct{})}, 10 * time.Millisecond})
		forked.keeper = k
		forked.until(t, name, "refused", func(st Status) bool {
			_, ok := errors.AsType[*MismatchError](st.Err)
			return ok
		})
		must(t, k.Close())
		if cp, err := logproof.Peek(newestOf(t, open())); err != nil || cp.Size != n {
			t.Errorf("%s: now holds %d, %v", name, cp.Size, err)
		}
	}
	// Control: the genuine state starts.
	s = openState(t, s.dir)
	must(t, s.open(t, all...))
}

// silent is unreachable when the service starts.
type silent struct {
	Anchor
	once chan struct{}
}

func (s silent) Scan(ctx context.Context, known func(uint64) []byte, see func(Item) error) error {
	select {
	case <-s.once:
		return s.Anchor.Scan(ctx, known, see)
	default:
		close(s.once)
		return errors.New("not now")
	}
}

// Another log, an unknown key, and a state without its newest key are refused.
func TestCheckpointsOfOtherKeysAreRefusedAtStart(t *testing.T) {
	s := newState(t)
	n := s.grow(t, 5, "a")
	roots, err := s.tree.Roots(t.Context(), []uint64{n})
	must(t, err)
	root := roots[0]
	other, k := newState(t), newKey(t)
	mine := logproof.Checkpoint{Origin: s.origin(), Size: n, Root: root}
	theirs := mine
	theirs.Origin = other.origin()
	for name, c := range map[string]struct {
		cp  logproof.Checkpoint
		key logproof.Signer
		why string
	}{
		"another log":   {theirs, s.key, "of another log"},
		"a foreign key": {mine, k, "no key that this state knows"},
		"longer":        {logproof.Checkpoint{Origin: s.origin(), Size: n + 1, Root: root}, s.key, "restored from an older copy"},
		"another root":  {logproof.Checkpoint{Origin: s.origin(), Size: n, Root: logproof.EmptyRoot()}, s.key, "two histories"},
		"true":          {mine, s.key, ""},
	} {
		signed, err := logproof.Sign(t.Context(), c.cp, c.key)
		must(t, err)
		path := filepath.Join(t.TempDir(), "f")
		put(t, openFile(t, path), signed)
		err = s.open(t, openFile(t, path))
		if _, ok := errors.AsType[*MismatchError](err); ok != (c.why != "") || c.why != "" && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fake is an anchor with behaviour set by a test.
type fake struct {
	id     ID
	put    func(ctx context.Context, signed []byte) (receipt.Receipt, error)
	newest func(ctx context.Context) ([]byte, error)
}

func (f *fake) ID() ID { return f.id }

func (f *fake) Put(ctx context.Context, signed []byte) (receipt.Receipt, error) {
	return f.put(ctx, signed)
}

func (f *fake) Newest(ctx context.Context) ([]byte, error) {
	if f.newest == nil {
		return nil, nil
	}
	return f.newest(ctx)
}

func (f *fake) Scan(ctx context.Context, _ func(uint64) []byte, see func(Item) error) error {
	signed, err := f.Newest(ctx)
	if err != nil || signed == nil {
		return err
	}
	return see(Item{Where: "the only one", Signed: signed})
}

// While an anchor misbehaves the log grows, other anchors get new checkpoints, start
// and stop of the service are not delayed much, and the status reports it.
//
// proves R-A6
func TestAMisbehavingAnchorStopsNothingAndProvesNothing(t *testing.T) {
	never := make(chan struct{}) // for calls that ignore their context
	t.Cleanup(func() { close(never) })
	id := ID{"bad", receipt.File, "/somewhere"}
	lie := func(edit func(*receipt.Receipt)) func(context.Context, []byte) (receipt.Receipt, error) {
		return func(_ context.Context, signed []byte) (receipt.Receipt, error) {
			r := newReceipt(id, time.Now(), signed)
			edit(&r)
			return r, nil
		}
	}
	older := signedAt(t, newKey(t), 1, "x")
	for name, a := range map[string]*fake{
		"fails": {put: func(context.Context, []byte) (receipt.Receipt, error) {
			return receipt.Receipt{}, errors.New("disk full")
		}},
		"is slow": {put: func(ctx context.Context, _ []byte) (receipt.Receipt, error) {
			<-ctx.Done()
			return receipt.Receipt{}, ctx.Err()
		}},
		"hangs":              {put: func(context.Context, []byte) (receipt.Receipt, error) { <-never; return receipt.Receipt{}, nil }},
		"hangs at the start": {newest: func(context.Context) ([]byte, error) { <-never; return nil, nil }},
		"cannot be reached":  {newest: func(context.Context) ([]byte, error) { return nil, errors.New("no route") }},
		"has another's receipt": {put: lie(func(r *receipt.Receipt) {
			r.Signed = older
		})},
		"has another name":    {put: lie(func(r *receipt.Receipt) { r.Name = "disk" })},
		"has another place":   {put: lie(func(r *receipt.Receipt) { r.Place = "/elsewhere" })},
		"has another kind":    {put: lie(func(r *receipt.Receipt) { r.Kind, r.TSA = receipt.TSA, &receipt.Token{Token: []byte{1}} })},
		"has an empty word":   {put: func(context.Context, []byte) (receipt.Receipt, error) { return receipt.Receipt{}, nil }},
		"forgets what it had": {put: lie(func(*receipt.Receipt) {})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.id = id
			s, path := newState(t), filepath.Join(t.TempDir(), "f")
			s.hurried = true
			must(t, s.open(t, a, openFile(t, path)))
			n := s.grow(t, 3, "a")
			s.anchored(t, "disk", n)
			n = s.grow(t, 3, "b")
			s.anchored(t, "disk", n)
			st := s.until(t, "bad", "reported", func(st Status) bool { return st.Err != nil })
			if st.Behind == 0 || st.Since.IsZero() {
				t.Errorf("%+v", st)
			}
			if name == "forgets what it had" { // it lied only once
				if !strings.Contains(st.Err.Error(), "has lost it") {
					t.Errorf("%v", st.Err)
				}
			} else if st.Size != 0 {
				t.Errorf("%+v", st)
			}
			list, err := Newest(t.Context(), s.store)
			must(t, err)
			for _, r := range list {
				if r.Name == "bad" && name != "forgets what it had" {
					t.Errorf("receipt %+v", r)
				}
			}
			must(t, s.keeper.Close()) // returns in time, whatever hangs
		})
	}
}

// A checkpoint that was stored but not acknowledged is found by the retry.
//
// proves R-A6
func TestALostAnswerIsRecovered(t *testing.T) {
	path, repo, gw := filepath.Join(t.TempDir(), "f"), repository(t), newGateway(t)
	for _, kept := range []bool{false, true} {
		for _, real := range []Anchor{openFile(t, path+fmt.Sprint(kept)), openGit(t, repo), gw.open(t, func(c *S3Config) { c.Prefix = fmt.Sprintf("%v/", kept) })} {
			lost := 2
			a := &fake{id: real.ID(), newest: real.Newest, put: func(ctx context.Context, signed []byte) (receipt.Receipt, error) {
				if lost--; lost >= 0 {
					if kept {
						if _, err := real.Put(ctx, signed); err != nil {
							return receipt.Receipt{}, err
						}
					}
					return receipt.Receipt{}, errors.New("connection reset")
				}
				return real.Put(ctx, signed)
			}}
			s := newState(t)
			n := s.grow(t, 2, "a")
			must(t, s.open(t, a))
			s.anchored(t, real.ID().Name, n)
			if got := s.log.String(); !strings.Contains(got, "connection reset") || !strings.Contains(got, "recovered") {
				t.Errorf("%s: said %q", real.ID(), got)
			}
			s.close()
			if git, ok := real.(*Git); ok { // for the next log
				must(t, os.RemoveAll(filepath.Join(git.cfg.Repository, "refs/heads/bailiwick")))
			}
		}
	}
}

// proves R-A6
func TestALostFileIsNotRecreated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	s := newState(t)
	must(t, s.open(t, openFile(t, path)))
	s.anchored(t, "disk", s.grow(t, 2, "a"))
	must(t, os.Remove(path)) // as if its disk were not mounted
	s.grow(t, 2, "b")
	st := s.until(t, "disk", "reported", func(st Status) bool { return st.Err != nil })
	if !strings.Contains(st.Err.Error(), "has lost it") {
		t.Error(st.Err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was recreated")
	}
	s.close()
	s = openState(t, s.dir)
	refuses(t, s.open(t, openFile(t, path)), "no longer holds a checkpoint of 2 entries, the log here has 4", "not mounted")
}

// cut removes the entries from number from on, and all that is derived from them.
func (s *state) cut(t *testing.T, from int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(s.dir, "store", "state.db"))
	must(t, err)
	_, err = db.ExecContext(t.Context(), fmt.Sprintf("DROP TRIGGER audit_entry_delete; DELETE FROM audit_entry WHERE seq >= %d;", from)+
		"CREATE TRIGGER audit_entry_delete BEFORE DELETE ON audit_entry BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END")
	must(t, errors.Join(err, db.Close()))
	must(t, os.RemoveAll(filepath.Join(s.dir, "log")))
}

// A truncated log is refused because of its own receipts, also if no anchor can be
// reached any more, or none is configured.
//
// proves R-A6
func TestALogShorterThanItsReceiptsIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	s := newState(t)
	must(t, s.open(t, openFile(t, path)))
	n := s.grow(t, 6, "a")
	s.anchored(t, "disk", n)
	s.close()
	gone := openFile(t, filepath.Join(t.TempDir(), "no", "disk"))
	for name, anchors := range map[string][]Anchor{"unreachable": {gone}, "not configured": nil} {
		s = openState(t, s.dir)
		must(t, s.open(t, anchors...)) // control: the complete log
		if len(anchors) > 0 {
			if st := s.until(t, "disk", "reported", func(st Status) bool { return st.Err != nil }); st.Compared {
				t.Errorf("%s: %+v", name, st)
			}
		}
		s.close()
	}
	s.cut(t, 4)
	for name, anchors := range map[string][]Anchor{"reachable": {openFile(t, path)}, "unreachable": {gone}, "not configured": nil} {
		s = openState(t, s.dir)
		err := s.open(t, anchors...)
		if wrong := refused(t, err, `anchor "disk" (file `, "holds a checkpoint of 6 entries", "the log here has 4"); wrong.Held != n || wrong.Local != 4 || !wrong.Signed {
			t.Errorf("%s: %+v", name, wrong)
		}
		s.close()
	}
}

func TestOpenValidatesItsConfiguration(t *testing.T) {
	s := newState(t)
	f := openFile(t, "/x")
	if err := s.open(t, f, f); err == nil {
		t.Error("duplicate names")
	}
	bad, err := NewFile(FileConfig{Name: "No Name", Path: "/x", Now: time.Now})
	must(t, err)
	if err := s.open(t, bad); err == nil {
		t.Error("an invalid name")
	}
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Error("an empty configuration")
	}
}
