package mcpserve

import (
	"crypto/x509"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/bailiwick-dev/bailiwick/api"
)

// maxCertificates bounds the file of ReadCertificates, in bytes.
const maxCertificates = 1 << 20

// ReadCertificates reads the certificates, in PEM, that the one of a server chains to.
func ReadCertificates(path string) (*x509.CertPool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0) //nolint:gosec // G304: the flag names it
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "--server-ca: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxCertificates))
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(b) {
		err = errors.New("no certificate in PEM")
	}
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "--server-ca %s: %w", path, err)
	}
	return pool, nil
}
