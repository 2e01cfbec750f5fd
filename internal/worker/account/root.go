package account

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// Mount shows a directory or a file to a program.
type Mount struct {
	At   string   // where the program sees it: a clean absolute path
	From *os.File // what to show; O_PATH is enough
	// As is the id of the block that the owner of From appears as, and whose files it can so read. Files of other owners
	// appear as the overflow uid's. With Nobody owners stay as they are.
	As    ID
	Write bool // else nothing below can be changed
	// Own is written by the program alone. Of other accounts' directories it follows no symbolic link.
	Own bool
}

// System lists the directories of the system that every program under a block sees, read-only.
func System() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"}
}

func (m Mount) validate() error {
	switch {
	case m.From == nil:
		return fmt.Errorf("mount at %s: no directory is given", m.At)
	case !filepath.IsAbs(m.At) || filepath.Clean(m.At) != m.At || m.At == "/":
		return fmt.Errorf("mount at %q: give a clean absolute path below /", m.At)
	case m.As < Nobody || m.As >= Size:
		return fmt.Errorf("mount at %s: a block has no id %d", m.At, m.As)
	case m.As == Nobody && m.Write:
		return fmt.Errorf("mount at %s: writable for nobody: name the id that owns it", m.At)
	}
	for _, own := range append(System(), "/proc", "/dev", "/sys") {
		if within(m.At, own) || within(own, m.At) {
			return fmt.Errorf("mount at %s: %s is the system's; name another path", m.At, own)
		}
	}
	return nil
}

// tree is a detached mount and where it goes.
type tree struct {
	at string
	fd int
}

// root is a root directory in the making.
type root struct {
	block  Block
	spaces map[owners]*space // user namespaces for idmapped mounts
	top    int               // its own file system, detached: mount points and links
	trees  []tree
	made   map[string]bool // directories of top
}

// owners are the uid and gid on disk of what is shown, and the host's id that it appears as.
type owners struct{ uid, gid, as int }

// space is a user namespace, perhaps in the making: it costs a process, so all are made at once.
type space struct {
	made chan struct{} // closed then
	file *os.File
	err  error
}

// prepare begins to make the namespaces that mounts need.
func (r *root) prepare(mounts []Mount) error {
	for _, m := range mounts {
		if m.As == Nobody {
			continue
		}
		key, err := r.owners(m)
		if err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.From.Name(), m.At, err)
		}
		if r.spaces[key] != nil {
			continue
		}
		s := &space{made: make(chan struct{})}
		r.spaces[key] = s
		if s.file = spaces.take(key); s.file != nil {
			close(s.made)
			continue
		}
		go func() {
			defer close(s.made)
			s.file, s.err = mounttree.Owner(key.uid, key.gid, key.as, key.as)
		}()
	}
	return nil
}

// maxSpaces bounds the namespaces that are kept, for 32 starts at once.
const maxSpaces = 128

// spaces keeps namespaces for the next start: user namespaces for a start under the same block, and a mount namespace. They have no process.
var spaces = kept{files: map[owners]*os.File{}} //nolint:gochecknoglobals // a cache of the process

type kept struct {
	mu    sync.Mutex
	files map[owners]*os.File // guarded by mu
	bare  *os.File            // a mount namespace with one empty directory; nil before the first start; guarded by mu
}

// take returns a namespace that is kept, or nil. It is the caller's.
func (k *kept) take(key owners) *os.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files[key]
	delete(k.files, key)
	return f
}

// keep takes a namespace over, and closes one if there are too many.
func (k *kept) keep(key owners, f *os.File) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, old := range k.files {
		if other == key || len(k.files) >= maxSpaces {
			_ = old.Close()
			delete(k.files, other)
		}
	}
	k.files[key] = f
}

func (r *root) owners(m Mount) (owners, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(m.From.Fd()), &st); err != nil { //nolint:gosec // a descriptor
		return owners{}, err
	}
	if st.Uid == 0 || st.Gid == 0 {
		return owners{}, errors.New("it belongs to root, whose files are never shown as another account's")
	}
	return owners{int(st.Uid), int(st.Gid), r.block.host(m.As)}, nil
}

// close waits for what was begun, closes the mounts and keeps the namespaces.
func (r *root) close() {
	for key, s := range r.spaces {
		<-s.made
		if s.file != nil {
			spaces.keep(key, s.file)
		}
	}
	for _, t := range r.trees {
		_ = unix.Close(t.fd)
	}
	_ = unix.Close(r.top)
}

// buildRoot gives the calling thread a mount namespace whose root shows the system's programs and configuration, a few devices,
// the thread's groups, /proc without the processes of others, and the program's mounts. Root owns the namespace. A program that
// is cloned from the thread into a user namespace gets a copy in which every mount is locked. The thread enters the groups, which
// are perhaps made meanwhile, before the host's paths are gone: leaf is as of Group.enter.
func (p *Program) buildRoot() (leaf int, err error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return -1, fmt.Errorf("take a root directory of its own: %w", err)
	}
	defer unix.Umask(unix.Umask(0o022)) // of this thread alone: the program passes the directories that are made
	r := &root{block: *p.Block, spaces: map[owners]*space{}, top: -1, made: map[string]bool{"/": true}}
	defer r.close()
	if err := r.gather(p); err != nil { // in the caller's namespace: of another, nothing that is open can be cloned
		return -1, err
	}
	if leaf, err = p.Group.enter(); err == nil {
		err = r.enter()
	}
	return leaf, err
}

// gather opens everything that the root will show.
func (r *root) gather(p *Program) error {
	err := r.prepare(p.Mounts)
	if err != nil {
		return err
	}
	if r.top, err = mounttree.New("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode", "0755", "size", "1m"); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/dev", "/sys"} { // every root has them
		if err := r.makeDir(dir); err != nil {
			return err
		}
	}
	for _, path := range System() {
		if err := r.system(path); err != nil {
			return err
		}
	}
	if err := r.resolver(); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom"} {
		if err := r.clone("/dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	proc, err := mounttree.New("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "hidepid", "2")
	if err != nil {
		return err
	}
	if err := errors.Join(r.add("/proc", proc), r.programDir(p)); err != nil {
		return err
	}
	mounts := slices.SortedFunc(slices.Values(p.Mounts), func(a, b Mount) int { return cmp.Compare(len(a.At), len(b.At)) }) // parents first
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.From.Name(), m.At, err)
		}
	}
	return r.groups(p.Group)
}

// add takes a mount over and makes the mount point, unless that is below another mount. Nothing is attached yet, so no link of
// others is on the way.
func (r *root) add(at string, fd int) error {
	below := r.shown(at)
	r.trees = append(r.trees, tree{at, fd})
	if below {
		return nil
	}
	directory, err := mounttree.IsDirectory(fd)
	switch {
	case err == nil && directory:
		err = r.makeDir(at)
	case err == nil:
		if err = r.makeDir(filepath.Dir(at)); err == nil {
			err = unix.Mknodat(r.top, at[1:], unix.S_IFREG|0o444, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("make the mount point %s: %w", at, err)
	}
	return nil
}

// makeDir makes a directory of the root with those above it, unless it was made.
func (r *root) makeDir(path string) error {
	if r.made[path] {
		return nil
	}
	if err := r.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	r.made[path] = true
	return unix.Mkdirat(r.top, path[1:], 0o755)
}

// system shows a directory of the system, or copies its symbolic link.
func (r *root) system(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode()&os.ModeSymlink == 0 {
		return r.clone(path, mounttree.ReadOnly)
	}
	target, err := os.Readlink(path)
	if err == nil {
		err = unix.Symlinkat(target, r.top, path[1:])
	}
	return err
}

// resolver shows the file with the resolver's configuration, where /etc only has a link to it: its directory may have more.
func (r *root) resolver() error {
	file, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil || r.shown(file) {
		return nil //nolint:nilerr // a machine without: names do not resolve outside either
	}
	return r.clone(file, mounttree.ReadOnly)
}

// programDir shows the directory of the program, where it has its siblings.
func (r *root) programDir(p *Program) error {
	dir := filepath.Dir(p.Path)
	if r.shown(dir) || slices.ContainsFunc(p.Mounts, func(m Mount) bool { return within(dir, m.At) }) {
		return nil
	}
	return r.clone(dir, mounttree.ReadOnly)
}

func (r *root) shown(path string) bool {
	return slices.ContainsFunc(r.trees, func(t tree) bool { return within(path, t.at) })
}

// clone shows a path of the host at the same path.
func (r *root) clone(path string, attr uint64) error {
	return r.cloneTo(path, path, attr)
}

func (r *root) cloneTo(at, path string, attr uint64) error {
	fd, err := mounttree.Clone(path)
	if err != nil {
		return err
	}
	return errors.Join(r.add(at, fd), mounttree.SetAttr(fd, attr))
}

// mount shows a mount of the program.
func (r *root) mount(m Mount) error {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if m.As == Nobody {
		flags |= unix.AT_RECURSIVE // an idmapped mount is one file system
	}
	fd, err := unix.OpenTree(int(m.From.Fd()), "", flags) //nolint:gosec // a descriptor
	if err != nil {
		return err
	}
	if err := r.add(m.At, fd); err != nil {
		return err
	}
	attr := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	switch {
	case !m.Write:
		attr = mounttree.ReadOnly
	case !m.Own:
		attr |= unix.MOUNT_ATTR_NOSYMFOLLOW
	}
	if err := mounttree.SetAttr(fd, attr); err != nil || m.As == Nobody {
		return err
	}
	key, err := r.owners(m)
	if err != nil {
		return err
	}
	space := r.spaces[key]
	if space == nil {
		return errors.New("its owner changed meanwhile")
	}
	if <-space.made; space.err != nil {
		return space.err
	}
	err = mounttree.Idmap(fd, int(space.file.Fd())) //nolint:gosec // a descriptor
	if errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: its file system gives no attempt owners of its own; put it on ext4, XFS, Btrfs or tmpfs", err)
	}
	return err
}

// groups shows the program its own groups and nothing above them, where the system has them.
func (r *root) groups(g *Group) error {
	if err := g.Wait(); g == nil || err != nil {
		return err
	}
	for _, d := range g.dirs {
		if !d.delegates() {
			continue
		}
		if err := r.cloneTo(d.point, d.path, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the root that of the thread, in a mount namespace without the host's mounts.
func (r *root) enter() error {
	if err := spaces.leaveHost(); err != nil {
		return fmt.Errorf("leave the host's mounts: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := (&tree{"/", r.top}).move(unix.AT_FDCWD, "/"); err != nil {
		return err
	}
	if err := errors.Join(unix.Fchdir(r.top), unix.Chroot(".")); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	for _, t := range r.trees {
		if err := t.attach(r.top); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil { // no mount of the host comes later
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.MountSetattr(r.top, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: mounttree.ReadOnly}); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}

// leaveHost moves the calling thread to the bare namespace, which the caller copies before it mounts anything. So a start neither
// copies all mounts of the host nor waits until the kernel has dropped them.
func (k *kept) leaveHost() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bare != nil {
		return unix.Setns(int(k.bare.Fd()), unix.CLONE_NEWNS) //nolint:gosec // a descriptor
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	bare, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	if err := dropHost(); err != nil {
		return errors.Join(err, bare.Close())
	}
	k.bare = bare
	return nil
}

// dropHost makes an empty directory the root of the thread's mount namespace, and unmounts everything else.
func dropHost() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	empty, err := mounttree.New("tmpfs", mounttree.ReadOnly, "mode", "0555", "size", "4k", "nr_inodes", "1")
	if err != nil {
		return err
	}
	if err := mounttree.Attach(empty, "/proc"); err != nil {
		return err
	}
	if err := errors.Join(unix.Chdir("/proc"), unix.PivotRoot(".", ".")); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// attach attaches a mount below the directory top. A point below another mount must exist there, and no symbolic link is followed.
func (t *tree) attach(top int) error {
	point, err := unix.Openat2(top, "."+t.at, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return &os.PathError{Op: "open mount point", Path: t.at, Err: err}
	}
	defer func() { _ = unix.Close(point) }()
	return t.move(point, "")
}

func (t *tree) move(dir int, path string) error {
	if err := unix.MoveMount(t.fd, "", dir, path, unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "attach mount at", Path: t.at, Err: err}
	}
	return nil
}
