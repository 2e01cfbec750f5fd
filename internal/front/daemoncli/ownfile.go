package daemoncli

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/installation"
	"github.com/bailiwick-dev/bailiwick/internal/base/strictyaml"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// ownFiles reads the files that the service trusts: only its account and root may own or
// write them.
type ownFiles struct{ uid int } // of the account

func (t *tree) files() ownFiles { return ownFiles{t.UID} }

// check refuses a file that others than the service's account and root may own or
// write.
func (o ownFiles) check(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner, _, ok := installation.Owner(st)
	switch {
	case !st.Mode().IsRegular(): // before opening: a fifo would never open
		return fmt.Errorf("%s: not a regular file", path)
	case !ok || owner != 0 && owner != o.uid:
		return fmt.Errorf("%s: owned by another account; it must be owned by the service's account or root", path)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s: writable by other accounts (mode %04o); run: chmod go-w %s", path, st.Mode().Perm(), path)
	}
	return nil
}

// read reads a file that configures the service.
func (o ownFiles) read(path string) ([]byte, error) {
	if err := o.check(path); err != nil {
		return nil, err
	}
	return blob.ReadBounded(path, strictyaml.MaxBytes)
}

// readSecret is read for a file that only its owner may read.
func (o ownFiles) readSecret(path string) ([]byte, error) {
	mode, err := modeOf(path)
	if err != nil {
		return nil, err
	}
	if mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: readable by other accounts (mode %04o); run: chmod 600 %s", path, mode, path)
	}
	return o.read(path)
}

// program refuses a program that others can change, or that cannot be executed.
func (o ownFiles) program(path string) error {
	if err := o.check(path); err != nil {
		return err
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return fmt.Errorf("%s: cannot be executed: %w; run: chmod u+x %s", path, err, path)
	}
	return nil
}

// certificates reads a PEM file of certificates.
func (o ownFiles) certificates(path string) (list []*x509.Certificate, err error) {
	b, err := o.read(path)
	if err != nil {
		return nil, err
	}
	for rest := b; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: want certificates in PEM and nothing else", path)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 || len(list) > maxCertificate {
		return nil, fmt.Errorf("%s: %d certificates, want 1 to %d", path, len(list), maxCertificate)
	}
	return list, nil
}

// pool reads a PEM file of authorities; "" means those of the machine.
func (o ownFiles) pool(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // the default of egress.ClientConfig
	}
	list, err := o.certificates(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, nil
}

// storeKeys reads the file with the access keys of an object store, which only its
// owner may read. Its errors never quote the secret content.
func (o ownFiles) storeKeys(path string) (anchor.S3Keys, error) {
	b, err := o.readSecret(path)
	if err != nil {
		return anchor.S3Keys{}, err
	}
	var keys struct {
		AccessKey string `json:"accessKey"`
		SecretKey string `json:"secretKey"`
	}
	if canon.Decode(b, &keys) != nil || keys.AccessKey == "" || keys.SecretKey == "" || slices.ContainsFunc([]byte(keys.AccessKey+keys.SecretKey), func(c byte) bool { return c <= ' ' || c > '~' }) {
		return anchor.S3Keys{}, errors.New(path + `: want {"accessKey": "...", "secretKey": "..."} and nothing else`)
	}
	return anchor.S3Keys{Access: keys.AccessKey, Secret: keys.SecretKey}, nil
}
