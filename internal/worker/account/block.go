package account

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/base/uidblock"
)

// Block is an account for one program: [Size] consecutive host uids, and the gids of the same numbers.
type Block struct{ First int }

// Size is the number of ids of a block.
const Size = uidblock.Size

// ID is one id of a block, by the number that it has in the program's user namespace.
type ID int

// The ids of a block.
const (
	Self  ID = iota // the program, which is root in its user namespace
	Init            // pid 1 of its jails
	Agent           // what runs in its jails
	// Nobody leaves the owners of a mount as they are: the program reads what everybody may read.
	Nobody ID = -1
)

// firstUser is the lowest id of a block. Below are the accounts of the system and of people.
const firstUser = 65536

// lastUser is the highest id: the kernel uses the next as "no id".
const lastUser = 1<<32 - 2

func (b Block) validate() error {
	if b.First < firstUser || b.First+Size-1 > lastUser {
		return fmt.Errorf("uid block %d: give a first uid from %d to %d", b.First, firstUser, lastUser-Size+1)
	}
	return nil
}

// host is the host's uid of an id.
func (b Block) host(id ID) int { return b.First + int(id) }

// Has reports whether a host uid is of the block.
func (b Block) Has(uid int) bool { return uid >= b.First && uid < b.First+Size }

// attributes let a program start as the first id of the block, with capabilities in its own user namespace only.
func (b Block) attributes(attr *syscall.SysProcAttr) {
	attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: b.First, Size: Size}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: b.First, Size: Size}}
	attr.GidMappingsEnableSetgroups = true
	attr.Credential = &syscall.Credential{Uid: 0, Gid: 0} // and no supplementary groups
}
