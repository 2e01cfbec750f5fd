package deploycli

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

const minPassphrase = 8

// newPassphrase asks for a new passphrase, twice.
func newPassphrase(ctx context.Context, of string) (string, error) {
	first, err := prompt(ctx, fmt.Sprintf("New passphrase for %s: ", of))
	if err != nil {
		return "", err
	}
	if len(first) < minPassphrase {
		return "", api.Errorf(api.CodeInvalid, "passphrase: shorter than %d bytes", minPassphrase)
	}
	second, err := prompt(ctx, "Repeat the passphrase: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", api.Errorf(api.CodeInvalid, "passphrase: the two differ; nothing was created")
	}
	return first, nil
}

// prompt asks for a passphrase on the controlling terminal, without echo.
func prompt(ctx context.Context, text string) (string, error) {
	return console.Hidden(ctx, text, "passphrase", "run this from a terminal; for a demo or CI create the key with --insecure-unencrypted")
}
