package canon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// hostile returns texts at the edges of what is accepted.
func hostile() []string {
	list := []string{
		`{"b":1,"a":[null,true,"\u2028"]}`, `"\ud83d\ude00"`, `1e-7`, `{"a":{"a":{}}}`, ` {"a" : 1 , "b":[ ] } `, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`,
		`{"c":1,"a":2,"b":3,"a":4}`, `{"b":{"d":1,"c":2},"a":{"f":[{"h":1,"g":2}],"e":0}}`, `{} {}`, `[1,]`, `[,1]`, `{"a":1,}`, `{"a" 1}`, `{"a":}`, `{"a"}`, `{1:2}`, `[1 2]`, `[}`, `{]`,
		`]`, `,`, `:`, ``, ` `, `"`, `"\`, `"\u`, `"\u12`, `"\ud83d`, `"\ud83d\u0041"`, `"\udc00"`, `"\ud800"`, `"\\ud800"`, `"\\\ud800"`, `"\ud83d\ud83d\ude00"`, `"\x"`, `"\/\"\\\b\f\n\r\t"`, `"\U0041"`,
		"\"\x7f\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\ufffd\"", "\"\u00e9\u202e\"", "\"\n\"", "\"\x00\"", "\x00", "\"abcdefgh\x1fijklmnop\"", "\"abcdefg\\\"hijklmnop\u00e9\"", "\"12345678\xc3\"", "\xef\xbb\xbf1", "{\"a\":1}\x00",
		`0`, `-0`, `-0.0`, `00`, `01`, `-`, `-01`, `+1`, `.5`, `1.`, `1.0`, `1e`, `1e+`, `1E5`, `1e5`, `0e0`, `1e400`, `1e-400`, `9007199254740991`, `9007199254740993`, `999999999999999`, `9999999999999999`, `-9007199254740993`,
		`100000000000000000000000`, `123456789012345678901`, `0.1`, `333333333.33333329`, `1_0`, `0x1`, `NaN`, `Infinity`, `"\u0_00"`, `tru`, `truefalse`, `nul`, `null `, `[true1]`, `True`,
		`{"\ue000":1,"\ud83d\ude00":2}`, `{"\ud83d\ude00":2,"\ue000":1}`, `{"\n":1,"A":2,"\\":3,"]":4}`, `{"z\"":1,"z!":2}`, `{"":1,"":2}`, `{"a":1,"":2}`, `{"aa":1,"a":2}`, `{"a\n":1,"a":2}`, `{"é":1,"\u00e9":2}`,
	}
	for _, n := range []int{MaxDepth, MaxDepth + 1} {
		list = append(list, strings.Repeat("[", n)+strings.Repeat("]", n), strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n), strings.Repeat("[", n-1)+"{}"+strings.Repeat("]", n-1))
	}
	return list
}

func TestCanonicalizeAgreesWithTheReference(t *testing.T) {
	accepted, refused := 0, 0
	for _, in := range hostile() {
		if agree(t, []byte(in)) {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 30 || refused < 60 { // control: neither accepts or refuses everything
		t.Errorf("%d accepted and %d refused", accepted, refused)
	}
	// Every pair of bytes at the start of a text, in a string, between members, and
	// after a value.
	for _, around := range []string{"%s", `"%s"`, `{"a":1%s}`, `[1%s`, `{"a%s":1,"a":2}`, `{"%s":1,"a":1}`, `"\u00%s"`, `1%s`} {
		for x := range 256 {
			for y := range 256 {
				agree(t, fmt.Appendf(nil, around, []byte{byte(x), byte(y)}))
			}
		}
	}
}

// agree compares Canonicalize with the reference, and reports whether they
// accept in.
func agree(t *testing.T, in []byte) bool {
	t.Helper()
	want, wantErr := reference(in)
	got, err := Canonicalize(in)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("Canonicalize(%q): %v, reference: %v", in, err, wantErr)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("Canonicalize(%q) = %s, reference: %s", in, got, want)
	}
	return err == nil
}

func FuzzCanonicalizeAgreesWithTheReference(f *testing.F) {
	for _, s := range hostile() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		agree(t, in)
		// As a string, as a member name, and nested.
		if quoted, err := json.Marshal(string(in)); err == nil {
			agree(t, quoted)
			agree(t, fmt.Appendf(nil, `{"m":1,%s:2,"%s":[%s]}`, quoted, in, in))
		}
	})
}

func BenchmarkCanonicalize(b *testing.B) {
	var doc struct {
		List []map[string]any `json:"list"`
	}
	for i := range 1000 {
		doc.List = append(doc.List, map[string]any{"name": fmt.Sprintf("member %d <of> it", i), "digest": strings.Repeat("0123456789abcdef", 4), "size": i * 1000, "on": i%2 == 0, "é": nil})
	}
	in, err := json.Marshal(doc)
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func([]byte) ([]byte, error){"encoder": Canonicalize, "reference": reference} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				if _, err := f(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
