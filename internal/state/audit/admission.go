package audit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Admission proves that an allowed decision is durable. Only a Ledger makes one.
// It is valid for one kind of action on one dispatch with one manifest, and for
// one use, which copies share. The zero value admits nothing.
type Admission struct {
	seq       uint64
	kind      record.Kind
	principal api.Principal
	dispatch  api.DispatchID
	manifest  api.Digest
	used      *atomic.Bool // nil only in the zero value
}

func mint(seq uint64, e *record.Entry) Admission {
	return Admission{
		seq: seq, kind: e.Kind, principal: e.Principal, dispatch: e.Dispatch, manifest: e.Refs[record.RefManifest],
		used: new(atomic.Bool),
	}
}

// Seq returns the number of the entry; it is meaningless in the zero value.
func (a Admission) Seq() uint64 { return a.seq }

// Principal returns the caller that was admitted.
func (a Admission) Principal() api.Principal { return a.principal }

// Redeem uses the admission. It succeeds once, and only for the kind, dispatch
// and manifest (empty if the kind has none) that were admitted. A refusal does
// not use it.
func (a Admission) Redeem(kind record.Kind, dispatch api.DispatchID, manifest api.Digest) error {
	switch {
	case a.used == nil:
		return errors.New("no admission: the decision was not made durable")
	case a.kind != kind:
		return fmt.Errorf("admission #%d is for %q, not %q", a.seq, a.kind, kind)
	case a.dispatch != dispatch:
		return fmt.Errorf("admission #%d is for dispatch %q, not %q", a.seq, a.dispatch, dispatch)
	case a.manifest != manifest:
		return fmt.Errorf("admission #%d is for manifest %q, not %q", a.seq, a.manifest, manifest)
	case !a.used.CompareAndSwap(false, true):
		return fmt.Errorf("admission #%d was used already", a.seq)
	}
	return nil
}

// Readmit mints the admission of entry seq again, after a crash between the
// commit and the effect. It reads the entry back, which must be an allowed
// decision of this kind. The effect may have happened already: effects are
// idempotent on the dispatch.
func (l *Ledger) Readmit(ctx context.Context, kind record.Kind, seq uint64) (Admission, error) {
	c, err := l.Get(ctx, seq)
	if err != nil {
		return Admission{}, err
	}
	if c.Entry.Kind != kind || c.Entry.Decision != record.Allow {
		return Admission{}, fmt.Errorf("audit: entry #%d is %q and does not admit %q", seq, c.Entry.Kind, kind)
	}
	return mint(seq, &c.Entry), nil
}
