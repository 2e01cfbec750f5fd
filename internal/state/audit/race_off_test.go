//go:build !race

package audit

const shrink = 1
