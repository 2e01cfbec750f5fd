package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

const (
	// maxRecord bounds a payload, in bytes; a record has a few hundred beside a set of keys.
	maxRecord = 8<<10 + api.MaxOperatorSet
	// maxClockLead is how far a signer's clock may be ahead of the service's.
	maxClockLead = time.Minute
)

func local(p api.Principal) bool { return strings.HasPrefix(string(p), "local:") }

// verified is a record whose signatures, form and service are verified.
type verified struct {
	record api.OperatorRecord
	digest api.Digest
	keys   []seal.KeyID
	counts map[seal.KeyID]uint32 // of the passkeys among keys
}

// signers returns the ids of the keys that signed.
func (v verified) signers() []string {
	keys := make([]string, len(v.keys))
	for i, k := range v.keys {
		keys[i] = string(k)
	}
	return keys
}

// verify verifies one envelope by the operator keys in force. It does not check that
// the record is the next one and can be applied.
func (r *Registry) verify(envelope []byte, operators *seal.Operators) (verified, error) {
	var v verified
	if len(envelope) > 4*maxRecord+seal.MaxSignatures*2048 {
		return v, errors.New("the envelope is too large for a record")
	}
	e, err := seal.Open(envelope, seal.Operator)
	if err != nil {
		return v, err
	}
	payload := e.Payload()
	if len(payload) > maxRecord {
		return v, fmt.Errorf("%d bytes, more than %d", len(payload), maxRecord)
	}
	keys, err := operators.Open(e, canon.DecodeExact, &v.record)
	if err != nil {
		return v, err
	}
	if v.record.Service != string(r.cfg.Service) {
		return v, fmt.Errorf("the record is for service %s, this is service %s", v.record.Service, r.cfg.Service)
	}
	v.digest, v.keys, v.counts = api.DigestOf(payload), keys, e.SignCounts(keys)
	return v, v.record.CheckSigners(v.signers())
}

// load verifies the stored chain against the keys and the log, and applies it.
func (r *Registry) load(ctx context.Context) error {
	first, err := r.keys()
	if err != nil && !errors.Is(err, errNoOperator) {
		return err
	}
	s, digests := newState(), []api.Digest(nil)
	if err == nil {
		s.start(first)
	}
	each := func(number uint64, envelope []byte) error {
		if err != nil { // there is no operator key
			return fmt.Errorf("record %d: %w", number, err)
		}
		v, err := r.verify(envelope, s.operators)
		if err == nil {
			err = s.place(v.record)
		}
		if err == nil {
			err = s.apply(v)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
		digests = append(digests, v.digest)
		return nil
	}
	if err := r.stored(ctx, each); err != nil {
		return r.otherFirst(ctx, first, err)
	}
	if err := r.logged(ctx, digests); err != nil {
		return err
	}
	r.first = digestOf(first)
	r.current.Store(s)
	if err := sweepSecrets(r.cfg.Secrets, s); err != nil {
		return err
	}
	return r.loadStops(ctx)
}

// otherFirst returns why the chain does not verify. If operators.json is not set 1 of the
// chain, that is why.
func (r *Registry) otherFirst(ctx context.Context, first *seal.Operators, why error) error {
	if first == nil {
		return why
	}
	found := errors.New("found") // ends the search
	var record uint64
	var want api.Digest
	err := r.stored(ctx, func(number uint64, envelope []byte) error {
		payload, err := seal.Payload(envelope, seal.Operator)
		if err != nil {
			return err
		}
		var rec api.OperatorRecord
		if canon.DecodeExact(payload, &rec) == nil && rec.Set != nil && rec.Set.Number == 2 {
			record, want = number, rec.Set.Previous
			return found
		}
		return nil
	})
	if !errors.Is(err, found) || want == first.Digest() {
		return why
	}
	return fmt.Errorf("%s is not set 1 of the operator keys: it is %s, and record %d, which put set 2 in force, follows %s: %w", r.cfg.Root, first.Digest(), record, want, why)
}

// stored calls each for every stored record in order, and refuses a gap.
func (r *Registry) stored(ctx context.Context, each func(number uint64, envelope []byte) error) error {
	return r.cfg.Store.Read(ctx, func(v *store.View) error {
		want := uint64(1)
		return v.Each("SELECT number, envelope FROM operator_record ORDER BY number", nil, func(scan store.Scan) error {
			var number uint64
			var envelope string
			if err := scan(&number, &envelope); err != nil {
				return err
			}
			if number != want {
				return fmt.Errorf("record %d is missing", want)
			}
			want++
			return each(number, []byte(envelope))
		})
	})
}

// logged compares the chain with the log entries that recorded it.
func (r *Registry) logged(ctx context.Context, digests []api.Digest) error {
	n := 0
	if err := r.entries(ctx, audit.Query{Kind: record.KindOperatorRecorded}, func(c audit.Committed) error {
		d, _ := c.Entry.Detail.(record.OperatorDecision)
		switch {
		case n >= len(digests):
			return fmt.Errorf("record %d is missing: log entry #%d says that it was recorded", n+1, c.Seq)
		case d.Number != int64(n+1) || c.Entry.Refs[record.RefRecord] != digests[n]:
			return fmt.Errorf("record %d differs from the one recorded by log entry #%d", n+1, c.Seq)
		}
		n++
		return nil
	}); err != nil {
		return err
	}
	if n < len(digests) {
		return fmt.Errorf("record %d has no log entry, so it was never recorded", n+1)
	}
	return nil
}

// entries calls each for every log entry of q, in order.
func (r *Registry) entries(ctx context.Context, q audit.Query, each func(audit.Committed) error) error {
	const page = 1000
	q.Limit = page
	for more := true; more; {
		list, err := r.cfg.Ledger.List(ctx, q)
		if err != nil {
			return err
		}
		for _, c := range list {
			if err := each(c); err != nil {
				return err
			}
			q.From = c.Seq + 1
		}
		more = len(list) == page
	}
	return nil
}

// Add verifies a record that by submits and makes it durable together with its
// log entry. content is the encrypted value of a record that sets a secret. The record
// is in force when Add returns.
func (r *Registry) Add(ctx context.Context, by api.Principal, envelope, content []byte) (api.OperatorReceipt, error) {
	return r.add(ctx, by, envelope, content, func(tx *store.Tx, v verified) error {
		switch verb := v.record.Verb; {
		case verb == api.VerbStopLift:
			return liftable(tx, v.record.Stop)
		case v.record.Vote():
			return api.Errorf(api.CodeInvalid, "operator record: %s is a vote", verb).WithHint("vote with: bailiwick approval approve, or deny, %s", v.record.Approval)
		}
		return nil
	})
}

// add adds a record. check refuses it in the transaction that would make it durable.
func (r *Registry) add(ctx context.Context, by api.Principal, envelope, content []byte, check func(*store.Tx, verified) error) (api.OperatorReceipt, error) {
	r.adding.Lock()
	defer r.adding.Unlock()
	if err := r.reread(ctx); err != nil {
		return api.OperatorReceipt{}, err
	}
	v, err := r.verify(envelope, r.current.Load().operators)
	if err != nil {
		hint := "sign with keys that bailiwick operators list shows, of as many people as the threshold says: --key, several times"
		if errors.Is(err, seal.ErrOwner) {
			hint = "sign with an operator key of your own: --key; see: bailiwick operators list"
		}
		return api.OperatorReceipt{}, api.Errorf(api.CodeIntegrity, "operator record: %w", err).WithHint("%s", hint)
	}
	if err := r.Lodge.check(v); err != nil {
		return api.OperatorReceipt{}, err
	}
	next, err := r.current.Load().next(v, r.cfg.Now())
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	if err := putSecret(r.cfg.Secrets, v.record, content); err != nil {
		return api.OperatorReceipt{}, err
	}
	r.pending.Store(next)
	failpoint.Hit(failpoint.DecideCommit, string(v.record.Verb))
	seq, err := r.cfg.Ledger.Record(ctx, entry(by, v, next), func(tx *store.Tx) error {
		if err := check(tx, v); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO operator_record(number, envelope) VALUES (?, ?)", v.record.Number, string(envelope))
		return err
	})
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	failpoint.Hit(failpoint.DecideCommitted, string(v.record.Verb))
	r.current.Store(next)
	if v.record.Secret != "" {
		_ = sweepSecrets(r.cfg.Secrets, next) // what is left goes at the next start
	}
	return api.OperatorReceipt{Number: v.record.Number, AuditEntry: seq}, nil
}

// reread reads operators.json, and verifies the chain again if it changed. The caller
// holds adding.
func (r *Registry) reread(ctx context.Context) error {
	first, err := r.keys()
	if err == nil && first.Digest() != r.first {
		err = r.reverify(ctx, first)
	}
	if err != nil {
		return r.current.Load().unsignable(err, r.cfg.Root)
	}
	return nil
}

// reverify verifies the chain with an operators.json that changed while the service ran:
// a chain that the next start would refuse must not grow.
func (r *Registry) reverify(ctx context.Context, first *seal.Operators) error {
	s := r.current.Load().clone()
	s.start(first.Clone())
	if err := r.stored(ctx, func(number uint64, envelope []byte) error {
		v, err := r.verify(envelope, s.operators)
		if err == nil && v.record.Set != nil {
			err = s.follow(v)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
		return nil
	}); err != nil {
		return r.otherFirst(ctx, first, err)
	}
	r.first = first.Digest()
	r.current.Store(s)
	return nil
}

func entry(by api.Principal, v verified, next *state) record.Entry {
	return record.Entry{
		Kind: record.KindOperatorRecorded, Principal: by, Refs: map[string]api.Digest{record.RefRecord: next.digest}, Detail: record.DecisionOf(&v.record, v.signers()),
	}
}

// Decision returns the record with a number, verified by the keys of its time, without
// its text.
func (r *Registry) Decision(ctx context.Context, number uint64) (d api.Decision, err error) {
	s := r.current.Load()
	if number < 1 || number > s.number {
		return d, api.Errorf(api.CodeNotFound, "no decision %d: the newest is %d", number, s.number).WithHint("see: bailiwick audit list --kind %s", record.KindOperatorRecorded)
	}
	var envelope string
	if err := r.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Get("SELECT envelope FROM operator_record WHERE number = ?", store.Args{int64(number)}, &envelope) //nolint:gosec // G115: numbers count up from 1
	}); err != nil {
		return d, fmt.Errorf("decision %d: %w", number, err)
	}
	i := len(s.sets) - 1
	for s.sets[i].from > number {
		i--
	}
	v, err := r.verify([]byte(envelope), s.sets[i].operators)
	if err == nil && v.record.Number != number {
		err = fmt.Errorf("its record has number %d", v.record.Number)
	}
	if err == nil {
		d, err = decided(v, []byte(envelope), s.sets[i].operators)
	}
	if err == nil {
		d.AuditEntry, err = r.entryOf(ctx, v)
	}
	if err != nil {
		return api.Decision{}, api.Errorf(api.CodeIntegrity, "decision %d: %w", number, err)
	}
	return d, nil
}

// entryOf returns the number of the log entry of a record.
func (r *Registry) entryOf(ctx context.Context, v verified) (seq uint64, err error) {
	found := errors.New("found") // ends the search
	// It is at the time of the record, unless the clock was set back meanwhile.
	for _, since := range []time.Time{v.record.At.Add(-maxClockLead), {}} {
		if err = r.entries(ctx, audit.Query{Kind: record.KindOperatorRecorded, Since: since}, func(c audit.Committed) error {
			if c.Entry.Refs[record.RefRecord] == v.digest {
				seq = c.Seq
				return found
			}
			return nil
		}); err != nil {
			break
		}
	}
	switch {
	case err == nil:
		return 0, errors.New("the log has no entry of it")
	case errors.Is(err, found):
		return seq, nil
	}
	return 0, err
}

func decided(v verified, envelope []byte, operators *seal.Operators) (d api.Decision, err error) {
	e, err := seal.Open(envelope, seal.Operator)
	if err != nil {
		return d, err
	}
	challenge := seal.Challenge(seal.Operator, e.Payload())
	root := operators.Root()
	d = api.Decision{
		OperatorReceipt: api.OperatorReceipt{Number: v.record.Number}, Record: v.record, Payload: e.Payload(), Digest: v.digest, Challenge: challenge[:],
		Set: operators.Number(), Threshold: root.Threshold,
	}
	raw := e.SignaturesBy(v.keys)
	for _, k := range root.Keys {
		if !slices.Contains(v.keys, k.ID) {
			continue
		}
		s := api.DecisionSignature{Key: string(k.ID), Name: k.Name}
		if k.Passkey != nil {
			a, err := seal.ParseAssertion(raw[k.ID])
			if err != nil {
				return d, err
			}
			s.Assertion = (*api.Assertion)(&a)
		}
		d.Signatures = append(d.Signatures, s)
	}
	return d, nil
}

// Envelope returns record n, counted from 1, as it was submitted.
func (r *Registry) Envelope(ctx context.Context, n int64) (envelope []byte, err error) {
	err = r.cfg.Store.Read(ctx, func(v *store.View) error {
		var text string
		err := v.Get("SELECT envelope FROM operator_record WHERE number = ?", store.Args{n}, &text)
		envelope = []byte(text)
		return err
	})
	return envelope, err
}

// Envelopes returns the first n records as they were submitted, in order.
func (r *Registry) Envelopes(ctx context.Context, n int) (list [][]byte, err error) {
	err = r.stored(ctx, func(_ uint64, envelope []byte) error {
		if len(list) < n {
			list = append(list, envelope)
		}
		return nil
	})
	return list, err
}
