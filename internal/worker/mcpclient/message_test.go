package mcpclient

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// FuzzParse compares the walk over canonical text with encoding/json.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a\"b\\"}],"isError":true}}`, `{"a":1,"b":-2.5e3,"c":[1,2,[3]],"d":{"e":null},"f":"\\"}`,
		`{}`, `[]`, `{"a":{}}`, `[{},[],"",0,true]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = parse(raw) // panics on nothing
		text, err := canon.Canonicalize(raw)
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		var array []json.RawMessage
		switch text[0] {
		case '{':
			_ = json.Unmarshal(text, &object)
			n := 0
			err = members(text, func(name string, value json.RawMessage) error {
				if n++; !strings.Contains(name, `\`) && string(object[name]) != string(value) {
					t.Errorf("%s: member %q is %s", text, name, value)
				}
				return nil
			})
			if n != len(object) {
				t.Errorf("%s: %d members", text, n)
			}
		case '[':
			_ = json.Unmarshal(text, &array)
			n := 0
			err = elements(text, func(value json.RawMessage) error {
				if string(array[n]) != string(value) {
					t.Errorf("%s: element %d is %s", text, n, value)
				}
				n++
				return nil
			})
			if n != len(array) {
				t.Errorf("%s: %d elements", text, n)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOnlyWhatTheProtocolKnowsIsPassedOn(t *testing.T) {
	for in, want := range map[string]string{
		`{"content":[{"type":"text","text":"x","_meta":{},"extra":1}],"_meta":{},"more":2}`:                `{"content":[{"text":"x","type":"text"}]}`,
		`{"content":[{"type":"resource_link","name":"n","uri":"file:///x","size":3}]}`:                     `{"content":[{"name":"n","size":3,"type":"resource_link","uri":"file:///x"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"u","text":"t"}}],"isError":true}`:               `{"content":[{"resource":{"text":"t","uri":"u"},"type":"resource"}],"isError":true}`,
		`{"content":[{"type":"image","data":"AA==","mimeType":"image/png","annotations":{"priority":1}}]}`: `{"content":[{"annotations":{"priority":1},"data":"AA==","mimeType":"image/png","type":"image"}]}`,
		`{"structuredContent":{"a":1},"resultType":"complete"}`:                                            `{"content":[],"structuredContent":{"a":1}}`,
		`{"content":[{"type":"text"}]}`:                "",
		`{"content":[{"type":"text","text":1}]}`:       "",
		`{"content":[{"type":"image","data":"AA=="}]}`: "",
		`{"content":[{"text":"x"}]}`:                   "",
		`{"content":["x"]}`:                            "",
		`{"content":{}}`:                               "",
		`{"content":[],"structuredContent":[1]}`:       "",
		`{"content":[],"isError":"yes"}`:               "",
		`{"content":[],"resultType":"input_required"}`: "",
	} {
		text, err := canon.Canonicalize([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		a, err := answerOf(text)
		if string(a.Result) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", in, a.Result, err)
		}
	}
}

// A definition says whether its tool runs as a task only; any other support of tasks is
// ignored, since the gateway asks for none.
func TestADefinitionSaysThatItsToolIsATask(t *testing.T) {
	for execution, want := range map[string]bool{
		"":                false,
		`,"execution":{}`: false,
		`,"execution":{"taskSupport":"optional"}`:  false,
		`,"execution":{"taskSupport":"forbidden"}`: false,
		`,"execution":{"taskSupport":"required"}`:  true,
	} {
		d, err := parseDefinition([]byte(`{"name":"x","inputSchema":{}` + execution + `}`))
		if err != nil || d.TaskOnly != want {
			t.Errorf("%q: %t, %v", execution, d.TaskOnly, err)
		}
	}
	if _, err := parseDefinition([]byte(`{"name":"x","inputSchema":{},"execution":{"taskSupport":7}}`)); err == nil {
		t.Error("support that is not text is accepted")
	}
}
