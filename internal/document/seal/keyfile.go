package seal

import (
	"bytes"
	"context"
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

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// ErrPassphrase means that a key is encrypted and was not decrypted.
var ErrPassphrase = errors.New("the passphrase is wrong or none was given")

const (
	maxKeyFile = 64 << 10
	// Costs about a second and 256 MiB for each guess.
	defaultWorkFactor = 18
	// A key file names its own cost; a hostile file must not exhaust the machine.
	maxWorkFactor = 20
	publicSuffix  = ".pub"
)

// Passphrase prompts for the passphrase of the key called name.
type Passphrase func(ctx context.Context, name string) (string, error)

// FileKey is a signer whose key came from a file.
type FileKey struct {
	Signer
	Path      string
	Encrypted bool // false: anyone who can read the file can sign
}

// OpenSigner opens the signer at uri: a path, or file:PATH.
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

// isScheme reports whether s is a URI scheme. One letter is a Windows drive.
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
		b, err = decrypt(ctx, path, b, ask)
	}
	if err == nil {
		k.Signer, err = parsePKCS8(b)
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return k, nil
}

func decrypt(ctx context.Context, path string, b []byte, ask Passphrase) ([]byte, error) {
	if ask == nil {
		return nil, ErrPassphrase
	}
	phrase, err := ask(ctx, path)
	if err != nil {
		return nil, err
	}
	if phrase == "" {
		return nil, ErrPassphrase
	}
	id, err := age.NewScryptIdentity(phrase)
	if err != nil {
		return nil, err
	}
	id.SetMaxWorkFactor(maxWorkFactor)
	r, err := age.Decrypt(armor.NewReader(bytes.NewReader(b)), id)
	if noMatch := (*age.NoIdentityMatchError)(nil); errors.As(err, &noMatch) {
		return nil, ErrPassphrase
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxKeyFile))
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

// NewKey configures CreateKey. The zero value is refused.
type NewKey struct {
	Name        string    // for people, in the public half
	Passphrase  string    // encrypts the key
	Unencrypted bool      // stores the key in plain text; only on explicit request
	Algorithm   Algorithm // empty: Ed25519

	workFactor int // for tests; 0 means defaultWorkFactor
}

// refuseOrphan refuses to create a key beside the public half of another: that
// key was lost, or is yet to be restored, and readers of the public half would
// take the new key for it.
func refuseOrphan(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // creating it fails
	}
	if _, err := os.Lstat(path + publicSuffix); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("key %s: missing, but its public half exists: restore the key, or move %s away (%w)", path, path+publicSuffix, fs.ErrExist), err)
	}
	return nil
}

// CreateKey creates a key at path, readable by its owner only, and its public
// half at path.pub. It never overwrites anything.
func CreateKey(path string, config NewKey) (*FileKey, error) {
	k := &FileKey{Path: path, Encrypted: !config.Unencrypted}
	var private, public []byte
	var err error
	if k.Signer, private, err = config.generate(); err == nil {
		public, err = canon.Marshal(KeyOf(k, config.Name))
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	if err := refuseOrphan(path); err != nil {
		return nil, err
	}
	if err := createFile(path, private, 0o600); err != nil {
		return nil, err
	}
	if err := createFile(path+publicSuffix, append(public, '\n'), 0o644); err != nil {
		return nil, err
	}
	return k, nil
}

// generate returns a new key and the content of its file.
func (config NewKey) generate() (Signer, []byte, error) {
	if config.Unencrypted == (config.Passphrase != "") {
		return nil, nil, errors.New("want either a passphrase or an explicit request for none")
	}
	key, err := generate(config.Algorithm)
	if err != nil {
		return nil, nil, err
	}
	signer, err := signerOf(key)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	file := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if !config.Unencrypted {
		file, err = config.encrypt(file)
	}
	return signer, file, err
}

// LoadPublic reads the public half that CreateKey wrote beside the key.
func LoadPublic(path string) (Key, error) {
	b, err := readGuarded(path+publicSuffix, "public key", maxKeyFile, 0o022, "chmod go-w")
	if err != nil {
		return Key{}, err
	}
	k, err := ParsePublic(b)
	if err != nil {
		return Key{}, fmt.Errorf("public key %s: %w", path+publicSuffix, err)
	}
	return k, nil
}

// ParsePublic parses the public half of a key as CreateKey writes it.
func ParsePublic(b []byte) (k Key, err error) {
	if err = canon.DecodeExact(bytes.TrimSuffix(b, []byte("\n")), &k); err == nil {
		err = k.Validate()
	}
	if err != nil {
		return Key{}, err
	}
	return k, nil
}

func (config NewKey) encrypt(plain []byte) ([]byte, error) {
	to, err := age.NewScryptRecipient(config.Passphrase)
	if err != nil {
		return nil, err
	}
	to.SetWorkFactor(defaultWorkFactor)
	if config.workFactor != 0 {
		to.SetWorkFactor(config.workFactor)
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
	err = errors.Join(w.Close(), armored.Close())
	return out.Bytes(), err
}

const serviceKeyFile = "service.key"

// CreateServiceKey creates the key with which the service signs. It is not
// encrypted: file permissions protect it from other accounts.
func CreateServiceKey(dir string) (*FileKey, error) {
	return CreateKey(filepath.Join(dir, serviceKeyFile), NewKey{Name: "service", Unencrypted: true})
}

// OpenServiceKey opens the key of CreateServiceKey; the error is fs.ErrNotExist
// when it does not exist.
func OpenServiceKey(dir string) (*FileKey, error) {
	return openServiceKey(filepath.Join(dir, serviceKeyFile))
}

func openServiceKey(path string) (*FileKey, error) {
	k, err := openKeyFile(context.Background(), path, nil)
	if err == nil && k.KeyID().Algorithm() != Ed25519 {
		return nil, fmt.Errorf("key %s: is %s; manifests and checkpoints need ed25519 (for statements set another key: keys.statements in service.yaml)", path, k.KeyID())
	}
	return k, err
}
