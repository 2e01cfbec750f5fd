package uidblock

import (
	"os"
	"testing"
)

// proves R-S1
func TestOnlyThreeIdsFromZeroAreABlock(t *testing.T) {
	for text, want := range map[string]bool{
		"         0 1610612736          3\n":        true,
		"         0          0 4294967295\n":        false, // the machine's own
		"         0       1000          1\n":        false, // an ordinary user's
		"      1000       1000          1\n":        false,
		"         1 1610612736          3\n":        false,
		"         0 1610612736          4\n":        false,
		"         0     100000          3\n3 7 1\n": false,
		"         0     100000          2\n2 9 1\n": false,
		"": false,
	} {
		if got := isBlock(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
	if os.Geteuid() != 0 || Inside() {
		return
	}
	if uid := Root(); uid != 0 {
		t.Errorf("root's files appear as uid %d", uid)
	}
}
