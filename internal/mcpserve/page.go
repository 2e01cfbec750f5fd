package mcpserve

import (
	"encoding/base64"
	"errors"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// pageBytes bounds the content in one answer. Models are given about so much
// at a time, and some of it twice as long once it is escaped.
const pageBytes = 24 << 10

// pageFiles bounds how many outputs, changed files and the like are in one
// answer.
const pageFiles = 100

// cursor is where a page begins. It is opaque to clients and trusted by nobody:
// whatever it says, the service decides what its sender may read.
type cursor struct {
	Dispatch api.DispatchID `json:"d"`
	Attempt  int            `json:"a"`
	View     view           `json:"v"`
	File     int            `json:"f,omitempty"`
	Offset   int64          `json:"o,omitempty"`
}

func (c cursor) text() (string, error) {
	b, err := canon.Marshal(c)
	return base64.RawURLEncoding.EncodeToString(b), err
}

// cursorOf reads a cursor of the same dispatch and view.
func cursorOf(text string, id api.DispatchID, v view) (c cursor, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = canon.DecodeExact(b, &c)
	}
	if err != nil || c.Attempt < 1 || c.File < 0 || c.Offset < 0 {
		return c, errors.New("cursor: not one that was returned")
	}
	if c.Dispatch != id || c.View != v {
		return c, errors.New("cursor: it belongs to another dispatch or another include")
	}
	return c, nil
}

// content is a piece of what a worker left: text where it is, else base64.
type content struct {
	Path   string     `json:"path,omitempty"`
	Digest api.Digest `json:"digest,omitempty" jsonschema:"of the whole"`
	Size   int64      `json:"size,omitempty" jsonschema:"of the whole, in bytes"`
	Offset int64      `json:"offset" jsonschema:"of the first byte of this piece"`
	Text   *string    `json:"text,omitempty"`
	Base64 string     `json:"base64,omitempty" jsonschema:"instead of text where it is not UTF-8"`
}

// fill puts bytes into c and returns how many it took: with more behind them
// they end with a whole character.
func (c *content) fill(b []byte, more bool) int {
	if more {
		b = b[:len(b)-torn(b)]
	}
	if utf8.Valid(b) {
		text := string(b)
		c.Text = &text
	} else {
		c.Base64 = base64.StdEncoding.EncodeToString(b)
	}
	return len(b)
}

// torn is how many bytes at the end of b begin a character that is not whole.
func torn(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if n < len(b) && !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// firstFew returns the beginning of a list, at most pageFiles of them and about
// a third of a page, and how many are left out.
func firstFew[T any](list []T, size func(T) int) (kept []T, left int) {
	total := 0
	for i, v := range list {
		if total += size(v); i == pageFiles || total > pageBytes/3 {
			return list[:i], len(list) - i
		}
	}
	return list, 0
}
