package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// The next service key and its rotation, signed by the current key, until the
// next key is in force.
const (
	nextKeyFile      = "service.key.next"
	nextRotationFile = "service.key.next.rotation"
)

// CreateNextKey creates the key that is to follow the service's.
func CreateNextKey(dir string) (*FileKey, error) {
	return CreateKey(filepath.Join(dir, nextKeyFile), NewKey{Name: "service", Unencrypted: true})
}

// SaveNextRotation stores the envelope by which the current key names the next.
func SaveNextRotation(dir string, envelope []byte) error {
	return createFile(filepath.Join(dir, nextRotationFile), envelope, 0o600)
}

// LoadNextRotation returns the envelope of SaveNextRotation, or fs.ErrNotExist.
func LoadNextRotation(dir string) ([]byte, error) {
	return readGuarded(filepath.Join(dir, nextRotationFile), "rotation", maxKeyFile, 0o022, "chmod go-w")
}

// ActivateNextKey replaces the service's key by the next one, atomically. The old
// private key is lost.
func ActivateNextKey(dir string) error {
	k, err := openServiceKey(filepath.Join(dir, nextKeyFile))
	if err != nil {
		return err
	}
	public, err := canon.Marshal(KeyOf(k, "service"))
	if err != nil {
		return err
	}
	path := filepath.Join(dir, serviceKeyFile)
	if err := durable.Replace(path+publicSuffix, append(public, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Rename(k.Path, path); err != nil {
		return err
	}
	return durable.Sync(dir)
}

// RemoveNextKey removes the files of a next key, whether it came into force or
// not. The rotation, which tells a restart which, is removed last.
func RemoveNextKey(dir string) error {
	for _, name := range []string{nextKeyFile, nextKeyFile + publicSuffix, nextRotationFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := durable.Sync(dir); err != nil {
			return err
		}
	}
	return nil
}
