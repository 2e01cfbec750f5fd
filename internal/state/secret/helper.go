package secret

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/hostcommand"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// Helper is a program that prints a value.
type Helper hostcommand.Command

// DefaultTimeout bounds a helper that has no timeout of its own.
const DefaultTimeout = 10 * time.Second

// run returns the helper's output without one newline at the end. Errors have nothing
// of its output or messages, which may contain the value.
func (h Helper) run(ctx context.Context) (string, error) {
	if h.Timeout == 0 {
		h.Timeout = DefaultTimeout
	}
	said := &bounded{limit: record.MaxSecret + 2}
	err := hostcommand.Command(h).Run(ctx, nil, said, nil)
	switch {
	case said.full:
		return "", fmt.Errorf("%s: printed more than %d bytes", h.Argv[0], record.MaxSecret)
	case errors.Is(err, hostcommand.ErrTimeout):
		return "", fmt.Errorf("%w; a longer timeout goes into service.yaml", err)
	case err != nil:
		return "", fmt.Errorf("%w; run it by hand as the service's account to see why", err)
	}
	return record.TrimLine(string(said.text)), nil
}

// bounded keeps what is written to it up to a limit, and then refuses more.
type bounded struct {
	limit int
	text  []byte
	full  bool
}

var errFull = errors.New("output too large")

func (b *bounded) Write(p []byte) (int, error) {
	if b.full = b.full || len(b.text)+len(p) > b.limit; b.full {
		return 0, errFull
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
