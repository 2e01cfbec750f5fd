package catalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Named is what a manifest names, as its revision has it.
type Named struct {
	Subagent     api.Subagent
	Target       api.Target
	Source       api.Source // zero without one
	Capabilities []api.Capability
	Access       Access
}

// Bind returns what a manifest names. It refuses a manifest that exceeds what humans
// defined in r, although the service signed it. The launcher and the worker ask it before
// they start anything.
func (r *Revision) Bind(m *record.Manifest) (n Named, err error) {
	if m.RevisionDigest != r.digest {
		return n, fmt.Errorf("manifest: it is of revision %s, not of %s", m.RevisionDigest.Short(), r.digest.Short())
	}
	if err := CheckPins(&r.doc, m); err != nil {
		return n, err
	}
	// Each is in r, since it is pinned.
	if n.Subagent, _, err = r.Subagent(m.Subagent); err != nil {
		return n, err
	}
	if n.Target, _, err = r.Target(m.Target); err != nil {
		return n, err
	}
	if m.Source != nil {
		if n.Source, _, err = r.Source(m.Source.Name); err != nil {
			return n, err
		}
	}
	for _, name := range m.Capabilities {
		c, _, err := r.Capability(name)
		if err != nil {
			return n, err
		}
		n.Capabilities = append(n.Capabilities, c)
	}
	if n.Access, err = r.Access(n.Subagent, n.Target, m.Envs); err != nil {
		return n, err
	}
	if err := CheckManifest(m, &n.Subagent, &n.Target, &n.Access); err != nil {
		return n, err
	}
	if servers := r.ToolServers(m.Role); !slices.Equal(m.Tools, servers) {
		return n, fmt.Errorf("manifest: tool servers %q differ from %q of role %q", m.Tools, servers, m.Role)
	}
	if err := m.Limits.Within(n.Subagent.Limits.Or(api.DefaultLimits()).Least(n.Target.Limits)); err != nil {
		return n, fmt.Errorf("manifest: %w", err)
	}
	return n, nil
}

// CheckPins refuses a manifest that pins anything but the artifacts that the revision doc
// has under the names in m.
func CheckPins(doc *api.Revision, m *record.Manifest) error {
	if doc.Number != m.Revision {
		return fmt.Errorf("manifest: %s is revision %d, not revision %d", m.RevisionDigest.Short(), doc.Number, m.Revision)
	}
	refs := m.Refs()
	for i, ref := range refs {
		want, err := m.Pinned(ref)
		if err != nil {
			return err
		}
		entry, ok := doc.Artifacts[ref]
		switch {
		case !ok:
			return fmt.Errorf("manifest: %s is not in catalog revision %d", ref, m.Revision)
		case entry.Digest != want:
			return fmt.Errorf("manifest: pins %s as %s, catalog revision %d has %s", ref, want.Short(), m.Revision, entry.Digest.Short())
		case m.Artifacts[i].Ref != ref:
			return fmt.Errorf("manifest: pins %s, which it does not name there", m.Artifacts[i].Ref)
		}
	}
	if len(m.Artifacts) != len(refs) {
		return fmt.Errorf("manifest: pins %s, which it does not name", m.Artifacts[len(refs)].Ref)
	}
	return nil
}

// CheckManifest compares a manifest with the subagent, the target and the access that its
// revision gives. The worker, the launcher and the verifier apply it. VerifyTime and Drain may
// be 0: a service from before it had them signed such manifests.
func CheckManifest(m *record.Manifest, s *api.Subagent, t *api.Target, want *Access) error {
	ceiling, err := t.Mode.Ceiling()
	switch {
	case err != nil:
		return err
	case m.Role != s.Role, m.Tier != s.Tier, m.Agent != s.Agent, m.Model != s.Model:
		return fmt.Errorf("manifest: role, tier, agent or model differs from subagent %q", s.Name)
	case m.Ceiling > ceiling || m.Tier > m.Ceiling:
		return fmt.Errorf("manifest: ceiling %s is above mode %s of target %q, or below tier %s", m.Ceiling, t.Mode, m.Target, m.Tier)
	case m.Level != t.Level:
		return fmt.Errorf("manifest: isolation %s differs from %s of target %q", m.Level, t.Level, m.Target)
	case len(m.Capabilities) < len(s.Capabilities) || !slices.Equal(m.Capabilities[:len(s.Capabilities)], s.Capabilities):
		return fmt.Errorf("manifest: capabilities do not begin with the capabilities of subagent %q", s.Name)
	case m.Limits.Within(s.Limits.Least(t.Limits)) != nil:
		return fmt.Errorf("manifest: subagent %q, target %q: %w", s.Name, m.Target, m.Limits.Within(s.Limits.Least(t.Limits)))
	case m.VerifyTime != 0 && m.VerifyTime != s.Verify.Time():
		return fmt.Errorf("manifest: the time of verify differs from the time of subagent %q", s.Name)
	case m.Drain != 0 && m.Drain != record.DrainOf(m.Endpoint):
		return errors.New("manifest: the time for outstanding answers of the model is wrong")
	case !slices.Equal(m.Egress, want.Egress):
		return fmt.Errorf("manifest: egress %q differs from %q of target %q and its envs", m.Egress, want.Egress, m.Target)
	case (m.Endpoint == nil) != (want.Endpoint == nil) || m.Endpoint != nil && *m.Endpoint != *want.Endpoint:
		return fmt.Errorf("manifest: endpoint differs from model %q of subagent %q", s.Model, m.Subagent)
	case !slices.Equal(m.Secrets, want.Secrets):
		return fmt.Errorf("manifest: secrets differ from the secrets of model %q and the envs", s.Model)
	}
	return nil
}

// Permits refuses what humans withdrew since the revision that a manifest names: r, the newer
// one, gives its subagent and target no less authority.
func (r *Revision) Permits(m *record.Manifest) error {
	wrong := func(what string) error {
		return fmt.Errorf("manifest: %s of revision %d is not in revision %d any more: submit the work again", what, m.Revision, r.Number())
	}
	s, _, err := r.Subagent(m.Subagent)
	if err != nil {
		return wrong(fmt.Sprintf("subagent %q", m.Subagent))
	}
	t, _, err := r.Target(m.Target)
	if err != nil {
		return wrong(fmt.Sprintf("target %q", m.Target))
	}
	ceiling, err := t.Mode.Ceiling()
	if err != nil {
		return err
	}
	access, err := r.Access(s, t, m.Envs)
	switch {
	case err != nil:
		return wrong("an env, a model or a secret")
	case m.Tier > s.Tier || m.Ceiling > ceiling || m.Role != s.Role:
		return wrong("the tier, the role or the mode")
	case m.Endpoint != nil && (access.Endpoint == nil || *m.Endpoint != *access.Endpoint):
		return wrong("the model")
	}
	for _, host := range m.Egress {
		if !slices.Contains(access.Egress, host) {
			return wrong(fmt.Sprintf("host %q", host))
		}
	}
	for _, secret := range m.Secrets {
		if !slices.Contains(access.Secrets, secret) {
			return wrong(fmt.Sprintf("secret %q", secret.Name))
		}
	}
	for _, server := range m.Tools {
		if !slices.Contains(r.ToolServers(m.Role), server) {
			return wrong(fmt.Sprintf("tool server %q", server))
		}
	}
	return nil
}

// Writes returns who has to approve what a task of a principal writes before it starts, by all
// grants of the principal; nil: nobody.
func (r *Revision) Writes(p api.Principal, effect api.Effect) (rule *api.WriteRule) {
	if effect != api.EffectWrite {
		return nil
	}
	for _, g := range r.set.Grants {
		if g.Principal == p {
			rule = rule.And(g.Writes)
		}
	}
	return rule
}
