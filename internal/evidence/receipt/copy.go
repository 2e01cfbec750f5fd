package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/note"
)

// MaxCopy bounds a copy of an anchor's content, in bytes.
const MaxCopy = 256 << 20

// MaxLine bounds a line of an anchor's file with its line feed, in bytes.
const MaxLine = 2*note.MaxSigned + 3

// Line encodes a signed checkpoint as a line of an anchor's file: a JSON string.
func Line(signed []byte) ([]byte, error) {
	if _, err := note.Peek(signed); err != nil {
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
func ParseLine(line []byte) (signed []byte, cp note.Checkpoint, err error) {
	var text string
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) > MaxLine {
		return nil, cp, fmt.Errorf("line: longer than %d bytes", MaxLine)
	}
	if err := json.Unmarshal(line, &text); err != nil {
		return nil, cp, errors.New("line: not one JSON string")
	}
	if cp, err = note.Peek([]byte(text)); err != nil {
		return nil, cp, err
	}
	again, err := Line([]byte(text))
	if err != nil || !bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), line) {
		return nil, cp, errors.New("line: not in canonical form")
	}
	return []byte(text), cp, nil
}

// ErrOlder means that a copy ends before the checkpoint of a receipt: it was
// fetched earlier, or the place never stored the checkpoint.
var ErrOlder = errors.New("ends before it")

// In compares r with a copy fetched from its place: the file of a file anchor, or
// signed checkpoints with an empty line between two (the file "checkpoint" of a
// commit, an object by its version). It fails if r's checkpoint is not in the copy
// (ErrOlder: all are smaller), or if the copy has two roots for one size.
//
// In verifies no signatures: the caller has verified r's checkpoint, and the copy
// must contain the same one.
func (r Receipt) In(copied []byte) error {
	if len(copied) > MaxCopy {
		return fmt.Errorf("copy of %s: larger than %d bytes", r.Name, MaxCopy)
	}
	want, newest := r.Checkpoint(), uint64(0)
	roots := map[uint64]note.Hash{}
	err := each(copied, func(_ []byte, cp note.Checkpoint) error {
		if cp.Origin != want.Origin {
			return fmt.Errorf("contains a checkpoint of another log, %q", cp.Origin)
		}
		if root, ok := roots[cp.Size]; ok && root != cp.Root {
			return fmt.Errorf("contains two roots for size %d: one of them is forged", cp.Size)
		}
		roots[cp.Size], newest = cp.Root, max(newest, cp.Size)
		return nil
	})
	switch root, ok := roots[want.Size]; {
	case err != nil:
		return fmt.Errorf("copy of %s: %w", r.Name, err)
	case ok && root != want.Root:
		return fmt.Errorf("copy of %s: has another root for size %d", r.Name, want.Size)
	case !ok && newest < want.Size:
		return fmt.Errorf("copy of %s: newest checkpoint has size %d: %w", r.Name, newest, ErrOlder)
	case !ok:
		return fmt.Errorf("copy of %s: no checkpoint of size %d", r.Name, want.Size)
	}
	return nil
}

// Checkpoints returns the signed checkpoints of a copy, in order, unverified.
func Checkpoints(copied []byte) (list [][]byte, err error) {
	if len(copied) > MaxCopy {
		return nil, fmt.Errorf("copy: larger than %d bytes", MaxCopy)
	}
	err = each(copied, func(signed []byte, _ note.Checkpoint) error {
		list = append(list, signed)
		return nil
	})
	return list, err
}

// each calls f for every checkpoint of a copy. It skips a line that a power cut
// truncated; anything else that is no checkpoint is an error.
func each(copied []byte, f func([]byte, note.Checkpoint) error) error {
	if len(bytes.TrimSpace(copied)) == 0 {
		return errors.New("empty")
	}
	if !bytes.Contains(copied, []byte("\n\n\u2014 ")) { // which is in no line
		for line := range bytes.Lines(copied) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			signed, cp, err := ParseLine(line)
			switch {
			case err == nil:
				err = f(signed, cp)
			case len(line) == 0, bytes.IndexByte(line, 0) >= 0, line[0] == '"' && line[len(line)-1] != '"':
				continue
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	// A signed note has one empty line in it, and ends in a line feed.
	parts := strings.Split(string(copied), "\n\n")
	for pair := range slices.Chunk(parts, 2) {
		if len(pair) != 2 {
			return errors.New("neither an anchor's file nor signed checkpoints")
		}
		signed := []byte(pair[0] + "\n\n" + strings.TrimSuffix(pair[1], "\n") + "\n")
		cp, err := note.Peek(signed)
		if err != nil {
			return err
		}
		if err := f(signed, cp); err != nil {
			return err
		}
	}
	return nil
}
