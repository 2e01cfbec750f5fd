package seal

import (
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

const unsigned = `{"payload":"e30=","payloadType":"t","signatures":[]}`

// agrees reports whether parseCanonical accepts b. What it returns must be what
// the strict decoder returns, which gets everything that it refuses.
func agrees(t *testing.T, b []byte) bool {
	t.Helper()
	env, ok := parseCanonical(b)
	var strict dsse.Envelope
	if err := canon.DecodeExact(b, &strict); ok && (err != nil || !reflect.DeepEqual(env, strict)) {
		t.Fatalf("%q parsed as %+v; the strict decoder returns %v, %+v", b, env, err, strict)
	}
	return ok
}

func TestParseCanonicalAgreesWithTheStrictDecoder(t *testing.T) {
	s, err := NewEphemeral()
	if err != nil {
		t.Fatal(err)
	}
	good, err := Sign(t.Context(), Revision, []byte(`{"v":1}`), s)
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(unsigned, `[]`, `[{"keyid":"a","sig":"b"},{"keyid":"","sig":"<&>"}]`, 1)
	for _, in := range []string{string(good), unsigned, two} {
		if !agrees(t, []byte(in)) {
			t.Errorf("%s was refused", in)
		}
		for i := range in { // cut short, and every byte another
			if agrees(t, []byte(in[:i])) {
				t.Errorf("%s was accepted cut short", in[:i])
			}
			for _, c := range []byte{0, '\n', ' ', '"', '\\', ',', '{', '}', '[', ']', 0x7f, 0xc3} {
				agrees(t, []byte(in[:i]+string(rune(c))+in[i:]))
				agrees(t, []byte(in[:i]+string([]byte{c})+in[i+1:]))
			}
		}
	}
	for name, in := range map[string]string{
		"trailing":  unsigned + " ",
		"order":     `{"payloadType":"t","payload":"e30=","signatures":[]}`,
		"null":      strings.Replace(unsigned, `[]`, `null`, 1),
		"comma":     strings.Replace(two, `},{`, `},,{`, 1),
		"no comma":  strings.Replace(two, `},{`, `}{`, 1),
		"last":      strings.Replace(two, `}]`, `},]`, 1),
		"member":    strings.Replace(two, `"b"}`, `"b","x":1}`, 1),
		"duplicate": strings.Replace(unsigned, `"payloadType"`, `"payload":"","payloadType"`, 1),
	} {
		if agrees(t, []byte(in)) {
			t.Errorf("%s: %s was accepted", name, in)
		}
	}
}

func FuzzAnEnvelopeReadByItsForm(f *testing.F) {
	f.Add([]byte(unsigned))
	f.Add([]byte(strings.Replace(unsigned, `[]`, `[{"keyid":"a","sig":"b"},{"keyid":"","sig":"<&>"}]`, 1)))
	f.Fuzz(func(t *testing.T, in []byte) {
		agrees(t, in)
		agrees(t, []byte(strings.Replace(unsigned, `e30=`, string(in), 1)))
		agrees(t, []byte(strings.Replace(unsigned, `[]`, `[`+string(in)+`]`, 1)))
	})
}

// The reference: text that encodes to itself.
func onlySpelling(s string) bool {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return err == nil && base64.StdEncoding.EncodeToString(b) == s
}

func TestBase64HasOneEncoding(t *testing.T) {
	const letters = "AQgwZ9+/=-_ \n\r\x00\xff"
	accepted := 0
	check := func(s string) {
		if _, err := decodeBase64(s); (err == nil) != onlySpelling(s) {
			t.Fatalf("%q: %v", s, err)
		} else if err == nil {
			accepted++
		}
	}
	var all func(s string, more int)
	all = func(s string, more int) {
		for _, before := range []string{"", "AAAA", "AA==", "AAA\n"} {
			check(before + s)
			check(s + before)
		}
		if more == 0 {
			return
		}
		for i := range len(letters) {
			all(s+letters[i:i+1], more-1)
		}
	}
	all("", 4)
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
}

func FuzzBase64HasOneSpelling(f *testing.F) {
	for _, s := range []string{"", "AAAA", "AA==", "AB==", "A\nAAA", "AAAA\r\n", "AA=\n="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := decodeBase64(s)
		if (err == nil) != onlySpelling(s) {
			t.Fatalf("%q: %v", s, err)
		}
		if text := base64.StdEncoding.EncodeToString(b); err == nil && text != s {
			t.Fatalf("%q is %q", s, text)
		}
	})
}
