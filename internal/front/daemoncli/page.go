package daemoncli

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/websetting"
)

const (
	// renewalTime is how long before its end doctor calls for a new certificate.
	renewalTime = 7 * 24 * time.Hour
	maxCertPEM  = 1 << 20
)

// page returns the account of the page for several people: in mode system one of its own.
func (t *tree) page() api.Principal {
	if t.Dirs.System() {
		return "local:bailiwick-web"
	}
	return ""
}

// pageCheck is doctor's check of the page for several people: that its certificate is for
// its name, and for how long.
func (t *doctor) pageCheck() []check {
	s, err := t.settings()
	if err != nil || s.Web == (websetting.Setting{}) {
		return nil // reported by configCheck
	}
	c := check{name: "page", invalid: true, fix: "put a certificate for " + s.Web.Host() + " at " + s.Web.Certificate + "; bailiwick-web reads it without a restart"}
	cert, err := firstCertificate(s.Web.Certificate)
	if err == nil {
		err = cert.VerifyHostname(s.Web.Host())
	}
	now := t.Now()
	switch {
	case err != nil:
		c.found = "web.certificate: " + err.Error()
	case now.Before(cert.NotBefore), now.After(cert.NotAfter):
		c.found = fmt.Sprintf("web.certificate: valid from %s to %s, and now it is %s: browsers refuse it", cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case cert.NotAfter.Sub(now) < renewalTime:
		c.invalid, c.advice, c.found = false, true, fmt.Sprintf("%s: the certificate expires at %s", s.Web.Origin, cert.NotAfter.UTC().Format(time.RFC3339))
	default:
		return []check{{name: "page", ok: true, found: fmt.Sprintf("%s, by a certificate until %s", s.Web.Origin, cert.NotAfter.UTC().Format(time.RFC3339))}}
	}
	return []check{c}
}

// firstCertificate reads the server's certificate, the first one of a file in PEM.
func firstCertificate(path string) (*x509.Certificate, error) {
	f, err := os.Open(path) //nolint:gosec // G304: the administrator names it
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCertPEM))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s: its first block is no certificate in PEM", path)
	}
	return x509.ParseCertificate(block.Bytes)
}
