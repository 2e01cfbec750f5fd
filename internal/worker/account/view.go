package account

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/failpoint"
	"github.com/bailiwick-dev/bailiwick/internal/base/ownedpath"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mounttree"
)

// Path is a file or directory of the host that a program sees at the same path.
type Path struct {
	At string
	// From is what must be at At, to which no symbolic link may lead. It may be open in another mount namespace, such as that of
	// a unit, where nothing can be mounted from.
	From     *os.File
	Write    bool // the service's, and the program may change what is below
	Agent    bool // the agents of its jails get it in their workspace
	Optional bool // it may be missing
	Trusted  bool // root's or the service's: the program takes it for root's
	// Links follows symbolic links to At. Each belongs to root or to the owner of what it leads to. What they lead to is never
	// shown as more than everybody may read.
	Links bool
}

// WorkerPaths lists what a worker sees of an installation: its attempt's directory, dir, and what is to read. Repository is what its
// source is checked out from, if it has one, and others are paths that humans signed for its jails: the worker reports what is missing.
func WorkerPaths(d api.Dirs, attempt string, dir *os.File, repository string, others []string) []Path {
	paths := []Path{
		{At: attempt, From: dir, Write: true, Agent: true},
		{At: d.Checkouts(), Agent: true, Optional: true},
		{At: d.Private(), Trusted: true},
		{At: d.TrustRoot(), Trusted: true},
		{At: d.Catalog()},
		{At: d.Agents(), Optional: true},
	}
	for _, file := range seal.HistoryFiles(d.State) {
		paths = append(paths, Path{At: file, Optional: true, Trusted: true})
	}
	if repository != "" {
		paths = append(paths, Path{At: repository, Links: !within(repository, d.State), Optional: true})
	}
	return withOthers(paths, others)
}

// withOthers adds signed paths, and removes those that every program sees.
func withOthers(paths []Path, others []string) []Path {
	for _, p := range others {
		paths = append(paths, Path{At: p, Optional: true}) // as for a jail, which refuses links there
	}
	return slices.DeleteFunc(paths, func(p Path) bool {
		return slices.ContainsFunc(System(), func(s string) bool { return within(p.At, s) })
	})
}

// Open opens paths as the mounts of a program. What is owned by the service, an account of the uid, is the program's to read; of
// other accounts the program reads what everybody may. The caller closes the mounts after the start.
func Open(service int, paths []Path) (_ Opened, err error) {
	if dir := failpoint.Dir(); dir != "" {
		paths = append(slices.Clone(paths), Path{At: dir, Write: true, Optional: true})
	}
	var all Opened
	defer func() {
		if err != nil {
			err = errors.Join(err, all.Close())
		}
	}()
	for _, p := range paths {
		f, direct, err := p.open()
		if p.Optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, p.refused(err)
		}
		m := Mount{At: p.At, From: f, As: Self, Write: p.Write}
		all = append(all, m)
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil { //nolint:gosec // a descriptor
			return nil, fmt.Errorf("show %s: %w", p.At, err)
		}
		switch {
		case int(st.Uid) == service && direct:
		case p.Write || p.Agent || p.Trusted && st.Uid != 0:
			return nil, p.refused(otherOwner(st.Uid, service))
		default:
			all[len(all)-1].As = Nobody
		}
		if p.Agent {
			f, err := duplicate(f)
			if err != nil {
				return nil, fmt.Errorf("show %s: %w", p.At, err)
			}
			all = append(all, Mount{At: mounttree.AgentView + p.At, From: f, As: Agent})
		}
	}
	return all, nil
}

// open returns what is at the path, and whether no link led there: a person's link to what the service may read gives nothing.
func (p Path) open() (_ *os.File, direct bool, _ error) {
	at, owner, err := p.At, uint32(0), error(nil)
	if p.Links {
		if at, owner, err = ownedpath.Resolve(p.At); err != nil {
			return nil, false, err
		}
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, at, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, false, err
	}
	f := os.NewFile(uintptr(fd), p.At) //nolint:gosec // a descriptor
	switch {
	case p.From != nil:
		err = sameFile(f, p.From)
	case p.Links:
		err = belongs(f, owner)
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, at == p.At, nil
}

func belongs(f *os.File, want uint32) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if owner, err := ownedpath.Of(st); err != nil || owner != want {
		return errors.Join(errors.New("it was replaced by what belongs to another account"), err)
	}
	return nil
}

func sameFile(f, want *os.File) error {
	there, err := f.Stat()
	if err != nil {
		return err
	}
	st, err := want.Stat()
	if err == nil && !os.SameFile(there, st) {
		err = api.Errorf(api.CodeInvalid, "it is not the directory whose descriptor was given")
	}
	return err
}

func otherOwner(uid uint32, service int) error {
	return api.Errorf(api.CodeInvalid, "it belongs to uid %d, not to the service's uid %d", uid, service)
}

// refused is the error for a path that cannot be shown.
func (p Path) refused(err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return api.Errorf(api.CodeInvalid, "show %s: it is, or is below, a symbolic link", p.At).WithHint("no link is followed there: move what it leads to there, or mount that")
	case api.CodeOf(err) == api.CodeInvalid, errors.Is(err, fs.ErrNotExist):
		return api.Errorf(api.CodeInvalid, "show %s: %w", p.At, err).WithHint("the service does not make it so: find out who changes its files")
	}
	return fmt.Errorf("show %s: %w", p.At, err)
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil //nolint:gosec // a descriptor
}

// Opened are mounts whose files are the caller's to close.
type Opened []Mount

// Close closes their files.
func (all Opened) Close() error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.From.Close())
	}
	return errors.Join(errs...)
}
