package evidence

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/record"
	"github.com/bailiwick-dev/bailiwick/internal/seal"
)

// dispatchCheck verifies one dispatch: that each attempt ran the admitted
// manifest, and that its outcome is the one that its worker signed.
type dispatchCheck struct {
	v                *verification
	h                *history
	manifest, result finding
}

func (c *dispatchCheck) run() {
	for i, a := range c.h.attempts {
		if err := c.bindManifest(a); err != nil {
			c.manifest.fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
		} else {
			c.manifest.checked++
		}
		if i > 0 && a.manifest != nil && c.h.attempts[i-1].manifest != nil {
			if err := sameWork(c.h.attempts[i-1].manifest, a.manifest); err != nil {
				c.manifest.fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
			}
		}
		if err := c.bindResult(a); err != nil {
			c.result.fail("dispatch %s attempt %d: %v", c.h.id, a.number, err)
		} else {
			c.result.checked++
		}
	}
	if c.h.attested != nil {
		if err := c.bindStatement(); err != nil {
			c.result.fail("dispatch %s: statement: %v", c.h.id, err)
		} else {
			c.h.attestationValid = true
		}
	}
}

// single returns the payload of an envelope that one known key signed alone.
func single(envelope []byte, t seal.PayloadType, keys []LogKey, entry uint64) ([]byte, error) {
	return seal.VerifyOne(envelope, t, func(id seal.KeyID) (seal.Key, error) {
		k, ok := FindKey(keys, id)
		if !ok {
			return seal.Key{}, fmt.Errorf("signed by key %s, which is not in the trust file", id)
		}
		return k.Key(), k.Entry(entry)
	})
}

func (c *dispatchCheck) bindManifest(a *attempt) error {
	digest := a.admitted.Refs[record.RefManifest]
	envelope, err := c.v.document(digest, "manifest")
	if err != nil {
		return err
	}
	payload, err := single(envelope, seal.Manifest, c.v.log.Keys, a.admitted.seq)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	m := &record.Manifest{}
	if err := canon.DecodeExact(payload, m); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := m.Check(m.NotBefore); err != nil {
		return err
	}
	a.manifest = m
	for what, e := range map[string]*entry{"start": a.started, "end": a.end, "end without an answer": a.closing} {
		if e != nil && e.Refs[record.RefManifest] != digest {
			return fmt.Errorf("the %s, entry #%d, names another manifest", what, e.seq)
		}
	}
	if err := c.admits(a.admitted, m); err != nil {
		return err
	}
	return c.v.planned(a, m)
}

// admits refuses a manifest that the entry does not admit.
func (c *dispatchCheck) admits(e *entry, m *record.Manifest) error {
	differs := func(what string) error {
		return fmt.Errorf("entry #%d and its manifest differ in %s", e.seq, what)
	}
	switch {
	case m.ID != c.h.id || m.Attempt != e.Attempt:
		return fmt.Errorf("the manifest is of dispatch %s attempt %d", m.ID, m.Attempt)
	case string(m.Run) != e.Run || string(m.Task) != e.Task:
		return differs("run or task")
	case e.Tier == nil || *e.Tier != m.Tier || e.Role != m.Role:
		return differs("tier or role")
	}
	d, ok := e.Detail.(record.DispatchRequest)
	if !ok {
		if e.Refs[record.RefAnswer] == "" || m.Resume == nil || m.Resume.Answer != e.Refs[record.RefAnswer] {
			return differs("the answer")
		}
		return nil
	}
	commit, source := "", ""
	if m.Source != nil {
		commit, source = m.Source.Commit, string(m.Source.Name)
	}
	switch {
	case m.Principal != e.Principal:
		return differs("the principal")
	case string(m.Subagent) != d.Subagent || string(m.Subagent) != e.Resource || string(m.Target) != d.Target || d.Revision < 0 || uint64(d.Revision) != m.Revision:
		return differs("subagent, target or revision")
	case commit != d.Commit || source != d.Source:
		return differs("the source")
	case m.Input != e.Refs[record.RefInput]:
		return differs("the input")
	case len(m.Policies) < uncut && !slices.Equal(m.Policies, e.Policies):
		return differs("the policies that decided")
	case len(m.Envs) < uncut && !slices.EqualFunc(m.Envs, d.Envs, func(a api.Name, b string) bool { return string(a) == b }):
		return differs("the envs")
	}
	return nil
}

// uncut is the length of a list below which an entry never cuts it.
const uncut = 30

// sameWork refuses an attempt that does not continue the previous one.
func sameWork(before, m *record.Manifest) error {
	x, y := *before, *m
	for _, v := range []*record.Manifest{&x, &y} {
		v.Attempt, v.Policies, v.Ceiling, v.Resume, v.Fence, v.Trace, v.NotBefore, v.Expires, v.Nonce = 0, nil, 0, nil, 0, "", m.NotBefore, m.Expires, ""
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
	if x := a.closing; x != nil {
		for _, ref := range []string{record.RefResult, record.RefPatch, record.RefQuestion} {
			if x.Refs[ref] != e.Refs[ref] {
				return fmt.Errorf("entry #%d, its end without an answer, names another %s than entry #%d", x.seq, ref, e.seq)
			}
		}
	}
	digest := e.Refs[record.RefResult]
	if digest == "" {
		if e.Kind == record.KindDispatchFinished || e.Kind == record.KindDispatchNeedsInput {
			return fmt.Errorf("entry #%d names no result", e.seq)
		}
		if len(e.Refs) > 1 {
			return fmt.Errorf("entry #%d names products, but no result", e.seq)
		}
		return nil
	}
	envelope, err := c.v.document(digest, "result")
	if err != nil {
		return err
	}
	r, err := openResult(a, envelope)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if a.manifest != nil {
		if err := r.Check(c.h.id, a.number, a.admitted.Refs[record.RefManifest], a.manifest.Fence); err != nil {
			return err
		}
	}
	if err := c.confirms(e, r); err != nil {
		return err
	}
	a.result = r
	c.v.nameContent(&r.Summary)
	return nil
}

func openResult(a *attempt, envelope []byte) (*record.Result, error) {
	if a.started == nil {
		return nil, errors.New("of an attempt that never started")
	}
	d, _ := a.started.Detail.(record.DispatchStart)
	raw, err := base64.StdEncoding.DecodeString(d.WorkerKey)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("entry #%d has no valid worker key", a.started.seq)
	}
	payload, err := seal.VerifyOne(envelope, seal.Result, func(seal.KeyID) (seal.Key, error) { return seal.Key{ID: seal.IDOf(raw), Public: raw}, nil })
	if err != nil {
		return nil, err
	}
	r := &record.Result{}
	if err := canon.DecodeExact(payload, r); err != nil {
		return nil, err
	}
	return r, nil
}

// confirms refuses an entry of an end that does not match the result.
func (c *dispatchCheck) confirms(e *entry, r *record.Result) error {
	d, _ := e.Detail.(record.DispatchEnd)
	want, refs := record.EndOf(&r.Summary)
	want.By, want.Message, want.Millis, want.Reason = d.By, d.Message, d.Millis, string(r.Reason)
	switch {
	case record.EventOf(e.Kind) != r.Outcome || d.Reason != want.Reason:
		return fmt.Errorf("entry #%d is %s %s, but the result is %s %s", e.seq, record.EventOf(e.Kind), d.Reason, r.Outcome, r.Reason)
	case e.Refs[record.RefPatch] != refs[record.RefPatch] || e.Refs[record.RefQuestion] != refs[record.RefQuestion]:
		return fmt.Errorf("entry #%d names another patch or question than the result", e.seq)
	case d != want:
		return fmt.Errorf("entry #%d and the result differ in exit code, files, partial or verify", e.seq)
	}
	return nil
}

func (c *dispatchCheck) bindStatement() error {
	e := c.h.attested
	a := c.h.last() // it has ended, or step refused the entry
	end := a.final()
	digest := e.Refs[record.RefStatement]
	envelope, err := c.v.document(digest, "statement")
	if err != nil {
		return err
	}
	payload, err := single(envelope, seal.Statement, c.v.statements, e.seq)
	if err != nil {
		return err
	}
	st, err := record.ParseStatement(payload)
	if err != nil {
		return err
	}
	if e.Refs[record.RefManifest] != a.admitted.Refs[record.RefManifest] || e.Refs[record.RefResult] != end.Refs[record.RefResult] {
		return fmt.Errorf("entry #%d names another manifest or result", e.seq)
	}
	if a.manifest == nil || end.Refs[record.RefResult] != "" && a.result == nil {
		return nil // manifest or result could not be read, which is reported
	}
	if err := st.Binds(a.manifest, a.admitted.Refs[record.RefManifest], a.result, end.Refs[record.RefResult]); err != nil {
		return err
	}
	d, _ := end.Detail.(record.DispatchEnd)
	if o := st.Predicate.Dispatch; o.Outcome != record.EventOf(end.Kind) || string(o.Reason) != d.Reason || string(o.CancelledBy) != d.By {
		return fmt.Errorf("its outcome is %s %s, but entry #%d is %s %s", o.Outcome, o.Reason, end.seq, record.EventOf(end.Kind), d.Reason)
	}
	return nil
}

// nameContent marks the content of a result as named.
func (v *verification) nameContent(sum *api.ResultSummary) {
	for _, a := range []*api.Artifact{sum.Patch, sum.Question} {
		if a != nil {
			v.used.Store(a.Digest, nil)
		}
	}
	for _, o := range sum.Outputs {
		v.used.Store(o.Digest, nil)
	}
	for _, l := range sum.Log {
		v.used.Store(l.Digest, nil)
	}
}
