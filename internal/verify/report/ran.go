package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// Ran is what ran and who decided it, taken from what the rows verify. It has no
// text in a caller's or an agent's own words.
type Ran struct {
	// Claimed names what no row proves. It is everything if a row fails.
	Claimed []string   `json:"claimed"`
	Runs    []RanRun   `json:"runs,omitempty"` // the run, and those that it retries
	Work    []RanWork  `json:"work"`           // its tasks in the order of the plan; or the dispatch, and those whose products it used
	Decided []Decided  `json:"decided"`        // in the order of the log
	Content RanContent `json:"content"`
}

// RanContent counts the blobs that the documents name by digest: inputs, answers,
// products and records. The file may have some of them, all or none.
type RanContent struct {
	Named int `json:"named"`
	Here  int `json:"here"`
}

// RanRun is one run.
type RanRun struct {
	Run       api.RunID     `json:"run"`
	State     string        `json:"state"` // an api.RunState
	Plan      api.Digest    `json:"plan"`
	Tasks     int           `json:"tasks"`
	Queue     api.Name      `json:"queue"`
	Submitter api.Principal `json:"submitter"`
	Revision  int64         `json:"revision"` // of the catalog
	Rules     int64         `json:"rules"`    // that it claims to follow: see plan.Rules
	RetryOf   api.RunID     `json:"retryOf,omitempty"`
	Taken     int64         `json:"taken,omitempty"` // tasks taken over from RetryOf
	From      time.Time     `json:"from"`            // submitted, by the service's clock
	To        *time.Time    `json:"to,omitempty"`    // settled, likewise
}

// RanWork is a task of a run, or a dispatch. Members about a dispatch are empty for
// a task that was never dispatched.
type RanWork struct {
	Task      api.TaskID      `json:"task,omitempty"`
	State     string          `json:"state"` // an api.TaskState, or an api.Event of a dispatch
	Because   string          `json:"because,omitempty"`
	Dispatch  api.DispatchID  `json:"dispatch,omitempty"`
	Attempts  int             `json:"attempts,omitempty"`
	Taken     api.RunID       `json:"taken,omitempty"`  // the run that it was taken over from
	Reused    api.DispatchID  `json:"reused,omitempty"` // the earlier dispatch that made the result
	Principal api.Principal   `json:"principal,omitempty"`
	Subagent  api.Name        `json:"subagent,omitempty"`
	Target    api.Name        `json:"target,omitempty"`
	Tier      string          `json:"tier,omitempty"`
	Source    api.Name        `json:"source,omitempty"`
	Commit    string          `json:"commit,omitempty"`
	Revision  uint64          `json:"revision,omitempty"` // of the catalog
	Policies  []string        `json:"policies,omitempty"` // that allowed it
	Model     string          `json:"model,omitempty"`    // id of the model that the agent could use
	Usage     *api.ModelUsage `json:"usage,omitempty"`    // of the model, as the worker signed it
	Refused   int             `json:"refused,omitempty"`  // requests of the agent, in the last attempt
	Patch     api.Digest      `json:"patch,omitempty"`
	Files     int             `json:"files,omitempty"`     // that the patch changes
	Verify    string          `json:"verify,omitempty"`    // passed or failed
	Changed   []string        `json:"changed,omitempty"`   // files of the patch that verify is known to run
	Signed    bool            `json:"signed"`              // a worker signed the outcome; else the service asserts it
	Statement api.Digest      `json:"statement,omitempty"` // of the signed statement; empty: there is no statement
}

// Decided is a decision about what ran.
type Decided struct {
	Entry uint64        `json:"entry"`
	At    time.Time     `json:"at"` // by the service's clock
	By    api.Principal `json:"by,omitempty"`
	What  string        `json:"what"`
	// Signed are the verified signatures of a decision that has some.
	Signed []SignedBy `json:"signed,omitempty"`
}

// SignedBy is who signed a decision: a key, with what the trust file or a signed set of
// operator keys says about it.
type SignedBy struct {
	Key       seal.KeyID    `json:"key"`
	Name      string        `json:"name,omitempty"`      // of its holder, for people
	Principal api.Principal `json:"principal,omitempty"` // empty: the key has none
}

// Text names the key for people.
func (s SignedBy) Text() string {
	out := "key " + string(s.Key)
	if s.Name != "" {
		out += fmt.Sprintf(" named %q", s.Name)
	}
	if s.Principal != "" {
		out += " of " + string(s.Principal)
	}
	return out
}

// signedText says who signed, or nothing.
func signedText(list []SignedBy) string {
	if len(list) == 0 {
		return ""
	}
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = s.Text()
	}
	return ", signed with " + strings.Join(words, " and ")
}
