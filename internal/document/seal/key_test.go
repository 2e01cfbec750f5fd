package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func answer(s string) Passphrase {
	return func(context.Context, string) (string, error) { return s, nil }
}

// proves R-B9
func TestAnEncryptedKeyOpensWithItsPassphraseOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "deploy.key")
	made, err := CreateKey(path, NewKey{Name: "ann", Passphrase: "correct horse", workFactor: 10})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte("-----BEGIN AGE ENCRYPTED FILE-----\n")) || bytes.Contains(b, []byte("PRIVATE KEY")) {
		t.Fatalf("key file is not encrypted:\n%s", b)
	}
	opened, err := OpenSigner(t.Context(), "file:"+path, answer("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	if opened.KeyID() != made.KeyID() || !opened.Encrypted {
		t.Fatalf("opened %v, made %v", opened.KeyID(), made.KeyID())
	}
	for name, ask := range map[string]Passphrase{
		"wrong": answer("wrong horse"), "empty": answer(""), "none": nil,
	} {
		if _, err := OpenSigner(t.Context(), path, ask); !errors.Is(err, ErrPassphrase) {
			t.Errorf("%s passphrase: err = %v", name, err)
		}
	}
}

func TestCreateKeyNeedsAPassphraseOrAnExplicitRequestForNone(t *testing.T) {
	dir := t.TempDir()
	if _, err := CreateKey(filepath.Join(dir, "a"), NewKey{}); err == nil {
		t.Fatal("the zero value made a key")
	}
	if _, err := CreateKey(filepath.Join(dir, "a"), NewKey{Passphrase: "x", Unencrypted: true}); err == nil {
		t.Fatal("a passphrase was accepted and ignored")
	}
	k, err := CreateKey(filepath.Join(dir, "a"), NewKey{Unencrypted: true})
	if err != nil || k.Encrypted {
		t.Fatalf("key %+v, err %v", k, err)
	}
	if k, err = OpenSigner(t.Context(), filepath.Join(dir, "a"), nil); err != nil || k.Encrypted {
		t.Fatalf("key %+v, err %v", k, err)
	}
}

func TestAKeyThatOthersCanReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	if _, err := CreateKey(path, NewKey{Unencrypted: true}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, err %v", st.Mode(), err)
	}
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSigner(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %o: err = %v", mode, err)
		}
	}
}

func TestCreatingAKeyNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateKey(path, NewKey{Unencrypted: true}); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("err = %v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Fatalf("file is now %q, err %v", b, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left behind: %v, err %v", entries, err)
	}
}

func TestOpenSignerNamesAnUnsupportedScheme(t *testing.T) {
	for _, uri := range []string{"ssh-agent:ann", "pkcs11:token=x", "gcpkms://projects/x", "vault:k"} {
		_, err := OpenSigner(t.Context(), uri, nil)
		if err == nil || !strings.Contains(err.Error(), "not supported by this build") {
			t.Errorf("%s: err = %v", uri, err)
		}
	}
	if _, err := OpenSigner(t.Context(), "file:", nil); err == nil {
		t.Error("a file without a path was opened")
	}
}

func TestBadKeyFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty": "", "text": "hello", "too large": strings.Repeat("x", maxKeyFile+1),
		"public":      "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END PUBLIC KEY-----\n",
		"empty block": "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
		"broken age":  "-----BEGIN AGE ENCRYPTED FILE-----\nAAAA\n-----END AGE ENCRYPTED FILE-----\n",
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSigner(t.Context(), path, answer("x")); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, dir, filepath.Join(dir, "none")} {
		if _, err := OpenSigner(t.Context(), path, nil); err == nil {
			t.Errorf("%s: accepted", path)
		}
	}
}

func TestCreateServiceKeyNeverOverwrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if _, err := OpenServiceKey(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("err = %v", err)
	}
	made, err := CreateServiceKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateServiceKey(dir); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second: err = %v", err)
	}
	opened, err := OpenServiceKey(dir)
	if err != nil || opened.KeyID() != made.KeyID() {
		t.Fatalf("opened %v, err %v", opened, err)
	}
}

func TestASignerDoesNotPrintItsKey(t *testing.T) {
	s := newSigner(t)
	key := s.(memorySigner).key
	secret := fmt.Sprintf("%x", []byte(key[:8]))
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		text := fmt.Sprintf(format, s) + fmt.Sprintf(format, &FileKey{Signer: s})
		if strings.Contains(strings.ReplaceAll(text, "0x", ""), secret) {
			t.Errorf("%s prints the key", format)
		}
	}
	if plain := fmt.Sprintf("%x", []byte(key)); !strings.Contains(plain, secret) {
		t.Fatal("positive control: the sweep does not find a key that is there")
	}
}

func TestCreateKeyWritesThePublicHalfBesideTheKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	made, err := CreateKey(path, NewKey{Name: "ann", Unencrypted: true})
	if err != nil {
		t.Fatal(err)
	}
	k, err := LoadPublic(path)
	if err != nil || k.ID != made.KeyID() || k.Name != "ann" {
		t.Fatalf("key %+v, err %v", k, err)
	}
	b, err := os.ReadFile(path + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Replace(b, []byte(`"public":"`), []byte(`"public":"AAAA`), 1)
	if err := os.WriteFile(path+".pub", flipped, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPublic(path); err == nil {
		t.Fatal("an altered public key was accepted")
	}
}

func TestCreateKeyRefusesToReplaceALostKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	was, err := CreateKey(path, NewKey{Unencrypted: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateKey(path, NewKey{Unencrypted: true}); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "restore the key") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("a key was left behind")
	}
	if k, err := LoadPublic(path); err != nil || k.ID != was.KeyID() {
		t.Errorf("%v, %v", k.ID, err)
	}
	if err := os.Remove(path + publicSuffix); err != nil { // the control
		t.Fatal(err)
	}
	if _, err := CreateKey(path, NewKey{Unencrypted: true}); err != nil {
		t.Error(err)
	}
}
