package evidence

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"time"

	"github.com/digitorus/timestamp"

	"github.com/bailiwick-dev/bailiwick/internal/verify/bundle"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// authority is a time-stamp authority in memory. A third-party library makes its
// tokens.
type authority struct {
	key  crypto.Signer
	cert *x509.Certificate
}

// authority returns the authority of a story, whose trust file lists it from then on.
func (s *story) authority() *authority {
	if s.tsa != nil {
		return s.tsa
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
	s.must(err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: s.at.AddDate(-1, 0, 0), NotAfter: s.at.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	s.must(err)
	cert, err := x509.ParseCertificate(der)
	s.must(err)
	s.tsa = &authority{key, cert}
	return s.tsa
}

func (a *authority) root() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// stamped adds a checkpoint with a time-stamp of that time.
func (s *story) stamped(b *bundle.Bundle, size int, at time.Time) {
	signed := s.signCheckpoint(s.service, size)
	request, _, err := receipt.Ask(signed)
	s.must(err)
	req, err := timestamp.ParseRequest(request)
	s.must(err)
	a := s.authority()
	ts := &timestamp.Timestamp{
		HashAlgorithm: req.HashAlgorithm, HashedMessage: req.HashedMessage, Time: at, Accuracy: time.Second, Nonce: req.Nonce, Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: true,
	}
	answer, err := ts.CreateResponseWithOpts(a.cert, a.key, crypto.SHA256)
	s.must(err)
	resp, err := timestamp.ParseResponse(answer)
	s.must(err)
	s.received(b, receipt.Receipt{Name: "time", Kind: receipt.TSA, Place: "https://tsa.example", Signed: signed, TSA: &receipt.Token{Token: resp.RawToken}}, size)
}

// received adds a checkpoint with a receipt of it.
func (s *story) received(b *bundle.Bundle, r receipt.Receipt, size int) {
	r.V, r.At = 1, s.at.UTC()
	raw, err := r.Encode()
	s.must(err)
	b.Case.Anchored = append(b.Case.Anchored, bundle.Anchored{
		Checkpoint: r.Signed, Proof: bundle.Hashes(consistency(s.t, s.hashes(), size, len(s.leaves))), Name: r.Name, Kind: string(r.Kind), Receipt: raw,
	})
}
