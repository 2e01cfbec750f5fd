package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// maxDeployChain bounds the chain of the sets of deploy keys, in bytes.
const maxDeployChain = 1 << 20

// DeploySetRecord is signed to replace a set of deploy keys, by the threshold of that set.
type DeploySetRecord struct {
	V   int             `json:"v"`  // format of this document: 1
	At  time.Time       `json:"at"` // as its author claims
	Set api.OperatorSet `json:"set"`
}

// LoadDeployKeys returns the set of deploy keys in force: trust.json, or the last set of the
// chain that follows it. Each line of Dirs.TrustChain is an envelope of a DeploySetRecord.
// Anyone who can write the catalog can write that file, so only signatures count in it.
func LoadDeployKeys(d api.Dirs) (TrustRoot, error) {
	r, _, err := new(TrustRootReader).LoadDeployKeys(d)
	return r, err
}

// LoadDeployKeys is the function for a caller that reads often. The bytes are of both files;
// the caller does not change them.
func (t *TrustRootReader) LoadDeployKeys(d api.Dirs) (TrustRoot, []byte, error) {
	first, raw, err := t.Load(d.TrustRoot())
	if err != nil {
		return TrustRoot{}, nil, err
	}
	lines, err := readChain(d)
	if err != nil || len(lines) == 0 {
		return first, raw, err
	}
	raw = bytes.Join([][]byte{raw, lines}, nil)
	if last := t.chained.Load(); last != nil && bytes.Equal(last.bytes, raw) {
		return last.root, last.bytes, nil
	}
	r, err := FollowDeploySets(first, lines)
	if err != nil {
		return TrustRoot{}, nil, fmt.Errorf("%s: %w", d.TrustChain(), err)
	}
	t.chained.Store(&readTrustRoot{raw, r})
	return r, raw, nil
}

// FollowDeploySets returns the last set of a chain that begins with first.
func FollowDeploySets(first TrustRoot, lines []byte) (TrustRoot, error) {
	c, err := newSuccession("deploy", "trust.json", first)
	if err != nil {
		return TrustRoot{}, err
	}
	sets := []api.Digest{c.digest}
	for len(lines) > 0 {
		line, rest, whole := bytes.Cut(lines, []byte("\n"))
		if !whole {
			return TrustRoot{}, fmt.Errorf("deploy keys: the record of set %d is cut off", c.number+1)
		}
		payload, _, err := Verify(line, DeploySet, c.root)
		var rec DeploySetRecord
		if err == nil {
			rec, err = ParseDeploySet(payload)
		}
		if err != nil {
			return TrustRoot{}, fmt.Errorf("deploy keys: set %d: %w", c.number+1, err)
		}
		if err := c.follow(&rec.Set, func(TrustRoot) error { return nil }); err != nil {
			return TrustRoot{}, err
		}
		sets, lines = append(sets, c.digest), rest
	}
	c.root.sets = sets
	return c.root, nil
}

// ParseDeploySet decodes the canonical payload of a record.
func ParseDeploySet(payload []byte) (r DeploySetRecord, err error) {
	if err = canon.DecodeExact(payload, &r); err == nil {
		err = canon.Format(r.V, 1)
	}
	return r, err
}

// NextDeploySet returns the payload that puts next in force after r.
func (r TrustRoot) NextDeploySet(next TrustRoot, at time.Time) ([]byte, error) {
	mark, err := r.mark()
	if err != nil {
		return nil, err
	}
	root, err := next.Encode()
	if err != nil {
		return nil, err
	}
	set := api.OperatorSet{Number: mark.Number + 1, Previous: mark.Digest, Root: bytes.TrimSuffix(root, []byte("\n"))}
	return canon.Marshal(DeploySetRecord{V: 1, At: at.UTC().Truncate(time.Second), Set: set})
}

// CoSign returns envelope, which may be empty, with further signatures of its payload.
func CoSign(ctx context.Context, t PayloadType, payload, envelope []byte, signers ...Signer) ([]byte, error) {
	signed, err := Sign(ctx, t, payload, signers...)
	if err != nil || len(envelope) == 0 {
		return signed, err
	}
	return Merge(t, signed, envelope)
}

// Merge returns one envelope with the signatures of several over the same payload.
func Merge(t PayloadType, envelopes ...[]byte) ([]byte, error) {
	all, payload := map[KeyID][]byte{}, []byte(nil)
	for i, raw := range envelopes {
		e, err := Open(raw, t)
		if err != nil {
			return nil, err
		}
		if i > 0 && !bytes.Equal(e.payload, payload) {
			return nil, errOther
		}
		payload = e.payload
		for _, s := range e.signatures {
			all[s.by] = s.raw
		}
	}
	return Assemble(t, payload, all)
}

// TrustMark is the newest set of deploy keys that its holder has seen; the zero value means
// none.
type TrustMark struct {
	First  api.Digest `json:"first,omitempty"` // of trust.json, which root changes
	Number uint64     `json:"number,omitempty"`
	Digest api.Digest `json:"digest,omitempty"`
}

func (r TrustRoot) mark() (TrustMark, error) {
	if n := len(r.sets); n > 0 {
		return TrustMark{r.sets[0], uint64(n), r.sets[n-1]}, nil
	}
	d, err := r.Digest()
	return TrustMark{d, 1, d}, err
}

// DeploySetNumber returns the number of the set in its chain; trust.json is 1.
func (r TrustRoot) DeploySetNumber() int { return max(1, len(r.sets)) }

// ErrReplacedKeys means that a newer set of deploy keys was seen.
var ErrReplacedKeys = errors.New("the set of deploy keys was replaced")

// Follow moves the mark to r, which LoadDeployKeys returned. It refuses a chain that lacks
// the set of the mark: signatures cannot detect that, since the older set was signed, too.
// A trust.json that root replaced begins a new chain.
func (m *TrustMark) Follow(r TrustRoot) error {
	next, err := r.mark()
	if err != nil {
		return err
	}
	switch {
	case m.First != next.First:
	case next.Number < m.Number:
		return fmt.Errorf("%w: set %d is older than set %d (%s), which was seen before: restore the file with the newest sets, or replace trust.json", ErrReplacedKeys, next.Number, m.Number, m.Digest.Short())
	case m.Number > 1 && r.sets[m.Number-1] != m.Digest:
		return fmt.Errorf("%w: set %d is %s, but %s was seen before", ErrReplacedKeys, m.Number, r.sets[m.Number-1].Short(), m.Digest.Short())
	}
	*m = next
	return nil
}

// AppendDeploySet puts the set of an envelope in force, and returns it.
func AppendDeploySet(d api.Dirs, envelope []byte) (TrustRoot, error) {
	first, err := LoadTrustRoot(d.TrustRoot())
	if err != nil {
		return TrustRoot{}, err
	}
	lines, err := readChain(d)
	if err != nil {
		return TrustRoot{}, err
	}
	lines = bytes.Join([][]byte{lines, envelope, []byte("\n")}, nil)
	if len(lines) > maxDeployChain {
		return TrustRoot{}, fmt.Errorf("deploy keys: their chain is larger than %d bytes: begin a new one with trust.json", maxDeployChain)
	}
	root, err := FollowDeploySets(first, lines)
	if err != nil {
		return TrustRoot{}, err
	}
	return root, durable.Replace(d.TrustChain(), lines, 0o644)
}

func readChain(d api.Dirs) ([]byte, error) {
	lines, err := readRegular(d.TrustChain(), "deploy keys", maxDeployChain, func(fs.FileInfo) error { return nil })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lines, err
}
