package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// Bundle is the evidence about one run or one dispatch.
type Bundle struct {
	Case    Case
	Entries []Entry         // in the order of the log
	Proof   []logproof.Hash // of their inclusion, and of Case.Sizes: see Prove
	// Documents are what the entries name, by digest: signed manifests, results
	// and statements, plans, catalog revisions and operator records.
	Documents map[api.Digest][]byte
	Content   []Content // inputs and products, by digest; only if they were requested
}

// Size is the length of everything in b but content, without headers and padding.
func (b *Bundle) Size() int64 {
	n := len(b.Case.Checkpoint) + len(b.Proof)*len(logproof.Hash{})
	for i := range b.Case.Anchored {
		a := &b.Case.Anchored[i]
		n += len(a.Checkpoint) + len(a.Proof) + len(a.Receipt)
	}
	for _, r := range b.Case.Rotations {
		n += len(r)
	}
	digests := len(b.Case.Revisions) + len(b.Case.Records) + len(b.Documents) + len(b.Content)
	for i := range b.Case.Revisions {
		digests += len(b.Case.Revisions[i].Envelopes)
	}
	n += digests * len(api.DigestOf(nil))
	for i := range b.Entries {
		n += len(b.Entries[i].Leaf)
	}
	for _, doc := range b.Documents {
		n += len(doc)
	}
	return int64(n)
}

// Entry is a leaf of the log with its number.
type Entry struct {
	Seq  uint64
	Leaf []byte
}

// Content is a blob. Read verifies its digest and does not keep it.
type Content struct {
	Digest api.Digest `json:"digest"`
	Size   int64      `json:"size"`
	// Open is used by Write only.
	Open func() (io.ReadCloser, error) `json:"-"`
}

// Case says what a bundle is about, and where its parts are.
type Case struct {
	V int `json:"v"` // 1
	// Exactly one of these: what the bundle is about.
	Run      api.RunID      `json:"run,omitempty"`
	Dispatch api.DispatchID `json:"dispatch,omitempty"`

	Checkpoint []byte     `json:"checkpoint"` // signed note; the entries are in this log
	Entries    api.Digest `json:"entries"`
	Proof      api.Digest `json:"proof"`
	// Sizes are sizes of the log at which an anchor got a checkpoint, ascending: the
	// proof proves the root of each, so that a copy of any can be compared. See Select.
	Sizes []uint64 `json:"sizes,omitempty"`
	// Anchored are other checkpoints of the same log, with the receipts of anchors.
	Anchored  []Anchored `json:"anchored"`
	Rotations [][]byte   `json:"rotations"` // of the service key, oldest first
	Revisions []Revision `json:"revisions"` // of the catalog, by digest
	// Records are the envelopes of operator records, in order.
	Records []api.Digest `json:"records"`
	Content []Content    `json:"content"`
}

// Anchored is a checkpoint that may be known elsewhere.
type Anchored struct {
	Checkpoint []byte `json:"checkpoint"` // signed note
	// Proof is the consistency proof between this checkpoint and the bundle's:
	// hashes of 32 bytes.
	Proof   []byte          `json:"proof"`
	Name    string          `json:"name,omitempty"`    // of the anchor; empty if it is from none
	Kind    string          `json:"kind,omitempty"`    // of the anchor, a receipt.Kind
	Receipt json.RawMessage `json:"receipt,omitempty"` // see package receipt
}

// Revision is a signed catalog revision.
type Revision struct {
	Digest    api.Digest   `json:"digest"`    // of the document in each envelope
	Envelopes []api.Digest `json:"envelopes"` // DSSE
}

const (
	// MaxSizes is how many earlier sizes of the log a bundle proves.
	MaxSizes = 1000

	maxAnchored  = 1000
	maxRotations = 256
	maxRevisions = 1000
	maxRecords   = 100_000
	// perValue is less than the bytes for each value of a valid case, which are mostly
	// digests and checkpoints; values up to fewValues are not counted. They bound
	// memory before parsing: a few bytes of text can take a hundred of memory.
	perValue  = 24
	fewValues = 5000
)

func (c *Case) check() error {
	switch {
	case c.V != 1:
		return fmt.Errorf("unknown format %d, want 1", c.V)
	case (c.Run == "") == (c.Dispatch == ""):
		return errors.New("want either a run or a dispatch")
	case len(c.Anchored) > maxAnchored || len(c.Rotations) > maxRotations || len(c.Revisions) > maxRevisions || len(c.Records) > maxRecords || len(c.Sizes) > MaxSizes:
		return errors.New("too many parts")
	case c.Anchored == nil || c.Rotations == nil || c.Revisions == nil || c.Records == nil || c.Content == nil:
		return errors.New("a member is missing")
	}
	if err := c.distinct(); err != nil {
		return err
	}
	for i, item := range c.Content {
		if _, err := api.ParseDigest(string(item.Digest)); err != nil || item.Size < 0 || i > 0 && c.Content[i-1].Digest >= item.Digest {
			return fmt.Errorf("content %d: invalid digest or size, or not in order", i+1)
		}
	}
	return nil
}

// distinct refuses an envelope that is named twice: each is for one revision or one
// record.
func (c *Case) distinct() error {
	seen := make(map[api.Digest]bool, len(c.Revisions)+len(c.Records))
	for _, d := range c.Records {
		if seen[d] {
			return fmt.Errorf("the envelope %.80q is named twice", string(d))
		}
		seen[d] = true
	}
	for i := range c.Revisions {
		for _, d := range c.Revisions[i].Envelopes {
			if seen[d] {
				return fmt.Errorf("the envelope %.80q is named twice", string(d))
			}
			seen[d] = true
		}
	}
	return nil
}

func decodeCase(b []byte) (Case, error) {
	var c Case
	var err error
	if n := bytes.Count(b, []byte{'{'}) + bytes.Count(b, []byte{'['}) + bytes.Count(b, []byte{','}); n > fewValues+len(b)/perValue {
		err = errors.New("too many parts")
	}
	if err == nil {
		err = canon.DecodeExact(b, &c)
	}
	if err == nil {
		err = c.check()
	}
	if head := (struct{ V int }{}); err != nil && json.Unmarshal(b, &head) == nil && head.V > 1 {
		err = canon.Format(head.V, 1)
	}
	if err != nil {
		return Case{}, fmt.Errorf("evidence: case: %w", err)
	}
	return c, nil
}

// appendEntries encodes entries: lines of number, space, leaf.
func appendEntries(b []byte, list []Entry) ([]byte, error) {
	for i, e := range list {
		if i > 0 && list[i-1].Seq >= e.Seq || bytes.IndexByte(e.Leaf, '\n') >= 0 {
			return nil, fmt.Errorf("evidence: entry #%d is out of order or no leaf", e.Seq)
		}
		b = append(append(strconv.AppendUint(b, e.Seq, 10), ' '), e.Leaf...)
		b = append(b, '\n')
	}
	return b, nil
}

// parseEntries is the inverse of appendEntries. The leaves are views of b.
func parseEntries(b []byte, most int) ([]Entry, error) {
	list := make([]Entry, 0, min(bytes.Count(b, []byte("\n")), len(b)/100+1, most)) // few entries are shorter
	for n := 1; len(b) > 0; n++ {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		number, leaf, spaced := bytes.Cut(line, []byte(" "))
		seq, err := strconv.ParseUint(string(number), 10, 64)
		switch {
		case !ended || !spaced || err != nil || seq >= math.MaxInt64 || strconv.FormatUint(seq, 10) != string(number):
			return nil, fmt.Errorf("evidence: entries: line %d: want number, space and leaf", n)
		case len(list) > 0 && list[len(list)-1].Seq >= seq:
			return nil, fmt.Errorf("evidence: entries: line %d is out of order", n)
		case n > most:
			return nil, fmt.Errorf("evidence: more than %d entries", most)
		}
		list = append(list, Entry{seq, leaf})
		b = rest
	}
	if len(list) == 0 {
		return nil, errors.New("evidence: no entries")
	}
	return list, nil
}

func appendHashes(b []byte, list []logproof.Hash) []byte {
	for i := range list {
		b = append(b, list[i][:]...)
	}
	return b
}

// ParseHashes is the inverse of Hashes.
func ParseHashes(b []byte) ([]logproof.Hash, error) {
	if len(b)%len(logproof.Hash{}) != 0 {
		return nil, errors.New("not a whole number of hashes")
	}
	list := make([]logproof.Hash, 0, len(b)/len(logproof.Hash{}))
	for part := range slices.Chunk(b, len(logproof.Hash{})) {
		list = append(list, logproof.Hash(part))
	}
	return list, nil
}

// Hashes encodes a proof for Anchored.
func Hashes(proof []logproof.Hash) []byte { return appendHashes([]byte{}, proof) }
