package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalogdiff"
)

const maxPlanFile = 16 << 20

const planAgain = "plan again, and review the new plan; nothing was applied"

// planFile is a plan written to a file for review. It has no content: applying it
// plans the manifest again and requires the same result, so a forged file can
// block a change but not make one.
type planFile struct {
	V      int             `json:"v"`
	Plan   json.RawMessage `json:"plan"`
	Digest api.Digest      `json:"digest"` // of plan's canonical bytes, to detect accidental edits
}

// Encode returns the content of a plan file.
func (p *Plan) Encode() ([]byte, error) {
	body, err := canon.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	b, err := canon.Marshal(planFile{V: 1, Plan: body, Digest: api.DigestOf(body)})
	return append(b, '\n'), err
}

// PlanAgain repeats an encoded plan. It refuses if the plan file was altered, or if
// the catalog, the manifest or a file that it names has changed since.
func (c *Catalog) PlanAgain(ctx context.Context, encoded []byte) (*Plan, error) {
	old, err := decodePlan(encoded)
	if err != nil {
		return nil, err
	}
	m, err := Load(ctx, old.Manifest)
	if err != nil {
		return nil, err
	}
	// First, so that the reason is told, not what follows from it.
	head, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	if newPlan(head).Base != old.Base {
		return nil, c.moved(ctx, old.Base, head)
	}
	now, err := c.Plan(ctx, m, old.Options)
	if err != nil {
		return nil, err
	}
	if now.Base != old.Base { // in this moment
		if head, err = c.Current(ctx); err != nil {
			return nil, err
		}
		return nil, c.moved(ctx, old.Base, head)
	}
	if !maps.Equal(now.Artifacts, old.Artifacts) {
		return nil, api.Errorf(api.CodeConflict, "plan file: %s, or a file that it names, has changed since the plan was made", old.Manifest).WithHint(planAgain)
	}
	return now, nil
}

func decodePlan(encoded []byte) (*Plan, error) {
	if len(encoded) > maxPlanFile {
		return nil, api.Errorf(api.CodeTooLarge, "plan file: larger than %d bytes", maxPlanFile)
	}
	var f planFile
	if err := canon.Decode(encoded, &f); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "plan file: %w", err).WithHint("create one with: bailiwick catalog plan --out FILE")
	}
	body, err := canon.Canonicalize(f.Plan)
	if err != nil || f.V != 1 || api.DigestOf(body) != f.Digest {
		return nil, api.Errorf(api.CodeIntegrity, "plan file: altered after it was written").WithHint(planAgain)
	}
	p := &Plan{}
	if err := canon.Decode(body, p); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "plan file: %w", err)
	}
	return p, nil
}

// maxMoved is how many changed artifacts the error of an outdated plan names.
const maxMoved = 5

// moved is the error of a plan for an older revision than head: it says who changed
// the catalog since, and what.
func (c *Catalog) moved(ctx context.Context, planned Mark, head *Revision) error {
	if head == nil {
		return api.Errorf(api.CodeConflict, "the catalog has changed: the plan is for %s, the catalog is empty", markText(planned)).WithHint(planAgain)
	}
	before := catalog.NewSet()
	if planned.Number > 0 {
		old, err := c.read.Numbered(ctx, planned.Number)
		if err != nil || old.Mark() != planned {
			return api.Errorf(api.CodeConflict, "the catalog has changed: the plan is for %s, which is not in its history", markText(planned)).WithHint(planAgain)
		}
		before = old.Set()
	}
	verbs := map[api.ChangeOp]string{api.OpAdd: "adds", api.OpChange: "changes", api.OpRemove: "removes"}
	var what []string
	for i, change := range catalogdiff.Changes(before, head.Set()) {
		if i == maxMoved {
			what = append(what, "and more")
			break
		}
		what = append(what, verbs[change.Op]+" "+string(change.Ref))
	}
	reason := ""
	if head.Reason() != "" {
		reason = fmt.Sprintf(" (%.200q)", head.Reason())
	}
	return api.Errorf(api.CodeConflict, "the catalog has changed: the plan is for %s, but %q has published %s since%s, which %s",
		markText(planned), head.Author(), markText(head.Mark()), reason, strings.Join(what, ", ")).WithHint(planAgain)
}

func markText(m Mark) string {
	if m == (Mark{}) {
		return "an empty catalog"
	}
	return fmt.Sprintf("revision %d (%s)", m.Number, m.Digest.Short())
}
