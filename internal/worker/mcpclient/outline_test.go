package mcpclient

import (
	"encoding/json"
	"strings"
	"testing"
)

func outlineOf(text string, size int) *outline {
	o := &outline{}
	for ; len(text) > size; text = text[size:] {
		o.add([]byte(text[:size]))
	}
	o.add([]byte(text))
	return o
}

// The id of a broken message is that of its outermost object alone: no text of
// a tool is taken for it.
//
// proves R-G5
func TestAnOutlineFindsTheRequest(t *testing.T) {
	for in, want := range map[string]int64{
		`{"jsonrpc":"2.0","id":7,"result":{"n":9007199254740993}}`: 7,
		` { "result" : {"id":8} , "id" : 7 }`:                      7,
		`{"result":{"text":"\",\"id\":8,"},"id":7}`:                7,
		`{"result":{"text":"\\"},"id":7}`:                          7,
		`{"a":"id","id":7}`:                                        7,
		`{"id":7,"result":{"text":"` + "\xff":                      7,
		`{"id":7,"result":` + strings.Repeat("[", 1000):            7,
		`{"id":7}`:                 7,
		`{"id":7,"id":7}`:          0,
		`{"id":"7"}`:               0,
		`{"id":7.5}`:               0,
		`{"id":[7]}`:               0,
		`{"id":7,"method":"ping"}`: 0,
		`{"result":{"id":7}}`:      0,
		`{"\u0069d":7}`:            0,
		`[{"id":7}]`:               0,
		`{"id":7` + strings.Repeat("0", 100) + `}`: 0,
		`{"` + strings.Repeat("x", 100) + `id":7}`: 0,
		`Listening on {"id":7}`:                    0,
		`}{"id":7}`:                                0,
		``:                                         0,
	} {
		for _, size := range []int{1, 3, 1 << 20} {
			if got := outlineOf(in, size).answers(); got != want {
				t.Errorf("%.80q in parts of %d: %d, want %d", in, size, got, want)
			}
		}
	}
	if !outlineOf(" {", 1).mayAnswer() || outlineOf("Listening {", 1).mayAnswer() || outlineOf(`{"method":1`, 1).mayAnswer() {
		t.Error("mayAnswer")
	}
}

// FuzzOutline compares the outline of strict messages with the reader of them.
func FuzzOutline(f *testing.F) {
	for _, s := range []string{`{"jsonrpc":"2.0","id":7,"result":{"id":8}}`, `{"id":1,"a":"\"}"}`, `{"a":[{"id":2}],"id":3,"b":{}}`, `"id"`, `[1]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := outlineOf(string(raw), 5).answers()
		var m struct {
			Method *json.RawMessage `json:"method"`
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil || json.Unmarshal(raw, &m) != nil || strings.Contains(string(raw), `\`) || strings.Count(string(raw), `"id"`) != 1 {
			return
		}
		var want int64
		if id := members["id"]; members["method"] == nil && isInteger(id) {
			_ = json.Unmarshal(id, &want)
		}
		if got != want {
			t.Errorf("%q: %d, want %d", raw, got, want)
		}
	})
}

func BenchmarkOutline(b *testing.B) {
	line := []byte(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat("x ", 1<<20) + `"}]},"id":7}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		var o outline
		if o.add(line); o.answers() != 7 {
			b.Fatal(o.answers())
		}
	}
}
