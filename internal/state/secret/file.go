package secret

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
)

const (
	identityFile = "identity" // the service's X25519 identity
	extension    = ".age"
	// maxOverhead is what age adds to a value, with room to spare.
	maxOverhead = 4 << 10
)

// Files is the service's secret directory. Each value is a file encrypted to the
// service's identity and named by the digest of its content. A file counts only once
// the log says so: see Config.Digest.
type Files struct {
	dir       string
	identity  *age.X25519Identity // nil: values are encrypted to the launcher
	recipient string
}

// OpenSealed opens the directory of a service that may have no values: they are encrypted to the
// recipient in a file, whose identity the launcher has.
func OpenSealed(dir, recipient string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b, err := blob.ReadBounded(recipient, 1<<10)
	if err != nil {
		return nil, err
	}
	r, err := age.ParseX25519Recipient(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "%s: not an age recipient", recipient).WithHint("restore it from a backup; or remove it and /var/lib/bailiwick-launch/identity, and set each secret again: bailiwick secret set NAME")
	}
	return &Files{dir: dir, recipient: r.String()}, nil
}

// Sealed returns the encrypted content of a value.
func (f *Files) Sealed(d api.Digest) ([]byte, error) {
	content, err := blob.ReadBounded(f.path(d), record.MaxSecret+maxOverhead)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("its file is missing from the service's secret directory")
	case err != nil:
		return nil, err
	case api.DigestOf(content) != d:
		return nil, errors.New("its file was changed")
	}
	return content, nil
}

// OpenFiles opens the directory, and creates it and the identity if they do not
// exist.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, identityFile)
	b, err := blob.ReadBounded(path, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		created, genErr := age.GenerateX25519Identity()
		if genErr != nil {
			return nil, genErr
		}
		b = []byte(created.String() + "\n")
		err = durable.Create(path, b, 0o600)
	}
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, api.Errorf(api.CodeInvalid, "%s: readable by other accounts (mode %04o)", path, st.Mode().Perm()).WithHint("run: chmod 600 %s", path)
	}
	identity, err := age.ParseX25519Identity(strings.TrimSpace(string(b)))
	if err != nil {
		return nil, api.Errorf(api.CodeIntegrity, "%s: not an age identity", path).WithHint("restore it from a backup; or remove it and set each secret again: bailiwick secret set NAME")
	}
	return &Files{dir, identity, identity.Recipient().String()}, nil
}

// Recipient returns the public key that values are encrypted to.
func (f *Files) Recipient() string { return f.recipient }

// Put stores the encrypted content of a value, after checking that the service can
// read it. It has no effect until the log says that it counts.
func (f *Files) Put(content []byte) error {
	if len(content) > record.MaxSecret+maxOverhead {
		return fmt.Errorf("the encrypted value is larger than %d bytes", record.MaxSecret+maxOverhead)
	}
	if f.identity != nil {
		if _, err := f.decrypt(content); err != nil {
			return err
		}
	}
	err := durable.Create(f.path(api.DigestOf(content)), content, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Keep removes every value whose digest keep refuses.
func (f *Files) Keep(keep func(api.Digest) bool) error {
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), extension)
		d, err := api.ParseDigest("sha256:" + name)
		if ok && err == nil && !keep(d) {
			errs = append(errs, os.Remove(filepath.Join(f.dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func (f *Files) path(d api.Digest) string { return filepath.Join(f.dir, d.Hex()+extension) }

func (f *Files) read(d api.Digest) (string, error) {
	content, err := f.Sealed(d)
	if err != nil {
		return "", err
	}
	return f.decrypt(content)
}

func (f *Files) decrypt(content []byte) (string, error) {
	if f.identity == nil {
		return "", errors.New("only the launcher can decrypt it")
	}
	r, err := age.Decrypt(bytes.NewReader(content), f.identity)
	if err != nil {
		return "", errors.New("the value cannot be decrypted: it is not encrypted to this service")
	}
	b, err := io.ReadAll(io.LimitReader(r, record.MaxSecret+1))
	if err != nil {
		return "", errors.New("the value cannot be decrypted: its file is damaged")
	}
	return string(b), record.CheckSecret(string(b))
}
