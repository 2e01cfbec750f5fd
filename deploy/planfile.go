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

// planFile is a plan that was written down to be reviewed. It holds no
// content: applying it reads the manifest again and insists on the same
// result, so the file can only forbid and never add.
type planFile struct {
	V      int             `json:"v"`
	Plan   json.RawMessage `json:"plan"`
	Digest api.Digest      `json:"digest"` // of plan's canonical bytes, against a slip of the editor
}

// Encode returns the plan as a file.
func (p *Plan) Encode() ([]byte, error) {
	body, err := canon.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("plan file: %w", err)
	}
	b, err := canon.Marshal(planFile{V: 1, Plan: body, Digest: api.DigestOf(body)})
	return append(b, '\n'), err
}

// PlanAgain plans what an encoded plan planned. It refuses when the file was
// altered, when the catalog has moved on, and when the manifest or a file
// that it names is not what it was.
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
		return nil, api.Errorf(api.CodeConflict, "plan file: %s, or a file that it names, has changed since the plan was made", old.Manifest).
			WithHint("plan again, and review the new plan")
	}
	return now, nil
}

func decodePlan(encoded []byte) (*Plan, error) {
	if len(encoded) > maxPlanFile {
		return nil, api.Errorf(api.CodeTooLarge, "plan file: larger than %d bytes", maxPlanFile)
	}
	var f planFile
	if err := canon.Decode(encoded, &f); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "plan file: %w", err).WithHint("write one with: bailiwick catalog plan -o FILE")
	}
	body, err := canon.Canonicalize(f.Plan)
	if err != nil || f.V != 1 || api.DigestOf(body) != f.Digest {
		return nil, api.Errorf(api.CodeIntegrity, "plan file: was altered after it was written").WithHint("plan again, and review the new plan")
	}
	p := &Plan{}
	if err := canon.Decode(body, p); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "plan file: %w", err)
	}
	return p, nil
}

func errBaseMoved(planned, now Mark) error {
	return api.Errorf(api.CodeConflict, "the catalog has moved: the plan is for %s, the catalog is at %s", markText(planned), markText(now)).
		WithHint("plan again, and review the new plan")
}

func markText(m Mark) string {
	if m == (Mark{}) {
		return "an empty catalog"
	}
	return fmt.Sprintf("revision %d (%s)", m.Number, m.Digest.Short())
}
