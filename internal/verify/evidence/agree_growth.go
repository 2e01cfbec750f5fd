package evidence

import (
	"errors"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// growthAgreements are those of the details of entries that add tasks to a run.
func growthAgreements() []agreement {
	const claim = "the growth of a task whose dispatch is shown without its run"
	grown, appended := kinds(record.KindRunGrown), kinds(record.KindRunAppended)
	var rows []agreement
	for _, f := range []string{"cause", "round", "tasks", "total"} {
		rows = append(rows,
			agreement{kinds: grown, field: "detail." + f, truth: byChain, check: checkOfRun, claim: claim},
			agreement{kinds: appended, field: "detail." + f, truth: byChain, by: "replay.extend"})
	}
	return append(rows,
		agreement{kinds: append(grown, appended...), field: "detail.reasons", truth: byKind, check: func(s *scene) verdict { return holds(len(detail[record.RunGrowth](s.e).Reasons) == 0) }},
		agreement{kinds: grown, field: "refs", truth: byPlan, check: func(s *scene) verdict {
			if s.r == nil {
				return may(s.refs(record.RefGrowth))
			}
			return holds(s.refs(record.RefGrowth)) // taskStep.grow
		}, claim: claim},
		agreement{kinds: appended, field: "refs", truth: byPlan, check: func(s *scene) verdict { return holds(s.refs(record.RefGrowth)) }}, // replay.append
	)
}

// appended repeats the decision that let a caller add tasks to a run.
func (d *decider) appended(a *admission) error {
	e := a.e
	r := d.v.replayed[api.RunID(e.Run)]
	if r == nil || r.submitted == nil {
		return errors.New("tasks were added to a run that was not submitted")
	}
	return d.repeat(a, e.Policies, func(*revision) policy.Request {
		return policy.AppendRequest(e.Principal, r.submitted.Principal, r.id, e.Token != "", slices.Contains(e.Policies, policy.PolicyAppend))
	}, nil)
}
