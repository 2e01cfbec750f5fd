//go:build race

package tlog

// shrink divides how large what is tried is: the race detector makes the database
// many times slower. Without it, which is how the figures are made, it is full.
const shrink = 8
