package capture

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
)

const whySecret = "it has the value of a secret"

// leaveOutSecrets takes the files that have the value of a secret out of a change.
func (c *change) leaveOutSecrets(ctx context.Context, root *os.File) error {
	if c.now.cfg.Secret == nil {
		return nil
	}
	var errs []error
	c.set = slices.DeleteFunc(c.set, func(e entry) bool {
		if len(errs) > 0 {
			return false
		}
		why, err := c.secretIn(ctx, root, &e)
		if err != nil {
			errs = append(errs, err)
		}
		if why == "" {
			return false
		}
		c.out.add(e.path, why)
		c.total -= e.size
		c.secrets = c.secrets || why == whySecret
		return true
	})
	return errors.Join(errs...)
}

// secretIn returns why a file is left out, or "".
func (c *change) secretIn(ctx context.Context, root *os.File, e *entry) (string, error) {
	found, err := c.now.cfg.Secret(strings.NewReader(e.path + "\n" + e.link))
	if err == nil && !found && e.mode != modeLink {
		f, why, openErr := openRegular(root, e.path, e)
		if openErr != nil || why != "" {
			return why, openErr
		}
		defer f.Close() //nolint:errcheck // only read
		found, err = c.now.cfg.Secret(contextReader{ctx, f})
	}
	if found {
		return whySecret, err
	}
	return "", err
}
