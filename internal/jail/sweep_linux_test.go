package jail

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/durable"
)

// A sweep removes a group that another sweep has locked.
//
// proves R-D4 (nothing is left of a killed worker)
func TestSweepRemovesOnlyGroupsWithoutAnOwner(t *testing.T) {
	for _, h := range hierarchies() {
		for _, stays := range []bool{false, true} {
			try := durable.TryRLock
			if stays {
				try = durable.TryLock
			}
			path := filepath.Join(h.own, groupPrefix+"sweep-test")
			if err := os.Mkdir(path, 0o755); err != nil {
				continue // not delegated to us: there is nothing to sweep either
			}
			lock, err := lockDir(path, try)
			if err != nil {
				t.Fatal(err)
			}
			Sweep()
			if _, err := os.Lstat(path); (err == nil) != stays {
				t.Errorf("%s: exists with an exclusive lock %t: %t", path, stays, err == nil)
			}
			_ = lock.Close()
			Sweep()
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s: without a lock it stays", path)
			}
		}
	}
}
