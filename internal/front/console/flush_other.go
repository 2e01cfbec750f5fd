//go:build !linux

package console

import "io"

// discardTyped does nothing where terminals cannot be told to forget their input.
func discardTyped(io.Reader) {}
