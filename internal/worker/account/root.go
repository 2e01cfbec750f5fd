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

// root is a root directory in the making, in a mount namespace of the calling thread.
type root struct {
	block  Block
	spaces map[owners]*space // user namespaces for idmapped mounts
	trees  []tree
	links  map[string]string
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

// spaces keeps user namespaces for the next start under the same block. A namespace only maps ids and has no process.
var spaces = kept{files: map[owners]*os.File{}} //nolint:gochecknoglobals // a cache of the process

type kept struct {
	mu    sync.Mutex
	files map[owners]*os.File // guarded by mu
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
}

// buildRoot gives the calling thread a mount namespace whose root shows the system's programs and configuration, a few devices,
// the thread's groups, /proc without the processes of others, and the program's mounts. Root owns the namespace. A program that
// is cloned from the thread into a user namespace gets a copy in which every mount is locked. The thread enters the groups, which are
// perhaps made meanwhile, before the host's paths are gone: leaf is as of Group.enter.
func (p *Program) buildRoot() (leaf int, err error) {
	r := &root{block: *p.Block, spaces: map[owners]*space{}, links: map[string]string{}}
	defer r.close()
	if err := r.gather(p); err != nil { // in the caller's namespace: of another, nothing that is open can be cloned
		return -1, err
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return -1, fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("make mounts private: %w", err)
	}
	defer unix.Umask(unix.Umask(0o022)) // of this thread alone: the program passes the directories that are made
	return r.enter(p.Group)
}

// gather opens everything that the root will show.
func (r *root) gather(p *Program) error {
	if err := r.prepare(p.Mounts); err != nil {
		return err
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
	r.trees = append(r.trees, tree{"/proc", proc})
	if err := r.programDir(p); err != nil {
		return err
	}
	mounts := slices.SortedFunc(slices.Values(p.Mounts), func(a, b Mount) int { return cmp.Compare(len(a.At), len(b.At)) }) // parents first
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.From.Name(), m.At, err)
		}
	}
	return nil
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
	r.links[path], err = os.Readlink(path)
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
	fd, err := mounttree.Clone(path)
	if err != nil {
		return err
	}
	r.trees = append(r.trees, tree{path, fd})
	return mounttree.SetAttr(fd, attr)
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
	r.trees = append(r.trees, tree{m.At, fd})
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

// show shows the program its own groups and nothing above them, where the system has them.
func (g *Group) show(top int) error {
	if g == nil {
		return nil
	}
	for _, d := range g.dirs {
		fd, err := mounttree.Clone(d.path)
		if err != nil {
			return err
		}
		err = mounttree.SetAttr(fd, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		if err == nil {
			err = (&tree{d.point, fd}).attach(top)
		}
		if err = errors.Join(err, unix.Close(fd)); err != nil {
			return err
		}
	}
	return nil
}

// stage returns a directory to build on, which covers nothing that is opened later: control groups.
func stage() (string, error) {
	for _, dir := range []string{"/mnt", "/run", "/tmp"} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			return dir, nil
		}
	}
	return "", errors.New("the host has none of /mnt, /run and /tmp to build on")
}

// enter builds the root, makes it the root of the thread and unmounts the host's.
func (r *root) enter(g *Group) (leaf int, err error) {
	dir, err := stage()
	if err != nil {
		return -1, err
	}
	const attr = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	fd, err := mounttree.New("tmpfs", attr, "mode", "0755", "size", "1m")
	if err != nil {
		return -1, err
	}
	if err := mounttree.Attach(fd, dir); err != nil {
		return -1, err
	}
	if err := r.fill(dir, g); err != nil {
		return -1, err
	}
	if leaf, err = g.enter(); err == nil {
		err = pivot(dir)
	}
	return leaf, err
}

// fill shows everything below dir.
func (r *root) fill(dir string, g *Group) error {
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(top) }()
	for path, target := range r.links {
		if err := unix.Symlinkat(target, top, path[1:]); err != nil {
			return &os.PathError{Op: "make link", Path: path, Err: err}
		}
	}
	if err := r.points(top, g); err != nil {
		return err
	}
	for _, t := range r.trees {
		if err := t.attach(top); err != nil {
			return err
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return g.show(top)
}

// pivot makes dir the root of the thread, read-only, and unmounts the host's.
func pivot(dir string) error {
	if err := unix.Mount("", dir, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil { // no mount of the host comes later
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{Attr_set: mounttree.ReadOnly}); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// points makes the mount points that are not below another mount, and directories that every root has. Nothing is attached yet, so
// no link of others is on the way.
func (r *root) points(top int, g *Group) error {
	made, dirs := map[string]bool{"/": true}, []string{"/proc", "/dev", "/sys"}
	if g != nil {
		dirs = append(dirs, g.points...)
	}
	for _, dir := range dirs {
		if err := makeDir(top, dir, made); err != nil {
			return err
		}
	}
	for i, t := range r.trees {
		if slices.ContainsFunc(r.trees[:i], func(o tree) bool { return within(t.at, o.at) }) {
			continue
		}
		directory, err := mounttree.IsDirectory(t.fd)
		switch {
		case err == nil && directory:
			err = makeDir(top, t.at, made)
		case err == nil:
			if err = makeDir(top, filepath.Dir(t.at), made); err == nil {
				err = unix.Mknodat(top, t.at[1:], unix.S_IFREG|0o444, 0)
			}
		}
		if err != nil {
			return fmt.Errorf("make the mount point %s: %w", t.at, err)
		}
	}
	return nil
}

// makeDir makes a directory below top with those above it, unless it was made.
func makeDir(top int, path string, made map[string]bool) error {
	if made[path] {
		return nil
	}
	if err := makeDir(top, filepath.Dir(path), made); err != nil {
		return err
	}
	made[path] = true
	return unix.Mkdirat(top, path[1:], 0o755)
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
	if err := unix.MoveMount(t.fd, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "attach mount at", Path: t.at, Err: err}
	}
	return nil
}
