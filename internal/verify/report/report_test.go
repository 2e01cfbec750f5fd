package report

import "testing"

// A text keeps its quotation marks, also at its ends; control characters are
// spelled out.
func TestPlainKeepsQuotationMarks(t *testing.T) {
	for text, want := range map[string]string{`unexpected argument "b"`: `unexpected argument "b"`, `"b" is wrong`: `"b" is wrong`, `"`: `"`, "": "", "a\x1b[2J\n": `a\u001b[2J\n`, "Müller für 日本語, a < 5 && b > 3": "Müller für 日本語, a < 5 && b > 3", "\u202egnp.exe\xff": `\u202egnp.exe\ufffd`} {
		if got := plain(text); got != want {
			t.Errorf("%q is printed %q, want %q", text, got, want)
		}
	}
}

// One blob is one.
func TestContentIsCountedInWords(t *testing.T) {
	for c, want := range map[RanContent]string{{1, 1}: "1 of 1 named blob is here", {2, 1}: "1 of 2 named blobs are here; audit export --with-blobs adds what is still stored"} {
		if got := c.text(); got != want {
			t.Errorf("%v is %q, want %q", c, got, want)
		}
	}
}
