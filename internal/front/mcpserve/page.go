package mcpserve

import (
	"encoding/base64"
	"errors"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// pageBytes bounds the content of one answer to what clients pass to a model; JSON
// escapes can double it.
const pageBytes = 24 << 10

// pageFiles bounds the outputs, changed files and the like in one answer.
const pageFiles = 100

// maxCursor is the length of the longest cursor. Longer ones are refused here:
// they would not fit into a request to the service.
const maxCursor = 256

// The service reads nothing beyond these bounds, so no page gives a cursor there.
const (
	maxOffset  = 1 << 50
	maxAttempt = 1 << 30
)

// cursorText is a cursor as clients pass it, of this package or of the service.
type cursorText string

// cursor is where a page begins. It is opaque to clients and grants nothing: the
// service authorises each read.
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

// cursorOf reads a cursor for the given dispatch and view.
func cursorOf(text cursorText, id api.DispatchID, v view) (c cursor, err error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(string(text))
	if err == nil {
		err = canon.DecodeExact(b, &c)
	}
	if err != nil || c.Attempt < 1 || c.Attempt > maxAttempt || c.File < 0 || c.Offset < 0 || c.Offset > maxOffset {
		return c, errors.New("cursor: invalid; pass next from the previous page")
	}
	if c.Dispatch != id || c.View != v {
		return c, errors.New("cursor: belongs to another dispatch or include")
	}
	return c, nil
}

// content is a piece of a file or log: text if it is UTF-8, else base64.
type content struct {
	Path   string     `json:"path,omitempty"`
	Digest api.Digest `json:"digest,omitempty" jsonschema:"of the whole file"`
	Size   int64      `json:"size,omitempty" jsonschema:"of the whole file in bytes"`
	Offset int64      `json:"offset" jsonschema:"of the first byte of this piece"`
	Text   *string    `json:"text,omitempty"`
	Base64 string     `json:"base64,omitempty" jsonschema:"instead of text if the content is not UTF-8"`
}

// fill puts b into c and returns how many bytes it used: if more follow, it stops
// at a character boundary.
func (c *content) fill(b []byte, more bool) int {
	if more {
		b = b[:len(b)-incompleteRune(b)]
	}
	if utf8.Valid(b) {
		text := string(b)
		c.Text = &text
	} else {
		c.Base64 = base64.StdEncoding.EncodeToString(b)
	}
	return len(b)
}

// incompleteRune returns the length of an incomplete character at the end of b.
func incompleteRune(b []byte) int {
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

// shorten returns the first elements of a list, at most pageFiles and about a third
// of a page, and how many it omits.
func shorten[T any](list []T, size func(T) int) (kept []T, left int) {
	total := 0
	for i, v := range list {
		if total += size(v); i == pageFiles || total > pageBytes/3 {
			return list[:i], len(list) - i
		}
	}
	return list, 0
}
