//go:build unix

// Package ownedpath resolves the path of a file that another account owns, for a reader that may read more than that account. A
// person who may change a symbolic link on the way could else have the reader open what belongs to a third account.
//
// It carries the paths of R-S4.
package ownedpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is how many links a path may have, as for the kernel.
const maxLinks = 40

// Resolve returns an absolute path without its symbolic links, and the account that owns what is there. A link belongs to that
// account, to root or to the reader. The owner is that of the result when no part of it was a link. What is there may have changed
// since: a caller opens it without following links, and compares the owner.
func Resolve(path string) (real string, owner uint32, err error) {
	if !filepath.IsAbs(path) {
		return "", 0, fmt.Errorf("%s: not an absolute path", path)
	}
	type link struct {
		at    string
		owner uint32
	}
	var links []link
	real = "/"
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		next := filepath.Join(real, rest[0]) // which resolves .., as real has no links
		rest = rest[1:]
		mode, uid, err := stat(next)
		if err != nil {
			return "", 0, err
		}
		if mode&os.ModeSymlink == 0 {
			real = next
			continue
		}
		if links = append(links, link{next, uid}); len(links) > maxLinks {
			return "", 0, &os.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", 0, err
		}
		if filepath.IsAbs(to) {
			real = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	if owner, err = ownerAt(real); err != nil {
		return "", 0, err
	}
	for _, l := range links {
		if l.owner != 0 && l.owner != owner && int(l.owner) != os.Geteuid() {
			return "", 0, fmt.Errorf("%s is a symbolic link of user %d to what belongs to user %d: name the path %s itself, or give both one owner", l.at, l.owner, owner, real)
		}
	}
	return real, owner, nil
}

func stat(path string) (os.FileMode, uint32, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	uid, err := Of(st)
	return st.Mode(), uid, err
}

// Of returns the account that owns a file.
func Of(st os.FileInfo) (uint32, error) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New(st.Name() + ": no owner")
	}
	return sys.Uid, nil
}
