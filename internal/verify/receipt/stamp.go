package receipt

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// ErrForeign means that a token may be genuine, but no trusted root covers its
// authority.
var ErrForeign = errors.New("authority not trusted")

// Stamp is a verified time-stamp.
type Stamp struct {
	Time     time.Time     // by which the checkpoint existed, in UTC
	Accuracy time.Duration // possible error of Time; 0 if unknown
	By       string        // the authority, by its certificate's subject
	Serial   *big.Int      // of the stamp
	nonce    *big.Int
}

type tstInfo struct {
	Version    int
	Policy     asn1.ObjectIdentifier
	Imprint    imprint
	Serial     *big.Int
	Time       time.Time        `asn1:"generalized"`
	Accuracy   accuracy         `asn1:"optional"`
	Ordering   bool             `asn1:"optional"`
	Nonce      *big.Int         `asn1:"optional"`
	Authority  asn1.RawValue    `asn1:"tag:0,optional"`
	Extensions []pkix.Extension `asn1:"tag:1,optional"`
}

type imprint struct {
	Algorithm pkix.AlgorithmIdentifier
	Digest    []byte
}

type accuracy struct {
	Seconds int64 `asn1:"optional"`
	Millis  int64 `asn1:"tag:0,optional"`
	Micros  int64 `asn1:"tag:1,optional"`
}

// Stamp verifies the token of a receipt of kind TSA: that it covers the signed
// checkpoint, and that the authority's certificate was valid at that time under one
// of roots. The certificate may have expired since.
func (r Receipt) Stamp(roots []*x509.Certificate) (Stamp, error) {
	if r.Kind != TSA || r.TSA == nil {
		return Stamp{}, fmt.Errorf("receipt of %s: kind %s proves no time", r.Name, r.Kind)
	}
	s, err := VerifyToken(r.TSA.Token, r.Signed, roots)
	if err != nil {
		return Stamp{}, fmt.Errorf("receipt of %s: time-stamp: %w", r.Name, err)
	}
	return s, nil
}

// VerifyToken verifies a TimeStampToken in DER over message.
func VerifyToken(token, message []byte, roots []*x509.Certificate) (Stamp, error) {
	if len(token) > maxToken {
		return Stamp{}, fmt.Errorf("larger than %d bytes", maxToken)
	}
	content, leaf, all, err := openCMS(token)
	if err != nil {
		return Stamp{}, err
	}
	var info tstInfo
	if err := exactly(content, &info); err != nil {
		return Stamp{}, fmt.Errorf("content: %w", err)
	}
	if info.Version != 1 {
		return Stamp{}, fmt.Errorf("content of version %d, want 1", info.Version)
	}
	if h, err := hashOf(info.Imprint.Algorithm.Algorithm); err != nil {
		return Stamp{}, err
	} else if string(info.Imprint.Digest) != string(sum(h, message)) {
		return Stamp{}, errors.New("covers another message")
	}
	for _, e := range info.Extensions {
		if e.Critical {
			return Stamp{}, fmt.Errorf("unknown critical extension %s", e.Id)
		}
	}
	if err := chain(leaf, all, roots, info.Time); err != nil {
		return Stamp{}, err
	}
	a := info.Accuracy
	if a.Seconds < 0 || a.Seconds > 1<<32 || a.Millis < 0 || a.Millis > 999 || a.Micros < 0 || a.Micros > 999 {
		return Stamp{}, errors.New("invalid accuracy")
	}
	return Stamp{
		Time: info.Time.UTC(), By: leaf.Subject.String(), Serial: info.Serial, nonce: info.Nonce,
		Accuracy: time.Duration(a.Seconds)*time.Second + time.Duration(a.Millis)*time.Millisecond + time.Duration(a.Micros)*time.Microsecond,
	}, nil
}

// chain verifies that leaf is a certificate for time-stamping only, valid at that
// time under one of roots.
func chain(leaf *x509.Certificate, all, roots []*x509.Certificate, at time.Time) error {
	if len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageTimeStamping || len(leaf.UnknownExtKeyUsage) > 0 {
		return errors.New("the signer's certificate is not for time-stamping only")
	}
	usage := asn1.ObjectIdentifier{2, 5, 29, 37}
	if i := slices.IndexFunc(leaf.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(usage) }); i < 0 || !leaf.Extensions[i].Critical {
		return errors.New("the signer's certificate does not have critical extended key usage time-stamping")
	}
	trusted, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range roots {
		trusted.AddCert(c)
	}
	for _, c := range all {
		between.AddCert(c)
	}
	if len(roots) == 0 {
		return ErrForeign
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}

// Asked is a request sent to a time-stamp authority.
type Asked struct {
	message []byte
	nonce   *big.Int
}

type timeStampReq struct {
	Version int
	Imprint imprint
	Nonce   *big.Int
	CertReq bool
}

// Ask returns a request for a stamp over message in DER, and what verifies the
// answer.
func Ask(message []byte) (request []byte, asked Asked, err error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	random[0] |= 1              // fixed length
	digest := sha256.Sum256(message)
	asked = Asked{message: slices.Clone(message), nonce: new(big.Int).SetBytes(random[:])}
	request, err = asn1.Marshal(timeStampReq{
		Version: 1, Nonce: asked.nonce, CertReq: true,
		Imprint: imprint{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, Parameters: asn1.NullRawValue}, digest[:]},
	})
	return request, asked, err
}

type timeStampResp struct {
	Status struct {
		Status int
		Text   []asn1.RawValue `asn1:"optional"`
		Fail   asn1.BitString  `asn1:"optional"`
	}
	Token asn1.RawValue `asn1:"optional"`
}

// Answer returns the token of an answer to a after verifying it.
func (a Asked) Answer(answer []byte, roots []*x509.Certificate) ([]byte, Stamp, error) {
	var resp timeStampResp
	if len(answer) > MaxAnswer {
		return nil, Stamp{}, fmt.Errorf("answer: larger than %d bytes", MaxAnswer)
	}
	if err := exactly(answer, &resp); err != nil {
		return nil, Stamp{}, fmt.Errorf("answer: %w", err)
	}
	if resp.Status.Status != 0 {
		return nil, Stamp{}, fmt.Errorf("answer: status %d, request not granted", resp.Status.Status)
	}
	s, err := VerifyToken(resp.Token.FullBytes, a.message, roots)
	switch {
	case err != nil:
		return nil, Stamp{}, fmt.Errorf("time-stamp: %w", err)
	case s.nonce == nil || s.nonce.Cmp(a.nonce) != 0:
		return nil, Stamp{}, errors.New("time-stamp: answers another request")
	}
	return resp.Token.FullBytes, s, nil
}
