package broker

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// encodings returns forms of a text that a scan must find, by name.
func encodings(text string) map[string]string {
	all := map[string]string{
		"plain": text,
		"hex":   hex.EncodeToString([]byte(text)),
		"HEX":   strings.ToUpper(hex.EncodeToString([]byte(text))),
		"query": url.QueryEscape(text),
	}
	var percent, json, hexBreaks strings.Builder
	for i, c := range []byte(text) {
		fmt.Fprintf(&percent, "%%%02X", c)
		fmt.Fprintf(&json, `\u%04x`, c)
		if i%30 == 29 {
			hexBreaks.WriteString("\n")
		}
		fmt.Fprintf(&hexBreaks, "%02x", c)
	}
	all["percent"], all["json"], all["hex with line breaks"] = percent.String(), json.String(), hexBreaks.String()
	half := len(text) / 2
	all["half percent"] = text[:half] + percent.String()[3*half:]
	for n := range 3 {
		padded := strings.Repeat("\xff", n) + text
		for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding, "raw": base64.RawStdEncoding} {
			all[fmt.Sprintf("base64 %s %d", name, n)] = enc.EncodeToString([]byte(padded + "xyz"))
			all[fmt.Sprintf("base64 %s %d at the end", name, n)] = enc.EncodeToString([]byte(padded))
		}
		var lines strings.Builder
		for i, c := range base64.StdEncoding.EncodeToString([]byte(padded)) {
			if i > 0 && i%19 == 0 {
				lines.WriteString("\r\n")
			}
			lines.WriteRune(c)
		}
		all[fmt.Sprintf("base64 lines %d", n)] = lines.String()
	}
	return all
}

// feed scans a stream that arrives in parts of n bytes. It returns the first hit and
// the bytes that were let through until then.
func feed(s *scan, text string, n int) (*hit, string) {
	var hold []byte
	var out strings.Builder
	for i := 0; i < len(text); i += n {
		hold = append(hold, text[i:min(i+n, len(text))]...)
		safe, h := s.next(hold, i+n >= len(text))
		out.Write(hold[:safe])
		if h != nil {
			return h, out.String()
		}
		hold = bytes.Clone(hold[safe:])
	}
	return nil, out.String()
}

func TestAScanFindsEveryFormAtEverySplit(t *testing.T) {
	ph := NewPlaceholder("")
	value := "p@ss w\"rd/é+%25\n-0123456789"
	s := newScan([]pattern{{fixed: value}, {fixed: placeholderMark, digits: placeholderDigits}})
	for text, index := range map[string]int{value: 0, ph: 1} {
		for name, form := range encodings(text) {
			for _, n := range []int{1, 2, 3, 7, 1000} {
				h, out := feed(s, "before b%6 62776b2 "+form+" behind", n)
				if h == nil || h.pattern != index || h.text != text {
					t.Errorf("%s in parts of %d: got %+v", name, n, h)
				}
				// base64: the digits of the preceding bytes are let through.
				if i := strings.Index("before b%6 62776b2 "+form, form); len(out) > i+3 || !strings.HasPrefix("before b%6 62776b2 "+form, out) {
					t.Errorf("%s in parts of %d: let %q through", name, n, out)
				}
			}
		}
	}
}

// The control of the test above: what is not quite a placeholder passes whole.
func TestAScanLetsOtherTextThrough(t *testing.T) {
	ph := NewPlaceholder("")
	s := newScan([]pattern{{fixed: placeholderMark, digits: placeholderDigits}})
	for _, text := range []string{"", "b", "bwk-", ph[:len(ph)-1], ph[:len(ph)-1] + "g", "bwk-" + strings.ToUpper(strings.Repeat("a", 32)), "%", "%6", `\u006`, `\`, strings.Repeat("bwk-0123", 99)} {
		for name, form := range encodings(text) {
			for _, n := range []int{1, 3, 1000} {
				if h, out := feed(s, form, n); h != nil || out != form {
					t.Errorf("%q, %s, in parts of %d: got %+v, %q", text, name, n, h, out)
				}
			}
		}
	}
}

// An honest stream is not held back: what can be no start of a match passes at once.
func TestAScanHoldsBackOnlyPossibleMatches(t *testing.T) {
	s := newScan([]pattern{{fixed: placeholderMark, digits: placeholderDigits}})
	for text, want := range map[string]int{"data: {\"a\": 1}\n\n": 16, "a bwk-012": 2, "tab": 2, "100%": 3, "x62776b2d30": 1, "x1bwk!": 6} {
		if safe, h := s.next([]byte(text), false); safe != want || h != nil {
			t.Errorf("%q: %d bytes pass, want %d; %+v", text, safe, want, h)
		}
	}
}

func FuzzScan(f *testing.F) {
	ph := "bwk-00112233445566778899aabbccddeeff"
	for _, form := range encodings(ph) {
		f.Add("a"+form+"b", 5)
	}
	s := newScan([]pattern{{fixed: placeholderMark, digits: placeholderDigits}})
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(1, n%64)
		whole, _ := feed(s, text, len(text)+1)
		parts, out := feed(s, text, n)
		switch {
		case (whole == nil) != (parts == nil):
			t.Fatalf("whole: %+v, in parts of %d: %+v", whole, n, parts)
		case whole == nil && out != text:
			t.Fatalf("let %q through of %q", out, text)
		case whole != nil && (parts.text != whole.text || len(out) != whole.start):
			t.Fatalf("whole: %+v, in parts of %d: %+v behind %q", whole, n, parts, out)
		case whole == nil && strings.Contains(text, ph):
			t.Fatal("not found")
		}
	})
}
