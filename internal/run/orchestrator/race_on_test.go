//go:build race

package orchestrator_test

// size divides how large what is tried is: the race detector makes the large
// many times slower, and they are tried in full without it.
const size = 10
