package approval

import (
	"context"
	"testing"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/testkit/softkey"
)

// opened is a desk whose votes are envelopes.
type opened struct{ *desk }

func (o opened) Vote(ctx context.Context, by api.Principal, envelope []byte, apply func(*store.Tx, *api.OperatorRecord, api.Vote, []api.Vote) error) (api.OperatorReceipt, error) {
	payload, err := seal.Payload(envelope, seal.Operator)
	if err != nil {
		return api.OperatorReceipt{}, err
	}
	return o.desk.Vote(ctx, by, payload, apply)
}

// An approval that a passkey signed waits, so that what ends the dispatch comes first.
// Controls: a key of a file is not held, nor a call that can be taken back.
//
// proves R-G6
func TestAnApprovalByAPasskeyCanBeStopped(t *testing.T) {
	for _, c := range []struct {
		name    string
		passkey bool
		tier    api.Tier
		held    int
	}{{"passkey, stateful", true, api.Stateful, 1}, {"file, stateful", false, api.Stateful, 0}, {"passkey, reversible", true, api.Reversible, 0}} {
		d := newDesk(t)
		d.cfg.Votes = opened{d}
		call := action()
		call.Tier = c.tier
		asked := d.ask(call)
		payload, err := canon.Marshal(struct {
			api.OperatorRecord
			Keys []string
		}{api.OperatorRecord{Verb: api.VerbApprove, Principal: "human:ann", Approval: asked.Action.ID, Content: asked.Digest}, []string{"k"}})
		d.must(err)
		var envelope []byte
		if c.passkey {
			a, err := softkey.New(false)
			d.must(err)
			envelope, err = a.Sign(seal.Operator, payload)
			d.must(err)
		} else {
			file, err := seal.NewEphemeral()
			d.must(err)
			envelope, err = seal.Sign(t.Context(), seal.Operator, payload, file)
			d.must(err)
		}
		held := 0
		d.cfg.Hold = func(context.Context) error {
			held++
			return d.st.Update(t.Context(), func(tx *store.Tx) error { return d.EndDispatch(tx, "d-one") })
		}
		_, err = d.Approvals.Vote(t.Context(), "human:ann", asked.Action.ID, envelope)
		if held != c.held || (api.CodeOf(err) == api.CodeConflict) != (c.held > 0) || c.held == 0 && err != nil {
			t.Errorf("%s: held %d times, then: %v", c.name, held, err)
		}
	}
}

// A caller that leaves while the approval is held has not approved.
func TestAHeldApprovalEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hold(ctx); err == nil {
		t.Error("a request that ended is approved")
	}
}
