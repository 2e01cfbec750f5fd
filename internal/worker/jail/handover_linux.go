package jail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// shown lists the host paths to show. No link may lead to where a mount point would be, and a link in a host path is
// followed now.
func (s Spec) shown() (all []Mount, err error) {
	for _, path := range s.ReadOnly {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("read-only path: %w", err)
		}
		if real != path { // the mount point would be elsewhere
			return nil, fmt.Errorf("read-only path %q goes through a symbolic link: name %q", path, real)
		}
		all = append(all, Mount{path, path})
	}
	for _, m := range s.Mounts {
		if m.Host, err = filepath.EvalSymlinks(m.Host); err != nil {
			return nil, fmt.Errorf("mount at %s: %w", m.Jail, err)
		}
		if st, err := os.Stat(m.Host); err != nil || !st.IsDir() && !st.Mode().IsRegular() {
			return nil, errors.Join(fmt.Errorf("mount at %s: %s is neither a regular file nor a directory", m.Jail, m.Host), err)
		}
		all = append(all, m)
	}
	return all, nil
}

// handOver opens what pid 1 cannot: as root, mounts of paths that its unprivileged uid may not be able to reach, with the
// lower directories mapped to the agent; and the streams of a copy and of the home directory.
func (j *Jail) handOver(owner *mapping, s *setup) (files []int, out streams, err error) {
	if owner.root && !s.Copy {
		if files, err = owner.lowerTrees(s.Lower); err != nil {
			return files, nil, &overlayError{err}
		}
	}
	if owner.root {
		for _, m := range s.Shown {
			fd, err := cloneHost(m.Host)
			if err != nil {
				return files, nil, missing("mount namespace", err)
			}
			files = append(files, fd)
		}
	}
	open := func(what string, write func(io.Writer) error) error {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		files = append(files, pipe[0])
		out = append(out, stream{what, os.NewFile(uintptr(pipe[1]), "stream to a jail"), write}) //nolint:gosec // a descriptor
		return nil
	}
	if s.Copy {
		err = open("copy the workspace", func(w io.Writer) error {
			if len(j.spec.Files) > 0 {
				return packFiles(w, j.spec.Files)
			}
			return pack(w, s.Lower)
		})
	}
	if s.Home && err == nil {
		err = open("write the home directory", func(w io.Writer) error { return packFiles(w, j.spec.Home) })
	}
	return files, out, err
}

// streams go to pid 1, each through a pipe of its own.
type streams []stream

type stream struct {
	what  string
	to    *os.File
	write func(io.Writer) error
}

func (all streams) close() {
	for _, s := range all {
		_ = s.to.Close()
	}
}

// write writes and closes all, and answers once with what failed.
func (all streams) write() <-chan error {
	done := make(chan error, 1)
	go func() {
		defer all.close()
		for _, s := range all { // pid 1 reads them in this order
			if err := errors.Join(s.write(s.to), s.to.Close()); err != nil {
				done <- fmt.Errorf("%s: %w", s.what, err)
				return
			}
		}
		done <- nil
	}()
	return done
}

// takeHandles takes the descriptors of a ready jail.
func (j *Jail) takeHandles(files []int) (err error) {
	most := 4
	if j.spec.Listen {
		most++
	}
	most += len(j.spec.Ports)
	if len(files) != most && len(files) != most-1 {
		closeAll(files)
		return fmt.Errorf("pid 1 of the jail sent %d descriptors", len(files))
	}
	j.workspace = os.NewFile(uintptr(files[0]), WorkspaceDir) //nolint:gosec // a descriptor
	j.proc = os.NewFile(uintptr(files[1]), "/proc of a jail") //nolint:gosec // a descriptor
	j.home = os.NewFile(uintptr(files[2]), HomeDir)           //nolint:gosec // a descriptor
	if len(files) == most {
		j.upper = os.NewFile(uintptr(files[most-1]), "writable layer of "+WorkspaceDir) //nolint:gosec // a descriptor
	}
	at := 3
	if j.spec.Listen {
		j.listener, err = takeListener(files[at])
		at++
	}
	for _, p := range j.spec.Ports {
		l, portErr := takeListener(files[at])
		at++
		if err = errors.Join(err, portErr); l != nil {
			j.ports[p] = l
		}
	}
	return err
}
