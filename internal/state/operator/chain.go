package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/audit"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxClockLead is how far a signer's clock may be ahead of the service's.
const maxClockLead = time.Minute

func local(p api.Principal) bool { return strings.HasPrefix(string(p), "local:") }

// Chain is the records as they are stored, in their order: each names the one before.
type Chain struct{ cfg Config }

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
func (c *Chain) verify(envelope []byte, operators *seal.Operators) (verified, error) {
	r, err := ballot.Open(envelope, operators, c.cfg.Service)
	return verified{r.OperatorRecord, r.Digest, r.Keys, r.Counts}, err
}

// load verifies the stored chain against the keys and the log. It returns what follows from
// it, and the digest of the operators.json that it was verified by.
func (c *Chain) load(ctx context.Context) (*state, api.Digest, error) {
	first, err := c.keys()
	if err != nil && !errors.Is(err, errNoOperator) {
		return nil, "", err
	}
	s, digests := newState(), []api.Digest(nil)
	if err == nil {
		s.start(first)
	}
	each := func(number uint64, envelope []byte) error {
		if err != nil { // there is no operator key
			return fmt.Errorf("record %d: %w", number, err)
		}
		v, err := c.verify(envelope, s.operators)
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
	if err := c.stored(ctx, each); err != nil {
		return nil, "", c.otherFirst(ctx, first, err)
	}
	return s, digestOf(first), c.logged(ctx, digests)
}

// reverify verifies the chain with an operators.json that changed while the service ran:
// a chain that the next start would refuse must not grow.
func (c *Chain) reverify(ctx context.Context, s *state, first *seal.Operators) (*state, error) {
	s = s.clone()
	s.start(first.Clone())
	if err := c.stored(ctx, func(number uint64, envelope []byte) error {
		v, err := c.verify(envelope, s.operators)
		if err == nil && v.record.Set != nil {
			err = s.follow(v)
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", number, err)
		}
		return nil
	}); err != nil {
		return nil, c.otherFirst(ctx, first, err)
	}
	return s, nil
}

// otherFirst returns why the chain does not verify. If operators.json is not set 1 of the
// chain, that is why.
func (c *Chain) otherFirst(ctx context.Context, first *seal.Operators, why error) error {
	if first == nil {
		return why
	}
	found := errors.New("found") // ends the search
	var record uint64
	var want api.Digest
	err := c.stored(ctx, func(number uint64, envelope []byte) error {
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
	return fmt.Errorf("%s is not set 1 of the operator keys: it is %s, and record %d, which put set 2 in force, follows %s: %w", c.cfg.Root, first.Digest(), record, want, why)
}

// stored calls each for every stored record in order, and refuses a gap.
func (c *Chain) stored(ctx context.Context, each func(number uint64, envelope []byte) error) error {
	return c.cfg.Store.Read(ctx, func(v *store.View) error {
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
func (c *Chain) logged(ctx context.Context, digests []api.Digest) error {
	n := 0
	if err := c.entries(ctx, audit.Query{Kind: record.KindOperatorRecorded}, func(c audit.Committed) error {
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
func (c *Chain) entries(ctx context.Context, q audit.Query, each func(audit.Committed) error) error {
	const page = 1000
	q.Limit = page
	for more := true; more; {
		list, err := c.cfg.Ledger.List(ctx, q)
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
// add adds a record. check refuses it in the transaction that would make it durable.
// reread reads operators.json, and verifies the chain again if it changed. The caller
// holds adding.
// Decision returns the record with a number, verified by the keys of its time, without
// its text.
// entryOf returns the number of the log entry of a record.
func (c *Chain) entryOf(ctx context.Context, v verified) (seq uint64, err error) {
	found := errors.New("found") // ends the search
	// It is at the time of the record, unless the clock was set back meanwhile.
	for _, since := range []time.Time{v.record.At.Add(-maxClockLead), {}} {
		if err = c.entries(ctx, audit.Query{Kind: record.KindOperatorRecorded, Since: since}, func(c audit.Committed) error {
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

// Envelope returns record n, counted from 1, as it was submitted.
func (c *Chain) Envelope(ctx context.Context, n int64) (envelope []byte, err error) {
	err = c.cfg.Store.Read(ctx, func(v *store.View) error {
		var text string
		err := v.Get("SELECT envelope FROM operator_record WHERE number = ?", store.Args{n}, &text)
		envelope = []byte(text)
		return err
	})
	return envelope, err
}

// Envelopes returns the first n records as they were submitted, in order.
func (c *Chain) Envelopes(ctx context.Context, n int) (list [][]byte, err error) {
	err = c.stored(ctx, func(_ uint64, envelope []byte) error {
		if len(list) < n {
			list = append(list, envelope)
		}
		return nil
	})
	return list, err
}

// Since returns the records that follow the first n, as they were submitted, in order.
func (c *Chain) Since(ctx context.Context, n uint64) (list [][]byte, err error) {
	err = c.cfg.Store.Read(ctx, func(v *store.View) error {
		return v.Each("SELECT envelope FROM operator_record WHERE number > ? ORDER BY number", store.Args{int64(n)}, func(scan store.Scan) error { //nolint:gosec // G115: numbers count up from 1
			var envelope string
			err := scan(&envelope)
			list = append(list, []byte(envelope))
			return err
		})
	})
	return list, err
}

// keys returns the chain of operator keys that begins with the operators' trust root;
// errNoOperator if that file does not exist.
func (c *Chain) keys() (*seal.Operators, error) {
	root, err := seal.LoadTrustRoot(c.cfg.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoOperator
	}
	if err != nil {
		return nil, fmt.Errorf("operator keys: %w", err)
	}
	return seal.NewOperators(root)
}
