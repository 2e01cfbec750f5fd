package record

import (
	"encoding/json"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
)

// WriteAction returns what people approve before the attempt of a task starts that m
// describes, with its canonical input.
func WriteAction(m *Manifest, input json.RawMessage) api.WriteAction {
	w := api.WriteAction{
		Dispatch: m.ID, Subagent: m.Subagent, Tier: m.Tier, Target: m.Target, Revision: m.RevisionDigest,
		Envs: slices.Clone(m.Envs), Capabilities: slices.Clone(m.Capabilities), Source: m.Source, Input: input, Taint: m.Taint,
	}
	for _, n := range m.Needs {
		w.Needs = append(w.Needs, api.WriteNeed(n))
	}
	return w
}
