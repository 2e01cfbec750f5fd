package gitexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// Foreign is a repository that this package did not make. Its files are read as data;
// git never runs in it.
type Foreign struct {
	Top     string // the folder that has .git; empty: a bare repository
	Named   string // the work tree that its configuration names; empty: none
	GitDir  string // HEAD and the index are here
	Common  string // refs and objects are here; differs in a linked work tree
	Objects string
	Format  string // sha1 or sha256

	Config   Config // of the repository
	Personal Config // of the person; see the function
}

// Discover returns the repository that path is in: as git does, it looks there and in
// the folders above. env is the environment of the person.
func Discover(ctx context.Context, env []string, path string) (*Foreign, error) {
	dir, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		return nil, err
	}
	for {
		_, _, err = Find(dir)
		up := filepath.Dir(dir)
		if _, there := os.Lstat(filepath.Join(dir, ".git")); err == nil || there == nil || up == dir {
			return At(ctx, env, dir)
		}
		dir = up
	}
}

// At returns the repository at path: a work tree, a linked work tree or a bare
// repository. env is the environment of the person; nil: nobody's settings.
func At(ctx context.Context, env []string, path string) (*Foreign, error) {
	gitDir, common, err := Find(path)
	if err != nil {
		return nil, err
	}
	f := &Foreign{GitDir: gitDir, Common: common, Objects: filepath.Join(common, "objects")}
	if gitDir != path {
		f.Top = path
	}
	return f, f.readConfig(ctx, env)
}

// entry is .git of the work tree: the git directory, or the file or symbolic link that
// leads there.
func (f *Foreign) entry() string { return filepath.Join(f.Top, ".git") }

func (f *Foreign) readConfig(ctx context.Context, env []string) (err error) {
	named := f.GitDir // for includeIf, which also looks at the name before a link
	if st, err := os.Lstat(f.entry()); f.Top != "" && err == nil && st.Mode()&fs.ModeSymlink != 0 {
		if to, err := os.Stat(f.entry()); err == nil && to.IsDir() {
			named = f.entry()
		}
	}
	if env != nil {
		if f.Personal, err = Personal(ctx, env, named); err != nil {
			return err
		}
	}
	r := &reader{ctx: ctx, gitDir: named}
	for _, kv := range env {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok {
			r.home = home
		}
	}
	if f.Config, err = r.read(filepath.Join(f.Common, "config"), 0); err != nil {
		return err
	}
	if f.Format, err = f.Config.Format(); err != nil {
		return err
	}
	own := f.Config // what holds for this work tree alone
	if f.GitDir != f.Common {
		own = nil
	}
	if f.Config.True("extensions.worktreeconfig") {
		more, err := r.read(filepath.Join(f.GitDir, "config.worktree"), 0)
		if err != nil {
			return err
		}
		own, f.Config = slices.Concat(own, more), slices.Concat(f.Config, more)
	}
	if own.True("core.bare") {
		f.Top = ""
	}
	if named := own.Get("core.worktree"); named != "" {
		f.Named = AbsFrom(f.GitDir, named)
	}
	return nil
}

// Setting returns a setting as git would in the repository: its own, else that of the
// person.
func (f *Foreign) Setting(key string) string {
	return slices.Concat(f.Personal, f.Config).Get(key)
}

// viewSettings are the settings of a repository and its user that its view has too. All
// are words that choose among what git itself does; none names a program, a file or a
// host.
func viewSettings() []string {
	return []string{
		"core.autocrlf", "core.eol", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode",
		"core.trustctime", "core.checkstat", "core.sparsecheckout", "core.sparsecheckoutcone", "core.sharedrepository",
	}
}

// reflogs is core.logAllRefUpdates of the repository, or its default.
func (f *Foreign) reflogs() string {
	if v := f.Setting("core.logallrefupdates"); word.MatchString(v) {
		return v
	}
	return strconv.FormatBool(f.Top != "")
}

var word = regexp.MustCompile(`^[A-Za-z0-9]{1,20}$`)

const (
	maxIndex    = 1 << 30
	maxViewFile = 64 << 20
)

// View makes, at dir, which must not exist, a git directory of ours that shows the
// repository: its HEAD, index, sparse checkout and shallow boundary are copies, its
// refs and objects the repository's own. Git that writes there writes refs and objects
// of the repository. Of the configuration it has viewSettings alone; attributes come
// from the work tree and from a copy of info/attributes, and name no program.
func (f *Foreign) View(dir string) (Repo, error) {
	var settings Config
	for _, key := range viewSettings() {
		if v := f.Setting(key); word.MatchString(v) {
			settings = append(settings, Setting{key, v})
		}
	}
	linked := []string{"refs", "packed-refs"}
	if _, err := os.Stat(filepath.Join(f.Common, "logs")); err == nil {
		linked = append(linked, "logs")
		settings = append(settings, Setting{"core.logAllRefUpdates", f.reflogs()})
	}
	r, err := create(dir, f.Format, settings)
	if err != nil {
		return Repo{}, err
	}
	r.objects = f.Objects
	copies := map[string]int64{"HEAD": 4 << 10, "index": maxIndex, "info/sparse-checkout": maxViewFile}
	shared, err := filepath.Glob(filepath.Join(globEscape(f.GitDir), "sharedindex.*"))
	if err != nil {
		return Repo{}, err
	}
	for _, s := range shared[:min(len(shared), 8)] {
		copies[filepath.Base(s)] = maxIndex
	}
	for name, most := range copies {
		err = errors.Join(err, copyFile(filepath.Join(r.dir, name), filepath.Join(f.GitDir, name), most))
	}
	for _, name := range []string{"shallow", "info/attributes"} {
		err = errors.Join(err, copyFile(filepath.Join(r.dir, name), filepath.Join(f.Common, name), maxViewFile))
	}
	if err != nil {
		return Repo{}, err
	}
	if err := os.Remove(filepath.Join(r.dir, "refs")); err != nil {
		return Repo{}, err
	}
	for _, name := range linked {
		if err := os.Symlink(filepath.Join(f.Common, name), filepath.Join(r.dir, name)); err != nil {
			return Repo{}, err
		}
	}
	return r, nil
}

func globEscape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// copyFile copies a regular file with its time, by which git tells entries of an index
// that may have changed since. A file that does not exist is not copied.
func copyFile(to, from string, most int64) error {
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0) //nolint:gosec // G304: in the configured repository
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > most {
		return fmt.Errorf("%s: not a regular file of at most %d bytes", from, most)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // G304: in our own directory
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, most))
	return errors.Join(err, out.Close(), os.Chtimes(to, time.Time{}, st.ModTime()))
}

// CheckOwner refuses a repository that another account owns, unless the person lists it
// in safe.directory, as git does.
func (f *Foreign) CheckOwner(env []string) error {
	owners := append([]string{}, currentOwners(env)...)
	places := []string{f.GitDir, f.Common}
	if f.Top != "" {
		places = append(places, f.Top, f.entry())
	}
	for _, dir := range places {
		owner, err := ownerOf(dir)
		if err == nil && f.Top != "" && dir == f.entry() {
			owner, err = entryOwner(dir) // of a link itself: who made it chose the directory
		}
		if err != nil {
			return err
		}
		if !slices.Contains(owners, owner) && !f.listed() {
			return fmt.Errorf("%s belongs to another account (user %s); if you trust it: %s", dir, owner,
				visibletext.ShellText("git", "config", "--global", "--add", "safe.directory", f.Place()))
		}
	}
	return nil
}

// Place is the path by which a person names the repository.
func (f *Foreign) Place() string {
	if f.Top != "" {
		return f.Top
	}
	return f.GitDir
}

func (f *Foreign) listed() bool {
	ok := false
	for _, s := range f.Personal {
		if s.Key != "safe.directory" {
			continue
		}
		above, all := strings.CutSuffix(s.Value, "/*")
		switch {
		case s.Value == "":
			ok = false
		case s.Value == "*", filepath.Clean(s.Value) == f.Place(), all && strings.HasPrefix(f.Place(), above+"/"):
			ok = true
		}
	}
	return ok
}
