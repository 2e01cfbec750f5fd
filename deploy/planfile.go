package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

const maxPlanFile = 16 << 20

const planAgain = "plan again, and review the new plan"

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
	now, err := c.Plan(ctx, m, Options{Prune: old.Prune})
	if err != nil {
		return nil, err
	}
	if now.Base != old.Base {
		return nil, errBaseMoved(old.Base, now.Base)
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
		return nil, api.Errorf(api.CodeInvalid, "plan file: %w", err).WithHint("create one with: bailiwick catalog plan -o FILE")
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

func errBaseMoved(planned, now Mark) error {
	return api.Errorf(api.CodeConflict, "the catalog has changed: the plan is for %s, the catalog is at %s", markText(planned), markText(now)).WithHint(planAgain)
}

func markText(m Mark) string {
	if m == (Mark{}) {
		return "an empty catalog"
	}
	return fmt.Sprintf("revision %d (%s)", m.Number, m.Digest.Short())
}
