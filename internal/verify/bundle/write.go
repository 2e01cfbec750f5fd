package bundle

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Write writes b as one file. It fills in what the case says about entries, proof
// and content.
func Write(w io.Writer, b *Bundle) error {
	c := b.Case
	entries, err := appendEntries(nil, b.Entries)
	if err != nil {
		return err
	}
	proof := appendHashes([]byte{}, b.Proof)
	c.V, c.Entries, c.Proof, c.Content = 1, api.DigestOf(entries), api.DigestOf(proof), []Content{}
	taken := map[api.Digest]bool{c.Entries: true, c.Proof: true}
	documents := map[api.Digest][]byte{}
	for d, doc := range b.Documents {
		if api.DigestOf(doc) != d {
			return fmt.Errorf("evidence: document %s does not match its digest", d.Short())
		}
		if !taken[d] {
			documents[d] = doc
		}
		taken[d] = true
	}
	for _, item := range b.Content {
		if !taken[item.Digest] {
			c.Content = append(c.Content, item)
		}
		taken[item.Digest] = true
	}
	slices.SortFunc(c.Content, func(x, y Content) int { return bytes.Compare([]byte(x.Digest), []byte(y.Digest)) })
	if err := c.check(); err != nil {
		return fmt.Errorf("evidence: case: %w", err)
	}
	config, err := canon.Marshal(c)
	if err != nil {
		return err
	}
	return pack(w, config, part{entriesType, c.Entries, int64(len(entries))}, part{proofType, c.Proof, int64(len(proof))}, entries, proof, documents, c.Content)
}

// pack writes the members in order.
func pack(w io.Writer, config []byte, entriesPart, proofPart part, entries, proof []byte, documents map[api.Digest][]byte, content []Content) error {
	layers := parts(entriesPart, proofPart, documents, content)
	manifest := manifestOf(part{caseType, api.DigestOf(config), int64(len(config))}, layers)
	out := writer{w: w}
	out.member(layoutName, []byte(layoutText))
	out.member(indexName, indexOf(api.DigestOf(manifest), int64(len(manifest))))
	out.member(blobName(api.DigestOf(manifest)), manifest)
	out.member(blobName(api.DigestOf(config)), config)
	out.member(blobName(entriesPart.digest), entries)
	out.member(blobName(proofPart.digest), proof)
	next := 0
	for _, l := range layers[2:] {
		if l.mediaType == documentType {
			out.member(blobName(l.digest), documents[l.digest])
			continue
		}
		out.stream(content[next])
		next++
	}
	out.write(make([]byte, 2*blockSize))
	return out.err
}

const blockSize = 512

// header is the tar header of a member.
func header(name string, size int64) ([]byte, error) {
	var b bytes.Buffer
	err := tar.NewWriter(&b).WriteHeader(&tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)})
	if err == nil && b.Len() != blockSize {
		err = errors.New("not one block")
	}
	return b.Bytes(), err
}

// padding is how many bytes fill the last block of a member.
func padding(size int64) int64 { return -size & (blockSize - 1) }

// writer writes members and keeps the first error.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}

func (w *writer) begin(name string, size int64) {
	h, err := header(name, size)
	if w.err == nil {
		w.err = err
	}
	w.write(h)
}

func (w *writer) member(name string, b []byte) {
	w.begin(name, int64(len(b)))
	w.write(b)
	w.write(make([]byte, padding(int64(len(b)))))
}

// stream writes content, and fails if it does not match its digest.
func (w *writer) stream(c Content) {
	w.begin(blobName(c.Digest), c.Size)
	if w.err != nil {
		return
	}
	r, err := c.Open()
	if err != nil {
		w.err = err
		return
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w.w, sum), io.LimitReader(r, c.Size+1))
	if err == nil && (n != c.Size || api.Digest(fmt.Sprintf("sha256:%x", sum.Sum(nil))) != c.Digest) {
		err = fmt.Errorf("evidence: content %s does not match its digest", c.Digest.Short())
	}
	w.err = errors.Join(err, r.Close())
	w.write(make([]byte, padding(c.Size)))
}
