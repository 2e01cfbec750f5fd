package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bailiwick-dev/bailiwick/internal/canon"
	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

// The next service key and what the one in force says of it, from when they are
// made until the next one is in force.
const (
	nextKeyFile      = "service.key.next"
	nextRotationFile = "service.key.next.rotation"
)

// CreateNextKey makes the key that may follow the service's.
func CreateNextKey(dir string) (*FileKey, error) {
	return CreateKey(filepath.Join(dir, nextKeyFile), NewKey{Name: "service", Unencrypted: true})
}

// SaveNextRotation keeps what the key in force says of the next one.
func SaveNextRotation(dir string, envelope []byte) error {
	return createFile(filepath.Join(dir, nextRotationFile), envelope, 0o600)
}

// LoadNextRotation returns what SaveNextRotation kept. Where there is nothing the
// error is fs.ErrNotExist.
func LoadNextRotation(dir string) ([]byte, error) {
	return readGuarded(filepath.Join(dir, nextRotationFile), "rotation", maxKeyFile, 0o022, "chmod go-w")
}

// ActivateNextKey puts the next key in the place of the service's, whose private
// half is gone then. At every moment one of the two is there, whole.
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

// RemoveNextKey removes what is left of a next key: one that did not come into
// force, or the traces of one that did. What says whether it did goes last.
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
