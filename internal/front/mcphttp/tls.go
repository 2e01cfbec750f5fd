package mcphttp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
)

// loadTLS reads a certificate and its key. It returns nil without files: plain
// HTTP.
func loadTLS(cert, key string) (*tls.Config, error) {
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("--tls-cert and --tls-key: give both")
	}
	info, err := os.Stat(key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("--tls-key %s: readable or writable by everyone (mode %#o): chmod o= %s", key, info.Mode().Perm(), key)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", cert, key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}
