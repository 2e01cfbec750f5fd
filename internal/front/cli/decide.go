package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	passkey bool // submit the decision, to be signed at the signing page
}

func (f *decideFlags) add(v *console.Verb) {
	f.addKeys(v)
	v.Flag(&f.passkey, "passkey")
}

// addKeys is add for a verb without the service, which submits nothing.
func (f *decideFlags) addKeys(v *console.Verb) {
	v.Flag(&f.keys, "key")
	v.Flag(&f.reason, "reason")
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
			receipt, err = t.submit(ctx, o, f, r, content)
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

// noteNoGrant points out an account without a grant. Accounts are not added, so a
// misspelt one is not refused.
func (t *operatorVerbs) noteNoGrant(p api.PrincipalInfo) {
	if local(p.Principal) && len(p.Grants) == 0 {
		fmt.Fprintf(t.Stderr, "note: %s has no grant; if the name is misspelt, see: bailiwick principal list\n", p.Principal)
	}
}
