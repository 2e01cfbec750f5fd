package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// CallEntry returns what every entry about tool calls of an attempt has in common: its
// dispatch, attempt, run, task and role, and the tool by its id. The tier is that of the
// tool; nil where the role has no such tool.
func CallEntry(k Kind, m *Manifest, tool string, tier *api.Tier, d Detail) Entry {
	return Entry{Kind: k, Run: string(m.Run), Task: string(m.Task), Dispatch: m.ID, Attempt: m.Attempt, Role: m.Role, Tool: tool, Tier: tier, Detail: d}
}

// ToolCall is the detail of KindToolCalled and KindToolDenied. The principal of the entry
// is whose dispatch it is. RefArguments names the arguments; a call that could not be
// read has none. See CallChain for the numbers.
type ToolCall struct {
	Approval string   `json:"approval,omitempty"` // that it uses; of a denial: that it lacks
	Number   int64    `json:"number"`             // of the call in its attempt, from 1
	Reasons  []string `json:"reasons,omitempty"`  // of a denial
	Subagent string   `json:"subagent"`
	Tainted  bool     `json:"tainted,omitempty"` // the dispatch had text from outside before
	Taints   bool     `json:"taints,omitempty"`  // the call gives it text from outside
	Target   string   `json:"target"`
}

func (d ToolCall) refused(reasons []string) Detail {
	d.Reasons = slices.Clone(reasons)
	return d
}

func (d ToolCall) describe(e *Entry) string {
	verb := "called"
	if e.Kind == KindToolDenied {
		verb = "may not call"
	}
	s := fmt.Sprintf("agent %s (role %s) of %s for %s %s %s", Word(d.Subagent), Word(e.Role), e.dispatch(), e.caller(), verb, Word(e.Tool))
	if e.Tier != nil {
		s += ", tier " + e.Tier.String()
	}
	if e.Kind == KindToolDenied {
		return s + withText(": ", strings.Join(d.Reasons, "; ")) + withWords(", by ", e.Policies)
	}
	s += withWords(", allowed by ", e.Policies) + withWord(", approval ", d.Approval)
	if d.Taints {
		s += ", which gives it text from outside"
	}
	return s
}

// ToolReturn is the detail of KindToolReturned and KindToolUnknown. RefReturned names
// what the agent got, an error too; an unknown call has none.
type ToolReturn struct {
	Bytes  int64  `json:"bytes,omitempty"` // of the answer
	Error  string `json:"error,omitempty"` // as the agent got it; empty: it succeeded
	Millis int64  `json:"millis"`
	Number int64  `json:"number"` // of the call
}

func (d ToolReturn) describe(e *Entry) string {
	if e.Kind == KindToolUnknown {
		return fmt.Sprintf("call %d of %s by %s was out when its attempt or the service ended: it is not known whether it took effect", d.Number, Word(e.Tool), e.dispatch())
	}
	s := fmt.Sprintf("call %d of %s by %s returned %d bytes%s", d.Number, Word(e.Tool), e.dispatch(), d.Bytes, after(d.Millis))
	return s + withText(", with the error: ", d.Error)
}

// ToolChange is the detail of KindToolChanged.
type ToolChange struct {
	Found  string `json:"found,omitempty"` // digest of the definition that its server gives now; empty: none
	Pinned string `json:"pinned"`          // of the definition in the catalog
}

func (d ToolChange) describe(e *Entry) string {
	return fmt.Sprintf("tool %s is closed: its definition differs from its pin", Word(e.Tool))
}

// ApprovalRequest is the detail of KindApprovalRequest and KindApprovalExpired. RefAction
// names what people approve.
type ApprovalRequest struct {
	Approval string   `json:"approval"`
	Needs    int64    `json:"needs"`    // different people
	Policies []string `json:"policies"` // that want it; none for a task
}

func (d ApprovalRequest) describe(e *Entry) string {
	if e.Dispatch == "" && e.Kind == KindApprovalExpired {
		return fmt.Sprintf("approval %s of %s expired", Word(d.Approval), e.task())
	}
	if e.Dispatch == "" {
		return fmt.Sprintf("%s waits for approval %s by %s", e.task(), Word(d.Approval), Plural(d.Needs, "human"))
	}
	if e.Kind == KindApprovalExpired {
		return fmt.Sprintf("approval %s for %s by %s expired: denied", Word(d.Approval), Word(e.Tool), e.dispatch())
	}
	return fmt.Sprintf("agent of %s waits for approval %s by %s to call %s", e.dispatch(), Word(d.Approval), Plural(d.Needs, "human"), Word(e.Tool)) + withWords(", wanted by ", d.Policies)
}
