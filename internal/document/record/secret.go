package record

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Secrets is what a worker reads from its descriptor 5, once: the values of the
// secrets of its manifest, by the name of the artifact. They are nowhere else.
type Secrets map[api.Name]string

const (
	// MaxSecret is the largest value of a secret, in bytes.
	MaxSecret = 64 << 10
	// MaxSecrets bounds the values of one dispatch together, encoded. All of them have
	// to fit into a pipe.
	MaxSecrets = 512 << 10
)

// CheckSecret refuses what is no value of a secret: it is text of 1 to MaxSecret bytes.
func CheckSecret(v string) error {
	switch {
	case v == "":
		return errors.New("the value is empty")
	case len(v) > MaxSecret:
		return fmt.Errorf("the value is larger than %d bytes", MaxSecret)
	case strings.ContainsRune(v, 0) || !utf8.ValidString(v):
		return errors.New("the value is not text: it has a NUL byte or is not UTF-8")
	}
	return nil
}

// TrimLine removes one newline from the end of a value: files and programs end with
// one that is no part of it.
func TrimLine(v string) string {
	v, cut := strings.CutSuffix(v, "\n")
	if cut {
		v = strings.TrimSuffix(v, "\r")
	}
	return v
}

// ReadSecrets returns the values that the secrets of a manifest have now. Its error names no
// value.
func ReadSecrets(ctx context.Context, resolve func(context.Context, api.SecretRef) (string, error), refs []api.SecretRef) (Secrets, error) {
	values := Secrets{}
	for _, ref := range refs {
		v, ok := values[ref.Name]
		var err error
		if !ok {
			v, err = resolve(ctx, ref)
		}
		if err == nil {
			err = api.CheckSecretUse(ref.Use, v)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %q: %w", ref.Name, err)
		}
		values[ref.Name] = v
	}
	return values, nil
}
