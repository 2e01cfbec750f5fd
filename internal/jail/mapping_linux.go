package jail

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// mapping is who the jail is on the host.
type mapping struct {
	root     bool
	uid, gid int // root: of pid 1; the agent has the next one. else: the caller's
}

// Host ids of root-started jails are drawn at random from a range that nothing else uses, two for each jail, so that no two
// jails share a uid, and with it a process count or a signal.
const (
	firstID = 0x70000000
	lastID  = 0x7fffffff
)

func newMapping(root bool) (*mapping, error) {
	if !root {
		return &mapping{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("draw a host uid: %w", err)
	}
	id := firstID + int(binary.NativeEndian.Uint32(random[:])%((lastID-firstID+1)/2))*2
	return &mapping{root: true, uid: id, gid: id}, nil
}

func (m *mapping) agent() (uid, gid int) {
	if m.root {
		return m.uid + 1, m.gid + 1
	}
	return m.uid, m.gid
}

func (m *mapping) describe() string {
	if m.root {
		return "host uids of its own"
	}
	return "the caller's uid alone"
}

func (m *mapping) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
	}
	if m.root {
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: rootID, HostID: m.uid, Size: 1}, {ContainerID: agentID, HostID: m.uid + 1, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: rootID, HostID: m.gid, Size: 1}, {ContainerID: agentID, HostID: m.gid + 1, Size: 1}}
		a.GidMappingsEnableSetgroups = true
		a.Credential = &syscall.Credential{Uid: rootID, Gid: rootID}
		return a
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: agentID, HostID: m.uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: agentID, HostID: m.gid, Size: 1}}
	a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER}
	return a
}

// lowerTree is a read-only detached mount of path on which files of its owner appear as the agent's.
func (m *mapping) lowerTree(path string) (int, error) {
	fd, err := cloneTree(path)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = setAttr(fd, readOnlyBind)
	}
	if err == nil {
		err = m.idmapTo(fd, int(st.Uid), int(st.Gid))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "map owners of", Path: path, Err: err}
	}
	return fd, nil
}

// idmapTo needs a user namespace with just the wanted mapping. One is made by a child that is stopped at its exec, before
// any code of it runs, and killed once the namespace is held.
func (m *mapping) idmapTo(fd, uid, gid int) error {
	runtime.LockOSThread() // tracing is by thread
	defer runtime.UnlockOSThread()
	agentUID, agentGID := m.agent()
	p, err := os.StartProcess("/proc/self/exe", []string{"bailiwick-jail-idmap"}, &os.ProcAttr{Env: []string{}, Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: agentUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: agentGID, Size: 1}},
	}})
	if err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	defer func() { _ = p.Kill(); _, _ = p.Wait() }()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return idmap(fd, int(ns.Fd())) //nolint:gosec // a descriptor
}
