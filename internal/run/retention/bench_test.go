package retention

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
)

// many is a number of dispatches with eight blobs each.
type many int

func (n many) Items(_ context.Context, each func(Item) error) error {
	for i := range int(n) {
		it := Item{ID: api.DispatchID(fmt.Sprintf("d-%08d", i)), Ended: noon.Add(-time.Duration(i) * time.Minute)}
		for j := range 8 {
			d := digest(8*i + j)
			if j < 2 {
				it.Evidence = append(it.Evidence, d)
			} else {
				it.Content = append(it.Content, d)
			}
		}
		if err := each(it); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkPlan is what the rules cost for 100,000 dispatches, without reading
// records and files.
func BenchmarkPlan(b *testing.B) {
	rules := Rules{Content: Limit{Age: 60 * day, Count: 50_000, Size: 1 << 20}}
	for b.Loop() {
		v := &survey{refCounts: refCounts{}}
		err := many(100_000).Items(b.Context(), func(i Item) error {
			content, evidence := keys(i.Content), keys(i.Evidence)
			v.refCounts.add(content, evidence)
			v.removable = append(v.removable, stored{i.ID, i.Ended, content, evidence})
			return nil
		})
		for _, c := range v.refCounts {
			c.size, c.here = 100, true
		}
		if n := len(rules.plan(v.removable, v.refCounts, noon)); n == 0 {
			err = errors.Join(err, errors.New("nothing goes"))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
