//go:build race

package audit

// shrink divides how much is tried: the race detector makes it many times
// slower, and it is tried in full without it.
const shrink = 8
