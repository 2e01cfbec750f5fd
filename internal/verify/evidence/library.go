package evidence

import (
	"fmt"
	"sync"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/report"
)

// reader names what a document is read for: a revision by its digest, an operator
// record by its number, anything else by its entry.
type reader struct {
	row    report.RowName
	digest api.Digest
	n      uint64
}

func (r reader) String() string {
	switch r.row { //nolint:exhaustive // the others are entries
	case report.RowCatalog:
		return "catalog revision " + r.digest.Short()
	case report.RowAuthorisation:
		return fmt.Sprintf("operator record %d", r.n)
	}
	return fmt.Sprintf("entry #%d", r.n)
}

// library is the documents of a bundle. Each manifest, result, statement, plan, operator
// record and envelope belongs to one reader: it has the id of what it is about. So each is
// decoded once, and its signatures are verified once, however often it is named.
type library struct {
	documents map[api.Digest][]byte
	work      *meter
	readers   map[api.Digest]reader // of the documents that only one may read: see assign
	used      sync.Map              // digests of the documents and content that something names
	blobs     sync.Map              // digests of the content among used
}

// assign gives every document to the first that names it as its own. Artifacts of the
// catalog are shared.
func (l *library) assign(b *bundle.Bundle, entries []entry) {
	_ = l.work.spend(unitDocument * len(l.documents)) // verify stops after this if it is too much
	l.readers = map[api.Digest]reader{}
	give := func(d api.Digest, r reader) {
		if _, taken := l.readers[d]; !taken && d != "" {
			l.readers[d] = r
		}
	}
	for _, r := range b.Case.Revisions {
		for _, d := range r.Envelopes {
			give(d, reader{report.RowCatalog, r.Digest, 0})
		}
	}
	for i, d := range b.Case.Records {
		give(d, reader{report.RowAuthorisation, "", uint64(i + 1)}) //nolint:gosec // G115: an index
	}
	for i := range entries {
		if e := &entries[i]; e.ok {
			for _, ref := range ownRefs(e.Kind) {
				give(e.Refs[ref], e.reader())
			}
		}
	}
}

// ownRefs are the refs of documents that entries of a kind introduce.
func ownRefs(k record.Kind) []string {
	switch {
	case k == record.KindRunSubmitted:
		return []string{record.RefPlan}
	case k == record.KindRunGrown || k == record.KindRunAppended:
		return nil // a retry grows by the documents of the earlier run
	case k == record.KindDispatchAttested:
		return []string{record.RefStatement}
	case k == record.KindApprovalRequest:
		return []string{record.RefAction}
	case k == record.KindToolCalled:
		return nil
	case k.Admits():
		return []string{record.RefManifest}
	}
	return []string{record.RefResult}
}

func (e *entry) reader() reader { return reader{"", "", e.seq} }

// load returns a document that r alone may read, and charges its decoding.
func (l *library) load(d api.Digest, what string, r reader) ([]byte, error) {
	doc, err := l.document(d, what)
	if err != nil {
		return nil, err
	}
	if owner := l.readers[d]; owner != r {
		return nil, fmt.Errorf("%s %s belongs to %s", what, d.Short(), owner)
	}
	return doc, l.work.decode(doc)
}

// envelope opens an envelope that r alone may read. The caller verifies it.
func (l *library) envelope(d api.Digest, what string, t seal.PayloadType, r reader) (*seal.Envelope, error) {
	doc, err := l.load(d, what, r)
	if err != nil {
		return nil, err
	}
	e, err := seal.Open(doc, t)
	if err != nil {
		return nil, err
	}
	return e, l.work.spend(e.Signatures() * (unitSignature + len(e.Payload())/signedPerUnit))
}

// exact is canon.DecodeExact. It charges the decoding.
func (l *library) exact(doc []byte, into any) error {
	if err := l.work.decode(doc); err != nil {
		return err
	}
	err := canon.DecodeExact(doc, into)
	if err != nil {
		_ = l.work.spend(len(doc)) // what it takes to say why
	}
	return err
}

// document returns a document of the bundle and marks it as named.
func (l *library) document(d api.Digest, what string) ([]byte, error) {
	doc, ok := l.documents[d]
	if !ok {
		return nil, fmt.Errorf("%s %s is not in the bundle", what, d.Short())
	}
	l.used.Store(d, nil)
	return doc, nil
}

// nameContent marks the content of a result as named.
func (l *library) nameContent(sum *api.ResultSummary) {
	for _, d := range record.ContentOf(sum) {
		l.nameBlob(d)
	}
}

// nameBlob marks content as named.
func (l *library) nameBlob(d api.Digest) {
	l.used.Store(d, nil)
	l.blobs.Store(d, nil)
}
