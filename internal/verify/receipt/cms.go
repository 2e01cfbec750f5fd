package receipt

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	_ "crypto/sha1" //nolint:gosec // G505: what names a certificate in the older of two attributes; see signedBy
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
)

// A TimeStampToken is a CMS SignedData (RFC 5652) over a TSTInfo (RFC 3161). This
// file reads strict DER and the few algorithms that authorities use. Libraries for
// it accept BER, SHA-1 and DSA, and ignore the content type.

type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,tag:0"`
}

type signedData struct {
	Version      int
	Digests      []pkix.AlgorithmIdentifier `asn1:"set"`
	Content      contentInfo
	Certificates asn1.RawValue `asn1:"optional,tag:0"`
	CRLs         asn1.RawValue `asn1:"optional,tag:1"`
	Signers      []signerInfo  `asn1:"set"`
}

type signerInfo struct {
	Version   int
	Who       issuerAndSerial
	Digest    pkix.AlgorithmIdentifier
	Signed    asn1.RawValue `asn1:"optional,tag:0"`
	Algorithm pkix.AlgorithmIdentifier
	Signature []byte
	Unsigned  asn1.RawValue `asn1:"optional,tag:1"`
}

type issuerAndSerial struct {
	Issuer asn1.RawValue
	Serial *big.Int
}

type attribute struct {
	Type   asn1.ObjectIdentifier
	Values asn1.RawValue `asn1:"set"`
}

type essCertIDv2 struct {
	Algorithm pkix.AlgorithmIdentifier `asn1:"optional"` // absent: SHA-256
	Hash      []byte
	Issuer    asn1.RawValue `asn1:"optional"`
}

func oidSignedData() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2} }

func oidTSTInfo() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
}

func oidContentType() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3} }

func oidMessageDigest() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
}

func oidSigningCert() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 12}
}

func oidSigningCertV2() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
}

// hashOf returns the hash that an OID names, if it is one of SHA-2.
func hashOf(oid asn1.ObjectIdentifier) (crypto.Hash, error) {
	switch oid.String() {
	case "2.16.840.1.101.3.4.2.1":
		return crypto.SHA256, nil
	case "2.16.840.1.101.3.4.2.2":
		return crypto.SHA384, nil
	case "2.16.840.1.101.3.4.2.3":
		return crypto.SHA512, nil
	}
	return 0, fmt.Errorf("hash %s, want SHA-256, SHA-384 or SHA-512", oid)
}

func sum(h crypto.Hash, b []byte) []byte {
	w := h.New()
	w.Write(b)
	return w.Sum(nil)
}

// schemeOf returns the signature algorithm for the OID that the signer names and
// the hash of the attributes.
func schemeOf(oid asn1.ObjectIdentifier, h crypto.Hash) (x509.SignatureAlgorithm, error) {
	type pair struct {
		oid  string
		hash crypto.Hash
	}
	scheme, ok := map[pair]x509.SignatureAlgorithm{
		{"1.2.840.113549.1.1.1", crypto.SHA256}:  x509.SHA256WithRSA,
		{"1.2.840.113549.1.1.1", crypto.SHA384}:  x509.SHA384WithRSA,
		{"1.2.840.113549.1.1.1", crypto.SHA512}:  x509.SHA512WithRSA,
		{"1.2.840.113549.1.1.11", crypto.SHA256}: x509.SHA256WithRSA,
		{"1.2.840.113549.1.1.12", crypto.SHA384}: x509.SHA384WithRSA,
		{"1.2.840.113549.1.1.13", crypto.SHA512}: x509.SHA512WithRSA,
		{"1.2.840.10045.4.3.2", crypto.SHA256}:   x509.ECDSAWithSHA256,
		{"1.2.840.10045.4.3.3", crypto.SHA384}:   x509.ECDSAWithSHA384,
		{"1.2.840.10045.4.3.4", crypto.SHA512}:   x509.ECDSAWithSHA512,
		{"1.3.101.112", crypto.SHA512}:           x509.PureEd25519,
	}[pair{oid.String(), h}]
	if !ok {
		return 0, fmt.Errorf("unknown signature algorithm %s with %s", oid, h)
	}
	return scheme, nil
}

// exactly decodes one DER value and refuses data after it.
func exactly(b []byte, v any) error {
	rest, err := asn1.Unmarshal(b, v)
	if err == nil && len(rest) > 0 {
		err = errors.New("trailing data")
	}
	return err
}

// openCMS verifies the signature of a token with the certificate that it names, and
// returns its TSTInfo and certificates. The caller decides whether to trust them.
func openCMS(token []byte) (content []byte, leaf *x509.Certificate, all []*x509.Certificate, err error) {
	var outer contentInfo
	if err := exactly(token, &outer); err != nil || !outer.Type.Equal(oidSignedData()) {
		return nil, nil, nil, errors.Join(errors.New("not signed data in DER"), err)
	}
	var sd signedData
	if err := exactly(outer.Content.Bytes, &sd); err != nil {
		return nil, nil, nil, fmt.Errorf("signed data: %w", err)
	}
	if !sd.Content.Type.Equal(oidTSTInfo()) {
		return nil, nil, nil, fmt.Errorf("contains %s, want a time-stamp", sd.Content.Type)
	}
	if err := exactly(sd.Content.Content.Bytes, &content); err != nil {
		return nil, nil, nil, fmt.Errorf("content: %w", err)
	}
	if len(sd.Signers) != 1 {
		return nil, nil, nil, fmt.Errorf("%d signers, want 1", len(sd.Signers))
	}
	if all, err = x509.ParseCertificates(sd.Certificates.Bytes); err != nil {
		return nil, nil, nil, fmt.Errorf("certificates: %w", err)
	}
	if err := affordable(all); err != nil {
		return nil, nil, nil, fmt.Errorf("certificates: %w", err)
	}
	signer := sd.Signers[0]
	for _, c := range all {
		if signer.Who.Serial != nil && c.SerialNumber.Cmp(signer.Who.Serial) == 0 && bytes.Equal(c.RawIssuer, signer.Who.Issuer.FullBytes) {
			leaf = c
			break
		}
	}
	if leaf == nil {
		return nil, nil, nil, errors.New("no certificate of the signer")
	}
	return content, leaf, all, signer.verify(content, leaf)
}

// Real tokens have two to four certificates with keys of up to 4096 bits. More could
// be combined to very many chains, each with signatures that are slow to verify.
const (
	maxCertificates = 8
	maxNamesakes    = 2 // certificates of one subject: a root and its cross-certificate
	maxKeyBits      = 4096
)

// affordable refuses certificates that take too long to verify.
func affordable(all []*x509.Certificate) error {
	if len(all) > maxCertificates {
		return fmt.Errorf("%d, want at most %d", len(all), maxCertificates)
	}
	subjects := map[string]int{}
	for _, c := range all {
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxKeyBits {
			return fmt.Errorf("an RSA key of %d bits, want at most %d", key.N.BitLen(), maxKeyBits)
		}
		if subjects[string(c.RawSubject)]++; subjects[string(c.RawSubject)] > maxNamesakes {
			return fmt.Errorf("more than %d certificates with one subject", maxNamesakes)
		}
	}
	return nil
}

// verify checks that leaf's key signed the attributes, and that they are about
// content and leaf.
func (s signerInfo) verify(content []byte, leaf *x509.Certificate) error {
	h, err := hashOf(s.Digest.Algorithm)
	if err != nil {
		return err
	}
	scheme, err := schemeOf(s.Algorithm.Algorithm, h)
	if err != nil {
		return err
	}
	if len(s.Signed.FullBytes) == 0 {
		return errors.New("no signed attributes")
	}
	// The signature covers the attributes with the tag of a set.
	set := append([]byte{asn1.TagSet | 0x20}, s.Signed.FullBytes[1:]...)
	if err := leaf.CheckSignature(scheme, set, s.Signature); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	var list []attribute
	if rest, err := asn1.UnmarshalWithParams(set, &list, "set"); err != nil || len(rest) > 0 {
		return errors.Join(errors.New("signed attributes"), err)
	}
	var kind asn1.ObjectIdentifier
	var digest []byte
	if err := errors.Join(one(list, oidContentType(), &kind), one(list, oidMessageDigest(), &digest)); err != nil {
		return err
	}
	if !kind.Equal(oidTSTInfo()) {
		return fmt.Errorf("signed as %s", kind)
	}
	if !bytes.Equal(digest, sum(h, content)) {
		return errors.New("signature covers other content")
	}
	return signedBy(list, leaf)
}

// one decodes the only value of the only attribute of a type.
func one(list []attribute, oid asn1.ObjectIdentifier, v any) error {
	found := 0
	for _, a := range list {
		if !a.Type.Equal(oid) {
			continue
		}
		found++
		if err := exactly(a.Values.Bytes, v); err != nil {
			return fmt.Errorf("attribute %s: %w", oid, err)
		}
	}
	if found != 1 {
		return fmt.Errorf("%d attributes %s, want 1", found, oid)
	}
	return nil
}

// signedBy checks that the signer named this certificate (RFC 2634, RFC 5816), so
// that another of the same key cannot replace it. The older attribute uses SHA-1,
// which is enough: an attack needs a second preimage. Half of the public authorities
// use it.
func signedBy(list []attribute, leaf *x509.Certificate) error {
	var newer struct {
		Certs    []essCertIDv2
		Policies asn1.RawValue `asn1:"optional"`
	}
	if one(list, oidSigningCertV2(), &newer) == nil {
		if len(newer.Certs) == 0 {
			return errors.New("names no certificate")
		}
		h := crypto.SHA256
		if a := newer.Certs[0].Algorithm.Algorithm; len(a) > 0 {
			var err error
			if h, err = hashOf(a); err != nil {
				return err
			}
		}
		if !bytes.Equal(newer.Certs[0].Hash, sum(h, leaf.Raw)) {
			return errors.New("signed under another certificate")
		}
		return nil
	}
	var older struct {
		Certs []struct {
			Hash   []byte
			Issuer asn1.RawValue `asn1:"optional"`
		}
		Policies asn1.RawValue `asn1:"optional"`
	}
	if err := one(list, oidSigningCert(), &older); err != nil {
		return fmt.Errorf("does not name the signing certificate: %w", err)
	}
	if len(older.Certs) == 0 || !bytes.Equal(older.Certs[0].Hash, sum(crypto.SHA1, leaf.Raw)) {
		return errors.New("signed under another certificate")
	}
	return nil
}
