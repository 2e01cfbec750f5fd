package evidence

import (
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/record"
)

// back has the service go by an older revision again, which the deploy keys did
// sign: who has the service's key can write that.
func (s *story) back(d api.Digest, number int64) {
	s.write(record.Entry{
		Kind: record.KindCatalogRevision, Refs: map[string]api.Digest{record.RefRevision: d}, Detail: record.RevisionSeen{Number: number, Threshold: 1},
	})
}

// A grant that was taken away stays away, and so does a subagent that was
// mended: an older revision is as genuine as ever, and not in force.
//
// proves R-A7
func TestTheCatalogIsNotPutBack(t *testing.T) {
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
		for _, c := range []Case{{Dispatch: "d-01"}, {Run: "r1"}} {
			_, r := judge(t, c, lie{before: before})
			for _, row := range r.Rows {
				if (row.Status == Fail) != (row.Row == RowAuthorisation) {
					t.Errorf("%s: %s is %s: %s", name, row.Row, row.Status, row.Why)
				}
			}
		}
	}
	// The same, where the catalog goes on.
	for _, gap := range []time.Duration{0, 59 * time.Second, time.Hour} {
		for _, c := range []Case{{Dispatch: "d-01"}, {Run: "r1"}} {
			_, r := judge(t, c, lie{before: func(s *story) {
				s.publish("local:ann", "local:bob")
				s.publish("local:ann")
				s.at = s.at.Add(gap)
			}})
			if r.Failed() {
				t.Error(r.Text())
			}
			_, r = judge(t, c, lie{before: func(s *story) { // pinned by the one before, which was replaced meanwhile
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
