//go:build !race

package evidence

const (
	shrink = 1
	padded = 1
)
