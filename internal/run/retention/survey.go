package retention

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// survey is every blob with its references, and the dispatches that rules apply to.
type survey struct {
	refCounts       refCounts
	removable       []stored // ended and not pinned, with content or evidence left
	pinned, waiting int
}

// survey reads all records and lists all blobs. It takes tens of microseconds per
// record and ten per blob.
func (gc *Collector) survey(ctx context.Context) (*survey, error) {
	v := &survey{refCounts: refCounts{}}
	// Files first: one that appears later has no references yet and is ignored.
	if err := gc.cfg.Blobs.Files(ctx, func(f blob.File) error {
		c := v.refCounts.at(keyOf(f.Digest))
		c.size, c.here = f.Size, true
		return nil
	}); err != nil {
		return nil, err
	}
	err := gc.cfg.Dispatches.Items(ctx, func(i Item) error {
		content, evidence := keys(i.Content), keys(i.Evidence)
		v.refCounts.add(content, evidence)
		switch {
		case i.Ended.IsZero():
			v.waiting++
		case i.Pinned:
			v.pinned++
		case len(content)+len(evidence) > 0:
			v.removable = append(v.removable, stored{i.ID, i.Ended, content, evidence})
		}
		return nil
	})
	return v, err
}

func keys(list []api.Digest) []key {
	out := make([]key, 0, len(list))
	for _, d := range list {
		out = append(out, keyOf(d))
	}
	return out
}

// unreferencedBlobs are the unreferenced blobs without protection.
type unreferencedBlobs []*cell

func (h refCounts) loose(protected func(api.Digest) bool) (out unreferencedBlobs) {
	for k, c := range h {
		if c.here && !c.referred() && !protected(k.digest()) {
			out = append(out, c)
		}
	}
	return out
}

func (l unreferencedBlobs) count() (n api.GCCount) {
	for _, c := range l {
		n.Blobs++
		n.Bytes += c.size
	}
	return n
}

func (h refCounts) keptCount() api.GCCount {
	t := h.totals()
	return api.GCCount{Blobs: t.kept, Bytes: t.content + t.evidence}
}
