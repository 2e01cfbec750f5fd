//go:build !failpoints

package failpoint

// Hit does nothing in this build. The second argument is the subject.
func Hit(Name, string) {}
