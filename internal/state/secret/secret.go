// Package secret finds the values of secrets: in age-encrypted files of the service,
// its environment, systemd's credentials, declared helper programs, and Vault. A value
// is never in the catalog, a record, the log, a manifest or an argument list.
//
// Values are read when they are needed and never kept, so a new value counts from the
// next attempt. Errors name the reference and never a value.
//
// Carries R-C3 and R-D8.
package secret

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

// Config says where values are. The zero value of each part has none.
type Config struct {
	Files       *Files
	Digest      func(api.Name) (api.Digest, bool) // of the content of file:NAME in force
	Env         map[string]string                 // the variables that env: may name
	Credentials string                            // $CREDENTIALS_DIRECTORY
	Helpers     map[api.Name]Helper
	Vault       *Vault
}

// Store resolves references. It is safe for concurrent use.
type Store struct{ cfg Config }

// New returns a store.
func New(cfg Config) *Store { return &Store{cfg} }

// Resolve returns the value that a reference names now: text of 1 byte to 64 KiB.
func (s *Store) Resolve(ctx context.Context, ref string) (string, error) {
	p, err := api.ParseSecretRef(ref)
	if err != nil {
		return "", err
	}
	value, err := s.value(ctx, p)
	if err == nil {
		err = record.CheckSecret(value)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", ref, err)
	}
	return value, nil
}

func (s *Store) value(ctx context.Context, p api.SecretPlace) (string, error) {
	switch p.Source {
	case api.SecretFile:
		return s.file(api.Name(p.Name))
	case api.SecretEnv:
		v, ok := s.cfg.Env[p.Name]
		if !ok {
			return "", errors.New("the service may not read this variable, or it is unset: list it under secrets.env of service.yaml, set it, and restart the service")
		}
		return v, nil
	case api.SecretCredential:
		return s.credential(p.Name)
	case api.SecretExec:
		h, ok := s.cfg.Helpers[api.Name(p.Name)]
		if !ok {
			return "", errors.New("no such helper: declare it under secrets.exec of service.yaml, and restart the service")
		}
		return h.run(ctx)
	case api.SecretVault:
		if s.cfg.Vault == nil {
			return "", errors.New("no vault is configured: write secrets.vault in service.yaml, and restart the service")
		}
		return s.cfg.Vault.read(ctx, p.Name, p.Key)
	}
	return "", fmt.Errorf("unknown source %q", string(p.Source))
}

// file reads a value that bailiwick secret set stored.
func (s *Store) file(name api.Name) (string, error) {
	unset := fmt.Errorf("not set: bailiwick secret set %s", name)
	if s.cfg.Files == nil || s.cfg.Digest == nil {
		return "", unset
	}
	d, ok := s.cfg.Digest(name)
	if !ok {
		return "", unset
	}
	v, err := s.cfg.Files.read(d)
	if err != nil {
		return "", fmt.Errorf("%w; set it again: bailiwick secret set %s", err, name)
	}
	return v, nil
}

func (s *Store) credential(name string) (string, error) {
	if s.cfg.Credentials == "" {
		return "", errors.New("the service has no $CREDENTIALS_DIRECTORY: add LoadCredential= to its systemd unit")
	}
	b, err := blob.ReadBounded(filepath.Join(s.cfg.Credentials, name), record.MaxSecret+2)
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("no such credential: add it to LoadCredential= of the service's systemd unit")
	}
	return record.TrimLine(string(b)), err
}
