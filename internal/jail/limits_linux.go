package jail

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// initThreads is the allowance for pid 1's own threads in task limits.
const initThreads = 16

// setLimits sets the agent's rlimits on pid 1, from which commands inherit them, since Go cannot set them between fork and
// exec. Pid 1 stays within them: it opens few files, writes none, and already has its threads and memory.
func setLimits(s *setup) error {
	l := s.Limits
	type limit struct {
		name     string
		resource int
		value    uint64
	}
	limits := []limit{
		{"core", unix.RLIMIT_CORE, 0},
		{"file size", unix.RLIMIT_FSIZE, uint64(l.FileSize)},                //nolint:gosec // validated as positive
		{"open files", unix.RLIMIT_NOFILE, uint64(l.OpenFiles)},             //nolint:gosec // validated as positive
		{"processes", unix.RLIMIT_NPROC, uint64(l.Processes + initThreads)}, //nolint:gosec // validated as positive
		{"locked memory", unix.RLIMIT_MEMLOCK, 1 << 20},
		{"message queues", unix.RLIMIT_MSGQUEUE, 0},
		{"pending signals", unix.RLIMIT_SIGPENDING, 4096},
		{"nice", unix.RLIMIT_NICE, 0},
		{"real-time priority", unix.RLIMIT_RTPRIO, 0},
	}
	if !s.MemoryCgroup {
		limits = append(limits, limit{"data", unix.RLIMIT_DATA, uint64(l.Memory)}) //nolint:gosec // validated as positive
	}
	for _, one := range limits {
		var now unix.Rlimit
		if err := unix.Prlimit(0, one.resource, nil, &now); err != nil {
			return fmt.Errorf("read limit %s: %w", one.name, err)
		}
		value := min(one.value, now.Max) // the host's hard limit may be lower
		if err := unix.Prlimit(0, one.resource, &unix.Rlimit{Cur: value, Max: value}, nil); err != nil {
			return fmt.Errorf("set limit %s to %d: %w", one.name, value, err)
		}
	}
	return nil
}
