package runverbs

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Denial is who denied something: a person, a budget, an emergency stop, or policy.
type Denial struct {
	By   string // as text
	Look string // a command that shows more about it; "" if only policy can say
	Once string // when a retry makes sense, after "once"
}

// votedDown begins the message about a request that a person denied.
var votedDown = regexp.MustCompile(`^(\S+) denied approval (a-\S+?)(:|$)`)

// DenialOf returns who denied something, by the message of the service about it. The text
// of a person is at its end, so it cannot pretend to be of another kind.
func DenialOf(message string) Denial {
	if m := votedDown.FindStringSubmatch(message); m != nil {
		return Denial{"a person", "bailiwick approval show " + m[2], m[1] + " agrees: it asks again"}
	}
	switch {
	case strings.HasPrefix(message, "budget of "):
		return Denial{"a budget", "bailiwick budget list", "the budget has room"}
	case strings.HasPrefix(message, "emergency stop "):
		return Denial{"an emergency stop", "bailiwick stop list", "an operator has lifted the stop"}
	}
	return Denial{"policy", "", "a grant or a ceiling covers it"}
}

// Next returns the command to look at a denial of a dispatch of principal.
func (d Denial) Next(principal api.Principal, subagent api.Name) string {
	switch {
	case d.Look != "":
		return d.Look
	case subagent == "":
		return "bailiwick audit list --kind dispatch.denied"
	}
	return fmt.Sprintf("bailiwick can %s dispatch %s", principal, subagent)
}

// denied returns a denied task of a run that failed because of denials alone, or nil.
func denied(run *api.Run) *api.RunTask {
	if run.Counts[api.TaskDenied] == 0 || run.Counts[api.TaskFailed] > 0 {
		return nil
	}
	for i := range run.Tasks {
		if run.Tasks[i].State == api.TaskDenied {
			return &run.Tasks[i]
		}
	}
	return &api.RunTask{State: api.TaskDenied} // on another page
}
