package policy

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
)

// ActionVote is a vote about a request for an approval, for or against it.
const ActionVote Action = "approval.vote"

// VoteRequest is what DecideVote decides about. Service and verifier make it from the
// document that the vote is about.
type VoteRequest struct {
	Voter  api.Principal
	Action api.Action
}

// DecideVote decides whether a person may vote. About a call: by a grant that lists the
// role, and about one's own work only where the grant says so, never at irreversible.
// About a task: those whom it lists, never who submitted its run. No program votes.
func (e *Engine) DecideVote(r VoteRequest) Decision {
	a := &r.Action
	d := Decision{valid: true, principal: r.Voter, action: ActionVote, resource: string(a.ID)}
	own := r.Voter.SamePerson(a.Principal)
	switch call := a.Call; {
	case !r.Voter.Person() && call != nil:
		d.reasons = []string{fmt.Sprintf("%s is a program: only people approve calls", r.Voter)}
	case !r.Voter.Person():
		d.reasons = []string{fmt.Sprintf("%s is a program: only people approve tasks", r.Voter)}
	case call == nil:
		e.decideTaskVote(&d, a, own)
	case own && call.Tier >= api.Irreversible:
		d.reasons = []string{fmt.Sprintf("%s submitted the work, as %s: two other people approve calls at tier %s", r.Voter, a.Principal, call.Tier)}
	default:
		e.decideCallVote(&d, call, own)
	}
	return d
}

func (e *Engine) decideTaskVote(d *Decision, a *api.Action, own bool) {
	switch {
	case a.Step == nil:
		d.reasons = []string{"the action is unknown"}
	case own:
		d.reasons = []string{fmt.Sprintf("%s submitted run %s, as %s: other people approve its tasks", d.principal, a.Run, a.Principal)}
	case !slices.Contains(a.Step.By, d.principal) && a.Step.Write != nil:
		d.reasons = []string{fmt.Sprintf("the grants of %s do not list %s in writes.by, so it does not approve what task %s of run %s writes", a.Principal, d.principal, a.Task, a.Run)}
	case !slices.Contains(a.Step.By, d.principal):
		d.reasons = []string{fmt.Sprintf("task %s of run %s does not list %s in approval.by", a.Task, a.Run, d.principal)}
	default:
		d.allowed = true
	}
}

func (e *Engine) decideCallVote(d *Decision, a *api.ToolAction, own bool) {
	for _, g := range e.of[d.principal] {
		if slices.Contains(g.Approve, a.Role) && (!own || g.ApproveOwn) {
			d.policies = append(d.policies, grantID(g.Grant))
		}
	}
	slices.Sort(d.policies)
	if d.allowed = len(d.policies) > 0; !d.allowed {
		d.reasons = []string{fmt.Sprintf("no grant lets %s approve calls of role %q", d.principal, a.Role)}
		if own {
			d.reasons = []string{fmt.Sprintf("no grant lets %s approve calls of role %q in its own work", d.principal, a.Role)}
		}
	}
}

// Electorate returns the people who may vote about an action: those for whom DecideVote
// allows it.
func (e *Engine) Electorate(a *api.Action) (list []api.Principal) {
	candidates := maps.Keys(e.of)
	if a.Step != nil {
		candidates = slices.Values(a.Step.By)
	}
	for p := range candidates {
		if e.DecideVote(VoteRequest{Voter: p, Action: *a}).Allowed() {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// Approves reports whether a grant lets p approve calls of a role, at least those of
// others.
func (e *Engine) Approves(p api.Principal, role api.Name) bool {
	return p.Person() && slices.ContainsFunc(e.of[p], func(g *Grant) bool { return slices.Contains(g.Approve, role) })
}

// Approved reports whether votes about a, each verified, approve it: those of people who
// may vote by e, and as many as its tier or its task needs.
func (e *Engine) Approved(a *api.Action, votes []api.Vote) bool {
	needs := max(1, a.Needs)
	if a.Call != nil {
		needs = ToolApprovers(a.Call.Tier)
	}
	return Approvers(slices.DeleteFunc(slices.Clone(votes), func(v api.Vote) bool {
		return !e.DecideVote(VoteRequest{Voter: v.Principal, Action: *a}).Allowed()
	})) >= needs
}

// SameCall reports whether two actions are about one call of one dispatch: its tool with its
// canonical arguments. A denial of one denies the other, whatever its agent has read, or
// which rules want an approval, meanwhile.
func SameCall(a, b *api.ToolAction) bool {
	return a.Dispatch == b.Dispatch && a.Tool == b.Tool && bytes.Equal(a.Arguments, b.Arguments)
}

// Approvers counts the people who approve in votes.
func Approvers(votes []api.Vote) int { return ballot.Approvers(votes) }
