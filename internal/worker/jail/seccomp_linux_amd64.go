package jail

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const auditArch = unix.AUDIT_ARCH_X86_64

// allowedCallsHere are mostly older spellings of allowed calls.
func allowedCallsHere() []family {
	return []family{
		{why: "files by descriptor", calls: []uint32{unix.SYS_DUP2, unix.SYS_PIPE, unix.SYS_GETDENTS}},
		{why: "files by path", calls: []uint32{
			unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_RENAME,
			unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_LINK, unix.SYS_UNLINK, unix.SYS_SYMLINK, unix.SYS_CHMOD, unix.SYS_CHOWN,
			unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
		}},
		{why: "events", calls: []uint32{
			unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_SIGNALFD,
			unix.SYS_INOTIFY_INIT,
		}},
		{why: "processes and clocks", calls: []uint32{
			unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_GETPGRP, unix.SYS_ARCH_PRCTL, unix.SYS_PAUSE, unix.SYS_ALARM, unix.SYS_TIME,
		}},
		{why: "trampolines that the kernel puts into a process that the host traces", calls: []uint32{unix.SYS_URETPROBE, unix.SYS_UPROBE}},
	}
}

func refusedCallsHere() []family {
	return []family{
		{"ports, segments and obsolete interfaces of the kernel", unix.EPERM, []uint32{
			unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL,
			unix.SYS_CREATE_MODULE, unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE,
		}},
		{"calls that the kernel never had here", unix.ENOSYS, []uint32{
			unix.SYS_GETPMSG, unix.SYS_PUTPMSG, unix.SYS_AFS_SYSCALL, unix.SYS_TUXCALL, unix.SYS_SECURITY, unix.SYS_VSERVER,
			unix.SYS_EPOLL_CTL_OLD, unix.SYS_EPOLL_WAIT_OLD, unix.SYS_SET_THREAD_AREA, unix.SYS_GET_THREAD_AREA,
		}},
	}
}

func fileRulesHere(device func(arg uint32) []bpf.Instruction) []rule {
	return []rule{{unix.SYS_MKNOD, device(1)}}
}
