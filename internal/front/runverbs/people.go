package runverbs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// electorate says whose approval something waits for.
func electorate(e *api.Electorate) string {
	who := "people"
	if len(e.By) > 0 {
		who = console.Line(console.Joined(e.By, ", ", ""))
	}
	if e.Needs > 1 {
		who += fmt.Sprintf(" (%d of %d have approved)", e.Approved, e.Needs)
	}
	return who
}

// approvalOf says what an approval is about.
func approvalOf(a *api.OpenApproval) string {
	if a.Tool != "" {
		return fmt.Sprintf("a call of %s by task %s", console.Line(a.Tool), console.Line(string(a.Task)))
	}
	return "task " + console.Line(string(a.Task))
}

// approvals shows the approvals that a run waits for, and how people give them.
func (p runPrinter) approvals(run *api.Run) {
	for i := range run.Approvals {
		if i == maxTroubles {
			p.Row("", "and more; see: bailiwick approval list --all")
			break
		}
		a := &run.Approvals[i]
		p.Row("approval", "of %s, by %s", approvalOf(a), electorate(&a.Electorate))
		p.Row("", "expires %s", p.Ago(a.Expires))
		p.Row("", "see: bailiwick approval show %s", a.ID)
		p.Row("", "approve: bailiwick approval approve %s", a.ID)
	}
}

// approvalNotes are the notes about the tasks of a run that wait for people.
func approvalNotes(run *api.Run, now time.Time) map[api.TaskID]string {
	notes := map[api.TaskID]string{}
	for i := range run.Approvals {
		a := &run.Approvals[i]
		if notes[a.Task] == "" {
			notes[a.Task] = fmt.Sprintf("bailiwick approval show %s: %s, expires in %s", a.ID, electorate(&a.Electorate), console.Duration(a.Expires.Sub(now)))
		}
	}
	return notes
}

// approvalReports tells on stderr of the approvals that runs wait for, each once.
type approvalReports struct {
	out  *console.Output
	r    client.Runtime
	mu   sync.Mutex
	told map[api.ApprovalID]bool // guarded by mu
}

func newApprovalReports(out *console.Output, r client.Runtime) *approvalReports {
	return &approvalReports{out: out, r: r, told: map[api.ApprovalID]bool{}}
}

func (p *approvalReports) report(run *api.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range run.Approvals {
		a := &run.Approvals[i]
		if p.told[a.ID] {
			continue
		}
		p.told[a.ID] = true
		fmt.Fprintf(p.out.Stderr, "%s of run %s waits for approval by %s until %s; see: bailiwick approval show %s, approve with: bailiwick approval approve %[5]s\n",
			approvalOf(a), run.RunID, electorate(&a.Electorate), p.out.Time(a.Expires), a.ID)
	}
}

// follow reports the requests of a run that are made until stop is called. It returns
// what to call with each event. After stop has returned nothing more is reported.
func (p *approvalReports) follow(ctx context.Context, id api.RunID) (saw func(api.RunEvent), stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	asked, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-asked:
				if run, err := p.r.Run(ctx, id, "", 1); err == nil {
					p.report(&run)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	saw = func(e api.RunEvent) {
		if !isApproval(&e) {
			return
		}
		select {
		case asked <- struct{}{}:
		default: // the next look sees it too
		}
	}
	return saw, func() { cancel(); <-ended }
}

// isApproval reports whether an event is about a request for an approval.
func isApproval(e *api.RunEvent) bool { return strings.HasPrefix(e.Event, "approval.") }
