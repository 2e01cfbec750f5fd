package anchor

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/state/store"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// Sizes finds everything that bundle.Select chooses, of all anchors.
func TestSizesAreThoseThatABundleSelects(t *testing.T) {
	st, err := store.Create(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "store"), Migrations: []store.Migration{Migration()}})
	must(t, err)
	defer func() { must(t, st.Close()) }()
	if got, err := Sizes(t.Context(), st, 0, 5, 9); err != nil || len(got) > 0 {
		t.Fatalf("of no receipts: %d, %v", got, err)
	}
	k := newKey(t)
	var all []uint64
	for i := range uint64(3000) {
		name := []string{"a", "b", "c"}[i%3]
		if i%7 == 0 {
			continue
		}
		r := newReceipt(ID{name, receipt.File, "/x"}, time.Unix(0, 0), signedAt(t, k, i+1, "x"))
		must(t, saveReceipt(t.Context(), st, r))
		all = append(all, i+1)
	}
	for _, x := range []struct{ first, last, most uint64 }{{0, 0, 2999}, {0, 10, 2999}, {1500, 1600, 2999}, {2900, 2990, 2999}, {2997, 2998, 2998}, {700, 2000, 2500}, {1, 2, 1}, {5, 9, 100}} {
		got, err := Sizes(t.Context(), st, x.first, x.last, x.most)
		must(t, err)
		upTo := slices.DeleteFunc(slices.Clone(all), func(n uint64) bool { return n > x.most })
		if want := bundle.Select(upTo, x.first, x.last); fmt.Sprint(bundle.Select(got, x.first, x.last)) != fmt.Sprint(want) {
			t.Errorf("%+v: %d, want %d", x, bundle.Select(got, x.first, x.last), want)
		}
	}
}
