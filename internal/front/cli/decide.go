package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// operatorVerbs are the verbs about what principals may do. Most of them need the
// signature of an operator.
type operatorVerbs struct{ *tree }

// decideFlags are the flags of every verb that an operator signs.
type decideFlags struct {
	keys    []string
	reason  string
	passkey bool // lodge the decision, to be signed at the signing page
}

func (f *decideFlags) add(cmd *cobra.Command) {
	f.addKeys(cmd)
	cmd.Flags().BoolVar(&f.passkey, "passkey", false, "lodge the decision and wait until it is signed: with a passkey, or with bailiwick decision sign")
}

// addKeys is add for a verb without the service, which lodges nothing.
func (f *decideFlags) addKeys(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.keys, "key", nil, "operator key to sign with; may be repeated (default $XDG_CONFIG_HOME/bailiwick/operator.key)")
	cmd.Flags().StringVar(&f.reason, "reason", "", "why, for the log")
}

// decided has r signed and recorded, and prints the receipt; text is what it means.
func (t *operatorVerbs) decided(ctx context.Context, f decideFlags, r api.OperatorRecord, text string) error {
	receipt, err := t.decide(ctx, f, r)
	if err != nil {
		return err
	}
	return t.printReceipt(receipt, text)
}

func (t *operatorVerbs) printReceipt(receipt api.OperatorReceipt, text string) error {
	return t.Emit(receipt, fmt.Sprint(receipt.Number), func() {
		fmt.Fprintf(t.Stdout, "%s (decision %d, log entry #%d)\n", console.Line(text), receipt.Number, receipt.AuditEntry)
	})
}

// decide has r signed and sends it to the service.
func (t *operatorVerbs) decide(ctx context.Context, f decideFlags, r api.OperatorRecord) (api.OperatorReceipt, error) {
	return t.decideContent(ctx, f, r, nil)
}

// decideContent is decide for a record that names content, which goes with it.
func (t *operatorVerbs) decideContent(ctx context.Context, f decideFlags, r api.OperatorRecord, content []byte) (receipt api.OperatorReceipt, err error) {
	err = t.withOperator(func(o client.Operator) error {
		if f.passkey {
			var err error
			receipt, err = t.lodge(ctx, o, f, r, content)
			return err
		}
		head, err := o.Head(ctx)
		if err != nil {
			return err
		}
		envelope, err := t.signed(ctx, f, head, r)
		if err != nil {
			return err
		}
		receipt, err = o.Record(ctx, envelope, content)
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.CodeUnavailable {
			return e.WithHint("the decision may or may not be in force; see: bailiwick audit list --kind operator.recorded")
		}
		return err
	})
	return receipt, err
}

// signed returns the envelope of r as the record after head. This program has no
// key: bailiwick-deploy shows the decision and asks for the passphrase on the
// terminal (R-B9).
// action is that which a vote is about, in canonical form.
func (t *operatorVerbs) signed(ctx context.Context, f decideFlags, head api.OperatorHead, r api.OperatorRecord, action ...byte) ([]byte, error) {
	r.V, r.Service, r.Number, r.Previous = 1, head.Service, head.Number+1, head.Digest
	r.At, r.Reason = t.Now().UTC().Truncate(time.Second), f.reason
	if err := r.Check(); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "%w", err)
	}
	payload, err := canon.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(action) > 0 {
		payload = append(append(payload, '\n'), action...)
	}
	return t.sign(ctx, f.keys, payload)
}

// local reports whether a principal is an account of this machine, which the
// operating system authenticates.
func local(p api.Principal) bool { return strings.HasPrefix(string(p), "local:") }

// checkKnown refuses an unknown principal before anyone types a passphrase for
// it. The service checks again when it gets the decision.
func (t *operatorVerbs) checkKnown(ctx context.Context, verb api.OperatorVerb, p api.Principal) error {
	return t.withOperator(func(o client.Operator) error {
		info, err := o.Principal(ctx, p)
		switch {
		case err != nil:
			return nil //nolint:nilerr // an unreadable catalog must not prevent a decision
		case local(p):
			t.noteNoGrant(info)
			return nil
		case !info.Known && verb == api.VerbPrincipalRemove:
			return api.Errorf(api.CodeInvalid, "unknown principal %s", p).WithHint("see: bailiwick principal list")
		case !info.Known:
			return api.Errorf(api.CodeInvalid, "unknown principal %s", p).WithHint("run: bailiwick principal add %s; see: bailiwick principal list", p)
		}
		return nil
	})
}

// checkNew refuses a principal that exists, or that is easily taken for one that
// exists or has grants, before anyone types a passphrase for it. The service checks
// again when it gets the decision.
func (t *operatorVerbs) checkNew(ctx context.Context, _ api.OperatorVerb, p api.Principal) error {
	return t.withOperator(func(o client.Operator) error {
		all, err := o.Principals(ctx)
		if err != nil {
			return nil //nolint:nilerr // an unreadable catalog must not prevent a decision
		}
		for _, other := range all {
			switch {
			case other.Principal == p && other.Known:
				return api.Errorf(api.CodeConflict, "principal %s already exists", p).WithHint("see: bailiwick principal show %s", p)
			case other.Principal.Resembles(p):
				return api.Errorf(api.CodeConflict, "principal %s is easily taken for %s, which exists", p, other.Principal).WithHint("use %s, or a name that differs in more; see: bailiwick principal list", other.Principal)
			}
		}
		return nil
	})
}

// noteNoGrant points out an account without a grant. Accounts are not added, so a
// misspelt one is not refused.
func (t *operatorVerbs) noteNoGrant(p api.PrincipalInfo) {
	if local(p.Principal) && len(p.Grants) == 0 {
		fmt.Fprintf(t.Stderr, "note: %s has no grant; if the name is misspelt, see: bailiwick principal list\n", p.Principal)
	}
}

// principalVerb is a verb about one known principal that an operator signs.
func (t *operatorVerbs) principalVerb(cmd *cobra.Command, nargs int, record func(api.Principal, []string) (api.OperatorRecord, string, error)) *cobra.Command {
	var f decideFlags
	cmd.Args = cobra.ExactArgs(nargs)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var a console.Args
		p := console.Parse(&a, args[0], api.ParsePrincipal)
		r, text, err := record(p, args[1:])
		if a.Fail(err); a.Err != nil {
			return a.Err
		}
		check := t.checkKnown
		if r.Verb == api.VerbPrincipalAdd {
			check = t.checkNew
		}
		if err := check(cmd.Context(), r.Verb, p); err != nil {
			return err
		}
		r.Principal = p
		return t.decided(cmd.Context(), f, r, text)
	}
	f.add(cmd)
	return cmd
}

// continues says what less authority does not stop.
func continues(p api.Principal) string {
	return fmt.Sprintf("Its running dispatches continue; cancel them with: bailiwick stop --principal %s", p)
}
