package evidence

import (
	"bytes"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/evidence/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/note"
	"github.com/bailiwick-dev/bailiwick/internal/record"
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
				if (row.Status == Fail) != (row.Row == RowAuthorisation) {
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
			raw := s.anchored(b, size(s))
			a := &b.Case.Anchored[0]
			a.Checkpoint, a.Name, a.Kind, a.Receipt = raw, "x", "tsa", []byte("{}")
		}, options: func(s *story, _ *bundle.Bundle, o *Options) {
			at := s.at.Add(time.Hour)
			o.Receipts = receipts(func(bundle.Anchored, note.Checkpoint) (Earned, error) {
				return Earned{Checked: true, Claim: ClaimTamperEvident, Time: &at, Why: "it has the checkpoint of some entries"}, nil
			})
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
		consistency Status
		anchor      Status
		claim       Claim
	}{
		"an anchor has all of it":            {stamped(whole), Pass, Pass, ClaimTamperEvident},
		"an anchor has what came before":     {stamped(before), Pass, NA, ClaimNone},
		"the checkpoint itself, once more":   {beside(whole), NA, NA, ClaimNone},
		"a checkpoint of no entries":         {beside(none), NA, NA, ClaimNone},
		"a checkpoint of before":             {beside(before), Pass, NA, ClaimNone},
		"no other checkpoint, and no anchor": {lie{bundle: func(_ *story, b *bundle.Bundle) { b.Case.Anchored = []bundle.Anchored{} }}, NA, NA, ClaimNone},
	} {
		_, r := judge(t, bundle.Case{Run: "r1"}, x.l)
		if r.Failed() || r.Row(RowConsistency).Status != x.consistency || r.Row(RowAnchor).Status != x.anchor || r.Claim != x.claim {
			t.Errorf("%s:\n%s", name, r.Text())
		}
		if (r.Time == TimeAttested) != (x.anchor == Pass) || (r.Row(RowTime).Status == Pass) != (x.anchor == Pass) {
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
	if r.Row(RowTime).Status != Fail || r.Time != TimeAsserted {
		t.Error(r.Text())
	}
}

// A copy fetched from an anchor is compared with the bundle, even if the bundle does
// not name that anchor, or is from before a key rotation.
//
// proves R-A6, R-A7
func TestAuditorsCheckpointsAreComparedWithTheBundle(t *testing.T) {
	verify := func(s *story, b *bundle.Bundle, args ...string) (int, string) {
		trust, err := s.trust().Encode()
		s.must(err)
		files := map[string][]byte{"bundle": file(t, b), "trust": trust}
		for i := range args {
			if strings.Contains(args[i], "\n\n") {
				name, raw, _ := strings.Cut(args[i], "|")
				files["copy"] = []byte(raw)
				args[i] = name + "copy"
			}
		}
		var out, wrong bytes.Buffer
		code := Command(append([]string{"bundle", "--trust", "trust"}, args...), &out, &wrong, Files{Open: func(name string) (io.ReadCloser, error) {
			b, ok := files[name]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return io.NopCloser(bytes.NewReader(b)), nil
		}})
		return code, out.String() + wrong.String()
	}
	s := newStory(t)
	s.whole("d-01")
	honestly := string(s.signCheckpoint(s.service, len(s.leaves)))
	b := s.bundle(bundle.Case{Dispatch: "d-01"})
	later := string(s.signCheckpoint(newSigner(t), len(s.leaves))) // by a key that is not in the trust file
	for range 3 {
		s.write(record.Entry{Kind: record.KindServiceStarted, Detail: record.ServiceStart{Mode: "same-user"}})
	}
	rotated := string(s.signCheckpoint(newSigner(t), len(s.leaves)))
	s.leaves[len(s.leaves)-4] = append([]byte{}, s.leaves[0]...) // a fork
	forged := string(s.signCheckpoint(s.service, len(s.leaves)-3))
	for name, x := range map[string]struct {
		args []string
		code int
		says string
	}{
		"what it has is the same":                     {[]string{"--anchor", "off-site=|" + honestly}, 0, "pass  consistency"},
		"what it has is the same, and it is his own":  {[]string{"--anchor", "|" + honestly, "--require", "tamper-detecting"}, 0, "claim: tamper-detecting"},
		"what it has is the same, but who trusts it?": {[]string{"--anchor", "off-site=|" + honestly, "--require", "tamper-detecting"}, 1, "claim: none"},
		"what it has is another log":                  {[]string{"--anchor", "off-site=|" + forged}, 1, "fail  consistency"},
		"what he has is another log":                  {[]string{"--anchor", "|" + forged}, 1, "fail  consistency"},
		"it is signed by a key that came later":       {[]string{"--anchor", "|" + rotated}, 0, "na    consistency"},
		"it is signed by nobody's key, for this size": {[]string{"--anchor", "|" + later}, 1, "fail  consistency"},
	} {
		if code, out := verify(s, b, x.args...); code != x.code || !strings.Contains(out, x.says) {
			t.Errorf("%s: exit %d:\n%s", name, code, out)
		}
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

// A text keeps its quotation marks, also at its ends; control characters are
// spelled out.
func TestPlainKeepsQuotationMarks(t *testing.T) {
	for text, want := range map[string]string{`unexpected argument "b"`: `unexpected argument "b"`, `"b" is wrong`: `"b" is wrong`, `"`: `"`, "": "", "a\x1b[2J\n": `a\x1b[2J\n`} {
		if got := plain(text); got != want {
			t.Errorf("%q is printed %q, want %q", text, got, want)
		}
	}
}
