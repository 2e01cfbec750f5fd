package evidence

import (
	"fmt"
	"maps"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/plan"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

const retryingQuorum = `{"id":"r1","source":{"name":"app"},"tasks":[{"id":"a","subagent":"code","env":["plain"],"capabilities":["tools"]},` +
	`{"id":"q","env":["plain"],"capabilities":["tools"],"retry":{"attempts":3},"quorum":{"of":["code","code","code"],"approve":2},"depends_on":["a"]}]}`

var shippingQuorum = strings.TrimSuffix(retryingQuorum, "]}") + `,{"id":"ship","approval":{"by":["human:bob","human:eve","human:ann"],"count":2,"show":["q"],"timeout":"1h"}}]}`

// voter is the dispatch of a voter of quorum q. The third starts first.
func voter(n int) *work {
	return child(api.TaskID(fmt.Sprintf("q.vote%d", n)), uint64(2+n%3), "") //nolint:gosec // G115: small
}

// racing begins a quorum with three voters, of whom the last still runs, in a run that then
// has total tasks.
func (s *story) racing(total int64, vote string) *work {
	s.carry(of("a", 1), "")
	s.sprout(control("q"), 0, plan.Growth{Cause: plan.CauseQuorum, Task: "q"}, 3, total)
	late := voter(3)
	s.fire(late, 1)
	for n := range 2 {
		s.carry(voter(n+1), vote)
	}
	return late
}

// raceTales are quorums that are known while a voter still runs. The service cancels that
// one, which may end first, in any way.
func raceTales() map[string]tale {
	const approve = `{"verdict":"approve"}`
	q, quorum := control("q"), func(lieBefore func(s *story, late *work), after func(s *story, late *work), out record.RunEnd) tale {
		return tale{report.RowCompleteness, retryingQuorum, func(s *story, lie bool) {
			late := s.racing(5, approve)
			if lie {
				lieBefore(s, late)
			}
			s.step0(record.KindTaskDone, control("q"), record.TaskStep{})
			if !lie {
				after(s, late)
			}
			s.settle("r1", out)
		}}
	}
	fails := func(s *story, late *work) { s.failed(late, 1, "agent") }
	all := map[string]tale{
		"a voter fails without a retry before its quorum is known": quorum(fails, fails, record.RunEnd{State: "done", Done: 4, Failed: 1}),
		"a voter is cancelled before its quorum is known": quorum(func(s *story, late *work) {
			s.step(record.KindTaskWaiting, late, 1, record.TaskStep{Reason: "agent", Until: "2026-11-21T15:00:00Z"})
		}, func(s *story, late *work) {
			s.write(s.beside(record.KindDispatchAborted, late, record.CancelRequest{State: "started", Why: "the quorum of task q is known"}))
			s.finish(late, api.EventCancelled, "")
			s.step(record.KindTaskCancelled, late, 1, record.TaskStep{By: string(api.Service), Message: "the quorum of task q is known"})
		}, record.RunEnd{State: "done", Done: 4, Cancelled: 1}),
		"a voter is retried after its quorum is known": {report.RowCompleteness, retryingQuorum, func(s *story, lie bool) {
			late := s.racing(5, approve)
			s.step0(record.KindTaskDone, q, record.TaskStep{})
			s.lose(late, record.KindDispatchFailed, record.DispatchEnd{Reason: "agent"})
			if lie {
				s.step(record.KindTaskWaiting, late, 1, record.TaskStep{Reason: "agent", Until: "2026-11-21T15:00:00Z"})
				s.step(record.KindTaskCancelled, late, 1, record.TaskStep{By: string(api.Service)})
			} else {
				s.step(record.KindTaskFailed, late, 1, record.TaskStep{Reason: "agent"})
			}
			out := record.RunEnd{State: "done", Done: 4, Failed: 1}
			if lie {
				out.Failed, out.Cancelled = 0, 1
			}
			s.settle("r1", out)
		}},
	}
	maps.Copy(all, shownRaceTales())
	return all
}

// shownRaceTales are approvals of a task after a quorum, of whom a voter still runs when
// people are asked, or ends before the request is in the log.
func shownRaceTales() map[string]tale {
	asked := func(before bool, shows, lies func(early []*work, late *work) []*work) tale {
		return tale{report.RowAuthorisation, shippingQuorum, func(s *story, lie bool) {
			s.second = s.newKey()
			late, early := s.racing(6, `{"verdict":"approve"}`), []*work{voter(1), voter(2)}
			for _, w := range early {
				w.attempt = 1
			}
			s.step0(record.KindTaskDone, control("q"), record.TaskStep{})
			s.step0(record.KindTaskWaiting, control("ship"), record.TaskStep{Message: "for approval"})
			ends := func() {
				s.editResult = func(r *record.Result) { s.valued(r, `{"verdict":"reject"}`) }
				s.done(late, 1)
				s.editResult = nil
			}
			if before {
				ends()
			}
			list := shows(early, late)
			if lie {
				list = lies(early, late)
			}
			a := s.askOf("ship", list...)
			d := s.document(a)
			s.aboutPeople(record.KindApprovalRequest, a, d)
			if !before {
				ends()
			}
			s.approves(d)
			s.step0(record.KindTaskDone, control("ship"), record.TaskStep{})
			s.settle("r1", record.RunEnd{State: "done", Done: 6})
		}}
	}
	finished := func(early []*work, _ *work) []*work { return early }
	first := func(early []*work, _ *work) []*work { return early[:1] }
	all := func(early []*work, late *work) []*work { return append(early[:2:2], late) }
	withoutFirst := func(early []*work, late *work) []*work { return append(early[1:2:2], late) }
	return map[string]tale{
		"people are not shown a voter that was done, while another runs":             asked(false, finished, first),
		"people are not shown a voter that was done, and another ends meanwhile":     asked(true, finished, first),
		"people are shown the voter that ended meanwhile, and not one that was done": asked(true, all, withoutFirst),
	}
}
