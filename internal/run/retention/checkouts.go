package retention

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// Checkouts is the cache of checkouts. It never removes one in use.
type Checkouts interface {
	List() ([]checkoutcache.Entry, error)
	// Remove returns checkoutcache.ErrInUse for a checkout in use.
	Remove(e checkoutcache.Entry) error
	// Sweep removes what killed processes left.
	Sweep() (int, error)
}

// expired is a checkout to remove under a rule.
type expired struct {
	checkoutcache.Entry
	rule string
}

// expire applies a limit: it selects checkouts unused for Age, and then the least
// recently used until the rest fits Size.
func (l Limit) expire(list []checkoutcache.Entry, now time.Time) (out []expired) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b checkoutcache.Entry) int { return a.LastUsed.Compare(b.LastUsed) })
	var total int64
	for _, e := range list {
		total += e.Bytes
	}
	for _, e := range list {
		switch {
		case l.Age > 0 && now.Sub(e.LastUsed) > l.Age:
			out = append(out, expired{e, ageRule(api.ClassCheckouts, l.Age)})
		case l.Size > 0 && total > l.Size:
			out = append(out, expired{e, sizeRule(api.ClassCheckouts, l.Size)})
		default:
			continue
		}
		total -= e.Bytes
	}
	return out
}

// trim keeps the cache within its rules. Removals are not logged: a checkout is
// created again when needed.
func (gc *Collector) trim(ctx context.Context, report *api.GCReport) error {
	if gc.cfg.Checkouts == nil {
		return nil
	}
	if !report.DryRun {
		if _, err := gc.cfg.Checkouts.Sweep(); err != nil {
			return err
		}
	}
	list, err := gc.cfg.Checkouts.List()
	if err != nil {
		return err
	}
	for _, e := range gc.cfg.Rules.Checkouts.expire(list, gc.cfg.Now()) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !report.DryRun {
			err := gc.cfg.Checkouts.Remove(e.Entry)
			if errors.Is(err, checkoutcache.ErrInUse) {
				report.Busy++
				continue
			}
			if err != nil {
				return err
			}
		}
		report.Checkouts = append(report.Checkouts, api.GCRemoval{Class: api.ClassCheckouts, Name: e.Key, Rule: e.rule, Bytes: e.Bytes})
	}
	return nil
}

func (gc *Collector) checkoutBytes() (n int64, err error) {
	if gc.cfg.Checkouts == nil {
		return 0, nil
	}
	list, err := gc.cfg.Checkouts.List()
	for _, e := range list {
		n += e.Bytes
	}
	return n, err
}
