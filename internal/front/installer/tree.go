// Package installer puts an installation in mode system on a machine, and takes it off.
//
// It decides nothing about a catalog or a dispatch, and never opens the state: the
// service copies and restores that. It carries the command side of R-B9.
package installer

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/packaging"
)

// Programs are the programs of an installation, in PREFIX/lib/bailiwick.
func Programs() []string {
	return append(commands(), "bailiwick-launch", "bailiwick-worker", "bailiwick-fetch", "bailiwick-toolhost", "bailiwick-tool")
}

// commands are those that people run: PREFIX/bin has a link to each.
func commands() []string {
	return []string{"bailiwick", "bailiwickd", "bailiwick-deploy", "bailiwick-mcp", "bailiwick-web", "bailiwick-verify"}
}

// file is a file of an installation, below its prefix.
type file struct {
	path    string // such as lib/bailiwick/bailiwickd
	content []byte
	from    string // copied from there, instead of content
	link    string // a symbolic link to there, instead of content
	mode    fs.FileMode
}

// Tree is what an installation consists of.
type Tree struct {
	From   string // directory of the programs
	Prefix string // absolute, such as /usr
}

// files lists the files, parents before children. Manual pages come from the programs.
func (t Tree) files(ctx context.Context) (list []file, err error) {
	for _, p := range Programs() {
		from := filepath.Join(t.From, p)
		if st, err := os.Stat(from); err != nil || !st.Mode().IsRegular() {
			return nil, api.Errorf(api.CodeNotFound, "program %s: %w", from, cmpError(err, "not a regular file")).WithHint("build all programs: make build; or name their directory with --from")
		}
		list = append(list, file{path: "lib/bailiwick/" + p, from: from, mode: 0o755})
	}
	for _, p := range commands() {
		list = append(list, file{path: "bin/" + p, link: "../lib/bailiwick/" + p})
	}
	units, err := t.units()
	if err != nil {
		return nil, err
	}
	pages, err := t.pages(ctx)
	return slices.Concat(list, units, pages), err
}

func cmpError(err error, otherwise string) error {
	if err == nil {
		return errors.New(otherwise)
	}
	return err
}

// units are the files for systemd, with the prefix of this tree.
func (t Tree) units() (list []file, err error) {
	const dir = "systemd"
	entries, err := packaging.Systemd.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := packaging.Systemd.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return nil, err
		}
		path := "lib/systemd/system/" + e.Name()
		if kind, ok := strings.CutSuffix(e.Name(), ".conf"); ok {
			path = "lib/" + kind + ".d/bailiwick.conf"
		}
		b = bytes.ReplaceAll(b, []byte("/usr/lib/bailiwick/"), []byte(filepath.Join(t.Prefix, "lib/bailiwick")+"/"))
		list = append(list, file{path: path, content: b, mode: 0o644})
	}
	return list, nil
}

// pages are the manual pages, compressed without a time, so that they are always the same.
func (t Tree) pages(ctx context.Context) (list []file, err error) {
	dir, err := os.MkdirTemp("", "man")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of temporary files
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program := filepath.Join(filepath.Dir(self), "bailiwick")                                   // of this machine, whatever t.From was built for
	if out, err := exec.CommandContext(ctx, program, "man", dir).CombinedOutput(); err != nil { //nolint:gosec // G204: in the directory of this program
		return nil, fmt.Errorf("manual pages: %s man: %w: %s", program, err, out)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name())) //nolint:gosec // G304: in a directory of this process
		if err != nil {
			return nil, err
		}
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // a valid level
		if _, err := w.Write(b); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		list = append(list, file{path: "share/man/man1/" + e.Name() + ".gz", content: packed.Bytes(), mode: 0o644})
	}
	return list, nil
}

// Install writes the files below root, which is / or where a package is assembled. A
// running program keeps its old file: each is replaced at once. Repeating an
// interrupted one completes it.
func (t Tree) Install(ctx context.Context, root string) error {
	list, err := t.files(ctx)
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := f.write(filepath.Join(root, t.Prefix, f.path)); err != nil {
			return api.Errorf(api.CodeUnavailable, "install: %w", err).WithHint("repeat the command when the cause is gone: it completes what it began")
		}
	}
	return nil
}

func (f file) write(to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // G301: programs are for every account
		return err
	}
	if f.link != "" {
		return replaceLink(f.link, to)
	}
	content := f.content
	if f.from != "" {
		var err error
		if content, err = os.ReadFile(f.from); err != nil {
			return err
		}
	}
	if err := durable.Replace(to, content, f.mode); err != nil {
		return err
	}
	return os.Chmod(to, f.mode) // whatever the umask is
}

// replaceLink makes a symbolic link in place of what is there.
func replaceLink(target, at string) error {
	if now, err := os.Readlink(at); err == nil && now == target {
		return nil
	}
	next := at + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, at)
}

// Remove removes the files below root, and directories that only they filled.
func (t Tree) Remove(root string) error {
	list, err := t.remaining(root)
	if err != nil {
		return err
	}
	for _, path := range list {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	own := filepath.Join(root, t.Prefix, "lib/bailiwick")
	if err := os.Remove(own); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; it has files that the installation did not put there", err)
	}
	return nil
}

// remaining lists the files that an installation may have left below root.
func (t Tree) remaining(root string) (list []string, err error) {
	at := func(path string) string { return filepath.Join(root, t.Prefix, path) }
	for _, p := range Programs() {
		list = append(list, at("lib/bailiwick/"+p))
	}
	for _, p := range commands() {
		list = append(list, at("bin/"+p))
	}
	units, err := t.units()
	if err != nil {
		return nil, err
	}
	for _, f := range units {
		list = append(list, at(f.path))
	}
	pages, err := filepath.Glob(at("share/man/man1/bailiwick*.1.gz"))
	return append(list, pages...), err
}
