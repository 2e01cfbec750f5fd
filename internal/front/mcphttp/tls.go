package mcphttp

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/httpguard"
)

// loadTLS reads a certificate and its key. It returns nil without files: plain
// HTTP.
func loadTLS(cert, key string, now func() time.Time, logger *slog.Logger) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	c, err := httpguard.LoadCertificate(httpguard.CertificateFiles{Certificate: cert, Key: key, CertificateName: "--tls-cert", KeyName: "--tls-key"}, now, func(err error) {
		logger.ErrorContext(context.Background(), "TLS certificate", slog.Any("err", err))
	})
	if err != nil {
		return nil, err
	}
	return c.Config(), nil
}
