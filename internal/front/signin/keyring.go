package signin

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// Keyring keeps the logins of one person by the URL of their server.
type Keyring interface {
	Get(url string) (string, error)
	Set(url, secret string) error
	Delete(url string) error // of a missing one it is no error
}

// Desktop returns the keyring of the person's desktop: the Secret Service over D-Bus, the
// keychain of macOS, the credential manager of Windows. It is nil where no desktop session
// says how to reach one: the library would start a bus of its own.
func Desktop(lookup func(string) (string, bool)) Keyring {
	if bus, _ := lookup("DBUS_SESSION_BUS_ADDRESS"); runtime.GOOS == "linux" && bus == "" {
		return nil
	}
	return desktop{}
}

type desktop struct{}

const (
	keyringService = "bailiwick"
	// keyringTime is how long a keyring may take: one that is locked asks on the desktop, and
	// a command on a terminal must not wait for a window on another screen.
	keyringTime = 20 * time.Second
)

func (desktop) Get(url string) (secret string, err error) {
	type answer struct {
		secret string
		err    error
	}
	got := make(chan answer, 1)
	go func() { // it ends with its answer, or with the command
		secret, err := keyring.Get(keyringService, url)
		got <- answer{secret, err}
	}()
	select {
	case a := <-got:
		return a.secret, a.err
	case <-time.After(keyringTime): //nolint:forbidigo // another program answers, in real time
		return "", errSilent
	}
}

func (d desktop) Set(url, secret string) error {
	return d.do(func() error { return keyring.Set(keyringService, url, secret) })
}

func (d desktop) Delete(url string) error {
	err := d.do(func() error { return keyring.Delete(keyringService, url) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil
	}
	return err
}

var errSilent = fmt.Errorf("no answer within %s; unlock it on the desktop", keyringTime)

func (desktop) do(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // as in Get
	select {
	case err := <-done:
		return err
	case <-time.After(keyringTime): //nolint:forbidigo // another program answers, in real time
		return errSilent
	}
}

// of returns the login at a server, with what the keyring has of it.
func (s Store) of(k kept, url string) (login, bool, error) {
	l, ok := k.Servers[url]
	if !ok || !l.Keyring {
		return l, ok, nil
	}
	again := "run it in the session of your desktop, or log in again: bailiwick login " + url
	if s.Keyring == nil {
		return l, true, api.Errorf(api.CodeUnauthenticated, "the login at %q is in the keyring, and no keyring can be reached here", url).WithHint("%s", again)
	}
	text, err := s.Keyring.Get(url)
	if err != nil {
		return l, true, api.Errorf(api.CodeUnauthenticated, "the login at %q is in the keyring: %w", url, err).WithHint("%s", again)
	}
	var secret login
	if canon.Decode([]byte(text), &secret) != nil { // a decoder's message may quote a secret
		return l, true, api.Errorf(api.CodeUnauthenticated, "the login at %q in the keyring was not written by this version", url).WithHint("run: bailiwick login %s", url)
	}
	secret.CA, secret.Keyring = l.CA, true
	return secret, true, nil
}

// put keeps a login in the keyring, or in the file if no keyring takes it. The file says
// which of them has it.
func (s Store) put(k *kept, url string, l login) error {
	secret := l
	secret.CA, secret.Keyring = "", false
	if s.Keyring != nil {
		b, err := canon.Marshal(secret)
		if err != nil {
			return err
		}
		if s.Keyring.Set(url, string(b)) == nil {
			k.Servers[url] = login{CA: l.CA, Keyring: true}
			return nil
		}
	}
	l.Keyring = false
	k.Servers[url] = l
	return nil
}

// Kept says where the login at a server is kept; empty: there is no login.
func (s Store) Kept(url string) (string, error) {
	k, err := s.load()
	l, ok := k.Servers[url]
	switch {
	case err != nil || !ok:
		return "", err
	case l.Keyring:
		return "the keyring of the desktop", nil
	}
	return s.Path + ", which only this account can read", nil
}
