package bundle

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Limits bound what Read accepts. Zero values mean those of DefaultLimits.
type Limits struct {
	Memory  int64 // bytes of everything but content
	Content int64 // bytes of content, which is read and not kept
	Entries int
	Members int
	// Watch, if set, returns what sees the bytes of a content. It must not fail.
	Watch func(d api.Digest) io.Writer
}

// DefaultLimits are enough for a run of the largest plan with a few attempts of
// each task.
func DefaultLimits() Limits {
	return Limits{Memory: 1 << 30, Content: 1 << 40, Entries: 2_000_000, Members: 500_000}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	if l.Memory > 0 {
		d.Memory = l.Memory
	}
	if l.Content > 0 {
		d.Content = l.Content
	}
	if l.Entries > 0 {
		d.Entries = l.Entries
	}
	if l.Members > 0 {
		d.Members = l.Members
	}
	d.Watch = l.Watch
	return d
}

const (
	maxIndex    = 4 << 10
	maxManifest = 256 << 20
	maxCase     = 256 << 20
	maxDocument = 64 << 20 // more than any envelope
)

// Read reads a bundle. It accepts exactly what Write can write, and verifies
// nothing else.
func Read(r io.Reader, limits Limits) (*Bundle, error) {
	b, err := read(r, limits.orDefault())
	if err != nil {
		return nil, fmt.Errorf("evidence: %w", err)
	}
	return b, nil
}

func read(src io.Reader, limits Limits) (*Bundle, error) {
	r := &reader{r: src, limits: limits}
	if text, err := r.named(layoutName, int64(len(layoutText))); err != nil {
		return nil, fmt.Errorf("not an evidence file, want an OCI image layout in a tar: %w", err)
	} else if string(text) != layoutText {
		return nil, errors.New("not an OCI image layout of version 1.0.0")
	}
	index, err := r.named(indexName, maxIndex)
	if err != nil {
		return nil, err
	}
	digest, err := manifestIn(index)
	if err != nil {
		return nil, err
	}
	manifest, err := r.named(blobName(digest), maxManifest)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(index, indexOf(api.DigestOf(manifest), int64(len(manifest)))) {
		return nil, errors.New("index.json does not match the manifest")
	}
	d, config, err := r.blob(maxCase)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Documents: map[api.Digest][]byte{}}
	if b.Case, err = decodeCase(config); err != nil {
		return nil, err
	}
	b.Content = b.Case.Content
	layers, err := r.rest(b)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(manifest, manifestOf(part{caseType, d, int64(len(config))}, layers)) {
		return nil, errors.New("the manifest does not match the blobs")
	}
	return b, r.end()
}

// manifestIn returns the digest of the manifest that an index names. The rest of
// the index is compared with the manifest later.
func manifestIn(index []byte) (api.Digest, error) {
	var parsed struct {
		Manifests []struct {
			ArtifactType string     `json:"artifactType"`
			Digest       api.Digest `json:"digest"`
			MediaType    string     `json:"mediaType"`
			Size         int64      `json:"size"`
		} `json:"manifests"`
		MediaType     string `json:"mediaType"`
		SchemaVersion int    `json:"schemaVersion"`
	}
	if err := canon.DecodeExact(index, &parsed); err != nil {
		return "", fmt.Errorf("index.json: %w", err)
	}
	if len(parsed.Manifests) != 1 {
		return "", fmt.Errorf("index.json: %d manifests, want one", len(parsed.Manifests))
	}
	if format, ours := strings.CutPrefix(parsed.Manifests[0].ArtifactType, artifactFormat); ours && format != "1" {
		return "", fmt.Errorf("evidence of format %.20q, want 1: %w", format, canon.ErrNewer)
	}
	return api.ParseDigest(string(parsed.Manifests[0].Digest))
}

// rest reads what follows the config, and returns its descriptors.
func (r *reader) rest(b *Bundle) ([]part, error) {
	entries, err := r.named(blobName(b.Case.Entries), r.limits.Memory)
	if err != nil {
		return nil, err
	}
	proof, err := r.named(blobName(b.Case.Proof), r.limits.Memory)
	if err != nil {
		return nil, err
	}
	if api.DigestOf(entries) != b.Case.Entries || api.DigestOf(proof) != b.Case.Proof {
		return nil, errors.New("entries or proof do not match their digests")
	}
	if b.Entries, err = parseEntries(entries, r.limits.Entries); err != nil {
		return nil, err
	}
	if b.Proof, err = ParseHashes(proof); err != nil {
		return nil, fmt.Errorf("proof: %w", err)
	}
	sizes := make(map[api.Digest]int64, len(b.Content))
	for _, c := range b.Content {
		sizes[c.Digest] = c.Size
	}
	for last := api.Digest(""); ; {
		name, size, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		d, err := digestIn(name)
		if err != nil {
			return nil, err
		}
		if d <= last || d == b.Case.Entries || d == b.Case.Proof {
			return nil, fmt.Errorf("blob %s is out of order or a duplicate", d.Short())
		}
		last = d
		if want, ok := sizes[d]; ok {
			if err := r.content(d, size, want); err != nil {
				return nil, err
			}
			delete(sizes, d)
			continue
		}
		if b.Documents[d], err = r.body(d, size, maxDocument); err != nil {
			return nil, err
		}
	}
	if len(sizes) > 0 {
		return nil, errors.New("content is missing")
	}
	return parts(part{entriesType, b.Case.Entries, int64(len(entries))}, part{proofType, b.Case.Proof, int64(len(proof))}, b.Documents, b.Content), nil
}

// reader reads a tar, member by member.
type reader struct {
	r       io.Reader
	limits  Limits
	members int
	memory  int64
	read    int64 // of content
	last    bool  // the final block of zeroes was read
}

// next reads a header. It returns io.EOF at the end of the archive.
func (r *reader) next() (string, int64, error) {
	var block [blockSize]byte
	if _, err := io.ReadFull(r.r, block[:]); err != nil {
		return "", 0, fmt.Errorf("tar: %w", noEOF(err))
	}
	if block == ([blockSize]byte{}) {
		r.last = true
		return "", 0, io.EOF
	}
	if r.members++; r.members > r.limits.Members {
		return "", 0, fmt.Errorf("more than %d members", r.limits.Members)
	}
	name, _, _ := strings.Cut(string(block[:100]), "\x00")
	size, err := strconv.ParseInt(strings.TrimRight(string(block[124:136]), "\x00 "), 8, 64)
	if err != nil || size < 0 || name == "" {
		return "", 0, errors.New("tar: unexpected header")
	}
	want, err := header(name, size)
	if err != nil || !bytes.Equal(want, block[:]) {
		return "", 0, fmt.Errorf("tar: unexpected header of %.120q", name)
	}
	return name, size, nil
}

// take reads a member with its padding.
func (r *reader) take(size, most int64) ([]byte, error) {
	if size > most || size > r.limits.Memory-r.memory {
		return nil, fmt.Errorf("a member of %d bytes is too large", size)
	}
	r.memory += size
	if size <= 1<<20 {
		b := make([]byte, size)
		if _, err := io.ReadFull(r.r, b); err != nil {
			return nil, fmt.Errorf("tar: %w", noEOF(err))
		}
		return b, r.fill(size)
	}
	var b bytes.Buffer // grows with the data, whatever the header claims
	b.Grow(1 << 20)
	if _, err := io.CopyN(&b, r.r, size); err != nil {
		return nil, fmt.Errorf("tar: %w", noEOF(err))
	}
	return b.Bytes(), r.fill(size)
}

func (r *reader) fill(size int64) error {
	var rest [blockSize]byte
	n := padding(size)
	if _, err := io.ReadFull(r.r, rest[:n]); err != nil {
		return fmt.Errorf("tar: %w", noEOF(err))
	}
	if rest != ([blockSize]byte{}) {
		return errors.New("tar: padding is not zero")
	}
	return nil
}

// named reads the next member, whose name must be want.
func (r *reader) named(want string, most int64) ([]byte, error) {
	name, size, err := r.next()
	if err != nil {
		return nil, noEOF(err)
	}
	if name != want {
		return nil, fmt.Errorf("member %.120q, want %s", name, want)
	}
	b, err := r.take(size, most)
	if d, bad := digestIn(name); err == nil && bad == nil && api.DigestOf(b) != d {
		err = fmt.Errorf("blob %s does not match its digest", d.Short())
	}
	return b, err
}

// blob reads the next member, whatever its digest.
func (r *reader) blob(most int64) (api.Digest, []byte, error) {
	name, size, err := r.next()
	if err != nil {
		return "", nil, noEOF(err)
	}
	d, err := digestIn(name)
	if err != nil {
		return "", nil, err
	}
	b, err := r.body(d, size, most)
	return d, b, err
}

func (r *reader) body(d api.Digest, size, most int64) ([]byte, error) {
	b, err := r.take(size, most)
	if err == nil && api.DigestOf(b) != d {
		err = fmt.Errorf("blob %s does not match its digest", d.Short())
	}
	return b, err
}

// content verifies a blob without keeping it.
func (r *reader) content(d api.Digest, size, want int64) error {
	if size != want || size > r.limits.Content-r.read {
		return fmt.Errorf("content %s has %d bytes, want %d", d.Short(), size, want)
	}
	r.read += size
	sum := sha256.New()
	to := io.Writer(sum)
	if r.limits.Watch != nil {
		to = io.MultiWriter(sum, r.limits.Watch(d))
	}
	if _, err := io.CopyN(to, r.r, size); err != nil {
		return fmt.Errorf("tar: %w", noEOF(err))
	}
	if api.Digest(fmt.Sprintf("sha256:%x", sum.Sum(nil))) != d {
		return fmt.Errorf("content %s does not match its digest", d.Short())
	}
	return r.fill(size)
}

func digestIn(name string) (api.Digest, error) {
	hex, ok := strings.CutPrefix(name, "blobs/sha256/")
	if !ok {
		return "", fmt.Errorf("%.120q is not a blob", name)
	}
	return api.ParseDigest("sha256:" + hex)
}

// end refuses data after the two blocks of zeroes.
func (r *reader) end() error {
	var block [blockSize + 1]byte
	n, err := io.ReadFull(r.r, block[:])
	if !r.last || n != blockSize || !errors.Is(err, io.ErrUnexpectedEOF) || block != ([blockSize + 1]byte{}) {
		return errors.New("tar: invalid end")
	}
	return nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
