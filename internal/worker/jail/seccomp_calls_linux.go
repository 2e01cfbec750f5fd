package jail

import (
	"slices"

	"golang.org/x/sys/unix"
)

// family is a group of system calls with one decision: result 0 allows them, an errno is what they return. Programs take
// ENOSYS as a kernel without the call and use another; EPERM is for calls that have no other.
type family struct {
	why    string
	result unix.Errno
	calls  []uint32
}

// calls returns the calls of every family with one decision.
func calls(result unix.Errno) (all []uint32) {
	for _, f := range slices.Concat(allowedCalls(), allowedCallsHere(), refusedCalls(), refusedCallsHere()) {
		if f.result == result {
			all = append(all, f.calls...)
		}
	}
	return all
}

// allowedCalls are the calls that act on the jail alone: its own processes and memory, its private file systems, its read-only
// view of host files, and its network namespace. Those with checked arguments are in rules.
func allowedCalls() []family {
	return []family{
		{why: "files by descriptor", calls: []uint32{
			unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV,
			unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_LSEEK, unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE, unix.SYS_DUP,
			unix.SYS_DUP3, unix.SYS_FLOCK, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNCFS,
			unix.SYS_SYNC_FILE_RANGE, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_READAHEAD,
			unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_VMSPLICE, unix.SYS_FSTAT,
			unix.SYS_FSTATFS, unix.SYS_FCHMOD, unix.SYS_FCHOWN, unix.SYS_GETDENTS64, unix.SYS_PIPE2,
		}},
		{why: "files by path: landlock and read-only mounts decide", calls: []uint32{
			unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FACCESSAT,
			unix.SYS_FACCESSAT2, unix.SYS_READLINKAT, unix.SYS_TRUNCATE, unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT,
			unix.SYS_LINKAT, unix.SYS_SYMLINKAT, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
			unix.SYS_GETCWD, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_UMASK, unix.SYS_FILE_GETATTR, unix.SYS_FILE_SETATTR,
			unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_FGETXATTR,
			unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_FLISTXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
			unix.SYS_FREMOVEXATTR, unix.SYS_SETXATTRAT, unix.SYS_GETXATTRAT, unix.SYS_LISTXATTRAT, unix.SYS_REMOVEXATTRAT,
		}},
		{why: "events: watches see the jail's own inodes only", calls: []uint32{
			unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
			unix.SYS_EVENTFD2, unix.SYS_SIGNALFD4, unix.SYS_TIMERFD_CREATE, unix.SYS_TIMERFD_SETTIME, unix.SYS_TIMERFD_GETTIME,
			unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_INOTIFY_RM_WATCH,
		}},
		{why: "sockets that exist: the rules of socket decide which do", calls: []uint32{
			unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_GETSOCKNAME,
			unix.SYS_GETPEERNAME, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SENDMMSG,
			unix.SYS_RECVMMSG, unix.SYS_GETSOCKOPT, unix.SYS_SHUTDOWN,
		}},
		{why: "memory of the caller", calls: []uint32{
			unix.SYS_BRK, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MSYNC, unix.SYS_MADVISE,
			unix.SYS_MINCORE, unix.SYS_MLOCK, unix.SYS_MLOCK2, unix.SYS_MUNLOCK, unix.SYS_MLOCKALL, unix.SYS_MUNLOCKALL, unix.SYS_MSEAL,
			unix.SYS_MEMFD_CREATE, unix.SYS_MEMBARRIER, unix.SYS_MAP_SHADOW_STACK, unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE,
			unix.SYS_PKEY_MPROTECT, unix.SYS_MBIND, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE,
		}},
		{why: "segments that the rule of shmget allows", calls: []uint32{unix.SYS_SHMAT, unix.SYS_SHMDT, unix.SYS_SHMCTL}},
		{why: "processes and threads of the jail", calls: []uint32{
			unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_GETPID,
			unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_SETPGID, unix.SYS_GETPGID, unix.SYS_GETSID, unix.SYS_SETSID,
			unix.SYS_SET_TID_ADDRESS, unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST, unix.SYS_FUTEX, unix.SYS_FUTEX_WAITV,
			unix.SYS_FUTEX_WAKE, unix.SYS_FUTEX_WAIT, unix.SYS_FUTEX_REQUEUE, unix.SYS_RSEQ, unix.SYS_RSEQ_SLICE_YIELD,
			unix.SYS_PIDFD_SEND_SIGNAL, // by a descriptor of pidfd_open or of the jail's /proc, which do not lead to pid 1
			unix.SYS_GETCPU, unix.SYS_GETRUSAGE, unix.SYS_GETRLIMIT, unix.SYS_SETRLIMIT, unix.SYS_TIMES,
			unix.SYS_RESTART_SYSCALL,
		}},
		{why: "signals of the caller", calls: []uint32{
			unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGSUSPEND,
			unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_SIGALTSTACK,
		}},
		{why: "identity: without capabilities and with one uid nothing changes; a program may only restrict itself", calls: []uint32{
			unix.SYS_GETUID, unix.SYS_GETGID, unix.SYS_GETEUID, unix.SYS_GETEGID, unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID,
			unix.SYS_SETREGID, unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_SETFSUID,
			unix.SYS_SETFSGID, unix.SYS_GETGROUPS, unix.SYS_SETGROUPS, unix.SYS_CAPGET, unix.SYS_CAPSET, unix.SYS_SECCOMP,
			unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF,
		}},
		{why: "clocks and timers", calls: []uint32{
			unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP, unix.SYS_GETTIMEOFDAY,
			unix.SYS_GETITIMER, unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_GETTIME,
			unix.SYS_TIMER_GETOVERRUN, unix.SYS_TIMER_DELETE,
		}},
		{why: "reading how a process is scheduled", calls: []uint32{
			unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER,
			unix.SYS_SCHED_GETATTR, unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_SCHED_RR_GET_INTERVAL,
			unix.SYS_GETPRIORITY, unix.SYS_IOPRIO_GET,
		}},
		{why: "facts about the machine that runtimes size themselves by", calls: []uint32{
			unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRANDOM,
		}},
	}
}

// refusedCalls are the calls that lead to other processes, other namespaces, the host's devices, what all share, or large and
// rarely reviewed parts of the kernel.
func refusedCalls() []family {
	return []family{
		{"other processes", unix.EPERM, []uint32{
			unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
			unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
		}},
		{"namespaces, mounts and handles of files", unix.EPERM, []uint32{
			unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
			unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
			unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT, unix.SYS_LISTNS,
			unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
		}},
		{"clone3 has its flags in memory: libraries use clone", unix.ENOSYS, []uint32{unix.SYS_CLONE3}},
		{"parts of the kernel with many past vulnerabilities", unix.EPERM, []uint32{
			unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
			unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_REMAP_FILE_PAGES,
		}},
		{"the same, where programs have another way", unix.ENOSYS, []uint32{
			unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		}},
		{"asynchronous I/O: fs.aio-max-nr is one number for the machine", unix.ENOSYS, []uint32{
			unix.SYS_IO_SETUP, unix.SYS_IO_DESTROY, unix.SYS_IO_SUBMIT, unix.SYS_IO_CANCEL, unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS,
		}},
		{"System V semaphores and messages, and POSIX message queues: memory of the kernel that no limit of the jail counts", unix.ENOSYS, []uint32{
			unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMCTL, unix.SYS_SEMTIMEDOP,
			unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
			unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK, unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
		}},
		{"memory that the machine cannot inspect, and what it caches of files", unix.ENOSYS, []uint32{
			unix.SYS_MEMFD_SECRET, unix.SYS_CACHESTAT,
		}},
		{"the processors that the jail was given, see pin", unix.EPERM, []uint32{unix.SYS_SCHED_SETAFFINITY}},
		{"the machine itself", unix.EPERM, []uint32{
			unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
			unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
			unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SYSLOG,
			unix.SYS_VHANGUP, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		}},
		{"security modules and obsolete calls: no program needs them", unix.ENOSYS, []uint32{
			unix.SYS_LSM_GET_SELF_ATTR, unix.SYS_LSM_SET_SELF_ATTR, unix.SYS_LSM_LIST_MODULES, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL,
		}},
	}
}
