package httpguard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCertificate writes a certificate with a serial number, and its key.
func writeCertificate(t *testing.T, dir string, serial int64) CertificateFiles {
	t.Helper()
	return writeCertificateFor(t, dir, serial, "a.example", time.Now().Add(time.Hour))
}

func writeCertificateFor(t *testing.T, dir string, serial int64, host string, until time.Time) CertificateFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "a"}, NotAfter: until, DNSNames: []string{host}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	f := CertificateFiles{Certificate: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CertificateName: "--cert", KeyName: "--key"}
	if err := errors.Join(
		os.WriteFile(f.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600),
		os.Chtimes(f.Key, time.Time{}, time.Unix(serial, 0)),
	); err != nil {
		t.Fatal(err)
	}
	return f
}

// serialOf returns the serial number of the certificate that a handshake shows; 0 if the
// server refuses it.
func serialOf(t *testing.T, c *Certificate) int64 {
	t.Helper()
	client, server := net.Pipe()
	defer client.Close()
	go func() { _ = tls.Server(server, c.Config()).Handshake() }()
	conn := tls.Client(client, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: the test looks at the certificate
	if err := conn.Handshake(); err != nil {
		return 0
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// A renewed certificate is used without a restart. Files that are invalid, vanish or are
// readable by everyone are reported once each, and the certificate before them stays.
func TestACertificateIsReadAgainWhenItChanges(t *testing.T) {
	dir, now, reports := t.TempDir(), time.Unix(1000, 0), []string(nil)
	f := writeCertificate(t, dir, 1)
	f.Host = "a.example"
	c, err := LoadCertificate(f, func() time.Time { return now }, func(err error) { reports = append(reports, err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	want := func(name string, serial int64, report string) {
		t.Helper()
		for range 2 {
			now = now.Add(certificateCheck)
			if got := serialOf(t, c); got != serial {
				t.Errorf("%s: certificate %d, want %d", name, got, serial)
			}
		}
		if got := strings.Join(reports, "\n"); (report == "") != (got == "") || !strings.Contains(got, report) || len(reports) > 1 {
			t.Errorf("%s: reports %q, want one with %q", name, reports, report)
		}
		reports = nil
	}
	want("unchanged", 1, "")
	writeCertificate(t, dir, 2)
	if got := serialOf(t, c); got != 1 {
		t.Errorf("before the next look: certificate %d", got)
	}
	want("renewed", 2, "")
	if err := os.WriteFile(f.Certificate, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("invalid", 2, "--cert")
	writeCertificate(t, dir, 3)
	if err := os.Chmod(f.Key, 0o604); err != nil {
		t.Fatal(err)
	}
	want("readable by everyone", 2, "chmod o=")
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	want("gone", 2, "--key")
	writeCertificate(t, dir, 4)
	want("there again", 4, "")
	writeCertificateFor(t, dir, 5, "b.example", time.Now().Add(time.Hour))
	want("for another name", 4, "not a.example")
	writeCertificateFor(t, dir, 6, "a.example", now)
	want("expired", 4, "the one before stays in use: --cert: it expired at")
	now = time.Now().Add(2 * time.Hour)
	want("once the one in use has expired", 0, "connections are refused until the certificate is renewed: --cert: it expired at")
	writeCertificateFor(t, dir, 7, "a.example", now.Add(time.Hour))
	want("renewed after its end", 7, "")
}

func TestInvalidCertificatesAreRefused(t *testing.T) {
	var dir string
	for word, change := range map[string]func(*CertificateFiles) error{
		"it expired at": func(*CertificateFiles) error {
			writeCertificateFor(t, dir, 2, "a.example", time.Now().Add(-time.Minute))
			return nil
		},
		"not a.example": func(*CertificateFiles) error {
			writeCertificateFor(t, dir, 2, "b.example", time.Now().Add(time.Hour))
			return nil
		},
		"give both":                   func(f *CertificateFiles) error { f.Key = ""; return nil },
		"no such file":                func(f *CertificateFiles) error { f.Key = "/nowhere"; return nil },
		"not a regular file":          func(f *CertificateFiles) error { f.Key = filepath.Dir(f.Key); return nil },
		"readable or writable":        func(f *CertificateFiles) error { return os.Chmod(f.Key, 0o644) },
		"tls: failed to find any PEM": func(f *CertificateFiles) error { return os.WriteFile(f.Certificate, []byte("x"), 0o600) },
		"private key does not match": func(f *CertificateFiles) error {
			f.Certificate = writeCertificate(t, t.TempDir(), 9).Certificate
			return nil
		},
	} {
		dir = t.TempDir()
		f := writeCertificate(t, dir, 1)
		f.Host = "a.example"
		if err := change(&f); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadCertificate(writeCertificate(t, t.TempDir(), 1), time.Now, nil); err != nil {
			t.Errorf("control: %v", err)
		}
		if _, err := LoadCertificate(f, time.Now, nil); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want %q: %v", word, err)
		}
	}
}
