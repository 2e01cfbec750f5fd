package egress

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// proves R-T2, R-T7
func TestTheSelfTestPasses(t *testing.T) {
	if err := SelfTest(t.Context()); err != nil {
		t.Error(err)
	}
}

// The self-test detects every missing range, a filter that refuses everything, and a
// hook that accepts everything.
//
// proves R-T2
func TestTheSelfTestDetectsABrokenFilter(t *testing.T) {
	for i, r := range Table() {
		holed := slices.Delete(Table(), i, i+1)
		err := testTable(func(a netip.Addr) error { return judge(holed, a) })
		// An address in another row, or outside 2000::/3, is still refused.
		covered := judge(holed, r.Prefix.Addr()) != nil && judge(holed, last(r.Prefix)) != nil
		if (err == nil) != covered {
			t.Errorf("without %s (%s): %v", r.Prefix, r.Name, err)
		}
		if r.Prefix.Bits() <= 16 && r.Prefix.Addr().Is4() && err == nil {
			t.Errorf("without %s the self-test passes", r.Prefix)
		}
	}
	if err := testTable(func(netip.Addr) error { return nil }); err == nil {
		t.Error("a filter that accepts everything passes")
	}
	if err := testTable(func(netip.Addr) error { return ErrRefused }); err == nil || !strings.Contains(err.Error(), "public") {
		t.Errorf("a filter that refuses everything: %v", err)
	}
	open := func(netip.AddrPort) func(string, string) error { return func(string, string) error { return nil } }
	if err := testHook(t.Context(), open); err == nil || !strings.Contains(err.Error(), "accepted") {
		t.Errorf("a hook that accepts everything: %v", err)
	}
}
