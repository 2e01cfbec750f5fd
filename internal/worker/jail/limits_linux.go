package jail

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// initThreads is the allowance for pid 1's own threads in task limits.
const initThreads = 20

// reserved is how much more one process may map than it may use: runtimes map what they never touch, JavaScriptCore about 3 GiB.
// The watchdog counts what is used.
const reserved = 3 << 30

// Inotify limits of a jail. The kernel counts them for the account that made the user namespace too, whatever the uids inside:
// by default it has 128 instances.
const (
	inotifyInstances = 16
	inotifyWatches   = 16384
)

// setLimits sets the agent's rlimits on pid 1, from which commands inherit them, since Go cannot set them between fork and
// exec. Pid 1 stays within them: it opens few files, writes none, and already has its threads and memory.
func setLimits(s *setup) error {
	l := s.Limits
	limits := []limit{
		{"core", unix.RLIMIT_CORE, 0},
		{"file size", unix.RLIMIT_FSIZE, uint64(l.FileSize)},                //nolint:gosec // validated as positive
		{"processes", unix.RLIMIT_NPROC, uint64(l.Processes + initThreads)}, //nolint:gosec // validated as positive
		{"locked memory", unix.RLIMIT_MEMLOCK, 1 << 20},
		{"message queues", unix.RLIMIT_MSGQUEUE, 0},
		{"pending signals", unix.RLIMIT_SIGPENDING, 4096},
		{"nice", unix.RLIMIT_NICE, 0},
		{"real-time priority", unix.RLIMIT_RTPRIO, 0},
	}
	if !s.MemoryCgroup {
		limits = append(limits, limit{"data", unix.RLIMIT_DATA, uint64(l.Memory + reserved)}) //nolint:gosec // validated as positive
	}
	for _, one := range limits {
		if err := one.set(1); err != nil {
			return err
		}
	}
	return nil
}

// setOpenFiles sets the agent's limit of descriptors once pid 1 has sent its own. The kernel compares it with the number of
// descriptors in flight of the whole account, which an agent with the account's uid can drive to its own limit: so a jail
// starts with a higher one.
func setOpenFiles(l Limits) error {
	return limit{"open files", unix.RLIMIT_NOFILE, uint64(l.OpenFiles)}.set(2) //nolint:gosec // validated as positive
}

type limit struct {
	name     string
	resource int
	value    uint64
}

// set lowers a limit, to at most the given part of the host's hard limit.
func (l limit) set(part uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(0, l.resource, nil, &now); err != nil {
		return fmt.Errorf("read limit %s: %w", l.name, err)
	}
	value := min(l.value, now.Max/part)
	if err := unix.Prlimit(0, l.resource, &unix.Rlimit{Cur: value, Max: value}, nil); err != nil {
		return fmt.Errorf("set limit %s to %d: %w", l.name, value, err)
	}
	return nil
}

// Buffers of a socket in a jail whose sockets the watchdog counts: what one can hold at most, in bytes. Unix and UDP sockets
// keep the kernel's default of 208 KiB, and may exceed it by one message, for which 256 KiB and more are allocated. TCP is set in each direction.
const (
	socketBytes = 528 << 10
	tcpBytes    = 128 << 10
)

// namespaceLimits are limits of the jail's own user and network namespaces, as files below /proc/sys.
func (s *setup) namespaceLimits() map[string]string {
	limits := map[string]string{
		"user/max_inotify_instances": strconv.Itoa(inotifyInstances), "user/max_inotify_watches": strconv.Itoa(inotifyWatches),
		"user/max_fanotify_groups": "0", "user/max_cgroup_namespaces": "1", // that of the spawner
	}
	for _, kind := range []string{"user", "pid", "net", "ipc", "uts", "time"} {
		limits["user/max_"+kind+"_namespaces"] = "0" // those of the jail exist; building it takes mount namespaces
	}
	if s.CountSockets {
		most := strconv.Itoa(tcpBytes)
		limits["net/ipv4/tcp_wmem"], limits["net/ipv4/tcp_rmem"] = "4096 16384 "+most, "4096 "+most+" "+most
		limits["net/ipv4/tcp_max_tw_buckets"], limits["net/core/optmem_max"] = "4096", "20480"
	}
	return limits
}

// setNamespaceLimits sets them, and returns those that the kernel does not have or does not let it set.
func setNamespaceLimits(s *setup) (unset []string, err error) {
	proc, err := mounttree.New("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(proc) }()
	for name, value := range s.namespaceLimits() {
		fd, err := unix.Openat(proc, "sys/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Write(fd, []byte(value))
			_ = unix.Close(fd)
		}
		if err != nil {
			unset = append(unset, name)
		}
	}
	return unset, nil
}
