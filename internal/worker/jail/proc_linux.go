package jail

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// The jail's own /proc. The kernel shows the machine there too: its command line, memory, load, interrupts, locks and open
// files. A jail sees what it lists, and of the rest an empty file or directory, so that a new kernel shows nothing new.

// liveEntries are the files of /proc outside of processes that are the kernel's own. Symbolic links lead to the caller's.
func liveEntries() map[string]string {
	return map[string]string{
		"cpuinfo":     "the processor's model and features, which its own instructions tell too",
		"filesystems": "the names of file systems in the kernel",
		"uptime":      "the time since the start of the machine, which its clocks tell too",
		"version":     "the kernel, as uname tells",
	}
}

// madeEntries returns the files of /proc that the jail fills itself, in the kernel's form.
func (b *builder) madeEntries(proc string) (map[string]string, error) {
	stat, err := os.ReadFile(proc + "/stat") //nolint:gosec // of the kernel
	if err != nil {
		return nil, err
	}
	memory, err := os.ReadFile(proc + "/meminfo") //nolint:gosec // of the kernel
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"meminfo": memoryText(string(memory), b.setup.Limits.Memory),
		"stat":    statText(string(stat)),
		"loadavg": "0.00 0.00 0.00 1/1 1\n",
		"swaps":   "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
	}, nil
}

// memoryText is meminfo of a machine whose whole memory is the jail's limit, and free.
func memoryText(host string, limit int64) string {
	total := limit / 1024
	for line := range strings.Lines(host) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemTotal:" {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				total = min(total, n)
			}
		}
	}
	var out strings.Builder
	for _, name := range []string{
		"MemTotal", "MemFree", "MemAvailable", "Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree",
		"Dirty", "Writeback", "AnonPages", "Mapped", "Shmem", "Slab", "SReclaimable", "SUnreclaim",
	} {
		value := int64(0)
		if strings.HasPrefix(name, "Mem") {
			value = total
		}
		fmt.Fprintf(&out, "%-15s %8d kB\n", name+":", value)
	}
	return out.String()
}

// statText keeps of stat the number of processors and the time of the start, by which programs count and date.
func statText(host string) string {
	var out strings.Builder
	for line := range strings.Lines(host) {
		name, _, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(name, "cpu"):
			out.WriteString(name + strings.Repeat(" 0", 10) + "\n")
		case name == "btime":
			out.WriteString(line)
		}
	}
	return out.String() + "intr 0\nctxt 0\nprocesses 1\nprocs_running 1\nprocs_blocked 0\nsoftirq 0\n"
}

// settings are the files below /proc/sys that a jail sees, with the values at its start: configuration that programs size
// themselves by, never what the machine is doing.
func settings() []string {
	return []string{
		"fs/file-max", "fs/inotify/max_queued_events", "fs/inotify/max_user_instances", "fs/inotify/max_user_watches", "fs/nr_open",
		"fs/pipe-max-size", "kernel/cap_last_cap", "kernel/hostname", "kernel/ngroups_max", "kernel/osrelease", "kernel/ostype",
		"kernel/overflowgid", "kernel/overflowuid", "kernel/pid_max", "kernel/random/entropy_avail", "kernel/random/poolsize",
		"kernel/randomize_va_space", "kernel/seccomp/actions_avail", "kernel/threads-max", "kernel/version",
		"net/core/somaxconn", "net/ipv4/ip_local_port_range", "net/ipv4/ip_unprivileged_port_start", "net/ipv4/tcp_fastopen",
		"net/ipv4/tcp_keepalive_time", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv6/bindv6only",
		"net/ipv6/conf/all/disable_ipv6", "vm/max_map_count", "vm/mmap_min_addr", "vm/nr_hugepages", "vm/overcommit_memory", "vm/overcommit_ratio",
	}
}

// proc mounts the jail's own /proc: read-only, and without other users' processes, pid 1 among them.
func (b *builder) proc() error {
	dir := b.root + "/proc"
	if err := os.Mkdir(dir, 0o555); err != nil { //nolint:gosec // as every proc
		return err
	}
	options := []string{"hidepid", "2"}
	if b.setup.Root {
		options = append(options, "gid", "0") // pid 1 itself has to count processes
	}
	fd, err := mounttree.New("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC|unix.MOUNT_ATTR_RDONLY, options...)
	if err != nil {
		return err
	}
	if err := mounttree.Attach(fd, dir); err != nil {
		return err
	}
	stand := b.stage + "/proc"
	const still = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if fd, err = mounttree.New("tmpfs", still, "mode", "0755", "size", "1m"); err != nil {
		return err
	}
	if err := mounttree.Attach(fd, stand); err != nil {
		return err
	}
	if err := b.fillProc(dir, stand); err != nil {
		return fmt.Errorf("fill /proc: %w", err)
	}
	// Binds inherit these attributes.
	if err := unix.MountSetattr(unix.AT_FDCWD, stand, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %s read-only: %w", stand, err)
	}
	return maskProc(dir, stand)
}

// maskProc covers the entries of proc that are not live by those of the same name in stand, or by empty ones.
func maskProc(proc, stand string) error {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return err
	}
	live := liveEntries()
	for _, e := range entries {
		name := e.Name()
		if _, err := strconv.Atoi(name); err == nil || e.Type()&os.ModeSymlink != 0 || live[name] != "" {
			continue
		}
		instead := stand + "/" + name
		if _, err := os.Lstat(instead); err != nil {
			info, err := e.Info()
			if err != nil {
				return err
			}
			if info.Mode().Perm()&0o077 == 0 {
				continue // for the host's root, who is nobody in a jail
			}
			instead = stand + "/none/file"
			if e.IsDir() {
				instead = stand + "/none/directory"
			}
		}
		if err := unix.Mount(instead, proc+"/"+name, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mask /proc/%s: %w", name, err)
		}
	}
	return nil
}

// fillProc writes what is shown in the place of files of proc.
func (b *builder) fillProc(proc, stand string) error {
	files, err := b.madeEntries(proc)
	if err != nil {
		return err
	}
	for _, name := range settings() {
		value, err := os.ReadFile(proc + "/sys/" + name) //nolint:gosec // of the kernel
		if errors.Is(err, os.ErrNotExist) {
			continue // kernels differ
		}
		if err != nil {
			return err
		}
		files["sys/"+name] = string(value)
	}
	const random = "sys/kernel/random/"
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	files[random+"boot_id"] = fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	files[random+"uuid"] = ""
	files["none/file"] = ""
	if err := os.MkdirAll(stand+"/none/directory", 0o755); err != nil { //nolint:gosec // the agent reads it
		return err
	}
	for name, text := range files {
		path := stand + "/" + name
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // the agent reads it
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o444); err != nil { //nolint:gosec // the agent reads it
			return err
		}
	}
	return unix.Mount(proc+"/"+random+"uuid", stand+"/"+random+"uuid", "", unix.MS_BIND, "") // new at each read
}
