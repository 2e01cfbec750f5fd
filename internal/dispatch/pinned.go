package dispatch

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/catalog"
)

// maxPinned bounds how many revisions that are not in force are remembered.
const maxPinned = 16

// pinned are the revisions that runs under way were submitted with.
type pinned struct {
	token     string // of the store in which they verified
	revisions map[api.Digest]*catalog.Revision
}

// at returns the page to go by for what was submitted while revision d was in
// force: names mean what they meant there, and what is allowed is what is
// allowed now (R-C4). The revision verifies against the trust root as it is
// now, or nothing goes by it; and where the catalog itself is refused nothing
// goes at all, as everywhere.
func (b *book) at(ctx context.Context, d api.Digest) (page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.turn(ctx)
	if err != nil || p.revision == nil || p.revision.Digest() == d {
		return p, err
	}
	if b.old.token != b.token || len(b.old.revisions) > maxPinned {
		b.old = pinned{token: b.token, revisions: map[api.Digest]*catalog.Revision{}}
	}
	if rev := b.old.revisions[d]; rev != nil {
		p.revision = rev
		return p, nil
	}
	seen, err := b.openStore(ctx)
	defer seen.close()
	if err == nil {
		p.revision, err = seen.catalog.At(ctx, d)
	}
	if err != nil {
		if ctx.Err() != nil {
			return page{}, ctx.Err()
		}
		return page{}, api.Errorf(api.CodeIntegrity, "catalog revision %s, with which the run was submitted: %w", d.Short(), err).
			WithHint("nothing is dispatched by a revision that does not verify; see: bailiwick catalog verify")
	}
	if seen.token == b.token {
		b.old.revisions[d] = p.revision
	}
	return p, nil
}
