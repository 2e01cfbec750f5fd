package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/evidence"
	"github.com/bailiwick-dev/bailiwick/internal/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
	"github.com/bailiwick-dev/bailiwick/internal/strictyaml"
)

// keySettings say what the service signs with beside its own key.
type keySettings struct {
	Statements string // absolute path of a key file; empty: the service's own key
}

func (r *settingsReader) keys(n *yaml.Node) {
	r.Fields(n, "keys", map[string]func(*yaml.Node){
		"statements": func(n *yaml.Node) {
			before := r.Len()
			s := r.Line(n, "keys.statements")
			if r.Len() == before && (!filepath.IsAbs(s) || filepath.Clean(s) != s) {
				r.At(n, "keys.statements: %q: want /absolute/path of a key file", strictyaml.Clip(s))
			}
			r.s.Keys.Statements = s
		},
	})
}

// keys are what the service signs with, and has signed with.
type keys struct {
	service    seal.Signer
	statements seal.Signer
	history    seal.History
}

// openKeys opens the service's key, or makes it, after a rotation that was
// interrupted is carried out or undone.
func openKeys(ctx context.Context, dir string, ledger *audit.Ledger) (k keys, err error) {
	if err := settleRotation(ctx, dir, ledger); err != nil {
		return k, err
	}
	key, err := seal.OpenServiceKey(dir)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = seal.CreateServiceKey(dir)
	}
	if err != nil {
		return k, err
	}
	k.service = key
	k.history, err = seal.LoadHistory(dir)
	if errors.Is(err, fs.ErrNotExist) {
		k.history, err = seal.NewHistory(seal.KeyOf(key, "service")), nil
	}
	if err != nil {
		return k, err
	}
	if current := k.history.Current().ID; current != key.KeyID() {
		return k, api.Errorf(api.CodeIntegrity, "service key: %s is there, and the list of keys says that %s is in force", key.KeyID(), current).
			WithHint("restore service.key and service-keys.json of one moment in %s", dir)
	}
	return k, checkRotation(ctx, k.history, ledger)
}

// checkRotation refuses a list of keys whose last rotation the log does not
// have: it is another's, or the state is an older one.
func checkRotation(ctx context.Context, h seal.History, ledger *audit.Ledger) error {
	if len(h.Rotations) == 0 {
		return nil
	}
	last := h.Rotations[len(h.Rotations)-1]
	ok, err := logged(ctx, last, ledger)
	if err == nil && !ok {
		err = api.Errorf(api.CodeIntegrity, "service key: the list of keys has a rotation to %s, and the log has not", h.Current().ID).
			WithHint("restore the state directory of one moment")
	}
	return err
}

// logged reports whether the log has the entry of a rotation.
func logged(ctx context.Context, envelope []byte, ledger *audit.Ledger) (bool, error) {
	r, err := seal.PeekRotation(envelope)
	if err != nil {
		return false, err
	}
	c, err := ledger.Get(ctx, r.Entry)
	if api.CodeOf(err) == api.CodeNotFound {
		return false, nil
	}
	return err == nil && c.Entry.Kind == record.KindKeyRotated && c.Entry.Refs[record.RefRotation] == api.DigestOf(envelope), err
}

// settleRotation deals with a next key that is there. If the log says that it
// is in force, what is left to do is done; else there is none.
func settleRotation(ctx context.Context, dir string, ledger *audit.Ledger) error {
	envelope, err := seal.LoadNextRotation(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return seal.RemoveNextKey(dir)
	}
	if err != nil {
		return err
	}
	ok, err := logged(ctx, envelope, ledger)
	if err == nil && ok {
		err = takeRotation(dir, envelope)
	}
	if err != nil {
		return fmt.Errorf("service key: a rotation was interrupted: %w", err)
	}
	return seal.RemoveNextKey(dir)
}

// takeRotation puts the next key in force. What was done of it before does no
// harm.
func takeRotation(dir string, envelope []byte) error {
	r, err := seal.PeekRotation(envelope)
	if err != nil {
		return err
	}
	h, err := seal.LoadHistory(dir)
	if err != nil {
		return err
	}
	if h.Current().ID != r.New.ID {
		if h, err = h.Rotate(envelope); err != nil {
			return err
		}
		if err := h.Save(dir); err != nil {
			return err
		}
	}
	failpoint.Hit(failpoint.RotateListed, "")
	key, err := seal.OpenServiceKey(dir)
	if err != nil {
		return err
	}
	if key.KeyID() != r.New.ID {
		if err := seal.ActivateNextKey(dir); err != nil {
			return err
		}
	}
	failpoint.Hit(failpoint.RotateTaken, "")
	return nil
}

// openStatements opens the key that signs what was made of dispatches.
func (k *keys) openStatements(ctx context.Context, set keySettings) error {
	k.statements = k.service
	if set.Statements == "" {
		return nil
	}
	key, err := seal.OpenSigner(ctx, set.Statements, nil)
	if errors.Is(err, seal.ErrPassphrase) {
		return api.Errorf(api.CodeInvalid, "keys.statements: %s is encrypted, and nobody is there to open it", set.Statements).WithHint("make one for the service: bailiwickd key create FILE")
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "keys.statements: %w", err)
	}
	k.statements = key
	return nil
}

// settleStatements notes which key signs statements, where that is another than
// before, and stores the list of keys.
func (k *keys) settleStatements(ctx context.Context, dir string, ledger *audit.Ledger) error {
	list, id, from := k.history.Statements, k.statements.KeyID(), uint64(0)
	if n := len(list); n > 0 {
		was := list[n-1].Key.ID
		if was == id {
			return nil
		}
		var err error
		detail := record.KeyRotation{Use: record.UseStatements, Old: string(was), New: string(id)}
		if from, err = ledger.Record(ctx, record.Entry{Kind: record.KindKeyRotated, Detail: detail}, nil); err != nil {
			return err
		}
	}
	h, err := k.history.SignStatementsWith(seal.KeyOf(k.statements, "statements"), from)
	if err != nil {
		return err
	}
	k.history = h
	return h.Save(dir)
}

// trust is what an auditor of this installation should be given.
func (s *service) trust(context.Context) ([]byte, error) {
	dirs := s.t.Dirs
	deploy, err := seal.LoadTrustRoot(dirs.TrustRoot())
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "%w", err).WithHint("an auditor must know whose catalog counts; make one: bailiwick init")
	}
	t := evidence.Trust{
		V: 1, Log: evidence.LogTrust{Origin: s.keys.history.Log, Keys: periods(s.keys.history.Keys)},
		Deploy: evidence.DeployTrust{Root: deploy}, Statements: periods(s.keys.history.Statements),
	}
	operators, err := seal.LoadTrustRoot(dirs.OperatorRoot())
	switch {
	case err == nil:
		t.Operators = &operators
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return t.Encode()
}

func periods(list []seal.Period) []evidence.LogKey {
	out := make([]evidence.LogKey, 0, len(list))
	for _, p := range list {
		out = append(out, evidence.LogKey{ID: p.Key.ID, Name: p.Key.Name, Public: p.Key.Public, From: p.From, UpTo: p.UpTo})
	}
	return out
}
