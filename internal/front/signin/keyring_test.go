package signin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ring is a keyring in memory, at the seam to the desktop.
type ring struct {
	items  map[string]string
	locked error
}

func (r *ring) Get(url string) (string, error) { return r.items[url], r.locked }

func (r *ring) Set(url, secret string) error {
	if r.locked == nil {
		r.items[url] = secret
	}
	return r.locked
}

func (r *ring) Delete(url string) error {
	if r.locked == nil {
		delete(r.items, url)
	}
	return r.locked
}

// A login is in the keyring, or in the file where no keyring takes it, and never in both. A
// locked keyring opens nothing.
//
// proves R-D8
func TestALoginIsInTheKeyringOrTheFile(t *testing.T) {
	const url, secret = "https://bailiwick.example:7717", "bwt_secret"
	r := &ring{items: map[string]string{}}
	s := Store{Path: filepath.Join(t.TempDir(), "logins.json"), Now: time.Now, Keyring: r}
	keep := func() {
		t.Helper()
		if err := s.change(t.Context(), func(k *kept) error { return s.put(k, url, login{CA: "pem", Token: secret}) }); err != nil {
			t.Fatal(err)
		}
	}
	file := func() string {
		t.Helper()
		b, err := os.ReadFile(s.Path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	read := func() (login, error) {
		t.Helper()
		k, err := s.load()
		if err != nil {
			t.Fatal(err)
		}
		l, _, err := s.of(k, url)
		return l, err
	}
	keep()
	if strings.Contains(file(), secret) || !strings.Contains(r.items[url], secret) || strings.Contains(r.items[url], "pem") {
		t.Errorf("file %s, keyring %q", file(), r.items)
	}
	if l, err := read(); err != nil || l.Token != secret || l.CA != "pem" {
		t.Errorf("%+v, %v", l, err)
	}
	if in, err := s.Kept(url); err != nil || in != "the keyring of the desktop" {
		t.Errorf("%q, %v", in, err)
	}
	r.locked = errors.New("locked")
	if _, err := read(); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("a locked keyring: %v", err)
	}
	away := s
	away.Keyring = nil
	if _, _, err := away.of(kept{Servers: map[string]login{url: {Keyring: true}}}, url); err == nil || !strings.Contains(err.Error(), "no keyring can be reached here") {
		t.Errorf("without a desktop: %v", err)
	}
	keep() // the file takes it while the keyring is locked
	if in, err := s.Kept(url); err != nil || !strings.HasPrefix(in, s.Path) || !strings.Contains(file(), secret) {
		t.Errorf("%q, %v, %s", in, err, file())
	}
	if l, err := read(); err != nil || l.Token != secret {
		t.Errorf("%+v, %v", l, err)
	}
	r.locked, r.items[url] = nil, "{"
	if _, err := read(); err != nil {
		t.Error(err)
	}
	keep()
	r.items[url] = "{\"token\":\"" + secret
	if _, err := read(); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a malformed item: %v", err)
	}
}
