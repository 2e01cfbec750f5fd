package evidence

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// lie is a change before, during or after the story is written.
type lie struct {
	before  func(s *story)
	after   func(s *story)
	bundle  func(s *story, b *bundle.Bundle)
	options func(s *story, b *bundle.Bundle, o *Options)
}

// judge writes a dispatch and a run with a lie, and verifies the case.
func judge(t *testing.T, c bundle.Case, l lie) (*story, report.Report) {
	t.Helper()
	s := newStory(t)
	s.whole("d-00") // an unrelated dispatch
	if l.before != nil {
		l.before(s)
	}
	w := &work{id: "d-01"}
	s.admit(w)
	s.recovered(w, "absent")
	s.start(w)
	s.finish(w, api.EventFinished, "")
	tell(s)
	if l.after != nil {
		l.after(s)
	}
	b := s.bundle(c)
	s.anchored(b, len(s.leaves)/2)
	if l.bundle != nil {
		l.bundle(s, b)
	}
	var o Options
	if l.options != nil {
		l.options(s, b, &o)
	}
	return s, Verify(reread(t, b), s.trust(), o)
}

// reprove proves the remaining entries again, as an exporter can.
func reprove(s *story, b *bundle.Bundle) {
	var seqs []uint64
	for _, e := range b.Entries {
		seqs = append(seqs, e.Seq)
	}
	leaves := s.hashes()
	var err error
	b.Proof, err = bundle.Prove(seqs, b.Case.Sizes, uint64(len(leaves)), func(i uint64) ([]logproof.Hash, error) { return path(leaves, i), nil })
	s.must(err)
}

func drop(s *story, b *bundle.Bundle, kind record.Kind) {
	i := slices.IndexFunc(b.Entries, func(e bundle.Entry) bool { return s.entries[e.Seq].Kind == kind })
	b.Entries = slices.Delete(slices.Clone(b.Entries), i, i+1)
	reprove(s, b)
}

func foreignRevision(s *story, b *bundle.Bundle) {
	k := newSigner(s.t)
	for i, r := range b.Case.Revisions {
		payload, err := seal.Payload(b.Documents[r.Envelopes[0]], seal.Revision)
		s.must(err)
		envelope, err := seal.Sign(s.t.(*testing.T).Context(), seal.Revision, payload, k)
		s.must(err)
		delete(b.Documents, r.Envelopes[0])
		d := api.DigestOf(envelope)
		b.Documents[d], b.Case.Revisions[i].Envelopes = envelope, []api.Digest{d}
	}
}

// takeover both modes, one deploy key; one operator key: no rewrite the log, forge evidence
// takeover system, MCP program; a person's account: no forge evidence
//
// proves R-A7 (each row detects exactly what it is for)
func TestEachLieFailsExactlyItsRow(t *testing.T) {
	for name, l := range map[report.RowName]struct {
		c bundle.Case
		lie
	}{
		report.RowInclusion: {bundle.Case{Dispatch: "d-01"}, lie{bundle: func(_ *story, b *bundle.Bundle) { b.Proof[0][0] ^= 1 }}},
		report.RowSignature: {bundle.Case{Dispatch: "d-01"}, lie{bundle: func(s *story, b *bundle.Bundle) { b.Case.Checkpoint = s.signCheckpoint(newSigner(s.t), len(s.leaves)) }}},
		report.RowConsistency: {bundle.Case{Dispatch: "d-01"}, lie{bundle: func(_ *story, b *bundle.Bundle) {
			b.Case.Anchored[0].Proof[0] ^= 1
		}}},
		report.RowAnchor: {bundle.Case{Dispatch: "d-01"}, lie{bundle: func(_ *story, b *bundle.Bundle) {
			b.Case.Anchored = append(b.Case.Anchored, bundle.Anchored{Checkpoint: b.Case.Checkpoint, Proof: []byte{}, Name: "x", Kind: "tsa", Receipt: []byte("{}")})
		}}},
		report.RowCatalog:  {bundle.Case{Dispatch: "d-01"}, lie{bundle: foreignRevision}},
		report.RowManifest: {bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) { s.editManifest = func(m *record.Manifest) { m.Input = api.DigestOf([]byte("x")) } }, after: func(s *story) { s.editManifest = nil }}},
		report.RowResult:   {bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) { s.editResult = func(r *record.Result) { r.Manifest = s.manifestDigests["d-00/1"] } }}},
		report.RowProvenance: {bundle.Case{Run: "r1"}, lie{before: func(s *story) {
			s.editManifest = func(m *record.Manifest) {
				for i := range m.Needs {
					m.Needs[i].Digest = api.DigestOf([]byte("from nowhere"))
				}
			}
		}}},
		report.RowCompleteness: {bundle.Case{Dispatch: "d-01"}, lie{bundle: func(s *story, b *bundle.Bundle) { drop(s, b, record.KindDispatchRecovered) }}},
		report.RowAuthorisation: {bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			s.publish("local:bob")
			s.at = s.at.Add(time.Hour)
		}}},
		report.RowTime: {bundle.Case{Dispatch: "d-01"}, lie{bundle: func(s *story, b *bundle.Bundle) { s.stamped(b, len(s.leaves), s.at.Add(-time.Hour)) }}},
	} {
		_, r := judge(t, l.c, l.lie)
		for _, row := range r.Rows {
			if (row.Status == report.Fail) != (row.Row == name) {
				t.Errorf("a lie for %s: %s is %s: %s", name, row.Row, row.Status, row.Why)
			}
		}
		if r.Good(report.ClaimNone) || r.Claim != report.ClaimNone || r.Authorisation != report.AuthorisationNone {
			t.Errorf("a lie for %s earns %s, %s", name, r.Claim, r.Authorisation)
		}
	}
	for _, c := range []bundle.Case{{Dispatch: "d-01"}, {Run: "r1"}} { // the same without a lie
		if _, r := judge(t, c, lie{}); !r.Good(report.ClaimNone) {
			t.Errorf("honest:\n%s", r.Text())
		}
	}
}

// proves R-A7, R-A1, R-A6 (changes of the log, its keys and a bundle are detected)
func TestAttacksAreDetected(t *testing.T) {
	held := func(size func(s *story) int) func(s *story, b *bundle.Bundle, o *Options) {
		return func(s *story, _ *bundle.Bundle, o *Options) {
			o.Copies = []Copy{{File: "kept", Checkpoints: [][]byte{s.signCheckpoint(s.service, size(s))}}}
		}
	}
	rewrite := func(s *story, seq int) {
		e := s.entries[seq]
		e.At = e.At.Add(time.Millisecond)
		leaf, err := e.Encode()
		s.must(err)
		s.leaves[seq] = leaf
	}
	var kept []byte // the checkpoint that the auditor wrote down
	keep := func(s *story) { kept = s.signCheckpoint(s.service, len(s.leaves)) }
	give := func(_ *story, _ *bundle.Bundle, o *Options) {
		o.Copies = []Copy{{File: "kept", Checkpoints: [][]byte{kept}}}
	}
	for name, l := range map[string]struct {
		row report.RowName
		c   bundle.Case
		lie
	}{
		"an entry is rewritten by who exports": {report.RowInclusion, bundle.Case{Dispatch: "d-01"}, lie{bundle: func(s *story, b *bundle.Bundle) {
			rewrite(s, int(b.Entries[2].Seq))
			b.Entries[2].Leaf = s.leaves[b.Entries[2].Seq]
		}}},
		"an entry is deleted by who exports":             {report.RowInclusion, bundle.Case{Run: "r1"}, lie{bundle: func(_ *story, b *bundle.Bundle) { b.Entries = slices.Delete(b.Entries, 9, 10) }}},
		"an entry is deleted, and the rest proved again": {report.RowCompleteness, bundle.Case{Run: "r1"}, lie{bundle: func(s *story, b *bundle.Bundle) { drop(s, b, record.KindTaskSkipped) }}},
		"the end of the run is left out":                 {report.RowCompleteness, bundle.Case{Run: "r1"}, lie{bundle: func(s *story, b *bundle.Bundle) { drop(s, b, record.KindRunSettled) }}},
		"an attempt is left out": {report.RowCompleteness, bundle.Case{Run: "r1"}, lie{bundle: func(s *story, b *bundle.Bundle) {
			b.Entries = slices.DeleteFunc(b.Entries, func(e bundle.Entry) bool { return s.entries[e.Seq].Dispatch == "t-a1" })
			reprove(s, b)
		}}},
		"entries change places": {report.RowInclusion, bundle.Case{Run: "r1"}, lie{bundle: func(_ *story, b *bundle.Bundle) {
			b.Entries[7].Leaf, b.Entries[8].Leaf = b.Entries[8].Leaf, b.Entries[7].Leaf
		}}},
		"entries are logged in another order": {report.RowCompleteness, bundle.Case{Run: "r1"}, lie{before: func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindTaskDone {
					e.Kind, e.Detail = record.KindTaskFailed, record.TaskStep{Reason: "agent"}
				}
			}
		}}},
		"a run is deleted from the log, which is signed again": {report.RowConsistency, bundle.Case{Dispatch: "d-01"}, lie{after: func(s *story) {
			keep(s)
			s.entries, s.leaves = s.entries[:len(s.entries)-30], s.leaves[:len(s.leaves)-30]
			for len(s.leaves) < 100 {
				s.write(record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{}})
			}
		}, bundle: func(s *story, b *bundle.Bundle) {
			cp, err := logproof.Peek(kept)
			s.must(err)
			b.Case.Anchored = append(b.Case.Anchored, bundle.Anchored{Checkpoint: kept, Proof: bundle.Hashes(consistency(s.t, s.hashes(), int(cp.Size), len(s.leaves)))})
		}, options: give}},
		"the log is forked and signed with the real key": {report.RowConsistency, bundle.Case{Dispatch: "d-01"}, lie{after: func(s *story) {
			keep(s)
			rewrite(s, len(s.leaves)-1)
		}, options: give}},
		"a snapshot is restored and continued": {report.RowConsistency, bundle.Case{Dispatch: "d-01"}, lie{after: func(s *story) {
			keep(s)
			cut := len(s.leaves) - 2
			s.entries, s.leaves = s.entries[:cut], s.leaves[:cut]
			for range 2 {
				s.write(record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{}})
			}
		}, options: give}},
		"the signature of the checkpoint is stripped": {report.RowSignature, bundle.Case{Dispatch: "d-01"}, lie{bundle: func(_ *story, b *bundle.Bundle) {
			b.Case.Checkpoint = append(b.Case.Checkpoint[:bytes.Index(b.Case.Checkpoint, []byte("\n\n"))], "\n\n\u2014 x AAAAAAA=\n"...)
		}}},
		"a manifest is signed by a foreign key": {report.RowManifest, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			real := s.service
			s.service = newSigner(s.t)
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindDispatchRecovered {
					s.service, s.editEntry = real, nil
				}
			}
		}}},
		"the manifest is another honest one": {report.RowManifest, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Dispatch == "d-01" && e.Refs[record.RefManifest] != "" {
					e.Refs[record.RefManifest] = s.manifestDigests["d-00/1"]
				}
			}
		}, bundle: func(s *story, b *bundle.Bundle) { delete(b.Documents, s.manifestDigests["d-01/1"]) }}},
		"the result is that of another attempt": {report.RowResult, bundle.Case{Run: "r1"}, lie{before: func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindDispatchFinished && e.Dispatch == "t-b1" {
					e.Refs[record.RefResult] = s.resultsAt["t-b1/1"]
				}
			}
		}, bundle: func(s *story, b *bundle.Bundle) { delete(b.Documents, s.resultsAt["t-b1/2"]) }}},
		"the result is that of another dispatch": {report.RowResult, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindDispatchFinished {
					e.Refs[record.RefResult] = s.resultsAt["d-00/1"]
				}
			}
		}}},
		"an answer is to a question that was not asked": {report.RowResult, bundle.Case{Run: "r1"}, lie{before: func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindDispatchAnswered {
					e.Refs[record.RefQuestion] = api.DigestOf([]byte("never asked"))
				}
			}
		}}},
		"an attempt resumes with another attempt's patch": {report.RowProvenance, bundle.Case{Run: "r1"}, lie{before: func(s *story) {
			s.editManifest = func(m *record.Manifest) {
				if m.Resume != nil {
					m.Resume.Patch = api.DigestOf([]byte("from nowhere"))
				}
			}
		}}},
		"an artifact that the catalog never had": {report.RowProvenance, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			s.editManifest = func(m *record.Manifest) { m.Artifacts[3].Digest = api.DigestOf([]byte("from nowhere")) }
		}}},
		"the catalog before a grant was taken back": {report.RowAuthorisation, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			s.publish("local:bob")
			s.at = s.at.Add(time.Hour)
		}, bundle: func(s *story, b *bundle.Bundle) { // and what took it back is kept back
			i := slices.IndexFunc(b.Entries, func(e bundle.Entry) bool {
				d, ok := s.entries[e.Seq].Detail.(record.RevisionSeen)
				return ok && d.Number == 2
			})
			b.Entries = slices.Delete(b.Entries, i, i+1)
			reprove(s, b)
		}}},
		"an operator had taken back the consent": {report.RowAuthorisation, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) { s.consent("local:ann", api.Observe) }}},
		"a stop held": {report.RowAuthorisation, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			s.write(record.Entry{Kind: record.KindStopEngaged, Detail: record.StopEngaged{Stop: "s-1", Scope: "all"}})
		}}},
		"an operator record is forged": {report.RowAuthorisation, bundle.Case{Dispatch: "d-01"}, lie{before: func(s *story) {
			real := s.operator
			s.operator = newSigner(s.t)
			s.consent("local:bob", api.Irreversible)
			s.operator = real
		}}},
		"a task of the plan was left out": {report.RowCompleteness, bundle.Case{Run: "r1"}, lie{before: func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if e.Kind == record.KindTaskSkipped {
					e.Task = "c"
				}
			}
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := judge(t, l.c, l.lie)
			if r.Row(l.row).Status != report.Fail || r.Good(report.ClaimNone) {
				t.Errorf("%s does not fail:\n%s", l.row, r.Text())
			}
		})
	}
	t.Run("a kept checkpoint that matches passes", func(t *testing.T) {
		_, r := judge(t, bundle.Case{Run: "r1"}, lie{options: held(func(s *story) int { return len(s.leaves) })})
		if !r.Good(report.ClaimTamperDetecting) {
			t.Error(r.Text())
		}
	})
	t.Run("a checkpoint older than the run proves nothing about it", func(t *testing.T) {
		_, r := judge(t, bundle.Case{Run: "r1"}, lie{options: held(func(s *story) int { return len(s.leaves) / 2 })})
		if r.Failed() || r.Claim != report.ClaimNone {
			t.Error(r.Text())
		}
	})
}

func TestBundleOfAnotherLogIsRefused(t *testing.T) {
	s, other := newStory(t), newStory(t)
	s.whole("d-01")
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	if r := Verify(b, other.trust(), Options{}); r.Row(report.RowSignature).Status != report.Fail {
		t.Error(r.Text())
	}
	// Of another dispatch than it says, as when an honest bundle is shown for
	// what it is not about.
	s.whole("d-02")
	b = s.bundle(bundle.Case{Dispatch: "d-01"})
	b.Case.Dispatch = "d-02"
	if r := Verify(b, s.trust(), Options{}); r.Row(report.RowCompleteness).Status != report.Fail {
		t.Error(r.Text())
	}
}

// An exporter could leave out the end. Nothing is exported before it.
func TestUnfinishedWorkIsRefused(t *testing.T) {
	s := newStory(t)
	w := &work{id: "d-01"}
	s.admit(w)
	s.start(w)
	if r := Verify(s.bundle(bundle.Case{Dispatch: "d-01"}), s.trust(), Options{}); r.Row(report.RowCompleteness).Status != report.Fail {
		t.Error(r.Text())
	}
}

func TestRevokedKeyAloneProvesNothing(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	trust, revoked := s.trust(), uint64(len(s.leaves))
	trust.Log.Keys[0].Revoked = &revoked
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	if r := Verify(b, trust, Options{}); r.Row(report.RowSignature).Status != report.Fail {
		t.Error(r.Text())
	}
	// With a later key that vouches for it the same evidence is good.
	next := newSigner(t)
	upTo := revoked
	trust.Log.Keys[0].UpTo = &upTo
	trust.Log.Keys = append(trust.Log.Keys, LogKey{ID: next.KeyID(), Public: next.Public(), From: upTo + 1})
	b.Case.Anchored = append(b.Case.Anchored, bundle.Anchored{Checkpoint: s.signCheckpoint(next, len(s.leaves)), Proof: []byte{}})
	if r := Verify(b, trust, Options{}); r.Failed() {
		t.Error(r.Text())
	}
}

// proves R-A9 (old evidence verifies after the key has rotated)
func TestEvidenceFromBeforeARotationVerifies(t *testing.T) {
	s := newStory(t)
	s.whole("d-01")
	old, trust, origin := s.service, s.trust(), s.origin()
	next := newSigner(t)
	at := uint64(len(s.leaves))
	envelope, err := seal.KeyRotation{V: 1, Log: origin, Old: old.KeyID(), New: seal.KeyOf(next, ""), Entry: at, At: s.at}.Sign(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	s.write(record.Entry{Kind: record.KindKeyRotated, Refs: map[string]api.Digest{record.RefRotation: api.DigestOf(envelope)}, Detail: record.KeyRotation{New: string(next.KeyID()), Old: string(old.KeyID()), Use: record.UseService}})
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	cp := logproof.Checkpoint{Origin: origin, Size: uint64(len(s.leaves)), Root: rootOf(t, s.hashes())}
	if b.Case.Checkpoint, err = logproof.Sign(t.Context(), cp, next); err != nil {
		t.Fatal(err)
	}
	if r := Verify(b, trust, Options{}); r.Row(report.RowSignature).Status != report.Fail {
		t.Errorf("by a key without a rotation:\n%s", r.Text())
	}
	b.Case.Rotations = [][]byte{envelope}
	if r := Verify(reread(t, b), trust, Options{}); r.Failed() {
		t.Error(r.Text())
	}
}

func TestReportIsOneJSONDocument(t *testing.T) {
	_, r := judge(t, bundle.Case{Dispatch: "d-01"}, lie{})
	b, err := r.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var back report.Report
	if err := canon.DecodeExact(bytes.TrimSuffix(b, []byte("\n")), &back); err != nil || len(back.Rows) != len(report.RowNames()) {
		t.Errorf("%v\n%s", err, b)
	}
}
