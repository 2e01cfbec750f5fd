package daemoncli

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// served is what TLS serves, for doctor's check of its certificate.
type served struct {
	name, setting string // of the check, and of the part of the configuration
	at            string // what clients dial
	host          string // that the certificate has to be for; empty: any
	certificate   string
	readBy        string // the program that reads a changed certificate
}

// pageCheck is doctor's check of the page for several people: that its certificate is for
// its name, and for how long.
func (t *doctor) pageCheck() []check {
	s, err := t.settings()
	if err != nil || s.Web == (websetting.Setting{}) {
		return nil // reported by configCheck
	}
	cert, err := firstCertificate(s.Web.Certificate)
	return []check{t.certificateCheck(served{"page", "web", s.Web.Origin, s.Web.Host(), s.Web.Certificate, "bailiwick-web"}, cert, err)}
}

// serverCheck is doctor's check of the certificate that remote callers see. A running
// service keeps the one before while the files cannot be used, so it answers although this
// check fails. Only an account that may read the key tries the pair.
func (t *doctor) serverCheck() []check {
	s, err := t.settings()
	if err != nil || s.Server == (serverSettings{}) {
		return nil // reported by configCheck
	}
	cert, err := firstCertificate(s.Server.Certificate)
	if _, pair := tls.LoadX509KeyPair(s.Server.Certificate, s.Server.Key); err == nil && !errors.Is(pair, fs.ErrPermission) {
		err = pair
	}
	return []check{t.certificateCheck(served{"server", "server", s.Server.Listen, "", s.Server.Certificate, "the service"}, cert, err)}
}

func (t *doctor) certificateCheck(s served, cert *x509.Certificate, err error) check {
	what := "a certificate"
	if s.host != "" {
		what += " for " + s.host
	}
	c := check{name: s.name, invalid: true, fix: fmt.Sprintf("put %s at %s; %s reads it without a restart", what, s.certificate, s.readBy)}
	if err == nil && s.host != "" {
		err = cert.VerifyHostname(s.host)
	}
	now := t.Now()
	switch {
	case err != nil:
		c.found = s.setting + ".certificate: " + err.Error()
	case now.Before(cert.NotBefore), now.After(cert.NotAfter):
		c.found = fmt.Sprintf("%s.certificate: valid from %s to %s, and now it is %s: clients refuse it", s.setting, cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case cert.NotAfter.Sub(now) < renewalTime:
		c.invalid, c.advice, c.found = false, true, fmt.Sprintf("%s: the certificate expires at %s", s.at, cert.NotAfter.UTC().Format(time.RFC3339))
	default:
		return check{name: s.name, ok: true, found: fmt.Sprintf("%s, by a certificate until %s", s.at, cert.NotAfter.UTC().Format(time.RFC3339))}
	}
	return c
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
