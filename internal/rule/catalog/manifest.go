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
	return n, m.Limits.Within(n.Subagent.Limits.Or(api.DefaultLimits()).Least(n.Target.Limits))
}

// CheckPins refuses a manifest that pins anything but the artifacts that the revision doc
// has under the names in m.
func CheckPins(doc *api.Revision, m *record.Manifest) error {
	if doc.Number != m.Revision {
		return fmt.Errorf("manifest: %s is revision %d, not revision %d", m.RevisionDigest.Short(), doc.Number, m.Revision)
	}
	refs := m.Refs()
	if len(m.Artifacts) != len(refs) {
		return fmt.Errorf("manifest: %d artifacts are pinned, want %d", len(m.Artifacts), len(refs))
	}
	for i, ref := range refs {
		p := m.Artifacts[i]
		if entry, ok := doc.Artifacts[ref]; p.Ref != ref || !ok || entry.Digest != p.Digest {
			return fmt.Errorf("manifest: %s is not the artifact of catalog revision %d", ref, m.Revision)
		}
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
	case m.Limits.Least(s.Limits).Least(t.Limits) != m.Limits:
		return fmt.Errorf("manifest: limits exceed the limits of subagent %q or target %q", s.Name, m.Target)
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
