package dispatch

import (
	"fmt"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// Unapproved is the error of SubmitTask for a task that people have to approve before it
// writes. Nothing was decided or stored.
type Unapproved struct {
	Action  api.TaskAction // without its id, its plan and the products that it shows
	Timeout api.Duration   // how long people have
}

// Error implements error.
func (u *Unapproved) Error() string {
	by := make([]string, len(u.Action.By))
	for i, p := range u.Action.By {
		by[i] = string(p)
	}
	return fmt.Sprintf("subagent %s has the effect write: %d of %s have to approve the task first", u.Action.Write.Subagent, u.Action.Needs, strings.Join(by, ", "))
}

// refuseWrite refuses a dispatch outside a run that people would have to approve.
func (x subject) refuseWrite() error {
	if x.run != "" || x.writes() == nil {
		return nil
	}
	return api.Errorf(api.CodeDenied, "subagent %q has the effect write, and a grant of %s lets its tasks write only after people approve them: only a run waits for that", x.subagent.Name, x.principal).
		WithHint("submit it as a plan of one task: bailiwick run submit PLAN")
}

// writes is the rule for what x is to write; nil: nobody approves it.
func (x subject) writes() *api.WriteRule {
	return x.snapshot.Engine.Writes(x.principal, x.subagent.Effect)
}

// useApproval uses the approval of what m describes, in the transaction that admits it.
// It fails with an Unapproved unless people approved exactly that, by the rule in force.
func (s *admitter) useApproval(tx *store.Tx, p *prepared, m *record.Manifest) error {
	rule := p.writes()
	if rule == nil {
		return nil
	}
	write := record.WriteAction(m, p.request.Input)
	u := &Unapproved{Timeout: rule.Expiry(), Action: record.TaskAction(m.Run, m.Task, m.Principal, "", rule.By, rule.Needs())}
	u.Action.Write = &write
	if used, err := s.cfg.People.UseTask(tx, u.Action); used || err != nil {
		return err
	}
	return u
}
