package toolhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/ballot"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// gate verifies that people approved a call before it is sent. It believes the signed
// catalog and the operators' signed records, and nothing that the service says.
type gate struct {
	cfg    record.ToolGate
	server api.ToolServer
	digest api.Digest // of the server's document
	trust  seal.TrustRoot
	now    func() time.Time
	kept   *os.Root // what tool hosts of the server keep, see approval.go

	mu        sync.Mutex
	chain     *ballot.Chain                    // nil without operators.json; guarded by mu
	digests   []api.Digest                     // of its records; guarded by mu
	revisions map[api.Digest]*catalog.Revision // that were verified; guarded by mu
}

// refusedError is why a call is not sent.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

func refused(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// errBehind means that a tool host knows newer decisions than the service has given it.
var errBehind = errors.New("the service keeps back decisions of operators")

var errNoOperators = refused("this installation has no operator keys, so nobody can have approved the call")

// newGate verifies that the server is the signed one, and opens what its tool hosts keep.
func newGate(ctx context.Context, cfg record.ToolGate, server api.ToolServer, now func() time.Time) (*gate, error) {
	g := &gate{cfg: cfg, server: server, now: now, revisions: map[api.Digest]*catalog.Revision{}}
	var err error
	if g.trust, err = seal.ParseTrustRoot(cfg.Trust); err != nil {
		return nil, fmt.Errorf("trust root: %w", err)
	}
	if len(cfg.Operators) > 0 {
		operators, err := seal.ParseTrustRoot(cfg.Operators)
		if err != nil {
			return nil, fmt.Errorf("operators: %w", err)
		}
		if g.chain, err = ballot.New(seal.KeyID(cfg.Service), operators); err != nil {
			return nil, err
		}
	}
	if g.kept, err = os.OpenRoot(cfg.Kept); err != nil {
		return nil, fmt.Errorf("what tool hosts of %s keep: %w", server.Name, err)
	}
	doc, err := canon.Marshal(server)
	if err != nil {
		return nil, err
	}
	g.digest = api.DigestOf(doc)
	if _, err = g.revision(ctx, cfg.Revision); err != nil {
		return nil, err
	}
	return g, g.sweep()
}

// open opens the catalog, which is not trusted: what is read is verified.
func (g *gate) open() (*catalog.Catalog, *blob.Store, error) {
	store, err := blob.Open(blob.Config{Dir: g.cfg.Catalog})
	if err != nil {
		return nil, nil, err
	}
	c, err := catalog.Open(store, g.trust)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return c, store, nil
}

// maxRevisions bounds the revisions that are kept in memory.
const maxRevisions = 8

// revision returns a verified revision in which the server is the one that runs.
func (g *gate) revision(ctx context.Context, d api.Digest) (*catalog.Revision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.revisions[d]; r != nil {
		return r, nil
	}
	c, store, err := g.open()
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer store.Close() //nolint:errcheck // only read
	r, err := c.At(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("catalog revision %s: %w", d.Short(), err)
	}
	_, digest, err := r.ToolServer(g.server.Name)
	if err != nil {
		return nil, err
	}
	if digest != g.digest {
		return nil, fmt.Errorf("catalog revision %d has another server %s than the one that this tool host was started with", r.Number(), g.server.Name)
	}
	if len(g.revisions) >= maxRevisions {
		clear(g.revisions)
	}
	g.revisions[d] = r
	return r, nil
}

// rules returns who may approve: by the newest revision, which must not be older than one
// that a tool host of the server has seen.
func (g *gate) rules(ctx context.Context) (*policy.Engine, error) {
	c, store, err := g.open()
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	defer store.Close() //nolint:errcheck // only read
	head, err := c.Current(ctx)
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	var seen record.ToolMark
	if err := g.mark(catalogMark, &seen); err != nil {
		return nil, err
	}
	if err := c.CheckHighWater(ctx, catalog.Mark(seen), head); err != nil {
		return nil, err
	}
	if err := g.setMark(ctx, catalogMark, record.ToolMark(head.Mark())); err != nil {
		return nil, err
	}
	return policy.New(policy.RulesOf(head.Set().Grants, head.Set().Targets))
}

// records adds decisions of operators to those that are known.
func (g *gate) records(envelopes [][]byte) error {
	if g.chain == nil {
		return errNoOperators
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range envelopes {
		r, err := g.chain.Add(e)
		if err != nil {
			return refused("%v", err)
		}
		g.digests = append(g.digests, r.Digest)
	}
	return nil
}

// upToDate refuses a chain that is shorter than, or differs from, one that a tool host of
// the server knew, and notes how long it is.
func (g *gate) upToDate(ctx context.Context) error {
	var known record.ToolMark
	if err := g.mark(chainMark, &known); err != nil {
		return err
	}
	if known.Number < g.cfg.Least.Number {
		known = g.cfg.Least
	}
	n := g.chain.Number()
	switch {
	case known.Number > n:
		return fmt.Errorf("%w: a tool host of %s knew %d, this one was given %d", errBehind, g.server.Name, known.Number, n)
	case known.Number > 0 && g.digests[known.Number-1] != known.Digest:
		return refused("decision %d of the operators is another one than a tool host of %s knew", known.Number, g.server.Name)
	case n > known.Number:
		return g.setMark(ctx, chainMark, record.ToolMark{Number: n, Digest: g.chain.Digest()})
	}
	return nil
}

// admit returns nil if people have approved exactly this call, by what is in force now. The
// approval is used up then.
func (g *gate) admit(ctx context.Context, use *record.ToolUse) error {
	a := use.Approved
	if g.chain == nil {
		return errNoOperators
	}
	rev, err := g.revision(ctx, a.Revision)
	if err != nil {
		return refused("the approval is for a call by another catalog: %v", err)
	}
	if err := g.about(rev, a, use); err != nil {
		return err
	}
	rules, err := g.rules(ctx)
	if err != nil {
		return refused("%v", err)
	}
	doc, err := canon.Marshal(a)
	if err != nil {
		return refused("%v", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.upToDate(ctx); err != nil {
		return err
	}
	action, digest := a.Action(), api.DigestOf(doc)
	if votes := g.chain.Votes(a.ID, digest); !rules.Approved(&action, votes) {
		return refused("approval %s is not signed by %d people who may approve it: %d of its votes are valid", a.ID, policy.ToolApprovers(a.Tier), policy.Approvers(votes))
	}
	return g.spend(a, digest, doc)
}

// about refuses an action that is not exactly this call by what the signed catalog says.
func (g *gate) about(rev *catalog.Revision, a *api.ToolAction, use *record.ToolUse) error {
	id := catalog.ToolID(g.server.Name, use.Tool)
	tools := rev.Tools(a.Role)
	i := slices.IndexFunc(tools, func(t api.Tool) bool { return t.ID == id && t.Server == g.server.Name })
	if i < 0 {
		return refused("role %q has no tool %s in catalog revision %d", a.Role, id, rev.Number())
	}
	definition, err := catalog.DefinitionDigest(tools[i].Definition)
	if err != nil {
		return refused("%v", err)
	}
	call := record.ApprovedCall{Tool: id, Arguments: api.DigestOf(use.Arguments), Dispatch: use.Dispatch, At: g.now()}
	if err := call.Covered(a); err != nil {
		return refused("approval %s: %v", a.ID, err)
	}
	want := record.ToolAction(&record.Manifest{ID: a.Dispatch, Run: a.Run, Task: a.Task, Subagent: a.Subagent, Role: a.Role, Target: a.Target, Principal: a.Principal, RevisionDigest: a.Revision},
		&tools[i], definition, a.Arguments, policy.ToolApprovers(tools[i].Tier))
	switch {
	case a.V != want.V:
		return refused("approval %s has version %d, want %d", a.ID, a.V, want.V)
	case a.Tier != want.Tier || a.Needs != want.Needs:
		return refused("approval %s is for a call at tier %s by %d people: the catalog says %s and %d", a.ID, a.Tier, a.Needs, want.Tier, want.Needs)
	case a.Definition != want.Definition:
		return refused("approval %s is for another definition of %s than the pinned one", a.ID, id)
	}
	return nil
}
