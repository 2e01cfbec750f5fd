package logproof

import "testing"

// Each path of signed documents names one entry, and other paths name none.
func TestNamesOfSignedDocuments(t *testing.T) {
	for entry, name := range map[uint64]string{0: "signed/000", 7: "signed/007", 999: "signed/999", 1000: "signed/x001/000", 1234567: "signed/x001/x234/567"} {
		if got := SignedName(entry); got != name {
			t.Errorf("entry %d: %s, want %s", entry, got, name)
		}
		if got, ok := ParseSignedName(name); !ok || got != entry {
			t.Errorf("%s: entry %d %t", name, got, ok)
		}
	}
	for _, name := range []string{"", "signed/", "signed/7", "signed/0007", "signed/x000/007", "signed/x001/x/000", "tile/000", "signed/../000", "signed/-01", "signed/007/", "signed/99999999999999999999999"} {
		if entry, ok := ParseSignedName(name); ok {
			t.Errorf("%s names entry %d", name, entry)
		}
	}
}
