package mcpserve

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Pages join to the content, end at character boundaries, and are not empty.
func TestPagesJoinToTheContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := []byte(rapid.StringOf(rapid.RuneFrom([]rune("aé✓😀\n\x00"))).Draw(t, "text"))
		text := true
		if rapid.Bool().Draw(t, "bytes") {
			whole = rapid.SliceOf(rapid.Byte()).Draw(t, "whole")
			text = false
		}
		size := rapid.IntRange(4, 9).Draw(t, "page") // a character is at most 4
		var got []byte
		for at := 0; at < len(whole); {
			part := whole[at:min(at+size, len(whole))]
			var c content
			n := c.fill(part, at+len(part) < len(whole))
			if n == 0 {
				t.Fatalf("no progress at %d of %q", at, whole)
			}
			at += n
			if c.Text != nil {
				got = append(got, *c.Text...)
				continue
			}
			if text {
				t.Fatalf("part %q of a text: %+v", part, c)
			}
			b, err := base64.StdEncoding.DecodeString(c.Base64)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b...)
		}
		if !bytes.Equal(got, whole) {
			t.Fatalf("pages join to %q, want %q", got, whole)
		}
	})
}

func TestACursorBelongsToOneViewOfOneDispatch(t *testing.T) {
	c := cursor{Dispatch: "d-one", Attempt: 2, View: viewOutputs, File: 3, Offset: 77}
	text, err := c.text()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cursorOf(cursorText(text), "d-one", viewOutputs); err != nil || got != c {
		t.Errorf("got %+v, %v", got, err)
	}
	for what, err := range map[string]error{
		"another dispatch": second(cursorOf(cursorText(text), "d-two", viewOutputs)), "another view": second(cursorOf(cursorText(text), "d-one", viewPatch)),
		"half of it": second(cursorOf(cursorText(text[:len(text)/2]), "d-one", viewOutputs)), "nothing": second(cursorOf("!", "d-one", viewOutputs)),
	} {
		if err == nil || !strings.Contains(err.Error(), "cursor") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second(_ cursor, err error) error { return err }

func FuzzCursor(f *testing.F) {
	good, err := cursor{Dispatch: "d-one", Attempt: 1, View: viewLogs, Offset: 1}.text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"a":1,"d":"d-one","o":-1,"v":"logs"}`)))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := cursorOf(cursorText(text), "d-one", viewLogs)
		if err != nil {
			return
		}
		if c.Attempt < 1 || c.Offset < 0 || c.File < 0 || c.Dispatch != "d-one" || c.View != viewLogs {
			t.Fatalf("%q decodes to %+v", text, c)
		}
		if again, err := c.text(); err != nil || again != text {
			t.Fatalf("%q encodes again as %q", text, again)
		}
	})
}

func TestALongQuestionComesInPages(t *testing.T) {
	for _, size := range []int{10, pageBytes, 5 * pageBytes} {
		q := &api.Question{Question: "which?", Context: json.RawMessage(`"` + strings.Repeat("é", size/2) + `"`)}
		d := &api.Dispatch{ID: "d-one", Attempt: 1, State: api.EventNeedsInput, Question: q}
		var document string
		pages := 0
		for at := (cursor{Dispatch: "d-one", Attempt: 1, View: viewQuestion}); ; pages++ {
			var out describeOutput
			next, err := questionPage(d, at, &out)
			if err != nil || len(document) > 10*pageBytes {
				t.Fatalf("%v after %d bytes", err, len(document))
			}
			if out.Question != nil {
				b, err := json.Marshal(out.Question)
				if err != nil || size > pageBytes {
					t.Fatalf("a question of %d bytes is shown in one page, %v", size, err)
				}
				document = string(b)
				break
			}
			document += *out.Document.Text
			if next == nil {
				break
			}
			at = *next
		}
		var got api.Question
		if err := json.Unmarshal([]byte(document), &got); err != nil || got.Question != q.Question || string(got.Context) != string(q.Context) {
			t.Errorf("question of %d bytes in %d pages: %.60s: %v", size, pages+1, document, err)
		}
	}
}

func TestLongListsAreShortenedAndCounted(t *testing.T) {
	many := make([]api.FileChange, 1000)
	for i := range many {
		many[i].Path = strings.Repeat("x", 10)
	}
	size := func(f api.FileChange) int { return len(f.Path) }
	if kept, left := shorten(many, size); len(kept) != pageFiles || left != 900 {
		t.Errorf("kept %d, omitted %d", len(kept), left)
	}
	many[3].Path = strings.Repeat("x", pageBytes)
	if kept, left := shorten(many, size); len(kept) != 3 || left != 997 {
		t.Errorf("kept %d, omitted %d", len(kept), left)
	}
	if kept, left := shorten(many[:2], size); len(kept) != 2 || left != 0 {
		t.Errorf("kept %d, omitted %d", len(kept), left)
	}
}
