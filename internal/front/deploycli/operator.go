package deploycli

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
	"github.com/bailiwick-dev/bailiwick/internal/front/decisiontext"
)

// maxRecord is the largest record to sign, in bytes, and maxAction the largest action that
// one approves.
const (
	maxRecord = 64 << 10
	maxAction = 2*api.MaxToolArguments + 64<<10
)

// operatorVerbs are the verbs that sign decisions of an operator and read its passkeys.
type operatorVerbs struct{ *program }

func (p *operatorVerbs) signCommand(v *console.Verb) {
	v.Do(func(ctx context.Context, _ []string) error { return p.sign(ctx) })
}

func (p *operatorVerbs) sign(ctx context.Context) error {
	payload, err := io.ReadAll(io.LimitReader(p.Stdin, maxRecord+maxAction+1))
	if err != nil {
		return err
	}
	payload, doc, _ := bytes.Cut(payload, []byte("\n"))
	r, err := readRecord(payload, p.Now())
	var action *api.Action
	if err == nil {
		action, err = readAction(r, doc)
	}
	if err != nil {
		return api.Errorf(api.CodeInvalid, "nothing was signed: %w", err).WithHint("the verbs of bailiwick make such a record; see: bailiwick token --help, bailiwick ceiling --help")
	}
	signers, err := p.keys.signers(ctx, operatorKey(p.Dirs), decisiontext.Text(r, action)+"\n", ", to sign this")
	if err != nil {
		return err
	}
	envelope, err := seal.Sign(ctx, seal.Operator, payload, signers...)
	if err != nil {
		return err
	}
	_, err = p.Stdout.Write(append(envelope, '\n'))
	return err
}

// readAction decodes the action that a vote is about. It refuses any but the one that r
// names: what is shown must be what is signed.
func readAction(r api.OperatorRecord, doc []byte) (*api.Action, error) {
	if r.Approval == "" {
		if len(doc) > 0 {
			return nil, api.Errorf(api.CodeInvalid, "operator record: text follows it")
		}
		return nil, nil //nolint:nilnil // only votes have one
	}
	var a api.Action
	switch err := canon.DecodeExact(doc, &a); {
	case err != nil:
		return nil, api.Errorf(api.CodeInvalid, "action: %w", err)
	case api.DigestOf(doc) != r.Content || a.ID != r.Approval:
		return nil, api.Errorf(api.CodeIntegrity, "action: it is not the one that the record names: %s of approval %s", r.Content, r.Approval)
	}
	return &a, nil
}

// readRecord decodes the record to sign. It refuses anything but the canonical
// encoding of one complete decision of now: what is shown must be what is signed,
// and a signature must not be usable later.
func readRecord(payload []byte, now time.Time) (r api.OperatorRecord, err error) {
	if len(payload) > maxRecord {
		return r, api.Errorf(api.CodeInvalid, "operator record: larger than %d bytes", maxRecord)
	}
	if err := canon.DecodeExact(payload, &r); err != nil {
		return r, api.Errorf(api.CodeInvalid, "operator record: %w", err)
	}
	if err := r.Check(); err != nil {
		return r, err
	}
	if r.Set != nil {
		if _, err := seal.ParseTrustRoot(r.Set.Root); err != nil {
			return r, api.Errorf(api.CodeInvalid, "operator record: set %d of the operator keys: %w", r.Set.Number, err)
		}
	}
	if age := now.Sub(r.At); age > api.OperatorRecordMaxAge || age < -api.OperatorRecordMaxAge {
		return r, api.Errorf(api.CodeInvalid, "operator record: it is of %s, and now it is %s", r.At.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return r, nil
}
