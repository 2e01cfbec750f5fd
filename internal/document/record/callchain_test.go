package record

import (
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
)

// A call has the number after that of the call before it, allowed or not, and one return
// before its attempt ends; an approval is requested before its one use.
//
// proves R-G4, R-G6
func TestCallsHaveOneHistory(t *testing.T) {
	m := &Manifest{ID: "d-1", Attempt: 1, Role: "quality"}
	of := func(attempt int, k Kind, tool string, d Detail) Entry {
		e := CallEntry(k, m, tool, nil, d)
		e.Attempt = attempt
		return e
	}
	called := func(n int64) Entry { return of(1, KindToolCalled, "a/x", ToolCall{Number: n}) }
	with := func(n int64, tool, approval string) Entry {
		return of(1, KindToolCalled, tool, ToolCall{Number: n, Approval: approval})
	}
	denied := func(n int64) Entry { return of(1, KindToolDenied, "a/x", ToolCall{Number: n}) }
	returned := func(n int64) Entry { return of(1, KindToolReturned, "a/x", ToolReturn{Number: n}) }
	unknown := func(n int64) Entry { return of(1, KindToolUnknown, "a/x", ToolReturn{Number: n}) }
	asked := func(id string) Entry { return of(1, KindApprovalRequest, "a/x", ApprovalRequest{Approval: id}) }
	expired := func(id string) Entry { return of(1, KindApprovalExpired, "a/x", ApprovalRequest{Approval: id}) }
	end := func(k Kind, attempt int) Entry {
		return Entry{Kind: k, Dispatch: m.ID, Attempt: attempt, Detail: DispatchEnd{}}
	}
	finished, asks := end(KindDispatchFinished, 1), end(KindDispatchNeedsInput, 1)
	answered := Entry{Kind: KindDispatchAnswered, Attempt: 2, Detail: AnswerRequest{}}
	restarted := Entry{Kind: KindDispatchStarted, Attempt: 2, Detail: DispatchStart{}}
	for name, c := range map[string]struct {
		ok   bool
		list []Entry
	}{
		"none":                             {true, []Entry{finished}},
		"one after the other":              {true, []Entry{called(1), returned(1), denied(2), called(3), returned(3), finished}},
		"at once":                          {true, []Entry{called(1), called(2), denied(3), returned(2), unknown(1), finished}},
		"numbered again in an attempt":     {true, []Entry{called(1), returned(1), asks, answered, restarted, of(2, KindToolCalled, "a/x", ToolCall{Number: 1}), of(2, KindToolReturned, "a/x", ToolReturn{Number: 1}), end(KindDispatchFinished, 2)}},
		"with an approval":                 {true, []Entry{asked("a-1"), denied(1), asked("a-2"), with(2, "a/x", "a-1"), returned(2), expired("a-2"), finished}},
		"with the approval of an attempt":  {true, []Entry{asked("a-1"), asks, answered, restarted, of(2, KindToolCalled, "a/x", ToolCall{Number: 1, Approval: "a-1"}), of(2, KindToolReturned, "a/x", ToolReturn{Number: 1}), end(KindDispatchFinished, 2)}},
		"expired after the end":            {true, []Entry{asked("a-1"), finished, expired("a-1")}},
		"a number left out":                {false, []Entry{called(1), returned(1), called(3)}},
		"a denial left out":                {false, []Entry{called(1), returned(1), denied(3)}},
		"a number again":                   {false, []Entry{called(1), denied(1)}},
		"the first is not 1":               {false, []Entry{called(2)}},
		"numbered on in the next attempt":  {false, []Entry{called(1), returned(1), asks, answered, restarted, of(2, KindToolCalled, "a/x", ToolCall{Number: 2})}},
		"a return of no call":              {false, []Entry{returned(1)}},
		"a return of a denial":             {false, []Entry{denied(1), returned(1)}},
		"a second return":                  {false, []Entry{called(1), returned(1), returned(1)}},
		"unknown after a return":           {false, []Entry{called(1), returned(1), unknown(1)}},
		"a return of another tool":         {false, []Entry{called(1), of(1, KindToolReturned, "a/y", ToolReturn{Number: 1})}},
		"no return":                        {false, []Entry{called(1), finished}},
		"no return before a question":      {false, []Entry{called(1), asks}},
		"a return after the end":           {false, []Entry{called(1), returned(1), finished, returned(1)}},
		"an approval without a request":    {false, []Entry{with(1, "a/x", "a-1")}},
		"an approval of another tool":      {false, []Entry{asked("a-1"), with(1, "a/y", "a-1")}},
		"an approval a second time":        {false, []Entry{asked("a-1"), with(1, "a/x", "a-1"), returned(1), with(2, "a/x", "a-1")}},
		"an approval after it expired":     {false, []Entry{asked("a-1"), expired("a-1"), with(1, "a/x", "a-1")}},
		"an approval requested twice":      {false, []Entry{asked("a-1"), asked("a-1")}},
		"requested again after its use":    {false, []Entry{asked("a-1"), with(1, "a/x", "a-1"), returned(1), asked("a-1")}},
		"expired after its use":            {false, []Entry{asked("a-1"), with(1, "a/x", "a-1"), returned(1), expired("a-1")}},
		"expired, and never requested":     {false, []Entry{expired("a-1")}},
		"a denial with a foreign approval": {false, []Entry{of(1, KindToolDenied, "a/x", ToolCall{Number: 1, Approval: "a-1"})}},
		"a call before the start":          {false, []Entry{end(KindDispatchFailed, 1), called(1)}},
	} {
		list := append([]Entry{
			{Kind: KindDispatchAccepted, Attempt: 1, Detail: DispatchRequest{}},
			{Kind: KindDispatchStarted, Attempt: 1, Detail: DispatchStart{}},
		}, c.list...)
		var chain DispatchChain
		var err error
		for i := range list {
			if err = chain.Step(&list[i]); err != nil {
				if i != len(list)-1 {
					t.Errorf("%s: entry %d: %v", name, i, err)
				}
				break
			}
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if chain.Over() && chain.Calls != nil {
			t.Errorf("%s: it remembers its calls after its end", name)
		}
	}
}

// What people read about a call names the subagent, its role, the dispatch, for whom it
// is, the tool and what decided.
//
// proves R-G4
func TestCallsInPlainWords(t *testing.T) {
	m := &Manifest{ID: "d-1", Attempt: 1, Run: "r-1", Task: "check", Role: "quality"}
	observe := api.Observe
	entry := func(k Kind, tool string, tier *api.Tier, d Detail, policies ...string) string {
		e := CallEntry(k, m, tool, tier, d)
		e.Principal, e.Policies = "agent:claude", policies
		return e.Detail.describe(&e)
	}
	call := ToolCall{Number: 3, Subagent: "checks", Target: "prod"}
	tainting := call
	tainting.Taints = true
	refused := call
	refused.Reasons = []string{`role "quality" has no tool "warehouse/drop"`}
	for want, got := range map[string]string{
		"agent checks (role quality) of dispatch d-1 of task check of run r-1 for agent:claude called warehouse/query, tier observe, allowed by tool:warehouse/query:quality":         entry(KindToolCalled, "warehouse/query", &observe, call, "tool:warehouse/query:quality"),
		"agent checks (role quality) of dispatch d-1 of task check of run r-1 for agent:claude called web/get, allowed by p, which gives it text from outside":                        entry(KindToolCalled, "web/get", nil, tainting, "p"),
		`agent checks (role quality) of dispatch d-1 of task check of run r-1 for agent:claude may not call "wareho\u03c5se/drop": "role \"quality\" has no tool \"warehouse/drop\""`: entry(KindToolDenied, "warehoυse/drop", nil, refused),
		`call 3 of warehouse/query by dispatch d-1 of task check of run r-1 returned 12 bytes after 0.004 s`:                                                                          entry(KindToolReturned, "warehouse/query", nil, ToolReturn{Number: 3, Bytes: 12, Millis: 4}),
		`call 3 of warehouse/query by dispatch d-1 of task check of run r-1 was out when its attempt or the service ended: it is not known whether it took effect`:                    entry(KindToolUnknown, "warehouse/query", nil, ToolReturn{Number: 3}),
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
