package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// approvalVerbs are the verbs about approvals. tokenFile names the token of a person who
// is not this account.
type approvalVerbs struct {
	*operatorVerbs
	tokenFile string
}

// voter returns the runtime face as the person who votes.
func (t *approvalVerbs) voter(ctx context.Context, c *client.Conn) (client.Runtime, error) {
	if t.tokenFile == "" {
		return c.Runtime(), nil
	}
	text, err := readToken(t.tokenFile)
	if err != nil {
		return client.Runtime{}, err
	}
	s, err := c.Exchange(ctx, text)
	return c.Runtime().With(s.Handle, nil), err
}

// readToken reads a token from a file that others cannot read.
func readToken(path string) (string, error) {
	if err := checkTokenFile(path); err != nil {
		return "", err
	}
	text, err := os.ReadFile(path) //nolint:gosec // G304: the flag names it
	if err != nil {
		return "", api.Errorf(api.CodeInvalid, "--principal-token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	return token, api.CheckToken(token)
}

func (t *approvalVerbs) noun(v *console.Verb) { v.FlagBelow(&t.tokenFile, "principal-token-file") }

func (t *approvalVerbs) listCommand(v *console.Verb) {
	var all bool
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.ApprovalView, error) {
		r, err := t.voter(ctx, c)
		if err != nil {
			return nil, err
		}
		list, err := r.Approvals(ctx, all)
		mine := []api.ApprovalView{}
		for i := range list {
			if all || list[i].WhyNot == "" {
				mine = append(mine, list[i])
			}
		}
		if err == nil && len(mine) == 0 && !all && t.Format == "text" {
			fmt.Fprintf(t.Stderr, "no call or task waits for you; %d wait for others: bailiwick approval list --all\n", len(list))
		}
		return mine, err
	}, func(v api.ApprovalView) string { return string(v.Action.ID) }, "ID\tSTATE\tTOOL\tTIER\tDISPATCH\tTASK\tFOR\tREQUESTED\tEXPIRES", func(v api.ApprovalView) string {
		a := &v.Action
		tool, tier, dispatch, task := "-", "-", "-", "-"
		if a.Call != nil {
			tool, tier, dispatch = a.Call.Tool, a.Call.Tier.String(), string(a.Dispatch)
		}
		if a.Run != "" {
			task = fmt.Sprintf("%s/%s", a.Run, a.Task)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", a.ID, v.State, tool, tier, dispatch, task, a.Principal, t.Ago(v.RequestedAt), t.Ago(a.Expires))
	})
	v.Flag(&all, "all")
}

// approvalVerb is a verb about one request.
func (t *approvalVerbs) approvalVerb(v *console.Verb, do func(context.Context, client.Runtime, api.ApprovalView) error) {
	v.Do(func(ctx context.Context, args []string) error {
		var id api.ApprovalID
		if err := id.UnmarshalText([]byte(args[0])); err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: bailiwick approval list")
		}
		return t.withConn(func(c *client.Conn) error {
			r, err := t.voter(ctx, c)
			if err != nil {
				return err
			}
			v, err := r.Approval(ctx, id)
			if err != nil {
				return err
			}
			return do(ctx, r, v)
		})
	})
}

func (t *approvalVerbs) showCommand(v *console.Verb) {
	t.approvalVerb(v, func(_ context.Context, _ client.Runtime, v api.ApprovalView) error {
		return t.Emit(v, string(v.Action.ID), func() { t.printApproval(v) })
	})
}

func (t *approvalVerbs) printApproval(v api.ApprovalView) {
	a := &v.Action
	for _, f := range console.ActionFacts(a) {
		switch f.Label {
		case "approval":
			f.Value += "  " + string(v.State)
		case "expires":
			if ago := t.Ago(a.Expires); ago != f.Value {
				f.Value = ago + ", " + f.Value
			}
		}
		t.Row(f.Label, "%s", f.Value)
	}
	label, text := console.ActionText(a)
	t.Row(label, "%s", text)
	t.OptionalRow("not ASCII", "%s", console.Foreign(text))
	t.printProducts(v)
	if v.Words != "" {
		t.Row("it says", "%s", console.AgentText(console.Reveal(v.Words)))
	}
	t.Row("requested", "%s", t.Time(v.RequestedAt))
	t.Row("digest", "%s", v.Digest)
	t.Rows("votes", len(v.Votes), func(i int) string {
		vote, verb := v.Votes[i], "denied"
		if vote.Approve {
			verb = "approved"
		}
		text := fmt.Sprintf("%s %s it %s (decision %d)", vote.Principal, verb, t.Ago(vote.At), vote.Record)
		if vote.Reason != "" {
			text += ": " + console.Line(vote.Reason)
		}
		return text
	})
	switch {
	case v.State != api.ApprovalOpen:
	case v.WhyNot != "":
		t.Row("you", "may not vote: %s", v.WhyNot)
	default:
		t.Row("vote", "bailiwick approval approve %[1]s, or: bailiwick approval deny %[1]s", a.ID)
	}
}

// about says in one line what is approved.
func about(a *api.Action) string {
	if a.Call == nil {
		return fmt.Sprintf("%s for %s", a.What(), a.Principal)
	}
	return fmt.Sprintf("%s (%s) by dispatch %s for %s", a.Call.Tool, a.Call.Tier, a.Dispatch, a.Principal)
}

// printProducts prints what people read of the tasks that are shown.
func (t *approvalVerbs) printProducts(v api.ApprovalView) {
	if v.Action.Step == nil {
		return
	}
	for i := range v.Products {
		p, s := &v.Products[i], &v.Action.Step.Shown[i]
		name := "of " + string(s.Task)
		if p.Gone {
			t.Row(name, "retention has removed it: compare the digests above with a copy")
			continue
		}
		for _, f := range p.Files {
			t.Row(name, "%s %s", f.Change, console.Reveal(console.Line(f.Path)))
		}
		if changed := api.ChangedText(s.Changed, revealed); changed != "" {
			t.Row(name, "%s", changed)
		}
		if s.Patch != nil {
			t.Row(name, "patch: bailiwick dispatch patch %s", s.Dispatch)
		}
		if len(s.Outputs) > 0 {
			t.Row(name, "outputs: bailiwick dispatch outputs %s", s.Dispatch)
		}
		if len(p.Value) > 0 {
			t.Row(name, "result:\n%s", console.AgentText(console.Arguments(p.Value)))
		}
		if p.Text != "" {
			t.Row(name, "it says:\n%s", console.AgentText(console.Reveal(p.Text)))
		}
	}
}

// revealed shows a path with what is invisible in it.
func revealed(name string) string { return console.Reveal(console.Line(name)) }

// vote makes a verb that votes. bailiwick-deploy shows what it signs, and refuses an action
// that the record does not name.
func (t *approvalVerbs) vote(verb api.OperatorVerb) func(*console.Verb) {
	return func(v *console.Verb) {
		var f decideFlags
		t.approvalVerb(v, func(ctx context.Context, r client.Runtime, v api.ApprovalView) error {
			id := v.Action.ID
			if v.Head == nil {
				code := api.CodeDenied
				if v.State != api.ApprovalOpen {
					code = api.CodeConflict
				}
				return api.Errorf(code, "approval %s: %s", id, v.WhyNot).WithHint("see: bailiwick approval show %s", id)
			}
			doc, err := canon.Marshal(v.Action)
			if err != nil {
				return err
			}
			if api.DigestOf(doc) != v.Digest {
				return api.Errorf(api.CodeIntegrity, "approval %s: the service shows another action than %s", id, v.Digest)
			}
			who, err := r.Who(ctx)
			if err != nil {
				return err
			}
			receipt, err := t.submitVote(ctx, f, r, v, api.OperatorRecord{Verb: verb, Principal: who.Principal, Approval: id, Content: v.Digest}, doc)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s denied %s, action %s.", who.Principal, id, v.Digest)
			if verb == api.VerbApprove {
				text = fmt.Sprintf("%s approved %s, action %s.", who.Principal, id, v.Digest)
				if missing := v.Action.Needs - len(v.Votes) - 1; missing > 0 {
					text += fmt.Sprintf(" It needs %d more.", missing)
				}
			}
			return t.printReceipt(receipt, text)
		})
		f.add(v)
	}
}

// submitVote has a vote signed and submits it.
func (t *approvalVerbs) submitVote(ctx context.Context, f decideFlags, r client.Runtime, v api.ApprovalView, rec api.OperatorRecord, doc []byte) (api.OperatorReceipt, error) {
	switch {
	case f.passkey && t.tokenFile != "":
		return api.OperatorReceipt{}, api.Errorf(api.CodeInvalid, "--passkey works only for the service's account").WithHint("with a token use --key")
	case f.passkey:
		return t.decide(ctx, f, rec)
	}
	envelope, err := t.signed(ctx, f, *v.Head, rec, doc...)
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	return r.Vote(ctx, rec.Approval, envelope)
}

// watchEvery is how often watch looks.
const watchEvery = time.Second

func (t *approvalVerbs) watchCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error {
		return t.withConn(func(c *client.Conn) error {
			r, err := t.voter(ctx, c)
			if err != nil {
				return err
			}
			return t.watchApprovals(ctx, r)
		})
	})
}

func (t *approvalVerbs) watchApprovals(ctx context.Context, r client.Runtime) error {
	seen := map[api.ApprovalID]string{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		list, err := r.Approvals(ctx, true)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to stop
		}
		if err != nil {
			return err
		}
		for i := range list {
			v := &list[i]
			now := fmt.Sprint(v.State, len(v.Votes))
			was := seen[v.Action.ID]
			if seen[v.Action.ID] = now; was == now || first && v.State != api.ApprovalOpen && v.State != api.ApprovalApproved {
				continue
			}
			if err := t.Emit(v, string(v.Action.ID), func() {
				fmt.Fprintf(t.Stdout, "%s %s: %s\n", v.Action.ID, v.State, about(&v.Action))
				if v.WhyNot == "" {
					fmt.Fprintf(t.Stdout, "  bailiwick approval show %s\n", v.Action.ID)
				}
			}); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// approvalIDs completes the requests that are open.
func approvalIDs(ctx context.Context, c *client.Conn, _ []string) (list []candidate, err error) {
	open, err := c.Runtime().Approvals(ctx, false)
	for i := range open {
		list = append(list, candidate{string(open[i].Action.ID), open[i].Action.What()})
	}
	return list, err
}
