package broker

import (
	"crypto/rand"
	"encoding/hex"
)

// A placeholder is placeholderMark and placeholderDigits lower-case hexadecimal
// digits. The broker recognises those of every dispatch by this shape.
const (
	placeholderMark   = "bwk-"
	placeholderDigits = 32
)

// NewPlaceholder returns what an agent holds in place of a secret: random, of no use
// outside the broker. prefix is for programs that check the shape of a key, such as
// "sk-ant-api03-"; it may be empty.
func NewPlaceholder(prefix string) string {
	var b [placeholderDigits / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + placeholderMark + hex.EncodeToString(b[:])
}
