package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// MaxCopy bounds a copy of an anchor's content, in bytes.
const MaxCopy = 256 << 20

// MaxLine bounds a line of an anchor's file with its line feed, in bytes.
const MaxLine = 2*logproof.MaxSigned + 3

// Line encodes a signed checkpoint as a line of an anchor's file: a JSON string.
func Line(signed []byte) ([]byte, error) {
	if _, err := logproof.Peek(signed); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(signed)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ParseLine is the inverse of Line, with or without the line feed.
func ParseLine(line []byte) (signed []byte, cp logproof.Checkpoint, err error) {
	var text string
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) > MaxLine {
		return nil, cp, fmt.Errorf("line: longer than %d bytes", MaxLine)
	}
	if err := json.Unmarshal(line, &text); err != nil {
		return nil, cp, errors.New("line: not one JSON string")
	}
	if cp, err = logproof.Peek([]byte(text)); err != nil {
		return nil, cp, err
	}
	again, err := Line([]byte(text))
	if err != nil || !bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), line) {
		return nil, cp, errors.New("line: not in canonical form")
	}
	return []byte(text), cp, nil
}

// Torn reports whether a line without its line feed, which ParseLine refuses, is
// what a power cut leaves of one: its beginning, or a hole of zeros.
func Torn(line []byte) bool {
	return bytes.IndexByte(line, 0) >= 0 || len(line) > 0 && line[0] == '"' && (len(line) == 1 || line[len(line)-1] != '"')
}

// Checkpoints returns the signed checkpoints of a copy of an anchor's content, in
// order, unverified. A copy has lines of a file anchor, signed checkpoints, or both,
// with any number of empty lines between them, and at least one checkpoint. It may
// lack its last line feed. A line that a power cut truncated is skipped; anything else
// that is no checkpoint is an error.
func Checkpoints(copied []byte) (list [][]byte, err error) {
	if len(copied) > MaxCopy {
		return nil, fmt.Errorf("larger than %d bytes", MaxCopy)
	}
	copied = bytes.ReplaceAll(copied, []byte("\r\n"), []byte("\n")) // as git writes on Windows
	for len(copied) > 0 {
		line, rest, _ := bytes.Cut(copied, []byte("\n"))
		if len(line) == 0 {
			copied = rest
			continue
		}
		switch signed, _, err := ParseLine(line); {
		case err == nil:
			list = append(list, signed)
		case Torn(line):
		case line[0] == '"':
			return nil, err
		default:
			if signed, rest, err = cutNote(copied); err != nil {
				return nil, err
			}
			list = append(list, signed)
		}
		copied = rest
	}
	if len(list) == 0 {
		return nil, errors.New("has no signed checkpoint")
	}
	return list, nil
}

// cutNote cuts the signed note that b begins with: a text, an empty line, and lines
// with signatures.
func cutNote(b []byte) (signed, rest []byte, err error) {
	signature := []byte("\u2014 ")
	at := bytes.Index(b[:min(len(b), logproof.MaxSigned)], []byte("\n\n"))
	if at < 0 {
		return nil, nil, errors.New("neither a line of an anchor's file nor a signed checkpoint")
	}
	end := at + 2
	for bytes.HasPrefix(b[end:], signature) {
		line, _, ended := bytes.Cut(b[end:], []byte("\n"))
		if end += len(line); ended {
			end++
		}
	}
	signed = b[:end:end]
	if signed[end-1] != '\n' {
		signed = append(signed, '\n')
	}
	_, err = logproof.Peek(signed)
	return signed, b[end:], err
}
