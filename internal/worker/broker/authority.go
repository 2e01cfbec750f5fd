package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"
)

// authorityTime is how long certificates are valid: longer than any attempt.
const authorityTime = 30 * 24 * time.Hour

// authority is the CA of one attempt. It exists in memory only and can certify only
// the hosts of its brokered secrets.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by host
}

func newAuthority(hosts []target, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := certificate("Bailiwick dispatch", now)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	t.PermittedDNSDomainsCritical = true
	for _, h := range hosts {
		if a, err := netip.ParseAddr(h.host); err == nil {
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())})
		} else {
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, h.host)
		}
	}
	a := &authority{key: key, leaves: map[string]*tls.Certificate{}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("broker: the attempt's CA: %w", err)
	}
	return a, nil
}

// certificate returns the template of a certificate.
func certificate(name string, now time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(authorityTime),
	}
}

// pem returns the CA's certificate.
func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// leaf returns the certificate for a host of the CA.
func (a *authority) leaf(t target) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[t.host]; c != nil {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c := certificate("", a.cert.NotBefore.Add(time.Hour))
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip, err := netip.ParseAddr(t.host); err == nil {
		c.IPAddresses = []net.IP{ip.AsSlice()}
	} else {
		c.DNSNames = []string{t.host}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
	a.leaves[t.host] = leaf
	return leaf, nil
}
