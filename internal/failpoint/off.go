//go:build !failpoints

package failpoint

// Hit does nothing in this build. Subject names what the moment belongs to:
// the folder of the attempt, the dispatch, or what is about to be made.
func Hit(Name, string) {}
