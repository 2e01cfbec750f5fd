package httpguard

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificateCheck is how often the files of a certificate are looked at, at most.
const certificateCheck = 10 * time.Second

// CertificateFiles are the files of a TLS certificate, in PEM, and what messages call
// them: flags or settings.
type CertificateFiles struct {
	Certificate, Key         string
	CertificateName, KeyName string
	// Host is the name that the certificate has to be for; empty: any.
	Host string
}

// Certificate is a TLS certificate from files. It is read again when they change, so that
// a renewed one needs no restart. A pair that is invalid, expired or for another name is
// reported once, and the one before stays in use. Once that has expired, handshakes are
// refused, which is reported once, too. It is safe for concurrent use.
type Certificate struct {
	files  CertificateFiles
	now    func() time.Time
	failed func(error) // may be nil

	mu      sync.Mutex
	pair    *tls.Certificate // guarded by mu
	version [2]fileVersion   // of the files that were read last; guarded by mu
	checked time.Time        // guarded by mu
	refused bool             // that the pair is out of its time was reported; guarded by mu
}

// fileVersion tells a file from another one at its path.
type fileVersion struct {
	modified time.Time
	size     int64
	mode     os.FileMode
}

// LoadCertificate reads a certificate and its key. It refuses a key that every account can
// read, and a certificate that is out of its time or for another name. failed is called with
// what to log: changed files that cannot be used, a certificate that has expired. It may be
// nil.
func LoadCertificate(files CertificateFiles, now func() time.Time, failed func(error)) (*Certificate, error) {
	if files.Certificate == "" || files.Key == "" {
		return nil, fmt.Errorf("%s and %s: give both", files.CertificateName, files.KeyName)
	}
	c := &Certificate{files: files, now: now, failed: failed, checked: now()}
	version, err := c.look()
	if err == nil {
		c.version = version
		c.pair, err = c.read()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Config returns the configuration of a server: TLS 1.2 or later, HTTP/1.1.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current() },
		MinVersion:     tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}
}

// current returns the certificate of the files, or an error while it is out of its time.
func (c *Certificate) current() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.checked) >= certificateCheck || now.Before(c.checked) {
		c.checked = now
		if err := c.refresh(); err != nil {
			c.report("the changed certificate cannot be used, and the one before stays in use: %w", err)
		}
	}
	err := c.files.inTime(c.pair.Leaf, now)
	if refused := err != nil; refused != c.refused {
		if c.refused = refused; refused {
			c.report("connections are refused until the certificate is renewed: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return c.pair, nil
}

func (c *Certificate) report(format string, err error) {
	if c.failed != nil {
		c.failed(fmt.Errorf(format, err))
	}
}

// inTime refuses a certificate outside of its time.
func (f CertificateFiles) inTime(leaf *x509.Certificate, now time.Time) error {
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("%s: it expired at %s", f.CertificateName, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("%s: it is valid from %s, and it is %s here", f.CertificateName, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// refresh reads files that changed. The caller holds mu.
func (c *Certificate) refresh() error {
	version, err := c.look()
	if err != nil {
		// Files that vanished are reported once, too.
		if c.version == [2]fileVersion{} {
			return nil
		}
		c.version = [2]fileVersion{}
		return err
	}
	if version == c.version {
		return nil
	}
	c.version = version
	pair, err := c.read()
	if err == nil {
		c.pair = pair
	}
	return err
}

// look returns the versions of both files.
func (c *Certificate) look() (version [2]fileVersion, err error) {
	for i, f := range []struct{ name, path string }{{c.files.KeyName, c.files.Key}, {c.files.CertificateName, c.files.Certificate}} {
		info, err := os.Stat(f.path)
		if err != nil {
			return version, fmt.Errorf("%s: %w", f.name, err)
		}
		version[i] = fileVersion{info.ModTime(), info.Size(), info.Mode()}
	}
	return version, nil
}

func (c *Certificate) read() (*tls.Certificate, error) {
	info, err := os.Stat(c.files.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.files.KeyName, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", c.files.KeyName, errors.New("not a regular file"))
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s %s: readable or writable by everyone (mode %#o): chmod o= %s", c.files.KeyName, c.files.Key, info.Mode().Perm(), c.files.Key)
	}
	pair, err := tls.LoadX509KeyPair(c.files.Certificate, c.files.Key)
	if err != nil {
		return nil, fmt.Errorf("%s %s, %s %s: %w", c.files.CertificateName, c.files.Certificate, c.files.KeyName, c.files.Key, err)
	}
	if err := c.files.inTime(pair.Leaf, c.now()); err != nil {
		return nil, fmt.Errorf("%w: put a valid one at %s", err, c.files.Certificate)
	}
	if c.files.Host != "" {
		if err := pair.Leaf.VerifyHostname(c.files.Host); err != nil {
			return nil, fmt.Errorf("%s %s: %w", c.files.CertificateName, c.files.Certificate, err)
		}
	}
	return &pair, nil
}
