package supervisor

import (
	"context"
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
	if api.DigestOf(envelope) != a.cfg.Manifest {
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
	root, err := seal.LoadDeployKeys(a.cfg.Dirs)
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
	named, err := a.plan.revision.Bind(&a.manifest)
	if err != nil {
		return err
	}
	a.plan.take(named, &a.manifest)
	return nil
}

// take prepares what the manifest names.
func (p *plan) take(n catalog.Named, m *record.Manifest) {
	p.subagent, p.target, p.source, p.capabilities, p.access = n.Subagent, n.Target, n.Source, n.Capabilities, n.Access
	p.values = map[string]string{}
	for _, e := range p.access.Envs {
		maps.Copy(p.values, e.Values)
	}
	p.env = environment(p.target, m, p.values)
}

// sameAttempt reports whether two directories are named after the same attempt of
// the same dispatch.
func sameAttempt(x, y string) bool {
	name := func(dir string) string { return filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)) }
	return name(x) == name(y)
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
