package console

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestContentIsExactButOnATerminal(t *testing.T) {
	t.Parallel()
	const text = "a\x1b[2J\u009b2J\xff\r\n"
	for _, c := range []struct {
		screen, raw bool
		want, note  string
	}{
		{false, false, text, ""},
		{false, true, text, ""},
		{true, true, text, ""},
		{true, false, `a\x1b[2J\u009b2J\xff\x0d` + "\n", "note: control characters"},
	} {
		var out, errs bytes.Buffer
		o := Output{Stdout: &out, Stderr: &errs, Screen: c.screen, NoPager: true}
		if err := o.Content(c.raw, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Error(err)
		}
		if out.String() != c.want || !strings.HasPrefix(errs.String(), c.note) || c.note == "" && errs.Len() > 0 {
			t.Errorf("%+v: %q, %q", c, out.String(), errs.String())
		}
	}
}

func FuzzJSONForATerminal(f *testing.F) {
	f.Add("a\x1b[2J\u009b2J\u202e\U000e0041é\u0301\xff")
	f.Fuzz(func(t *testing.T, text string) {
		o := Output{Screen: true}
		b, err := o.JSONText(map[string]string{text: text}, false)
		if err != nil {
			t.Fatal(err)
		}
		if shown := Plain(string(b)); shown != string(b) {
			t.Errorf("%q would be shown as %q", b, shown)
		}
		var got, want map[string]string
		plain, _ := json.Marshal(map[string]string{text: text}) // a map of strings always encodes
		if err := json.Unmarshal(plain, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &got); err != nil || len(got) != 1 {
			t.Fatalf("%q: %v", b, err)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%q has the value %q, want %q", b, got, want)
			}
		}
	})
}
