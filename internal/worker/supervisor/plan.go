package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// plan is the content of the signed catalog for the names in the manifest.
type plan struct {
	revision     *catalog.Revision
	store        *blob.Store // of the catalog
	subagent     api.Subagent
	target       api.Target
	source       api.Source
	capabilities []api.Capability
	access       catalog.Access
	adapter      *agent.Adapter
	values       map[string]string // of the envs
	launch       agent.Launch
	env          []string // of every process in a jail without network
}

// verifyManifest verifies that the service signed the manifest, that humans signed
// the catalog revision that it names, and that every artifact is the pinned one.
func (a *attempt) verifyManifest(ctx context.Context) error {
	return a.summary.step("integrity", func() error {
		if err := a.verifyIntegrity(ctx); err != nil {
			return explain(ctx, api.ReasonIntegrity, err)
		}
		return a.verifyLaunch()
	})
}

func (a *attempt) verifyIntegrity(ctx context.Context) error {
	envelope, err := blob.ReadBounded(filepath.Join(a.cfg.Dir, record.WorkManifest), 1<<20)
	if err != nil {
		return err
	}
	if api.DigestOf(envelope) != a.envelope {
		return fmt.Errorf("manifest changed while it was read")
	}
	// The service may have rotated its key since it signed the manifest.
	service, err := seal.LoadHistory(a.cfg.Dirs.State)
	if err != nil {
		return err
	}
	if _, _, err := service.Verify(envelope, seal.Manifest); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := a.manifest.Check(a.cfg.Now()); err != nil {
		return err
	}
	if want := a.cfg.Dirs.Dispatch(a.manifest.ID, a.manifest.Attempt); !sameAttempt(want, a.cfg.Dir) {
		return fmt.Errorf("manifest: dispatch %s attempt %d is in the directory of another", a.manifest.ID, a.manifest.Attempt)
	}
	root, err := seal.LoadTrustRoot(a.cfg.Dirs.TrustRoot())
	if err != nil {
		return err
	}
	if a.plan.store, err = blob.Open(blob.Config{Dir: a.cfg.Dirs.Catalog()}); err != nil {
		return err
	}
	cat, err := catalog.Open(a.plan.store, root)
	if err != nil {
		return err
	}
	if a.plan.revision, err = cat.At(ctx, a.manifest.RevisionDigest); err != nil {
		return err
	}
	if got := a.plan.revision.Number(); got != a.manifest.Revision {
		return fmt.Errorf("manifest: %s is revision %d, not revision %d", a.manifest.RevisionDigest.Short(), got, a.manifest.Revision)
	}
	return a.plan.loadArtifacts(&a.manifest)
}

// sameAttempt reports whether two directories are named after the same attempt of
// the same dispatch.
func sameAttempt(x, y string) bool {
	name := func(dir string) string { return filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)) }
	return name(x) == name(y)
}

// loadArtifacts reads every artifact that the manifest names, and refuses one that
// does not have the pinned digest.
func (p *plan) loadArtifacts(m *record.Manifest) (err error) {
	if p.subagent, err = pinned(m, p.revision.Subagent, api.KindSubagent, m.Subagent); err != nil {
		return err
	}
	if p.target, err = pinned(m, p.revision.Target, api.KindTarget, m.Target); err != nil {
		return err
	}
	if m.Source != nil {
		if p.source, err = pinned(m, p.revision.Source, api.KindSource, m.Source.Name); err != nil {
			return err
		}
	}
	for _, n := range m.Capabilities {
		c, err := pinned(m, p.revision.Capability, api.KindCapability, n)
		if err != nil {
			return err
		}
		p.capabilities = append(p.capabilities, c)
	}
	p.values = map[string]string{}
	for _, n := range m.Envs {
		e, err := pinned(m, p.revision.Env, api.KindEnv, n)
		if err != nil {
			return err
		}
		maps.Copy(p.values, e.Values)
	}
	p.env = environment(p.target, m, p.values)
	return p.checkAgainstSubagent(m)
}

// pinned reads one artifact of the revision and compares it with the pin.
func pinned[T any](m *record.Manifest, get func(api.Name) (T, api.Digest, error), kind api.Kind, name api.Name) (T, error) {
	var none T
	want, err := m.Pinned(api.RefTo(kind, name))
	if err != nil {
		return none, err
	}
	v, got, err := get(name)
	if err != nil {
		return none, err
	}
	if got != want {
		return none, fmt.Errorf("%s %q: revision %d has %s, the manifest pins %s", kind, name, m.Revision, got.Short(), want.Short())
	}
	return v, nil
}

// checkAgainstSubagent refuses a manifest that exceeds what humans defined, even
// though the service signed it.
func (p *plan) checkAgainstSubagent(m *record.Manifest) error {
	s := &p.subagent
	ceiling, err := p.target.Mode.Ceiling()
	if err != nil {
		return err
	}
	switch {
	case m.Role != s.Role, m.Tier != s.Tier, m.Agent != s.Agent, m.Model != s.Model:
		return fmt.Errorf("manifest: role, tier, agent or model differs from subagent %q", s.Name)
	case m.Ceiling > ceiling || m.Tier > m.Ceiling:
		return fmt.Errorf("manifest: ceiling %s is above mode %s of target %q, or below tier %s", m.Ceiling, p.target.Mode, m.Target, m.Tier)
	case m.Level != p.target.Level:
		return fmt.Errorf("manifest: isolation %s differs from %s of target %q", m.Level, p.target.Level, m.Target)
	case len(m.Capabilities) < len(s.Capabilities) || !slices.Equal(m.Capabilities[:len(s.Capabilities)], s.Capabilities):
		return fmt.Errorf("manifest: capabilities do not begin with the capabilities of subagent %q", s.Name)
	case m.VerifyTime != 0 && m.VerifyTime != s.Verify.Time(): // 0: from a service before it had the member
		return fmt.Errorf("manifest: the time of verify differs from the time of subagent %q", s.Name)
	case m.Drain != 0 && m.Drain != record.DrainOf(m.Endpoint): // 0: likewise
		return errors.New("manifest: the time for outstanding answers of the model is wrong")
	}
	if err := p.checkAccess(m); err != nil {
		return err
	}
	return m.Limits.Within(s.Limits.Or(api.DefaultLimits()).Least(p.target.Limits))
}

// checkAccess refuses a manifest that names another model, other hosts, secrets or
// tool servers than those that humans set for this subagent, target and envs.
func (p *plan) checkAccess(m *record.Manifest) (err error) {
	if p.access, err = p.revision.Access(p.subagent, p.target, m.Envs); err != nil {
		return err
	}
	if m.Endpoint != nil {
		if _, err := pinned(m, p.revision.Model, api.KindModel, m.Endpoint.Name); err != nil {
			return err
		}
	}
	for _, s := range m.Secrets {
		if _, err := pinned(m, p.revision.Secret, api.KindSecret, s.Name); err != nil {
			return err
		}
	}
	for _, n := range m.Tools {
		if _, err := pinned(m, p.revision.ToolServer, api.KindTool, n); err != nil {
			return err
		}
	}
	switch {
	case !slices.Equal(m.Egress, p.access.Egress):
		return fmt.Errorf("manifest: egress %q differs from %q of target %q and its envs", m.Egress, p.access.Egress, m.Target)
	case (m.Endpoint == nil) != (p.access.Endpoint == nil) || m.Endpoint != nil && *m.Endpoint != *p.access.Endpoint:
		return fmt.Errorf("manifest: endpoint differs from model %q of subagent %q", p.subagent.Model, m.Subagent)
	case !slices.Equal(m.Secrets, p.access.Secrets):
		return fmt.Errorf("manifest: secrets differ from the secrets of model %q and the envs", p.subagent.Model)
	case !slices.Equal(m.Tools, p.revision.ToolServers(m.Role)):
		return fmt.Errorf("manifest: tool servers %q differ from %q of role %q", m.Tools, p.revision.ToolServers(m.Role), m.Role)
	}
	return nil
}

// verifyLaunch verifies the input and prepares the start of the agent.
func (a *attempt) verifyLaunch() error {
	input, err := blob.ReadBounded(filepath.Join(a.cfg.Dir, record.WorkInput), api.MaxInput)
	if err != nil {
		return fail(api.ReasonIntegrity, "%w", err)
	}
	if got := api.DigestOf(input); got != a.manifest.Input {
		return fail(api.ReasonIntegrity, "input: digest %s, the manifest says %s", got.Short(), a.manifest.Input.Short())
	}
	return a.prepareLaunch(input)
}

// environment is the whole environment of a process in the jail. Later values win: the
// envs come last, so that humans can override everything.
func environment(t api.Target, m *record.Manifest, values ...map[string]string) []string {
	path := append(slices.Clone(t.Path), toolDir, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
	all := map[string]string{
		"PATH": strings.Join(path, ":"), "HOME": jail.HomeDir, "USER": "agent", "LANG": "C.UTF-8", "TMPDIR": "/tmp",
		"BAILIWICK_DISPATCH": string(m.ID),
	}
	if m.Trace != "" {
		all[api.TraceVariable] = string(m.Trace) // for the agent to continue the trace
	}
	for _, v := range values {
		maps.Copy(all, v)
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		out = append(out, k+"="+all[k])
	}
	return out
}
