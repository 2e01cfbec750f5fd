// Package audit is the log: the one place where decisions and facts become
// durable, and the Merkle tree that makes them verifiable.
//
// Ledger.Commit takes a policy.Decision and returns an Admission, but only after
// the entry and the state that belongs to it are on disk together. Everything
// that has an effect takes an Admission, so an effect without a logged decision
// does not compile, and the zero Admission is refused at run time. If the entry
// cannot be written nothing is allowed; no option relaxes that.
//
// Triggers in the schema guard against our own mistakes. Against a party that
// can write the file there is the Tree: C2SP tiles over the entries, and a
// signed checkpoint.
//
// The package makes no decision, opens no connection and never changes or
// removes an entry.
//
// Carries R-A2 (no degraded mode), R-A3 and R-A4, and with the tree R-A1 and
// R-A5.
package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Config is what a Ledger needs.
type Config struct {
	Store  *store.Store     // opened with Migration among its migrations
	Now    func() time.Time // the time of entries
	Logger *slog.Logger     // nil discards
	// Observe, if set, is called for each durable entry.
	Observe func(record.Kind)
	// Admit, if set, is called before new work is admitted; its error is why it
	// must be refused. Denials, facts and entries that only end work are written
	// regardless.
	Admit func() error
}

// Ledger is the open log.
type Ledger struct {
	store   *store.Store
	now     func() time.Time
	log     *slog.Logger
	observe func(record.Kind)
	admit   func() error
	next    uint64 // seq of the next entry; owned by the store's writer once open
	chains  chains // likewise
}

// Open opens the log and refuses one whose newest entries are damaged. Check
// verifies all of it.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	if cfg.Store == nil || cfg.Now == nil {
		return nil, errors.New("audit: a store and a clock are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Observe == nil {
		cfg.Observe = func(record.Kind) {}
	}
	if cfg.Admit == nil {
		cfg.Admit = func() error { return nil }
	}
	l := &Ledger{store: cfg.Store, now: cfg.Now, log: cfg.Logger, observe: cfg.Observe, admit: cfg.Admit}
	var err error
	if l.next, err = l.checkNewest(ctx); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return l, nil
}

// Commit makes the decision d and the state that fn writes durable, both or
// neither. fn may be nil; it runs on the store's writer (see store.Update),
// only if d is allowed, and never sees the entry.
//
// Commit sets At, Principal, Action, Resource, Decision and Policies of e. It
// returns:
//
//   - allowed and durable: an Admission for e's kind, dispatch and
//     RefManifest;
//   - denied and durable: an *api.Error of CodeDenied with the entry's number.
//     The entry has the kind of a denial of e's kind;
//   - fn's own error, unwrapped: nothing was stored or logged;
//   - ctx's error: nothing was stored;
//   - an error of CodeAuditUnavailable: nothing is allowed. If it is also
//     store.ErrUncertain, the entry may appear after a restart; it admits
//     nothing, since no caller has an Admission for it.
func (l *Ledger) Commit(ctx context.Context, d policy.Decision, e record.Entry, fn func(*store.Tx) error) (Admission, error) {
	if !d.Valid() {
		return Admission{}, fmt.Errorf("audit: entry %q without a decision", e.Kind)
	}
	if e.Kind.Decided() != record.Allow {
		return Admission{}, fmt.Errorf("audit: entry %q does not admit anything: pass the kind of the allowed decision; Commit finds the kind of the denial", e.Kind)
	}
	e.Principal, e.Action, e.Resource, e.Policies = d.Principal(), d.Action(), d.Resource(), d.Policies()
	if !d.Allowed() {
		return Admission{}, l.deny(ctx, d, e)
	}
	if err := l.Admits(e.Kind); err != nil {
		return Admission{}, err
	}
	allowed(&e, d)
	seq, err := l.append(ctx, &e, fn)
	if err != nil {
		return Admission{}, err
	}
	return mint(seq, &e), nil
}

// Deny logs the denied decision d, as Commit does, and returns the error for
// the caller. Where amend is not nil, that is what amend returns for the
// *api.Error of the denial; an error of the log itself is returned as it is.
func (l *Ledger) Deny(ctx context.Context, d policy.Decision, e record.Entry, amend func(*api.Error) *api.Error) error {
	if d.Allowed() {
		return fmt.Errorf("audit: entry %q: an allowed decision is not a denial", e.Kind)
	}
	_, err := l.Commit(ctx, d, e, nil)
	var denied *api.Error
	if amend == nil || !errors.As(err, &denied) || denied.Code != api.CodeDenied {
		return err
	}
	return amend(denied)
}

// Late completes the detail of an entry in its transaction, where its number is known,
// and writes the state that belongs to it. Its errors are those of fn in Commit.
type Late func(tx *store.Tx, seq uint64, e *record.Entry) error

// Decide makes the decision d, allowed or denied, durable as Commit does, together with
// the state that fn writes. Only an allowed one yields an Admission that admits.
func (l *Ledger) Decide(ctx context.Context, d policy.Decision, e record.Entry, fn Late) (Admission, error) {
	if !d.Valid() || e.Kind.Decided() != record.Allow {
		return Admission{}, fmt.Errorf("audit: entry %q without a decision", e.Kind)
	}
	allowed(&e, d)
	if d.Allowed() {
		if err := l.Admits(e.Kind); err != nil {
			return Admission{}, err
		}
	} else {
		var err error
		if e, err = e.Denied(d.Reasons()); err != nil {
			return Admission{}, err
		}
	}
	seq, err := l.write(ctx, func(tx *store.Tx, seq uint64) ([]row, error) {
		if err := fn(tx, seq, &e); err != nil {
			return nil, err
		}
		r, err := l.row(ctx, &e)
		if err != nil {
			return nil, unavailable(err)
		}
		return []row{r}, nil
	})
	if err != nil {
		return Admission{}, err
	}
	if !d.Allowed() {
		return Admission{seq: seq}, nil
	}
	return mint(seq, &e), nil
}

// AccessEntry returns the entry of an operation that has no kind of its own.
// dispatch may be empty.
func AccessEntry(dispatch api.DispatchID, operation string) record.Entry {
	return record.Entry{Kind: record.KindAccessAllowed, Dispatch: dispatch, Detail: record.Access{Operation: operation}}
}

func (l *Ledger) deny(ctx context.Context, d policy.Decision, e record.Entry) error {
	reasons := d.Reasons()
	e, err := e.Denied(reasons)
	if err != nil {
		return err
	}
	seq, err := l.append(ctx, &e, nil)
	if err != nil {
		return err
	}
	denied := api.Errorf(api.CodeDenied, "%s may not %s %s", d.Principal(), d.Action(), d.Resource())
	if len(reasons) > 0 {
		denied.Message = strings.Join(reasons, "; ")
	}
	denied.AuditEntry = &seq
	return denied
}

// Record makes a fact and the state that fn writes durable, and returns the
// entry's number. fn may be nil. It refuses a kind that has a decision. Other
// errors are those of Commit.
func (l *Ledger) Record(ctx context.Context, e record.Entry, fn func(*store.Tx) error) (uint64, error) {
	if e.Kind.Decided() != record.NoDecided {
		return 0, fmt.Errorf("audit: entry %q needs a decision", e.Kind)
	}
	e.Decision, e.Policies = record.NoDecided, nil
	return l.append(ctx, &e, fn)
}

// Item is an entry for CommitAll: a fact, or an allowed decision.
type Item struct {
	Decision policy.Decision // zero: the entry states a fact
	Entry    record.Entry
}

// CommitAll makes several entries, in order, and the state that fn writes durable
// in one transaction. fn may be nil. It mints no Admission: it is for callers
// whose only effect is state. It refuses a denied decision. Other errors are
// those of Commit.
func (l *Ledger) CommitAll(ctx context.Context, items []Item, fn func(*store.Tx) error) error {
	entries := make([]record.Entry, len(items))
	for i := range items {
		entries[i] = items[i].Entry
		e, d := &entries[i], &items[i].Decision
		switch decided := e.Kind.Decided(); {
		case decided == record.NoDecided && !d.Valid():
			e.Decision, e.Policies = record.NoDecided, nil
		case decided == record.Allow && d.Allowed():
			allowed(e, *d)
		default:
			return fmt.Errorf("audit: entry %q has the wrong decision", e.Kind)
		}
	}
	_, err := l.appendAll(ctx, entries, fn)
	return err
}

// allowed sets the fields of e that an allowed decision determines.
func allowed(e *record.Entry, d policy.Decision) {
	e.Principal, e.Action, e.Resource, e.Policies, e.Decision = d.Principal(), d.Action(), d.Resource(), d.Policies(), record.Allow
}

// append writes one entry and returns its number.
func (l *Ledger) append(ctx context.Context, e *record.Entry, fn func(*store.Tx) error) (uint64, error) {
	return l.appendAll(ctx, []record.Entry{*e}, fn)
}

// appendAll prepares entries before the store's writer runs, and returns the number of
// the first.
func (l *Ledger) appendAll(ctx context.Context, entries []record.Entry, fn func(*store.Tx) error) (uint64, error) {
	rows := make([]row, len(entries))
	for i := range entries {
		var err error
		if rows[i], err = l.row(ctx, &entries[i]); err != nil {
			return 0, unavailable(err)
		}
	}
	return l.write(ctx, func(tx *store.Tx, _ uint64) ([]row, error) {
		if fn == nil {
			return rows, nil
		}
		return rows, fn(tx)
	})
}

// write is the only writer of entries. fn gets the number of the first in its
// transaction, and returns them.
func (l *Ledger) write(ctx context.Context, fn func(*store.Tx, uint64) ([]row, error)) (first uint64, err error) {
	var own error // fn's
	var rows []row
	err = l.store.Update(ctx, func(tx *store.Tx) error {
		first = l.next
		if rows, own = fn(tx, first); own != nil {
			return own
		}
		for i := range rows {
			// A failed group poisons the store, so a number is either committed or
			// no entry follows it.
			args, err := l.link(tx, &rows[i], first+uint64(i)) //nolint:gosec // G115: an index
			if err == nil {
				_, err = tx.Exec(insertEntry, args...)
			}
			if err != nil {
				l.chains = chains{} // read again what is rolled back
				return err
			}
		}
		l.next += uint64(len(rows))
		return nil
	})
	if err == nil {
		for i := range rows {
			l.observe(rows[i].entry.Kind)
		}
	}
	return first, appendError(ctx, err, own)
}

// row prepares an entry.
func (l *Ledger) row(ctx context.Context, e *record.Entry) (row, error) {
	if e.Principal != "" && e.Kind.Actor() == record.ActorService {
		return row{}, fmt.Errorf("audit: entry %q names %s, who did not do it", e.Kind, e.Principal)
	}
	e.At, e.Prev = l.now(), record.Prev{}
	if e.Principal != "" {
		e.Token = record.TokenOf(ctx)
	}
	leaf, err := e.Encode()
	return row{e, leaf, e.At.UnixMicro(), searchColumns(e)}, err
}

// appendError separates the caller's own failures from those of the log.
func appendError(ctx context.Context, err, own error) error {
	var panicked *store.PanicError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrPoisoned):
		return unavailable(err)
	case own != nil:
		return own
	case errors.Is(err, ErrImpossible):
		return fmt.Errorf("audit: %w", err)
	case errors.As(err, &panicked), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return err
	}
	return unavailable(err)
}

// unavailableError is an *api.Error that keeps its cause.
type unavailableError struct {
	api   *api.Error
	cause error
}

func unavailable(cause error) error {
	e := api.Errorf(api.CodeAuditUnavailable, "the log cannot be written, so nothing is allowed: %w", cause)
	return &unavailableError{e.WithHint("%s", store.Advice(cause)), cause}
}

func (e *unavailableError) Error() string   { return e.api.Error() }
func (e *unavailableError) Unwrap() []error { return []error{e.api, e.cause} }
