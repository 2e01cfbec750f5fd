package evidence

import (
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// ruleAgreements are those of the details of entries that change what is allowed.
func ruleAgreements() []agreement {
	return slices.Concat(recordAgreements(), revisionAgreements(), stopAgreements())
}

func recordAgreements() []agreement {
	of := kinds(record.KindOperatorRecorded)
	var rows []agreement
	for f, get := range map[string]func(d record.OperatorDecision) string{
		"approval":  func(d record.OperatorDecision) string { return d.Approval },
		"anchor":    func(d record.OperatorDecision) string { return d.Anchor },
		"ceiling":   func(d record.OperatorDecision) string { return d.Ceiling },
		"expiresAt": func(d record.OperatorDecision) string { return d.ExpiresAt },
		"found":     func(d record.OperatorDecision) string { return d.Found },
		"issuer":    func(d record.OperatorDecision) string { return d.Issuer },
		"content":   func(d record.OperatorDecision) string { return d.Content },
		"secret":    func(d record.OperatorDecision) string { return d.Secret },
		"replaces":  func(d record.OperatorDecision) string { return d.Replaces },
		"stop":      func(d record.OperatorDecision) string { return d.Stop },
		"subject":   func(d record.OperatorDecision) string { return d.Subject },
		"token":     func(d record.OperatorDecision) string { return d.Token },
		"verb":      func(d record.OperatorDecision) string { return d.Verb },
		"number":    func(d record.OperatorDecision) string { return fmt.Sprint(d.Number) },
		"reason":    func(d record.OperatorDecision) string { return d.Reason },
		"set":       func(d record.OperatorDecision) string { return fmt.Sprint(d.Set) },
		"threshold": func(d record.OperatorDecision) string { return fmt.Sprint(d.Threshold) },
	} {
		rows = append(rows, agreement{kinds: of, field: "detail." + f, truth: byRecord, check: func(s *scene) verdict {
			signed := s.v.records[s.e.seq]
			if signed == nil {
				return agrees // timeline.applyRecord reports it
			}
			got, want := get(detail[record.OperatorDecision](s.e)), get(record.DecisionOf(&signed.OperatorRecord, nil))
			if f == "reason" {
				return holds(record.SameText(got, want))
			}
			return is(got, want)
		}})
	}
	rows = append(rows, agreement{kinds: of, field: "detail.operators", truth: byRecord, check: func(s *scene) verdict {
		signed := s.v.records[s.e.seq]
		if signed == nil {
			return agrees
		}
		return sameList(detail[record.OperatorDecision](s.e).Operators, record.DecisionOf(&signed.OperatorRecord, nil).Operators)
	}})
	return append(rows, agreement{kinds: of, field: "detail.keys", truth: byRecord, check: func(s *scene) verdict {
		signed := s.v.records[s.e.seq]
		if signed == nil {
			return agrees
		}
		return sameKeys(detail[record.OperatorDecision](s.e).Keys, signed.verified, signed.signers)
	}})
}

// sameKeys compares the keys that a service counted with those whose signatures
// the auditor verified. The auditor may know fewer keys.
func sameKeys(got []string, verified, signers []seal.KeyID) verdict {
	for _, k := range got {
		if !slices.Contains(signers, seal.KeyID(k)) {
			return differs
		}
	}
	for _, k := range verified {
		if !slices.Contains(got, string(k)) {
			return differs
		}
	}
	return holds(slices.IsSorted(got) && len(slices.Compact(slices.Clone(got))) == len(got))
}

func revisionAgreements() []agreement {
	seen := func(field, claim string, check func(d record.RevisionSeen, r *revision) verdict) agreement {
		return agreement{kinds: kinds(record.KindCatalogRevision), field: "detail." + field, truth: byRevision, claim: claim, check: func(s *scene) verdict {
			r := s.v.revisions[s.e.Refs[record.RefRevision]]
			if r == nil {
				return silent
			}
			return check(detail[record.RevisionSeen](s.e), r)
		}}
	}
	return []agreement{
		seen("author", claimUnread, func(d record.RevisionSeen, r *revision) verdict {
			return holds(record.SameText(d.Author, r.doc.Author))
		}),
		seen("number", claimUnread, func(d record.RevisionSeen, r *revision) verdict {
			return holds(d.Number >= 0 && uint64(d.Number) == r.doc.Number)
		}),
		seen("reason", claimUnread, func(d record.RevisionSeen, r *revision) verdict {
			return holds(record.SameText(d.Reason, r.doc.Reason))
		}),
		seen("keys", "which signatures of a catalog revision the service counted, where it has several", func(d record.RevisionSeen, r *revision) verdict {
			return known(len(r.signers) > 0, func() verdict {
				if v := sameKeys(d.Keys, nil, r.signers); v == differs || len(d.Keys) == 0 || len(r.signers) == 1 {
					return holds(v == agrees && len(d.Keys) > 0)
				}
				return silent
			})
		}),
		seen("threshold", "how many signatures the service required of a catalog revision: the auditor's trust file decides", func(d record.RevisionSeen, _ *revision) verdict {
			return may(d.Threshold >= 1 && d.Threshold <= max(1, int64(len(d.Keys))))
		}),
	}
}

func stopAgreements() []agreement {
	of := kinds(record.KindStopEngaged)
	const claim = "why a stop was engaged, and what it covers beyond what it cancelled and forbade here"
	return []agreement{
		{kinds: of, field: "detail.name", truth: byNothing, claim: claim},
		{kinds: of, field: "detail.reason", truth: byNothing, claim: claim},
		{kinds: of, field: "detail.scope", truth: byNothing, claim: claim},
		{kinds: of, field: "detail.stop", truth: byChain, check: func(s *scene) verdict {
			return is(detail[record.StopEngaged](s.e).Stop, fmt.Sprintf("s-%d", s.v.stops.number[s.e.seq]))
		}},
	}
}
