package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// keyVerbs are the verbs about the service's keys.
type keyVerbs struct{ *tree }

func (t *keyVerbs) showCommand(v *console.Verb) {
	var asJSON bool
	var asPEM string
	v.Do(func(_ context.Context, _ []string) error {
		h, err := seal.LoadHistory(t.Dirs.State)
		if err != nil {
			return api.Errorf(api.CodeNotFound, "%w", err).WithHint("the service creates its key at its first start: bailiwickd start")
		}
		switch {
		case asPEM != "":
			return t.showPEM(h, asPEM)
		case asJSON:
			b, err := canon.Marshal(h)
			if err == nil {
				_, err = fmt.Fprintf(t.Stdout, "%s\n", b)
			}
			return err
		}
		t.showPeriods("service", h.Keys)
		t.showPeriods("statements", h.Statements)
		return nil
	})
	v.Flag(&asJSON, "json")
	v.Flag(&asPEM, "pem")
}

func (t *keyVerbs) showPeriods(use string, list []seal.Period) {
	for _, p := range slices.Backward(list) {
		if p.UpTo == nil {
			fmt.Fprintf(t.Stdout, "%-11s %s  in force from entry #%d on\n", use, p.Key.ID, p.From)
		} else {
			fmt.Fprintf(t.Stdout, "%-11s %s  entries #%d to #%d\n", use, p.Key.ID, p.From, *p.UpTo)
		}
	}
}

// showPEM prints the newest key of a use, or the key with an id.
func (t *keyVerbs) showPEM(h seal.History, which string) error {
	list := slices.Concat(h.Keys, h.Statements)
	switch which {
	case record.UseService:
		list = h.Keys
	case record.UseStatements:
		list = h.Statements
	default:
		list = slices.DeleteFunc(list, func(p seal.Period) bool { return string(p.Key.ID) != which })
	}
	if len(list) == 0 {
		return api.Errorf(api.CodeNotFound, "--pem %s: no such key", which).WithHint("see: bailiwickd key show")
	}
	b, err := list[len(list)-1].Key.PEM()
	if err == nil {
		_, err = t.Stdout.Write(b)
	}
	return err
}

func (t *keyVerbs) createCommand(v *console.Verb) {
	var ecdsa bool
	v.Do(func(_ context.Context, args []string) error {
		how := seal.NewKey{Name: record.UseStatements, Unencrypted: true}
		if ecdsa {
			how.Algorithm = seal.ECDSAP256
		}
		k, err := seal.CreateKey(args[0], how)
		if err == nil {
			_, err = fmt.Fprintln(t.Stdout, k.KeyID())
		}
		return err
	})
	v.Flag(&ecdsa, "ecdsa")
}

func (t *keyVerbs) rotateCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error { return t.rotate(ctx) })
}

// rotate puts a new service key in force. The log entry decides: the old key is in
// force until the entry is durable, and the new one from then on.
func (t *keyVerbs) rotate(ctx context.Context) (err error) {
	s, err := t.openStopped(ctx, "rotate the key")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	old, fresh, err := t.replaceKey(ctx, s.keys, s.ledger)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.Stdout, "%s\n", fresh)
	fmt.Fprintf(t.Stderr, "key %s is in force and replaces %s; give auditors a new trust file: bailiwick audit trust\n", fresh, old)
	return nil
}

// openStopped opens the state, the log and the keys while no service runs.
func (t *tree) openStopped(ctx context.Context, doing string) (s *service, err error) {
	missing := api.Errorf(api.CodeNotFound, "no service state in %s", t.Dirs.State).WithHint("the service of this account has not run there; see the directories: bailiwick doctor")
	if err := checkOwn(t.Dirs.State, t.UID); errors.Is(err, fs.ErrNotExist) {
		return nil, missing
	} else if err != nil {
		return nil, err
	}
	s = &service{t: t, logger: slog.New(slog.NewTextHandler(t.Stderr, nil))}
	s.store, err = store.Open(ctx, store.Config{Dir: t.Dirs.Store(), Logger: s.logger, Migrations: migrations()})
	if owned, ok := errors.AsType[*store.OwnedError](err); ok {
		return nil, api.Errorf(api.CodeConflict, "cannot %s while a service is running: %w", doing, owned).WithHint("first run: bailiwick down")
	}
	if errors.Is(err, store.ErrNotExist) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	if s.ledger, err = audit.Open(ctx, audit.Config{Store: s.store, Now: t.Now, Logger: s.logger}); err == nil {
		s.keys, err = openKeys(ctx, t.Dirs.State, s.ledger)
	}
	if err != nil {
		return nil, errors.Join(err, s.store.Close())
	}
	return s, nil
}

func (t *keyVerbs) replaceKey(ctx context.Context, k keys, ledger *audit.Ledger) (old, fresh seal.KeyID, err error) {
	dir := t.Dirs.State
	if err := k.history.Save(dir); err != nil { // the first rotation creates the history
		return "", "", err
	}
	next, err := seal.CreateNextKey(dir)
	if err != nil {
		return "", "", err
	}
	at, err := ledger.Len(ctx)
	if err != nil {
		return "", "", err
	}
	r := seal.KeyRotation{V: 1, Log: k.history.Log, Old: k.service.KeyID(), New: seal.KeyOf(next, "service"), Entry: at, At: t.Now().UTC()}
	envelope, err := r.Sign(ctx, k.service)
	if err != nil {
		return "", "", err
	}
	if err := seal.SaveNextRotation(dir, envelope); err != nil {
		return "", "", err
	}
	failpoint.Hit(failpoint.RotateKey, "")
	seq, err := ledger.Record(ctx, record.Entry{
		Kind: record.KindKeyRotated, Refs: map[string]api.Digest{record.RefRotation: api.DigestOf(envelope)},
		Detail: record.KeyRotation{Use: record.UseService, Old: string(r.Old), New: string(r.New.ID)},
	}, nil)
	if err != nil {
		return "", "", err // the next start finds in the log whether it happened
	}
	if seq != at {
		return "", "", fmt.Errorf("the rotation was logged as entry #%d but signed for entry #%d", seq, at)
	}
	failpoint.Hit(failpoint.RotateLogged, "")
	if err := finishRotation(dir, envelope); err != nil {
		return "", "", err
	}
	return r.Old, r.New.ID, seal.RemoveNextKey(dir)
}
