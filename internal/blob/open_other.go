//go:build !unix

package blob

const nonblock = 0
