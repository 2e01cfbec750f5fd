//go:build !linux

package installer

import "errors"

// exchange makes each of two names the other's; mode system needs Linux.
func exchange(_, _ string) error { return errors.ErrUnsupported }
