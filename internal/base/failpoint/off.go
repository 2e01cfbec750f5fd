//go:build !failpoints

package failpoint

import "time"

// Hit does nothing in this build. The second argument is the subject.
func Hit(Name, string) {}

// Dir returns "" in this build.
func Dir() string { return "" }

// Clock returns now in this build.
func Clock(now func() time.Time) func() time.Time { return now }
