package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// callVerbs are the verbs about the tool calls of a dispatch.
type callVerbs struct{ *dispatchVerbs }

func (t *callVerbs) toolsCommand(v *console.Verb) {
	var q client.ToolQuery
	t.verb(v, func(ctx context.Context, r client.Runtime, id api.DispatchID, args []string) error {
		if len(args) == 2 {
			n, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil || n < 1 {
				return api.Errorf(api.CodeInvalid, "call %.40q: want its number, as shown by dispatch tools", args[1])
			}
			q.Number = n
		}
		read := func(each func(api.ToolCallLine) error) error { return r.Tools(ctx, id, q, each) }
		if t.Format == "jsonl" || t.Format == "name" {
			return read(func(l api.ToolCallLine) error { return t.Emit(l, fmt.Sprint(l.Number), nil) })
		}
		list := []api.ToolCallLine{}
		if err := read(func(l api.ToolCallLine) error { list = append(list, l); return nil }); err != nil {
			return err
		}
		switch {
		case t.Format == "json" && q.Number != 0:
			return t.JSON(list[0])
		case t.Format == "json":
			return t.JSON(list)
		case q.Number != 0:
			return t.Page(func() error { return t.printCall(id, list[0]) })
		}
		return t.Page(func() error { return t.printCalls(list) })
	})
	v.Flag(&q.Denied, "denied")
	v.Flag(&q.Attempt, "attempt")
}

// printCalls prints calls, and why they were denied or failed.
func (t *callVerbs) printCalls(list []api.ToolCallLine) error {
	if len(list) == 0 {
		fmt.Fprintln(t.Stderr, "no such call")
		return nil
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "NUMBER\tAT\tTOOL\tTIER\tSTATE\tTOOK\tENTRY\tAPPROVAL\tWHY")
	for i := range list {
		l := &list[i]
		why := strings.Join(l.Reasons, "; ")
		if l.Error != "" {
			why = "error: " + l.Error
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t#%d\t%s\t%s\n", l.Number, t.Time(l.At), console.Dash(console.Cut(console.Line(l.Tool), maxToolColumn)), callTier(l), callState(l), callTook(l),
			l.Entry, console.Dash(string(l.Approval)), console.Dash(console.Line(why)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(t.Stdout, t.Fit(table.String()))
	return err
}

// maxToolColumn is the width of the column of tools: agents choose names that do not
// exist.
const maxToolColumn = 48

// callTier is the tier of the tool of a call, if the role has it.
func callTier(l *api.ToolCallLine) string {
	if l.State == "denied" && len(l.Policies) == 0 {
		return "-"
	}
	return l.Tier.String()
}

// callState says how a call stands.
func callState(l *api.ToolCallLine) string {
	if l.Error != "" {
		return "failed"
	}
	return console.Line(l.State)
}

func callTook(l *api.ToolCallLine) string {
	if l.State != "returned" {
		return "-"
	}
	return console.Duration(api.Span(l.Millis, time.Millisecond))
}

// printCall prints all of one call.
func (t *callVerbs) printCall(id api.DispatchID, l api.ToolCallLine) error {
	t.Row("call", "%d of attempt %d of dispatch %s", l.Number, l.Attempt, id)
	t.Row("tool", "%s, tier %s", console.Dash(console.Line(l.Tool)), callTier(&l))
	t.Row("at", "%s", t.Time(l.At))
	t.Row("decision", "%s", console.Line(l.Decision))
	t.Rows("", len(l.Reasons), func(i int) string { return console.Line(l.Reasons[i]) })
	t.Rows("policies", len(l.Policies), func(i int) string { return console.Line(l.Policies[i]) })
	if l.Approval != "" {
		t.Row("approval", "%s; see: bailiwick approval show %s", l.Approval, l.Approval)
	}
	state := callState(&l)
	if l.State == "returned" {
		state += " after " + callTook(&l)
	}
	t.Row("state", "%s", state)
	t.OptionalRow("error", "%s", console.Line(l.Error))
	t.Row("entry", "#%d; see: bailiwick audit show %d", l.Entry, l.Entry)
	t.printContent("arguments", l.Arguments)
	if l.State == "returned" {
		t.printContent("answer", l.Answer)
	}
	return nil
}

// printContent prints what an agent or a server wrote.
func (t *callVerbs) printContent(label string, content json.RawMessage) {
	if len(content) == 0 {
		t.Row(label, "removed by retention, or not kept; its digest is in the entry")
		return
	}
	t.Row(label, "%s", console.AgentText(console.Arguments(content)))
}

// printTools prints what the agent of a dispatch called, and what it reported last, or
// that it cannot reach its model.
func (t *dispatchVerbs) printTools(d *api.Dispatch) {
	if u := d.Unreachable; u != nil {
		t.Row("model", "%s", t.Unreachable(u))
	}
	if p := d.Progress; p != nil {
		t.Row("reports", "at %s:\n%s", t.Time(p.At), console.AgentText(console.Line(p.Text)))
	}
	if c := d.Calls; c != nil && c.Allowed+c.Denied > 0 {
		t.Row("tools", "calls allowed: %d, denied: %d; see: bailiwick dispatch tools %s", c.Allowed, c.Denied, d.ID)
	}
	if k := d.Taint; k != nil {
		from := fmt.Sprintf("call %d of attempt %d", k.Call, k.Attempt)
		if k.Dispatch != d.ID {
			from = fmt.Sprintf("dispatch %s, whose products it has; there by %s", k.Dispatch, from)
		}
		t.Row("tainted", "%s returned untrusted text from %s; calls at tier stateful and above now need an approval", from, console.Line(k.Tool))
	}
}

// printApprovals prints the calls of a dispatch that wait for people.
func (t *dispatchVerbs) printApprovals(ctx context.Context, r client.Runtime, id api.DispatchID) error {
	list, err := r.Approvals(ctx, false)
	if err != nil {
		return err
	}
	for i := range list {
		if a := &list[i].Action; a.Call != nil && a.Dispatch == id && list[i].State == api.ApprovalOpen {
			t.Row("waits", "%s of %d for a call of %s", record.Plural(len(list[i].Votes), "vote"), a.Needs, console.Line(a.Call.Tool))
			t.Row("", "see: bailiwick approval show %s", a.ID)
		}
	}
	return nil
}
