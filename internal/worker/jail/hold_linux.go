package jail

import (
	"fmt"
	"slices"
	"strings"
)

// notHeld begins the answer for a limit that nothing enforces for the jail as a whole.
const notHeld = "not held"

const holdFix = "to limit the jail as a whole, start the service where a systemd user manager runs (loginctl enable-linger), in a delegated control group (systemd: Delegate=memory pids cpu), or as root"

// holds says of each resource how the jail is kept from taking more of it: the one table for doctor and the records. An answer
// begins with its means: "cgroup v2", "cgroup v1", "watchdog", "rlimit", "tmpfs", "refused", "user namespace", "network
// namespace", "own host uids", "whole processors", or "not held".
func (j *Jail) holds(owner *mapping, unset []string) []string {
	l, g := j.spec.Limits, j.groups
	group := func(c controller, otherwise string) string {
		if d, ok := g.where[c]; ok {
			return fmt.Sprintf("cgroup v%d", d.version)
		}
		return otherwise
	}
	either := func(held bool, yes, no string) string {
		if held {
			return yes
		}
		return no
	}
	memory, sockets := group(memoryGroup, ""), group(memoryGroup, "")
	shared, kernel := memory+" (mappings, memfds, files)", memory
	if memory != "" {
		memory += " (processes and the files they wrote)"
	} else {
		memory = fmt.Sprintf("watchdog (processes, files and sockets together; looks every %v to %v), and rlimit per process", watchMin, watchMax)
		shared = "refused (shared anonymous mappings, memfds); files in /dev/shm count as memory"
		kernel = notHeld + " (such as locks, mappings, epoll items, landlock rules); the jail is ended when the machine has too little memory left"
	}
	if !g.sockets {
		sockets = fmt.Sprintf("watchdog (%d KiB for each socket)", socketBytes>>10)
		if slices.ContainsFunc(unset, func(s string) bool { return strings.HasPrefix(s, "net/") }) {
			sockets = notHeld + " (the network namespace does not take its limits)"
		}
	} else if g.where[memoryGroup].version == 1 {
		sockets += " (kmem.tcp for TCP and UDP: a sixteenth of the memory limit, beside it)"
	}
	perUID := either(owner.own(), "own host uids", notHeld+" (shared with the account and its other jails)")
	inotify := fmt.Sprintf("user namespace (%d instances, %d watches)", inotifyInstances, inotifyWatches)
	if slices.Contains(unset, "user/max_inotify_instances") {
		inotify = notHeld + " (the user namespace does not take its limit)"
	}
	out := []string{
		"memory: " + memory, "shared memory: " + shared, "socket buffers: " + sockets, "kernel memory: " + kernel, "huge pages: refused",
		"processes: " + group(processGroup, "rlimit per user namespace"),
		"disk: tmpfs size", "files: tmpfs inodes", "file size: rlimit", "open files: rlimit per process",
		"inotify: " + inotify, "descriptors in flight, epoll items, pipe buffers: " + perUID,
	}
	if l.CPU > 0 {
		out = append(out, "cpu: "+group(cpuGroup, "whole processors (affinity)"))
	}
	return out
}
