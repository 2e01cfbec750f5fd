package jail

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// processors returns how many processors a jail is pinned to when no control group limits its CPU time: the limit rounded
// up, or 0 for all.
func (j *Jail) processors() int {
	if j.spec.Limits.CPU == 0 || j.groups.has(cpuGroup) {
		return 0
	}
	return int(math.Ceil(j.spec.Limits.CPU))
}

// pin confines the calling thread and its children to n of its processors, chosen at random to spread jails. The seccomp
// filter prevents undoing it.
func pin(n int) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("read the processors: %w", err)
	}
	if n >= may.Count() {
		return nil
	}
	var all []int
	for cpu := 0; len(all) < may.Count(); cpu++ {
		if may.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	if len(all) == 0 {
		return errors.New("no processor to confine the jail to")
	}
	var chosen unix.CPUSet
	for i, first := 0, rand.IntN(len(all)); i < n; i++ { //nolint:gosec // G404: spreads load, hides nothing
		chosen.Set(all[(first+i)%len(all)])
	}
	if err := unix.SchedSetaffinity(0, &chosen); err != nil {
		return fmt.Errorf("confine the jail to %d processors: %w", n, err)
	}
	return nil
}
