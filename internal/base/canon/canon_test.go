package canon

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestCanonicalizeReturnsTheCanonicalForm(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1, "a":[true,false,null]}`:         `{"a":[true,false,null],"b":1}`,
		`"\u00e9\u2028\u0000 \ud83d\ude00/"`:     `"\u00e9\u2028\u0000 \ud83d\ude00/"`,
		"\"\u00e9\u202e\x7f\"":                   `"\u00e9\u202e\u007f"`,
		`{"\ue000":1,"\ud83d\ude00":2}`:          `{"\ud83d\ude00":2,"\ue000":1}`, // UTF-16 order, not code point order
		`[1.0,-0,1e2,1e21,1e-7,0.1,123456789]`:   `[1,0,100,1e+21,1e-7,0.1,123456789]`,
		`[333333333.33333329,4.50,2e-3,1E30]`:    `[333333333.3333333,4.5,0.002,1e+30]`, // RFC 8785 §3.2.2
		"\"\\u0008\\t\\n\\f\\r\\\"\\\\\\u000b\"": `"\b\t\n\f\r\"\\\u000b"`,
	} {
		got, err := Canonicalize([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("Canonicalize(%s) = %s, %v; want %s", in, got, err, want)
		}
	}
}

// proves R-A4
func TestAmbiguousJSONIsRefused(t *testing.T) {
	for name, in := range map[string]string{
		"duplicate member":           `{"a":1,"a":2}`,
		"duplicate by escape":        `{"a":1,"\u0061":2}`,
		"nested duplicate":           `{"x":[{"a":1,"a":1}]}`,
		"data after the value":       `{} {}`,
		"invalid UTF-8":              "\"\xff\"",
		"lone high surrogate":        `"\ud800"`,
		"lone low surrogate":         `"\udc00"`,
		"high then not low":          `"\ud800\u0041"`,
		"high at the end":            `"\ud83d`,
		"integer beyond 2^53":        `9007199254740993`,
		"number beyond float64":      `1e999`,
		"too deep":                   strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
		"empty":                      ``,
		"control character":          "\"\n\"",
		"not closed":                 `{"a":`,
		"name not a string":          `{1:2}`,
		"escaped backslash, then \\": `"\\\ud800"`,
	} {
		if got, err := Canonicalize([]byte(in)); err == nil {
			t.Errorf("%s: %s was accepted as %s", name, in, got)
		}
	}
	// The control: similar but valid texts.
	for _, in := range []string{`"\\ud800"`, `9007199254740991`, strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)} {
		if _, err := Canonicalize([]byte(in)); err != nil {
			t.Errorf("%.40s: %v", in, err)
		}
	}
}

func TestUnknownMembersAreRefusedByName(t *testing.T) {
	var v struct{ A int }
	if err := Decode([]byte(`{"A":1,"image":"x"}`), &v); err == nil || !strings.Contains(err.Error(), `"image"`) {
		t.Errorf("err = %v, want one naming image", err)
	}
	var deep struct {
		List []struct {
			Map map[string]struct{ B *int } `json:"map"`
		} `json:"list"`
	}
	if err := Decode([]byte(`{"list":[{"map":{"k":{"B":1,"c":2}}}]}`), &deep); err == nil || !strings.Contains(err.Error(), `"list[0].map.k.c"`) {
		t.Errorf("err = %v, want the path of c", err)
	}
	if err := Decode([]byte(`{"list":[{"map":{"k":{"B":1}}}]}`), &deep); err != nil {
		t.Error(err)
	}
	for name, in := range map[string]string{
		"another case": `{"a":1}`, "two spellings": `{"A":1,"a":2}`,
	} {
		if err := Decode([]byte(in), &v); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestDecodeExactAcceptsOnlyTheCanonicalForm(t *testing.T) {
	type doc struct {
		A int `json:"a"`
		B int `json:"b,omitempty"`
	}
	var v doc
	if err := DecodeExact([]byte(`{"a":1}`), &v); err != nil {
		t.Error(err)
	}
	for name, in := range map[string]string{
		"white space": `{"a": 1}`, "a member that is left out when empty": `{"a":1,"b":0}`, "a missing member": `{}`, "another number": `{"a":1.0}`,
	} {
		if err := DecodeExact([]byte(in), &v); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func FuzzCanonicalize(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[null,true,"\u2028"]}`, `"\ud83d\ude00"`, `1e-7`, `{"a":{"a":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		once, err := Canonicalize(in)
		if err != nil {
			return
		}
		if i := bytes.IndexFunc(once, func(r rune) bool { return r < 0x20 || r > 0x7e }); i >= 0 {
			t.Fatalf("byte %d of %q is not printable ASCII", i, once)
		}
		twice, err := Canonicalize(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q is encoded as %q, %v", once, twice, err)
		}
		var a, b any
		if json.Unmarshal(in, &a) != nil || json.Unmarshal(once, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Fatalf("%q and %q differ in meaning", in, once)
		}
	})
}

// The place of an unknown member is reported without building the path of every other one:
// half a mebibyte of a name with a hundred thousand values in it would take 50 GB.
func TestLongNamesAreNotCopiedForEachValue(t *testing.T) {
	var v struct {
		Lists map[string][]struct{ A int } `json:"lists"`
	}
	name := strings.Repeat("n", 300<<10)
	doc := []byte(`{"lists":{"` + name + `":[` + strings.Repeat(`{"A":1},`, 30_000) + `{"B":1}]}}`)
	before, after := runtime.MemStats{}, runtime.MemStats{}
	runtime.ReadMemStats(&before)
	err := Decode(doc, &v)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.HasSuffix(err.Error(), `[30000].B"`) {
		t.Errorf("%.80v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 200*uint64(len(doc)) {
		t.Errorf("%d bytes for %d", n, len(doc))
	}
}
