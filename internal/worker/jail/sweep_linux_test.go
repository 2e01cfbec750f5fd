package jail

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
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

// Sweeps that run while groups are created never remove a group that has its owner.
func TestSweepsNeverRemoveAnOwnedGroup(t *testing.T) {
	for _, h := range hierarchies() {
		var sweeps, owners sync.WaitGroup
		done := make(chan struct{})
		for range 6 {
			sweeps.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						sweep(h.own)
					}
				}
			})
		}
		for range 6 {
			owners.Go(func() {
				for range 300 {
					d := groupDir{hierarchy: h}
					made, err := d.make()
					if err != nil {
						t.Error(err)
						return
					}
					if !made { // not delegated to us
						return
					}
					for range 5 {
						runtime.Gosched()
						if _, err := os.Stat(filepath.Join(d.path, "cgroup.procs")); err != nil {
							t.Error(err)
							break
						}
					}
					_ = os.Remove(d.path)
					_ = d.lock.Close()
				}
			})
		}
		owners.Wait()
		close(done)
		sweeps.Wait()
	}
}
