package daemoncli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.yaml.in/yaml/v4"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/verify/evidence"
)

// keySettings is the section keys.
type keySettings struct {
	Statements string // absolute path of the key for statements; empty: the service's own key
}

func (r *settingsReader) keys(n *yaml.Node) {
	r.Fields(n, "keys", map[string]func(*yaml.Node){
		"statements": func(n *yaml.Node) { r.s.Keys.Statements = r.path(n, "keys.statements") },
	})
}

// keys are the service's signing keys with their history.
type keys struct {
	service    seal.Signer
	statements seal.Signer
	history    seal.History
}

// openKeys finishes or undoes an interrupted rotation, then opens or creates the
// service's key.
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
		return k, api.Errorf(api.CodeIntegrity, "service key: the key file has %s, but the key history has %s in force", key.KeyID(), current).
			WithHint("restore service.key and service-keys.json in %s from the same backup", dir)
	}
	return k, checkRotation(ctx, k.history, ledger)
}

// checkRotation refuses a key history whose last rotation is not in the log: it
// belongs to another service, or the state is older.
func checkRotation(ctx context.Context, h seal.History, ledger *audit.Ledger) error {
	if len(h.Rotations) == 0 {
		return nil
	}
	last := h.Rotations[len(h.Rotations)-1]
	ok, err := logged(ctx, last, ledger)
	if err == nil && !ok {
		err = api.Errorf(api.CodeIntegrity, "service key: the key history has a rotation to %s that is not in the log", h.Current().ID).
			WithHint("restore the whole state directory from one backup")
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

// settleRotation finishes an interrupted rotation if the log has its entry, and
// removes the next key otherwise.
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
		err = finishRotation(dir, envelope)
	}
	if err != nil {
		return fmt.Errorf("service key: a rotation was interrupted: %w", err)
	}
	return seal.RemoveNextKey(dir)
}

// finishRotation puts the next key in force. It is safe to repeat after an
// interruption.
func finishRotation(dir string, envelope []byte) error {
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

// openStatements opens the key that signs statements about dispatches.
func (k *keys) openStatements(ctx context.Context, set keySettings) error {
	k.statements = k.service
	if set.Statements == "" {
		return nil
	}
	key, err := seal.OpenSigner(ctx, set.Statements, nil)
	if errors.Is(err, seal.ErrPassphrase) {
		return api.Errorf(api.CodeInvalid, "keys.statements: %s is encrypted, and the service cannot ask for a passphrase", set.Statements).WithHint("create an unencrypted one: bailiwickd key create FILE")
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "keys.statements: %w", err)
	}
	k.statements = key
	return nil
}

// settleStatements logs a change of the key for statements and saves the key
// history.
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

// trust returns the trust file for auditors of this installation.
func (k *keys) trust(dirs api.Dirs) ([]byte, error) {
	deploy, err := seal.LoadDeployKeys(dirs)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "%w", err).WithHint("auditors need the deploy keys; create a trust root: bailiwick init")
	}
	t := evidence.Trust{
		V: 1, Log: evidence.LogTrust{Origin: k.history.Log, Keys: periods(k.history.Keys)},
		Deploy: evidence.DeployTrust{Root: deploy}, Statements: periods(k.history.Statements),
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
