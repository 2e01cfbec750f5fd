package evidence

import (
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// back puts an older, validly signed revision in force again, as the holder of the
// service key can.
func (s *story) back(d api.Digest, number int64) {
	s.write(record.Entry{
		Kind: record.KindCatalogRevision, Refs: map[string]api.Digest{record.RefRevision: d}, Detail: record.RevisionSeen{Number: number, Threshold: 1},
	})
}

// A revoked grant stays revoked, and a fixed subagent fixed: an older revision has
// valid signatures, but is not in force.
//
// proves R-A7
func TestCatalogRollbackIsRefused(t *testing.T) {
	publish := func(s *story, who ...api.Principal) {
		s.publish(who...)
		s.at = s.at.Add(time.Hour)
	}
	for name, before := range map[string]func(s *story){
		"to the revision before": func(s *story) {
			first, doc := s.revisionDigest, s.revision
			publish(s, "local:bob")
			s.back(first, 1)
			s.revision, s.revisionDigest = doc, first
		},
		"under a higher number": func(s *story) {
			first, doc := s.revisionDigest, s.revision
			publish(s, "local:bob")
			s.back(first, 3)
			s.revision, s.revisionDigest = doc, first
		},
		"for what is pinned only": func(s *story) {
			first, doc := s.revisionDigest, s.revision
			publish(s, "local:ann")
			s.revision, s.revisionDigest = doc, first
		},
		"to one that never was": func(s *story) {
			s.editEntry = func(_ uint64, e *record.Entry) {
				if d, ok := e.Detail.(record.RevisionSeen); ok {
					d.Number = -1
					e.Detail = d
				}
			}
			publish(s, "local:ann")
			s.editEntry = nil
		},
	} {
		for _, c := range []bundle.Case{{Dispatch: "d-01"}, {Run: "r1"}} {
			_, r := judge(t, c, lie{before: before})
			for _, row := range r.Rows {
				if (row.Status == report.Fail) != (row.Row == report.RowAuthorisation) {
					t.Errorf("%s: %s is %s: %s", name, row.Row, row.Status, row.Why)
				}
			}
		}
	}
	// The control: the catalog only moves forward.
	for _, gap := range []time.Duration{0, 59 * time.Second, time.Hour} {
		for _, c := range []bundle.Case{{Dispatch: "d-01"}, {Run: "r1"}} {
			_, r := judge(t, c, lie{before: func(s *story) {
				s.publish("local:ann", "local:bob")
				s.publish("local:ann")
				s.at = s.at.Add(gap)
			}})
			if r.Failed() {
				t.Error(r.Text())
			}
			_, r = judge(t, c, lie{before: func(s *story) { // pinned in the revision before, replaced meanwhile
				first, doc := s.revisionDigest, s.revision
				s.publish("local:ann")
				s.revision, s.revisionDigest = doc, first
			}})
			if r.Failed() {
				t.Error(r.Text())
			}
		}
	}
}

// proves R-A7 (no row passes without evidence)
func TestRowsPassOnlyWithIndependentEvidence(t *testing.T) {
	stamped := func(size func(s *story) int) lie {
		return lie{bundle: func(s *story, b *bundle.Bundle) {
			b.Case.Anchored = nil
			s.stamped(b, size(s), s.at.Add(time.Hour))
		}}
	}
	copied := func(size func(s *story) int) lie {
		return lie{before: func(s *story) {
			s.places = []AnchorTrust{{Name: "worm", Kind: receipt.S3, Place: "https://s3.example/b/"}}
		}, bundle: func(s *story, b *bundle.Bundle) {
			b.Case.Anchored = []bundle.Anchored{}
			if n := uint64(size(s)); n < uint64(len(s.leaves)) { //nolint:gosec // G115: small
				b.Case.Sizes = []uint64{n}
				reprove(s, b)
			}
		}, options: func(s *story, _ *bundle.Bundle, o *Options) {
			o.Copies = []Copy{{File: "object", Anchor: "worm", Checkpoints: [][]byte{s.signCheckpoint(s.service, size(s))}}}
		}}
	}
	beside := func(size func(s *story) int) lie {
		return lie{bundle: func(s *story, b *bundle.Bundle) {
			b.Case.Anchored = []bundle.Anchored{}
			raw := s.anchored(b, size(s))
			b.Case.Anchored[0].Checkpoint = raw
		}}
	}
	whole, before, none := func(s *story) int { return len(s.leaves) }, func(*story) int { return 4 }, func(*story) int { return 0 }
	for name, x := range map[string]struct {
		l           lie
		consistency report.Status
		anchor      report.Status
		time        report.Status
		claim       report.Claim
	}{
		"an anchor has all of it":            {copied(whole), report.Pass, report.Pass, report.NA, report.ClaimTamperEvident},
		"an anchor has what came before":     {copied(before), report.Pass, report.NA, report.NA, report.ClaimNone},
		"an authority stamped all of it":     {stamped(whole), report.NA, report.NA, report.Pass, report.ClaimNone},
		"an authority stamped what was":      {stamped(before), report.Pass, report.NA, report.NA, report.ClaimNone},
		"the checkpoint itself, once more":   {beside(whole), report.NA, report.NA, report.NA, report.ClaimNone},
		"a checkpoint of no entries":         {beside(none), report.NA, report.NA, report.NA, report.ClaimNone},
		"an earlier checkpoint":              {beside(before), report.Pass, report.NA, report.NA, report.ClaimNone},
		"no other checkpoint, and no anchor": {lie{bundle: func(_ *story, b *bundle.Bundle) { b.Case.Anchored = []bundle.Anchored{} }}, report.NA, report.NA, report.NA, report.ClaimNone},
	} {
		_, r := judge(t, bundle.Case{Run: "r1"}, x.l)
		if r.Failed() || r.Row(report.RowConsistency).Status != x.consistency || r.Row(report.RowAnchor).Status != x.anchor || r.Row(report.RowTime).Status != x.time || r.Claim != x.claim {
			t.Errorf("%s:\n%s", name, r.Text())
		}
		if (r.Time == report.TimeAttested) != (x.time == report.Pass) {
			t.Errorf("%s: time %s\n%s", name, r.Time, r.Text())
		}
	}
	// An entry in the middle that says it is of later is one too.
	l := stamped(whole)
	l.before = func(s *story) {
		s.editEntry = func(_ uint64, e *record.Entry) {
			if e.Kind == record.KindTaskSkipped {
				e.At = e.At.Add(24 * time.Hour)
			}
		}
	}
	_, r := judge(t, bundle.Case{Run: "r1"}, l)
	if r.Row(report.RowTime).Status != report.Fail || r.Time != report.TimeAsserted {
		t.Error(r.Text())
	}
}

// proves R-A9 (a trust file from before a rotation is enough for all that the service signs)
func TestStatementKeysFollowTheServiceKey(t *testing.T) {
	a, b, c, other := signer(t), signer(t), signer(t), signer(t)
	log := LogTrust{Origin: "x", Keys: []LogKey{logKey(a, 0)}}
	followed, err := log.Follow([][]byte{rotate(t, "x", a, b, 9), rotate(t, "x", b, c, 19)})
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		trust Trust
		want  []LogKey
	}{
		"the service's own":       {Trust{Log: log, Statements: []LogKey{logKey(a, 0)}}, []LogKey{logKey(a, 0, 9), logKey(b, 10, 19), logKey(c, 20)}},
		"another":                 {Trust{Log: log, Statements: []LogKey{logKey(other, 0)}}, []LogKey{logKey(other, 0)}},
		"another since":           {Trust{Log: log, Statements: []LogKey{logKey(a, 0, 4), logKey(other, 5)}}, []LogKey{logKey(a, 0, 4), logKey(other, 5)}},
		"none":                    {Trust{Log: log}, nil},
		"its own, not any longer": {Trust{Log: log, Statements: []LogKey{logKey(a, 0, 4)}}, []LogKey{logKey(a, 0, 4)}},
		"the auditor knows them":  {Trust{Log: followed, Statements: []LogKey{logKey(a, 0)}}, []LogKey{logKey(a, 0)}},
	} {
		got := x.trust.statements(followed)
		if len(got) != len(x.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i := range got {
			if w := x.want[i]; got[i].ID != w.ID || got[i].From != w.From || (got[i].UpTo == nil) != (w.UpTo == nil) || w.UpTo != nil && *got[i].UpTo != *w.UpTo {
				t.Errorf("%s: key %d is %+v", name, i, got[i])
			}
		}
	}
}
