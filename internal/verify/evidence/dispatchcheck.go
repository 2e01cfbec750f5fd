package evidence

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// dispatchCheck verifies one dispatch: that each attempt ran the admitted
// manifest, and that its outcome is the one that its worker signed.
type dispatchCheck struct {
	v                *verification
	h                *history
	manifest, result report.Finding
}

func (c *dispatchCheck) run() {
	for i, a := range c.h.attempts {
		if err := c.bindManifest(a); err != nil {
			c.manifest.Fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
		} else {
			c.manifest.Checked++
		}
		if i > 0 && a.manifest != nil && c.h.attempts[i-1].manifest != nil {
			if err := sameWork(c.h.attempts[i-1].manifest, a.manifest); err != nil {
				c.manifest.Fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
			}
		}
		if err := c.bindResult(a); err != nil {
			c.result.Fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
		} else {
			c.result.Checked++
		}
	}
	if c.h.attested != nil {
		if err := c.bindStatement(); err != nil {
			c.result.Fail("dispatch %s: statement: %v", c.h.id, err)
		} else {
			c.h.attestationValid = true
		}
	}
}

// single returns the payload of an envelope that one known key signed alone.
func single(envelope *seal.Envelope, keys []LogKey, entry uint64) ([]byte, error) {
	return envelope.One(func(id seal.KeyID) (seal.Key, error) {
		k, ok := FindKey(keys, id)
		if !ok {
			return seal.Key{}, fmt.Errorf("signed by key %s, which is not in the trust file", id)
		}
		return k.Key(), k.Entry(entry)
	})
}

func (c *dispatchCheck) bindManifest(a *attempt) error {
	digest := a.admitted.Refs[record.RefManifest]
	envelope, err := c.v.docs.envelope(digest, "manifest", seal.Manifest, a.admitted.reader())
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	payload, err := single(envelope, c.v.log.keys.Keys, a.admitted.seq)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	m := &record.Manifest{}
	if err := c.v.docs.exact(payload, m); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := m.Check(m.NotBefore); err != nil {
		return err
	}
	a.manifest = m
	if m.ID != c.h.id || m.Attempt != a.number {
		return fmt.Errorf("the manifest is of dispatch %s attempt %d", m.ID, m.Attempt)
	}
	return c.v.planned(a, m)
}

// uncut is the length of a list below which an entry never cuts it.
const uncut = 30

// sameWork refuses an attempt that does not continue the previous one.
func sameWork(before, m *record.Manifest) error {
	x, y := *before, *m
	for _, v := range []*record.Manifest{&x, &y} {
		v.Attempt, v.Policies, v.Ceiling, v.Resume, v.Fence, v.Trace, v.NotBefore, v.Expires, v.Nonce, v.Taint = 0, nil, 0, nil, 0, "", m.NotBefore, m.Expires, "", nil
	}
	a, errA := canon.Marshal(x)
	b, errB := canon.Marshal(y)
	if errA != nil || errB != nil || string(a) != string(b) {
		return errors.New("its manifest describes other work than the previous attempt's")
	}
	if m.Ceiling > before.Ceiling || m.Fence < before.Fence {
		return errors.New("it has a higher ceiling or an older lease than the previous attempt")
	}
	return nil
}

func (c *dispatchCheck) bindResult(a *attempt) error {
	e := a.end
	if e == nil {
		return nil // the completeness row reports it
	}
	refusals, err := refusalsOf(a, c.v.work)
	if err != nil {
		return err
	}
	if d := e.Refs[record.RefCalls]; d != "" {
		c.v.docs.nameBlob(d)
	}
	if e.Refs[record.RefResult] == "" {
		return nil // checkProducts verifies whether it may be without one
	}
	if a.unsigned != nil {
		return fmt.Errorf("result: %w", a.unsigned)
	}
	r := a.signed
	if a.manifest != nil {
		if err := r.Check(c.h.id, a.number, a.admitted.Refs[record.RefManifest], a.manifest.Fence); err != nil {
			return err
		}
	}
	if record.EventOf(e.Kind) != r.Outcome {
		return fmt.Errorf("entry #%d is %s, but the result is %s", e.seq, record.EventOf(e.Kind), r.Outcome)
	}
	a.result = r
	c.v.docs.nameContent(&r.Summary)
	return sameRefusals(refusals, r.Summary.Refusals)
}

// refusalsOf returns the summary of the refused requests that the log has of an
// attempt.
func refusalsOf(a *attempt, work *meter) (*api.Refusals, error) {
	if len(a.refused) > record.MaxRefusals {
		return nil, fmt.Errorf("the log has %d refused requests, more than %d", len(a.refused), record.MaxRefusals)
	}
	if err := work.spend(unitEntry * len(a.refused)); err != nil {
		return nil, err
	}
	list, seen := make([]record.EgressRefusal, len(a.refused)), map[int64]bool{}
	for i, e := range a.refused {
		list[i], _ = e.Detail.(record.EgressRefusal)
		if n := list[i].Number; n < 1 || seen[n] {
			return nil, fmt.Errorf("entry #%d: refused request %d has no number, or an entry already", e.seq, n)
		}
		seen[list[i].Number] = true
	}
	return record.RefusalsOf(list)
}

// sameRefusals refuses a log that does not have exactly the refusals that the worker
// signed.
func sameRefusals(log, result *api.Refusals) error {
	count := func(r *api.Refusals) int {
		if r == nil {
			return 0
		}
		return r.Count
	}
	switch {
	case count(log) != count(result):
		return fmt.Errorf("the worker refused %d requests, the log has %d of them", count(result), count(log))
	case log != nil && log.Digest != result.Digest:
		return fmt.Errorf("the %d refused requests in the log are not those that the worker signed", log.Count)
	}
	return nil
}

// openResults reads the results that workers signed. What grows from them is replayed
// before all else is compared with them.
func openResults(docs *library, dispatches []*history) {
	parallel(len(dispatches), func(i int) {
		for _, a := range dispatches[i].attempts {
			if a.end != nil && a.end.Refs[record.RefResult] != "" {
				a.signed, a.unsigned = openResult(docs, a)
			}
		}
	})
}

func openResult(docs *library, a *attempt) (*record.Result, error) {
	envelope, err := docs.envelope(a.end.Refs[record.RefResult], "result", seal.Result, a.end.reader())
	if err != nil {
		return nil, err
	}
	if a.started == nil {
		return nil, errors.New("of an attempt that never started")
	}
	d := detail[record.DispatchStart](a.started)
	raw, err := base64.StdEncoding.DecodeString(d.WorkerKey)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("entry #%d has no valid worker key", a.started.seq)
	}
	payload, err := envelope.One(func(seal.KeyID) (seal.Key, error) { return seal.Key{ID: seal.IDOf(raw), Public: raw}, nil })
	if err != nil {
		return nil, err
	}
	r := &record.Result{}
	if err := docs.exact(payload, r); err != nil {
		return nil, err
	}
	return r, nil
}

func (c *dispatchCheck) bindStatement() error {
	e := c.h.attested
	a := c.h.at(e.seq)
	if a == nil || a.final() == nil {
		return errors.New("it attests an attempt that has not ended")
	}
	end := a.final()
	digest := e.Refs[record.RefStatement]
	envelope, err := c.v.docs.envelope(digest, "statement", seal.Statement, e.reader())
	if err != nil {
		return err
	}
	payload, err := single(envelope, c.v.log.statements, e.seq)
	if err == nil {
		err = c.v.work.decode(payload)
	}
	if err != nil {
		return err
	}
	st, err := record.ParseStatement(payload)
	if err != nil {
		return err
	}
	c.h.statement, c.h.statementKey = &st, envelope.Signers()[0] // single verified that there is one
	if a.manifest == nil || end.Refs[record.RefResult] != "" && a.result == nil {
		return nil // manifest or result could not be read, which is reported
	}
	if err := st.Binds(a.manifest, a.admitted.Refs[record.RefManifest], a.result, end.Refs[record.RefResult], end.Refs[record.RefCalls]); err != nil {
		return err
	}
	if id, ok := strings.CutPrefix(st.Predicate.RunDetails.Builder.ID, record.BuilderPrefix); !ok || seal.LogOrigin(seal.KeyID(id)) != c.v.trust.Log.Origin {
		return fmt.Errorf("it is of service %.120q, not of this log", st.Predicate.RunDetails.Builder.ID)
	}
	var earlier []record.EarlierAttempt
	for _, before := range c.h.attempts[:a.number-1] {
		if before.end == nil {
			return nil // the completeness row reports it
		}
		earlier = append(earlier, record.EarlierAttempt{Attempt: before.number, Manifest: before.admitted.Refs[record.RefManifest], Result: before.end.Refs[record.RefResult]})
	}
	if !slices.Equal(earlier, st.Predicate.Dispatch.Earlier) {
		return errors.New("it names other earlier attempts")
	}
	d := detail[record.DispatchEnd](end)
	if o := st.Predicate.Dispatch; o.Outcome != record.EventOf(end.Kind) || string(o.Reason) != d.Reason || string(o.CancelledBy) != d.By {
		return fmt.Errorf("its outcome is %s %s, but entry #%d is %s %s", o.Outcome, o.Reason, end.seq, record.EventOf(end.Kind), d.Reason)
	}
	return nil
}
