package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"filippo.io/age"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Unseal decrypts a value that was encrypted to the age identity in a file, which only its owner
// may read. The value has at most limit bytes.
func Unseal(identity string, content []byte, limit int64) (string, error) {
	b, err := readGuarded(identity, "identity of secrets", 1<<10, 0o077, "chmod 600")
	if err != nil {
		return "", err
	}
	id, err := age.ParseX25519Identity(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fmt.Errorf("%s: not an age identity", identity)
	}
	r, err := age.Decrypt(bytes.NewReader(content), id)
	if err != nil {
		return "", errors.New("the value cannot be decrypted: it is not encrypted to this machine")
	}
	value, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", errors.New("the value cannot be decrypted: it is damaged")
	}
	return string(value), nil
}

// EnsureIdentity makes the age identity in a file, and writes its recipient to another, where
// they do not exist.
func EnsureIdentity(identity, recipient string) error {
	b, err := readGuarded(identity, "identity of secrets", 1<<10, 0o077, "chmod 600")
	if errors.Is(err, fs.ErrNotExist) {
		id, genErr := age.GenerateX25519Identity()
		if genErr != nil {
			return genErr
		}
		b = []byte(id.String() + "\n")
		err = durable.Create(identity, b, 0o600)
	}
	if err != nil {
		return err
	}
	id, err := age.ParseX25519Identity(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("%s: not an age identity", identity)
	}
	err = durable.Create(recipient, []byte(id.Recipient().String()+"\n"), 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
