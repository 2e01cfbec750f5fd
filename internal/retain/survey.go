package retain

import (
	"context"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/blob"
)

// view is what there is: every blob, and who refers to it.
type view struct {
	heap            heap
	mayGo           []stored // ended and not pinned, with something left
	pinned, waiting int
}

// look reads all records and lists all blobs. It takes some tens of microseconds
// for each record and ten for each blob.
func (gc *Collector) look(ctx context.Context) (*view, error) {
	v := &view{heap: heap{}}
	// The files first: one that appears after this is of somebody who has not
	// referred to it yet, and is not looked at.
	if err := gc.cfg.Blobs.Files(ctx, func(f blob.File) error {
		c := v.heap.at(keyOf(f.Digest))
		c.size, c.here = f.Size, true
		return nil
	}); err != nil {
		return nil, err
	}
	err := gc.cfg.Dispatches.Items(ctx, func(i Item) error {
		content, evidence := keys(i.Content), keys(i.Evidence)
		v.heap.add(content, evidence)
		switch {
		case i.Ended.IsZero():
			v.waiting++
		case i.Pinned:
			v.pinned++
		case len(content)+len(evidence) > 0:
			v.mayGo = append(v.mayGo, stored{i.ID, i.Ended, content, evidence})
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

// looseBlobs are blobs that nothing refers to and nobody is about to.
type looseBlobs []*cell

func (h heap) loose(spares func(api.Digest) bool) (out looseBlobs) {
	for k, c := range h {
		if c.here && !c.referred() && !spares(k.digest()) {
			out = append(out, c)
		}
	}
	return out
}

func (l looseBlobs) count() (n api.GCCount) {
	for _, c := range l {
		n.Blobs++
		n.Bytes += c.size
	}
	return n
}

func (h heap) keptCount() api.GCCount {
	t := h.totals()
	return api.GCCount{Blobs: t.kept, Bytes: t.content + t.evidence}
}
