//go:build !unix

package deploy

const nonblock = 0
