// Package signin logs a person in at a service on another machine, by a token or by the
// device flow of the team's identity provider, and keeps what it got.
//
// It is kept in the keyring of the person's desktop or, where none answers, in a file that
// only its owner may read: a command line runs where no keyring is unlocked, too. Nothing of
// it is written anywhere else, and no message has it. Neither place keeps it from a program
// that runs as the same account.
//
// Carries R-D8 and the client's half of R-T6.
package signin

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

const maxFile = 1 << 20

// Store is the file of the logins of one person.
type Store struct {
	Path    string
	Now     func() time.Time
	Keyring Keyring // nil: everything is in the file
}

// kept is the content of the file.
type kept struct {
	V       int              `json:"v"`
	Current string           `json:"current,omitempty"` // URL of the server that commands use
	Servers map[string]login `json:"servers"`           // by URL
}

// login is what is kept of one server: a token, or a session of a person.
type login struct {
	CA      string   `json:"ca,omitempty"`    // certificates in PEM, in addition to the system's
	Token   string   `json:"token,omitempty"` // of Bailiwick
	OIDC    *grant   `json:"oidc,omitempty"`
	Session *session `json:"session,omitempty"`
	Keyring bool     `json:"keyring,omitempty"` // all but CA is in the keyring
}

// grant is what the provider gave.
type grant struct {
	Issuer  string `json:"issuer"`
	Client  string `json:"client"`
	Refresh string `json:"refresh,omitempty"` // refresh token
}

type session struct {
	Handle    string        `json:"handle"`
	ID        string        `json:"id"`
	Principal api.Principal `json:"principal"`
	ExpiresAt time.Time     `json:"expiresAt"`
}

// load reads the file. A missing one is empty; one that others may read is refused.
func (s Store) load() (kept, error) {
	k := kept{V: 1, Servers: map[string]login{}}
	info, err := os.Lstat(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, err
	}
	switch {
	case !info.Mode().IsRegular():
		return k, api.Errorf(api.CodeInvalid, "logins %s: not a regular file", s.Path).WithHint("remove it, and log in again")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return k, api.Errorf(api.CodeInvalid, "logins %s: accessible to others (mode %04o), so its sessions may be known to them", s.Path, info.Mode().Perm()).
			WithHint("remove it, and log in again; an operator ends the sessions: bailiwick session end ID")
	case !durable.Trusted(info):
		return k, api.Errorf(api.CodeInvalid, "logins %s: belongs to another account", s.Path)
	}
	f, err := os.Open(s.Path)
	if err != nil {
		return k, err
	}
	defer f.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	if err == nil {
		if canon.Decode(b, &k) != nil || k.V != 1 {
			err = errors.New("not written by this version") // a decoder's message may quote a secret
		}
	}
	if err != nil {
		return kept{}, api.Errorf(api.CodeInvalid, "logins %s: %w", s.Path, err).WithHint("remove it, and log in again")
	}
	if k.Servers == nil {
		k.Servers = map[string]login{}
	}
	return k, nil
}

// change changes the file while no other command does.
func (s Store) change(ctx context.Context, apply func(*kept) error) error {
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return err
	}
	lock, err := durable.OpenLock(s.Path + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // only a lock
	if err := durable.PollLock(ctx, func() error { return durable.TryLock(lock) }); err != nil {
		return err
	}
	k, err := s.load()
	if err == nil {
		err = apply(&k)
	}
	if err != nil {
		return err
	}
	b, err := canon.Marshal(k)
	if err != nil {
		return err
	}
	return durable.Replace(s.Path, b, 0o600)
}

// Current returns the server that commands use; empty: the one of this machine.
func (s Store) Current() (string, error) {
	k, err := s.load()
	return k.Current, err
}

// roots returns the certificates of the system and those in PEM; nil: only the system's.
func roots(pem string) (*x509.CertPool, error) {
	if pem == "" {
		return nil, nil //nolint:nilnil // of the system
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("no certificate in PEM")
	}
	return pool, nil
}
