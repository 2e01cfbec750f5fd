package cli

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// pendingEvery is how often a verb looks whether its decision is signed.
const pendingEvery = time.Second

// decisionVerbs are the verbs about decisions that wait for signatures.
type decisionVerbs struct{ *operatorVerbs }

func (t *decisionVerbs) listCommand(v *console.Verb) {
	listVerb(t.tree, v, func(ctx context.Context, c *client.Conn) ([]api.PendingDecision, error) {
		return c.Operator().PendingDecisions(ctx)
	},
		func(l api.PendingDecision) string { return string(l.ID) }, "ID\tSTATE\tVERB\tABOUT\tSIGNED\tSUBMITTED\tEXPIRES", func(l api.PendingDecision) string {
			r := l.Record
			about := string(r.Principal)
			for _, s := range []string{string(r.Approval), r.Stop, string(r.Secret)} {
				if s != "" {
					about = strings.TrimSpace(about + " " + s)
				}
			}
			if about == "" {
				about = "-"
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%d of %d\t%s\t%s", l.ID, l.State, r.Verb, about, len(l.Signed), l.Threshold, t.Ago(l.At), t.Ago(l.Expires))
		})
}

// pendingVerb is a verb about one pending decision.
func (t *decisionVerbs) pendingVerb(v *console.Verb, do func(context.Context, client.Operator, api.PendingDecision) error) {
	v.Do(func(ctx context.Context, args []string) error {
		var id api.PendingID
		if err := id.UnmarshalText([]byte(args[0])); err != nil {
			return api.Errorf(api.CodeInvalid, "%w", err).WithHint("see: bailiwick decision list")
		}
		return t.withOperator(func(o client.Operator) error {
			l, err := o.PendingDecision(ctx, id)
			if err != nil {
				return err
			}
			return do(ctx, o, l)
		})
	})
}

func (t *decisionVerbs) showCommand(v *console.Verb) {
	t.pendingVerb(v, func(_ context.Context, _ client.Operator, l api.PendingDecision) error {
		return t.Emit(l, string(l.ID), func() {
			fmt.Fprintln(t.Stdout, console.Plain(l.Text))
			t.Row("submitted", "%s by %s, %s", t.Ago(l.At), l.By, l.State)
			t.Row("signed", "%d of %d %s", len(l.Signed), l.Threshold, strings.Join(l.Signed, " "))
			t.Row("challenge", "%x", l.Challenge)
			t.OptionalRow("refused", "%s", console.Line(l.Refusal))
		})
	})
	pending := v.RunE
	v.RunE = func(cmd *cobra.Command, args []string) error {
		number, err := strconv.ParseUint(args[0], 10, 53)
		if err != nil {
			return pending(cmd, args)
		}
		return t.withOperator(func(o client.Operator) error {
			d, err := o.Decision(cmd.Context(), number)
			if err != nil {
				return err
			}
			return t.Emit(d, strconv.FormatUint(d.Number, 10), func() { t.printDecision(d) })
		})
	}
}

func (t *decisionVerbs) printDecision(d api.Decision) {
	fmt.Fprintln(t.Stdout, console.Plain(d.Text))
	t.Row("in force", "since log entry #%d", d.AuditEntry)
	t.Row("set", "%d of the operator keys, %d must sign", d.Set, d.Threshold)
	for _, s := range d.Signatures {
		name, kind := "", "key of a file"
		if s.Name != "" {
			name = " " + console.Cell(s.Name)
		}
		if s.Assertion != nil {
			kind = "passkey"
		}
		t.Row("signed by", "%s%s, %s", s.Key, name, kind)
	}
	t.Row("digest", "%s", d.Digest)
	t.Row("challenge", "%x", d.Challenge)
}

func (t *decisionVerbs) signCommand(v *console.Verb) {
	var keys []string
	t.pendingVerb(v, func(ctx context.Context, o client.Operator, l api.PendingDecision) error {
		input := l.Payload
		if l.Record.Approval != "" {
			doc, err := t.actionOf(ctx, l.Record.Approval)
			if err != nil {
				return err
			}
			input = append(append(input, '\n'), doc...)
		}
		envelope, err := t.sign(ctx, keys, input)
		if err != nil {
			return err
		}
		l, err = o.SignPending(ctx, l.ID, api.PendingSignature{Envelope: envelope})
		if err != nil {
			return err
		}
		if l.Receipt != nil {
			return t.printReceipt(*l.Receipt, fmt.Sprintf("%s is signed and in force.", l.ID))
		}
		return t.Emit(l, string(l.ID), func() {
			fmt.Fprintf(t.Stdout, "%s has %d of %d signatures.\n", l.ID, len(l.Signed), l.Threshold)
		})
	})
	v.Flag(&keys, "key")
}

// actionOf returns the action that a vote is about, in canonical form.
func (t *decisionVerbs) actionOf(ctx context.Context, id api.ApprovalID) (doc []byte, err error) {
	err = t.withConn(func(c *client.Conn) error {
		v, err := c.Runtime().Approval(ctx, id)
		if err == nil {
			doc, err = canon.Marshal(v.Action)
		}
		return err
	})
	return doc, err
}

// sign has bailiwick-deploy sign a record, which shows it and asks for the passphrase on
// the terminal (R-B9). This program has no key.
func (t *operatorVerbs) sign(ctx context.Context, keys []string, input []byte) ([]byte, error) {
	args := []string{"operator", "sign"}
	for _, k := range keys {
		args = append(args, "--key", k)
	}
	var envelope bytes.Buffer
	if err := t.execute(ctx, deployProgram, args, bytes.NewReader(input), &envelope); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(envelope.Bytes(), []byte("\n")), nil
}

// submit submits a decision and waits until it is signed and in force.
func (t *operatorVerbs) submit(ctx context.Context, o client.Operator, f decideFlags, r api.OperatorRecord, content []byte) (api.OperatorReceipt, error) {
	if len(f.keys) > 0 {
		return api.OperatorReceipt{}, api.Errorf(api.CodeInvalid, "--passkey and --key exclude each other").WithHint("further signatures: bailiwick decision sign ID --key FILE")
	}
	r.Reason = f.reason
	l, err := o.SubmitDecision(ctx, api.PendingRequest{Record: r, Content: content})
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	fmt.Fprintln(t.Stderr, console.Plain(l.Text))
	fmt.Fprintf(t.Stderr, "Submitted as %s until %s. Sign it with: bailiwick decision sign %s\n", l.ID, t.Time(l.Expires), l.ID)
	for _, p := range l.Passkeys {
		fmt.Fprintf(t.Stderr, "or with the passkey %s at %s/%s\n", console.Cell(p.Name), strings.Join(p.Origins, ", "), l.ID)
	}
	tick := time.NewTicker(pendingEvery)
	defer tick.Stop()
	for l.State == api.PendingOpen {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return api.OperatorReceipt{}, ctx.Err()
		}
		if l, err = o.PendingDecision(ctx, l.ID); err != nil {
			return api.OperatorReceipt{}, err
		}
	}
	if l.Receipt == nil {
		return api.OperatorReceipt{}, api.Errorf(api.CodeConflict, "decision %s is %s %s", l.ID, l.State, l.Refusal).WithHint("run the command again")
	}
	return *l.Receipt, nil
}
