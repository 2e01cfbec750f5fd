package record

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Pure is what a manifest has for a pure subagent alone: what names in it refer to,
// where a name is not enough to compare two dispatches.
type Pure struct {
	// Tree is the object name of the tree of the pinned commit; empty without a source.
	// Two commits with the same tree start from the same files.
	Tree string `json:"tree,omitempty"`
	// Version and Integrity are those of the installed agent program; empty for the
	// adapter command, whose program is in the subagent and its capabilities.
	Version   string `json:"version,omitempty"`
	Integrity string `json:"integrity,omitempty"`
}

// reuseInputs is what the result of a pure subagent depends on. Its canonical JSON is
// what ReuseKey digests, so a change of it is a new version.
type reuseInputs struct {
	V         int           `json:"v"`         // 1
	Artifacts []Pin         `json:"artifacts"` // of reuseKinds, in the order of Refs
	Agent     string        `json:"agent"`
	Model     *api.ModelUse `json:"model,omitempty"`
	Level     string        `json:"level"`
	Egress    []string      `json:"egress"`
	Pure      Pure          `json:"pure"`
	Input     api.Digest    `json:"input"`
	Needs     []reuseNeed   `json:"needs,omitempty"`
}

// reuseNeed is a Need without whose product it is.
type reuseNeed struct {
	Name   api.Name   `json:"name"`
	Item   string     `json:"item,omitempty"`
	Kind   string     `json:"kind"`
	Path   string     `json:"path,omitempty"`
	Digest api.Digest `json:"digest"`
}

// reuseKinds are the kinds of artifacts whose content is part of the key. Those that it
// omits do not decide what a worker does: a source is replaced by its tree; a model by
// its name, level and the provider's id; and a secret is a key to a door, so that a new
// one changes nothing behind it.
func reuseKinds() []api.Kind {
	return []api.Kind{api.KindSubagent, api.KindRole, api.KindTarget, api.KindCapability, api.KindEnv, api.KindTool}
}

// ReuseKey returns the digest of all that the result of a dispatch depends on, or empty
// if it cannot be known: the subagent is not pure, the attempt resumes with an answer, or
// something in it comes from outside. The programs of the machine that a target lets
// jails read are not part of it. The test of this function lists each member of a
// manifest that is left out, with the reason.
func ReuseKey(m *Manifest) (api.Digest, error) {
	if m.Pure == nil || m.Attempt != 1 || m.Resume != nil || m.Taint != nil {
		return "", nil
	}
	in := reuseInputs{V: 1, Artifacts: []Pin{}, Agent: m.Agent, Model: m.Endpoint, Level: m.Level, Egress: m.Egress, Pure: *m.Pure, Input: m.Input}
	for _, p := range m.Artifacts {
		kind, _, err := p.Ref.Split()
		if err != nil {
			return "", err
		}
		if slices.Contains(reuseKinds(), kind) {
			in.Artifacts = append(in.Artifacts, p)
		}
	}
	for i := range m.Needs {
		n := &m.Needs[i]
		in.Needs = append(in.Needs, reuseNeed{n.Name, n.Item, n.Kind, n.Path, n.Digest})
	}
	doc, err := canon.Marshal(in)
	return api.DigestOf(doc), err
}

// CheckReusable refuses a result that another dispatch may not have as its own: one that
// is not complete, has text from outside, or is not exactly what the agent made. taint is
// what the dispatch had at its end.
func CheckReusable(sum *api.ResultSummary, taint *api.Taint) error {
	switch {
	case sum == nil:
		return errors.New("it has no result")
	case taint != nil:
		return errors.New("it is tainted")
	case sum.Partial:
		return errors.New("its result is partial")
	case sum.Verify != nil && !sum.Verify.Passed:
		return errors.New("its patch did not pass verify")
	case sum.Patch != nil && sum.Patch.Redacted, slices.ContainsFunc(sum.Outputs, func(o api.Artifact) bool { return o.Redacted }):
		return errors.New("values of secrets were removed from its result")
	}
	return nil
}

// CheckAgent refuses a result of another version of the agent program than p names: it
// was installed after the manifest was signed.
func (p *Pure) CheckAgent(sum *api.ResultSummary) error {
	var ran api.AgentReport
	if sum.Agent != nil {
		ran = *sum.Agent
	}
	if ran.Version != p.Version || ran.Integrity != p.Integrity {
		return fmt.Errorf("version %q of its agent ran, not %q", ran.Version, p.Version)
	}
	return nil
}

// ReusedSummary is what a dispatch with the result of another has of it: the products,
// and nothing of how they were made. It used nothing.
func ReusedSummary(sum *api.ResultSummary) *api.ResultSummary {
	return &api.ResultSummary{
		Captured: sum.Captured, Patch: sum.Patch, Files: sum.Files, Outputs: sum.Outputs, LeftOut: sum.LeftOut, Verify: sum.Verify, Value: sum.Value, Text: sum.Text,
	}
}

// checkPure refuses a manifest whose tree contradicts its source.
func (m *Manifest) checkPure() error {
	if m.Pure != nil && (m.Pure.Tree != "") != (m.Source != nil) {
		return errors.New("the tree of its source is missing, or it has none")
	}
	return nil
}
