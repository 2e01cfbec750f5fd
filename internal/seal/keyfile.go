package seal

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"filippo.io/age/armor"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
)

// ErrPassphrase means that a key is encrypted and could not be opened.
var ErrPassphrase = errors.New("the passphrase is wrong or none was given")

const (
	maxKeyFile = 64 << 10
	// Costs about a second and 256 MiB for each guess.
	defaultWorkFactor = 18
	// A key file names its own cost; a hostile one must not stop the machine.
	maxWorkFactor = 20
	publicSuffix  = ".pub"
)

// Passphrase asks a person for the passphrase of the key that name describes.
type Passphrase func(ctx context.Context, name string) (string, error)

// FileKey is a signer whose key came from a file.
type FileKey struct {
	Signer
	Path      string
	Encrypted bool // false: whoever can read the file can sign
}

// OpenSigner opens the signer that uri names: a path, or file:PATH. The other
// schemes that people know are named in the refusal.
func OpenSigner(ctx context.Context, uri string, ask Passphrase) (*FileKey, error) {
	path := uri
	if scheme, rest, ok := strings.Cut(uri, ":"); ok && isScheme(scheme) {
		if scheme != "file" {
			return nil, fmt.Errorf("signer %q: keys by %q are not supported by this build; use the path of a key file", uri, scheme)
		}
		path = strings.TrimPrefix(rest, "//")
	}
	if path == "" {
		return nil, fmt.Errorf("signer %q: names no file", uri)
	}
	return openKeyFile(ctx, path, ask)
}

// isScheme tells a URI's scheme from a path. One letter is a Windows drive.
func isScheme(s string) bool {
	return len(s) > 1 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789+-.") == ""
}

func openKeyFile(ctx context.Context, path string, ask Passphrase) (*FileKey, error) {
	b, err := readGuarded(path, "key", maxKeyFile, 0o077, "chmod 600")
	if err != nil {
		return nil, err
	}
	k := &FileKey{Path: path, Encrypted: bytes.HasPrefix(b, []byte(armor.Header))}
	if k.Encrypted {
		if b, err = decrypt(ctx, path, b, ask); err != nil {
			return nil, err
		}
	}
	if k.Signer, err = parsePKCS8(b); err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return k, nil
}

func decrypt(ctx context.Context, path string, b []byte, ask Passphrase) ([]byte, error) {
	if ask == nil {
		return nil, fmt.Errorf("key %s: %w", path, ErrPassphrase)
	}
	phrase, err := ask(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	if phrase == "" {
		return nil, fmt.Errorf("key %s: %w", path, ErrPassphrase)
	}
	id, err := age.NewScryptIdentity(phrase)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	id.SetMaxWorkFactor(maxWorkFactor)
	r, err := age.Decrypt(armor.NewReader(bytes.NewReader(b)), id)
	if noMatch := (*age.NoIdentityMatchError)(nil); errors.As(err, &noMatch) {
		return nil, fmt.Errorf("key %s: %w", path, ErrPassphrase)
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return plain, nil
}

func parsePKCS8(b []byte) (Signer, error) {
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" || len(bytes.TrimSpace(rest)) != 0 || len(block.Headers) != 0 {
		return nil, errors.New("want one PEM block of type PRIVATE KEY, or an age-encrypted file that holds one")
	}
	v, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("not a PKCS#8 private key")
	}
	return signerOf(v)
}

// NewKey says how CreateKey protects what it makes. The zero value is refused.
type NewKey struct {
	Name        string    // for people, in the public half
	Passphrase  string    // encrypts the key
	Unencrypted bool      // writes it in plain; only when a person asked for that by name
	Algorithm   Algorithm // empty: Ed25519

	workFactor int // for tests; 0 means defaultWorkFactor
}

// noOrphan refuses to make a key where the public half of another is: somebody
// lost that key or has yet to restore it, and what reads public halves would
// take the new one for it.
func noOrphan(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // it is there: whoever creates it finds out
	}
	if _, err := os.Lstat(path + publicSuffix); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("key %s: it is missing, and its public half is there: restore it, or move %s away (%w)", path, path+publicSuffix, fs.ErrExist), err)
	}
	return nil
}

// CreateKey makes a key at path, readable by its owner only, and its public
// half beside it at path.pub. It never overwrites anything.
func CreateKey(path string, how NewKey) (*FileKey, error) {
	if how.Unencrypted == (how.Passphrase != "") {
		return nil, fmt.Errorf("key %s: want either a passphrase or the explicit wish for none", path)
	}
	key, err := generate(how.Algorithm)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	signer, err := signerOf(key)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	b, err := encodePKCS8(key)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	if !how.Unencrypted {
		if b, err = encrypt(b, how); err != nil {
			return nil, fmt.Errorf("key %s: %w", path, err)
		}
	}
	k := &FileKey{Signer: signer, Path: path, Encrypted: !how.Unencrypted}
	public, err := canon.Marshal(KeyOf(k, how.Name))
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	if err := noOrphan(path); err != nil {
		return nil, err
	}
	if err := createFile(path, b, 0o600); err != nil {
		return nil, err
	}
	if err := createFile(path+publicSuffix, append(public, '\n'), 0o644); err != nil {
		return nil, err
	}
	return k, nil
}

// LoadPublic reads the public half that CreateKey wrote beside the key.
func LoadPublic(path string) (Key, error) {
	b, err := readGuarded(path+publicSuffix, "public key", maxKeyFile, 0o022, "chmod go-w")
	if err != nil {
		return Key{}, err
	}
	var k Key
	if err := canon.DecodeExact(bytes.TrimSuffix(b, []byte("\n")), &k); err != nil {
		return Key{}, fmt.Errorf("public key %s: %w", path+publicSuffix, err)
	}
	if err := k.Validate(); err != nil {
		return Key{}, fmt.Errorf("public key %s: %w", path+publicSuffix, err)
	}
	return k, nil
}

func encodePKCS8(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encrypt(plain []byte, how NewKey) ([]byte, error) {
	to, err := age.NewScryptRecipient(how.Passphrase)
	if err != nil {
		return nil, err
	}
	to.SetWorkFactor(defaultWorkFactor)
	if how.workFactor != 0 {
		to.SetWorkFactor(how.workFactor)
	}
	var out bytes.Buffer
	armored := armor.NewWriter(&out)
	w, err := age.Encrypt(armored, to)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := errors.Join(w.Close(), armored.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

const serviceKeyFile = "service.key"

// CreateServiceKey makes the key with which the service signs. It is plain:
// it protects against everyone but the service's own account.
func CreateServiceKey(dir string) (*FileKey, error) {
	return CreateKey(filepath.Join(dir, serviceKeyFile), NewKey{Name: "service", Unencrypted: true})
}

// OpenServiceKey opens what CreateServiceKey made. Where there is none the
// error is fs.ErrNotExist.
func OpenServiceKey(dir string) (*FileKey, error) {
	return openServiceKey(filepath.Join(dir, serviceKeyFile))
}

func openServiceKey(path string) (*FileKey, error) {
	k, err := openKeyFile(context.Background(), path, nil)
	if err == nil && k.KeyID().Algorithm() != Ed25519 {
		return nil, fmt.Errorf("key %s: %s, and manifests and checkpoints are signed with ed25519 (another may sign statements: keys.statements in service.yaml)", path, k.KeyID())
	}
	return k, err
}
