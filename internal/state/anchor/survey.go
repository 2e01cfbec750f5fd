package anchor

import (
	"context"
	"errors"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// Survey returns the largest checkpoint that an anchor holds, nil without one, and
// the first thing there that the service did not write. It has no log to compare
// with, and verifies no signature.
func Survey(ctx context.Context, a Anchor) (largest *logproof.Checkpoint, problem string, err error) {
	see := func(it Item) error {
		cp, err := logproof.Peek(it.Signed)
		switch {
		case it.Where == "" || it.Half > 0 || it.Stray:
		case it.Problem != "" || err != nil:
			if problem == "" {
				problem = fmt.Sprintf("%s: %s", it.Where, it.Problem)
				if it.Problem == "" {
					problem += "no checkpoint"
				}
			}
		case largest == nil || cp.Size > largest.Size:
			largest = &cp
		}
		return ctx.Err()
	}
	err = a.Scan(ctx, func(uint64) []byte { return nil }, see)
	if unfit, ok := errors.AsType[*UnfitError](err); ok {
		err = unfit.Err
	}
	return largest, problem, err
}
