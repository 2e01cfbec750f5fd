package ballot

import (
	"bytes"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// CheckWrite verifies that people approved exactly what m starts, by a rule of the catalog: doc is
// what they were asked, an api.TaskAction. An attempt that resumes one that they approved needs
// the same approval and no other, and none that is still valid.
func (c *Chain) CheckWrite(m *record.Manifest, rule *api.WriteRule, doc []byte, now time.Time) error {
	refuse := func(format string, args ...any) error {
		return api.Errorf(api.CodeDenied, "dispatch %s of subagent %q, which writes: "+format, append([]any{m.ID, m.Subagent}, args...)...)
	}
	if len(doc) == 0 {
		return refuse("%d of %q have to approve it, and no approval is given", rule.Needs(), rule.By)
	}
	var a api.TaskAction
	if err := canon.DecodeExact(doc, &a); err != nil {
		return refuse("the approval cannot be read: %w", err)
	}
	if a.Write == nil {
		return refuse("people approved a task, and not what it writes")
	}
	input, err := canon.Canonicalize(a.Write.Input)
	if err != nil || api.DigestOf(input) != m.Input {
		return refuse("people approved another input")
	}
	want, write := a, record.WriteAction(m, a.Write.Input)
	if m.Attempt > 1 {
		write.Taint = a.Write.Taint // its earlier attempt may have read text from outside
	}
	want.Write, want.Run, want.Task, want.Principal, want.By, want.Needs = &write, m.Run, m.Task, m.Principal, rule.By, rule.Needs()
	is, err := canon.Marshal(want)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(is, doc):
		return refuse("people approved something else, or other people than those whom the catalog names")
	case m.Attempt == 1 && !now.Before(a.Expires):
		return refuse("its approval expired at %s", a.Expires.Format(time.RFC3339))
	case m.Attempt == 1 && a.Expires.Sub(now) > time.Duration(rule.Expiry()):
		return refuse("its approval is valid for longer than %s", time.Duration(rule.Expiry()))
	}
	votes := slices.DeleteFunc(c.Votes(a.ID, api.DigestOf(doc)), func(v api.Vote) bool { return !MayVote(&a, v.Principal) })
	if n := Approvers(votes); n < rule.Needs() {
		return refuse("%d of %d people approved it in the decisions that are known here", n, rule.Needs())
	}
	return nil
}
