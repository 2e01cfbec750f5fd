//go:build !race

package tlog

const shrink = 1
