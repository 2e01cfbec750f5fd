package jail

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/uidblock"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// mapping is the identity of the jail outside.
type mapping struct {
	root     bool
	block    bool // root in a user namespace of three ids: a jail gets the second and the third
	uid, gid int  // as root those of pid 1, and the agent has the next; else the caller's
}

// Host ids of jails started as root are drawn at random from an otherwise unused range, two for each jail, so that jails do
// not share process counts or signals.
const (
	firstID = 0x70000000
	lastID  = 0x7fffffff
)

func newMapping(root bool) (*mapping, error) {
	if !root {
		return &mapping{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	if uidblock.Inside() {
		return &mapping{root: true, block: true, uid: 1, gid: 1}, nil
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

// own reports whether no other jail has the uids of this one, but for those that the same worker starts.
func (m *mapping) own() bool { return m.root }

func (m *mapping) describe() string {
	if m.block {
		return "separate host uids, of the worker's own block"
	}
	if m.root {
		return "separate host uids"
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
	a.AmbientCaps = []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_FOWNER,
		unix.CAP_SYS_RESOURCE,
	} // for limits of the namespace
	return a
}

// lowerTrees returns read-only detached mounts of paths, with files of their owners mapped to the agent. On error it returns
// those opened before.
func (m *mapping) lowerTrees(paths []string) (trees []int, err error) {
	spaces := map[[2]int]*os.File{} // by owner: each costs a process, and layers mostly share an owner
	defer func() {
		for _, ns := range spaces {
			_ = ns.Close()
		}
	}()
	for _, path := range paths {
		fd, err := m.lowerTree(path, spaces)
		if err != nil {
			return trees, err
		}
		trees = append(trees, fd)
	}
	return trees, nil
}

func (m *mapping) lowerTree(path string, spaces map[[2]int]*os.File) (int, error) {
	if m.block {
		return m.agentTree(path)
	}
	fd, err := mounttree.Clone(path)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = mounttree.SetAttr(fd, mounttree.ReadOnly)
	}
	owner := [2]int{int(st.Uid), int(st.Gid)}
	if err == nil && spaces[owner] == nil {
		var ns *os.File
		uid, gid := m.agent()
		if ns, err = mounttree.Owner(owner[0], owner[1], uid, gid); err == nil {
			spaces[owner] = ns
		}
	}
	if err == nil {
		err = mounttree.Idmap(fd, int(spaces[owner].Fd())) //nolint:gosec // a descriptor
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "map owners of", Path: path, Err: err}
	}
	return fd, nil
}

// agentTree returns a mount of path that was mapped to the agent before this process started.
func (m *mapping) agentTree(path string) (int, error) {
	fd, err := mounttree.Clone(filepath.Join(mounttree.AgentView, path))
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = mounttree.SetAttr(fd, mounttree.ReadOnly)
	}
	if uid, _ := m.agent(); err == nil && int(st.Uid) != uid {
		err = fmt.Errorf("its owner is uid %d of the block, not the agent, %d", st.Uid, uid)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "take the agent's view of", Path: path, Err: err}
	}
	return fd, nil
}
