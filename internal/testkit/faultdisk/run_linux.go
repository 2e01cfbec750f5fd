package faultdisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe" //nolint:depguard // the kernel takes and fills structures

	"golang.org/x/sys/unix"
)

// Fault is the outcome of a call. The zero value lets it pass.
type Fault struct {
	Errno syscall.Errno // returned to the process; 0 with Empty
	Kept  bool          // it takes effect nevertheless
	Empty bool          // of Read: report the end of the file
}

// Run runs cmd, whose process must Join at once, and records its operations in dir.
// fault, if not nil, returns the outcome of each operation; at is its number in the
// journal, which calls that fail without effect do not enter.
//
// Syncs are not passed on to the real disk, to save time.
func Run(ctx context.Context, cmd *exec.Cmd, dir string, fault func(at int, op Op) Fault) (_ []Op, err error) {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "join"), os.NewFile(uintptr(pair[1]), "join")
	defer func() { err = errors.Join(err, ours.Close()) }()
	if len(cmd.ExtraFiles) > 0 {
		return nil, errors.New("cmd must not have extra files")
	}
	cmd.ExtraFiles = []*os.File{theirs}
	var said strings.Builder
	cmd.Stdout = &said // until it joins; then recorded
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, err
	}
	listener, err := accept(pair[0])
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("the process did not join: %w: %s", err, said.String()), cmd.Wait())
	}
	r := &recorder{listener: listener, pid: cmd.Process.Pid, root: root, fault: fault, calls: calls()}
	err = r.serve(ctx)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	err = errors.Join(err, unix.Close(listener), cmd.Wait())
	return r.ops, err
}

func accept(socket int) (listener int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("no descriptor received: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	return fds[0], nil
}

// recorder answers the calls of one process, one at a time.
type recorder struct {
	listener int
	pid      int
	root     string
	fault    func(int, Op) Fault
	calls    map[uint32]decoder
	ops      []Op
}

// notice and reply are struct seccomp_notif and struct seccomp_notif_resp.
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    uint32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type reply struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

func (r *recorder) serve(ctx context.Context) error {
	for {
		poll := []unix.PollFd{{Fd: int32(r.listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		switch {
		case poll[0].Revents&unix.POLLIN != 0:
		case poll[0].Revents != 0:
			return nil // it has exited
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			continue
		}
		var n notice
		if errno := ioctl(r.listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); errno != 0 {
			if errno == unix.ENOENT || errno == unix.EINTR { // interrupted: it is repeated
				continue
			}
			return fmt.Errorf("seccomp: %w", errno)
		}
		if err := r.answer(&n); err != nil {
			return err
		}
	}
}

// answer answers one call. The call is recorded once the process has the answer,
// since one that a signal interrupts is repeated.
func (r *recorder) answer(n *notice) error {
	c := &call{pid: r.pid, root: r.root, args: n.args}
	op, ours, err := r.calls[n.nr](c)
	if err == nil && n.nr == unix.SYS_WRITE && op.Kind == Write {
		err = c.offset(&op)
	}
	if err != nil {
		if ioctl(r.listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&n.id)) != 0 {
			return nil //nolint:nilerr // interrupted, or the process has exited
		}
		return err
	}
	pass := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	var f Fault
	if ours && r.fault != nil {
		f = r.fault(len(r.ops), op)
	}
	switch {
	case !ours:
		return r.send(pass)
	case f.Empty:
		return r.send(reply{id: n.id})
	case f.Errno != 0:
		return r.refuse(c, n, op, f)
	case op.Kind == Read:
		return r.send(pass)
	case op.Kind == Sync:
		return r.send(reply{id: n.id}, op)
	case op.Kind == Say:
		return r.send(reply{id: n.id, val: int64(len(op.Text))}, op)
	default:
		return r.send(pass, op)
	}
}

// refuse fails a call. Only writes and syncs can take effect nevertheless.
func (r *recorder) refuse(c *call, n *notice, op Op, f Fault) error {
	no := reply{id: n.id, errno: -int32(f.Errno)}
	op.Failed = true
	switch {
	case op.Kind == Sync && f.Kept:
		return r.send(no, op)
	case op.Kind == Sync:
		op.Kind = SyncLost
		return r.send(no, op)
	case op.Kind == Write && f.Kept:
		file, err := os.OpenFile(filepath.Join(c.root, op.Path), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(op.Data, op.Off)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
		return r.send(no, op)
	case f.Kept:
		return fmt.Errorf("%s %s: only writes and syncs can fail and be kept", op.Kind, op.Path)
	}
	return r.send(no)
}

func (r *recorder) send(with reply, ops ...Op) error {
	switch errno := ioctl(r.listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&with)); errno {
	case 0:
		r.ops = append(r.ops, ops...)
		return nil
	case unix.ENOENT:
		return nil // interrupted, or the process has exited
	default:
		return fmt.Errorf("seccomp: %w", errno)
	}
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) syscall.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
	return errno
}
