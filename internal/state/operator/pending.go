package operator

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// maxPending bounds the pending decisions that are open.
const maxPending = 32

// Pending holds the records that wait for signatures, in memory: a restart forgets them,
// and with them their nonces.
type Pending struct {
	registry *Registry

	mu   sync.Mutex
	byID map[api.PendingID]*pending // guarded by mu
}

// pending is a pending decision with its signatures.
type pending struct {
	api.PendingDecision // without what follows from the keys in force
	digest              api.Digest
	content             []byte
	signatures          map[seal.KeyID][]byte
}

// Put completes a record and keeps it for signatures. content is the encrypted value
// of a record that sets a secret.
func (w *Pending) Put(ctx context.Context, by api.Principal, rec api.OperatorRecord, content []byte) (api.PendingDecision, error) {
	if rec.V != 0 || rec.Service != "" || rec.Number != 0 || rec.Previous != "" || !rec.At.IsZero() || rec.Nonce != "" {
		return api.PendingDecision{}, api.Errorf(api.CodeInvalid, "operator record: v, service, number, previous, at and nonce: the service sets them")
	}
	operators, err := w.registry.signers(ctx)
	if err != nil {
		return api.PendingDecision{}, err
	}
	head, now := w.registry.Head(), w.registry.cfg.Now().UTC().Truncate(time.Second)
	var random [16 + 8]byte
	_, _ = rand.Read(random[:]) // it never fails
	rec.V, rec.Service, rec.Number, rec.Previous, rec.At, rec.Nonce = 1, head.Service, head.Number+1, head.Digest, now, hex.EncodeToString(random[:16])
	if err := rec.Check(); err != nil {
		return api.PendingDecision{}, api.Errorf(api.CodeInvalid, "%w", err)
	}
	payload, err := canon.Marshal(rec)
	if err != nil {
		return api.PendingDecision{}, err
	}
	if len(payload) > ballot.MaxRecord {
		return api.PendingDecision{}, api.Errorf(api.CodeInvalid, "operator record: %d bytes, more than %d", len(payload), ballot.MaxRecord)
	}
	v := verified{record: rec, digest: api.DigestOf(payload)}
	if _, err := w.registry.current.Load().next(v, now); err != nil {
		return api.PendingDecision{}, err
	}
	if rec.Verb == api.VerbSecretSet && api.DigestOf(content) != rec.Content {
		return api.PendingDecision{}, api.Errorf(api.CodeIntegrity, "secret %q: the content is not the one that the record names", rec.Secret)
	}
	challenge := seal.Challenge(seal.Operator, payload)
	id := api.PendingID("l-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[16:]))[:12])
	l := &pending{PendingDecision: api.PendingDecision{
		ID: id, State: api.PendingOpen, By: by, At: now, Expires: now.Add(api.OperatorRecordMaxAge), Payload: payload, Record: rec, Challenge: challenge[:],
	}, digest: v.digest, content: content, signatures: map[seal.KeyID][]byte{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep()
	open := 0
	for _, o := range w.byID {
		if o.State == api.PendingOpen {
			open++
		}
	}
	if open >= maxPending {
		return api.PendingDecision{}, api.Errorf(api.CodeConflict, "%d records wait for signatures, the limit is %d", open, maxPending).WithHint("sign them, or wait %s until they expire; see: bailiwick decision list", api.OperatorRecordMaxAge)
	}
	w.byID[id] = l
	return l.show(operators), nil
}

// sweep forgets what expired, and marks what another record preceded. The caller
// holds the lock.
func (w *Pending) sweep() {
	now, number := w.registry.cfg.Now(), w.registry.current.Load().number
	for id, l := range w.byID {
		switch {
		case !now.Before(l.Expires):
			delete(w.byID, id)
		case l.State == api.PendingOpen && l.Record.Number <= number:
			l.State = api.PendingStale
		}
	}
}

// show returns l as callers see it, with what follows from the keys in force.
func (l *pending) show(operators *seal.Operators) api.PendingDecision {
	out, root := l.PendingDecision, operators.Root()
	out.Threshold, out.Signed, out.Passkeys = root.Threshold, []string{}, []api.PasskeyInfo{}
	own := l.Record.Vote() && operators.Assigned()
	if own {
		out.Threshold = 1
	}
	for _, id := range slices.Sorted(maps.Keys(l.signatures)) {
		out.Signed = append(out.Signed, string(id))
	}
	for _, k := range root.Keys {
		if p := k.Passkey; p != nil && (!own || k.Principal.SameName(l.Record.Principal)) {
			out.Passkeys = append(out.Passkeys, api.PasskeyInfo{Key: string(k.ID), Name: k.Name, Credential: p.ID, RPID: p.RPID, Origins: p.Origins})
		}
	}
	return out
}

// List lists the pending decisions, oldest first.
func (w *Pending) List(ctx context.Context) ([]api.PendingDecision, error) {
	operators, err := w.registry.signers(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep()
	list := []api.PendingDecision{}
	for _, l := range w.byID {
		list = append(list, l.show(operators))
	}
	slices.SortFunc(list, func(a, b api.PendingDecision) int {
		if d := a.At.Compare(b.At); d != 0 {
			return d
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list, nil
}

// Get returns one pending decision.
func (w *Pending) Get(ctx context.Context, id api.PendingID) (api.PendingDecision, error) {
	operators, err := w.registry.signers(ctx)
	if err != nil {
		return api.PendingDecision{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.find(id)
	if err != nil {
		return api.PendingDecision{}, err
	}
	return l.show(operators), nil
}

func (w *Pending) find(id api.PendingID) (*pending, error) {
	w.sweep()
	if l, ok := w.byID[id]; ok {
		return l, nil
	}
	return nil, api.Errorf(api.CodeNotFound, "no pending decision %s: it expired after %s, or the service was restarted", id, api.OperatorRecordMaxAge).WithHint("see: bailiwick decision list")
}

// Signed is a pending decision with as many signatures as it needs.
type Signed struct {
	Record            api.OperatorRecord
	By                api.Principal // who submitted it
	Envelope, Content []byte
}

// Sign verifies a signature of a pending decision and keeps it. It returns the signed
// record once it has as many as the threshold says; the caller records it, and calls
// Settle.
func (w *Pending) Sign(ctx context.Context, id api.PendingID, by api.PendingSignature) (*Signed, error) {
	return w.SignAs(ctx, id, by, "")
}

// SignAs is Sign in the session of a person: it takes signatures by keys of that person
// alone, so that two people who sign are two sessions. Empty: of anyone.
func (w *Pending) SignAs(ctx context.Context, id api.PendingID, by api.PendingSignature, person api.Principal) (*Signed, error) {
	operators, err := w.registry.signers(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l, err := w.find(id)
	if err != nil {
		return nil, err
	}
	if l.State != api.PendingOpen {
		return nil, api.Errorf(api.CodeConflict, "pending decision %s is %s", id, l.State).WithHint("run the command that submitted it again")
	}
	signatures, err := l.verify(operators.Root(), by)
	for key := range signatures {
		if owner := operators.Owner(key); person != "" && err == nil && !owner.SameName(person) {
			err = fmt.Errorf("key %s belongs to %s, and this is the session of %s, where only an own key signs", key, owner, person)
		}
	}
	if err == nil {
		if err = operators.Enough(&l.Record, slices.Sorted(maps.Keys(signatures))); errors.Is(err, seal.ErrThreshold) {
			err = nil // with those before it may be
		}
	}
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "pending decision %s: %w", id, err)
	}
	maps.Copy(l.signatures, signatures)
	if operators.Enough(&l.Record, slices.Sorted(maps.Keys(l.signatures))) != nil {
		return nil, nil //nolint:nilnil // it needs more
	}
	envelope, err := seal.Assemble(seal.Operator, l.Payload, l.signatures)
	if err != nil {
		return nil, err
	}
	return &Signed{Record: l.Record, By: l.By, Envelope: envelope, Content: l.content}, nil
}

// verify returns the signatures that by adds, each by a key of root.
func (l *pending) verify(root seal.TrustRoot, by api.PendingSignature) (map[seal.KeyID][]byte, error) {
	envelope := by.Envelope
	switch {
	case (by.Assertion == nil) == (len(by.Envelope) == 0):
		return nil, errors.New("want one of an assertion and an envelope")
	case by.Assertion != nil:
		a := seal.Assertion(*by.Assertion)
		i := slices.IndexFunc(root.Keys, func(k seal.Key) bool { return k.Passkey != nil && bytes.Equal(k.Passkey.ID, a.Credential) })
		if i < 0 {
			return nil, errors.New("no operator key is this passkey")
		}
		raw, err := a.Normal(root.Keys[i])
		if err != nil {
			return nil, err
		}
		if envelope, err = seal.Assemble(seal.Operator, l.Payload, map[seal.KeyID][]byte{root.Keys[i].ID: raw}); err != nil {
			return nil, err
		}
	}
	e, err := seal.Open(envelope, seal.Operator)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(e.Payload(), l.Payload) {
		return nil, errors.New("the envelope signs another record")
	}
	ids, err := seal.VerifyAll([]*seal.Envelope{e}, root)
	if err != nil && !errors.Is(err, seal.ErrThreshold) {
		return nil, err
	}
	return e.SignaturesBy(ids), nil
}

// Settle says what came of a signed record.
func (w *Pending) Settle(ctx context.Context, id api.PendingID, receipt api.OperatorReceipt, failure error) (api.PendingDecision, error) {
	operators, err := w.registry.signers(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	l, ok := w.byID[id]
	switch {
	case failure != nil && ok:
		l.State, l.Refusal = api.PendingRefused, failure.Error()
		return api.PendingDecision{}, failure
	case failure != nil || err != nil || !ok:
		return api.PendingDecision{}, errors.Join(failure, err)
	}
	l.State, l.Receipt = api.PendingRecorded, &receipt
	return l.show(operators), nil
}

// check refuses a record with a signature of a passkey unless it is one that is
// submitted. Its nonce did not exist before, so nobody can have it signed in advance.
func (w *Pending) check(v verified) error {
	if !seal.AnyPasskey(v.keys) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.byID {
		if l.digest == v.digest && w.registry.cfg.Now().Before(l.Expires) {
			return nil
		}
	}
	return api.Errorf(api.CodeIntegrity, "operator record: signed with a passkey, but the record is not pending, or expired").WithHint("submit it first: the verbs that decide take --passkey")
}

// signers returns the operator keys in force.
func (r *Registry) signers(ctx context.Context) (*seal.Operators, error) {
	r.adding.Lock()
	defer r.adding.Unlock()
	if err := r.reread(ctx); err != nil {
		return nil, err
	}
	return r.current.Load().operators, nil
}
