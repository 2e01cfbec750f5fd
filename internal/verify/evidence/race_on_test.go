//go:build race

package evidence

// shrink divides how much is tried: the race detector makes it many times
// slower, and it is tried in full without it.
const shrink = 32

// padded is how much more the race detector allocates, at most.
const padded = 2
