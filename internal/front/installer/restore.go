package installer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// Restore brings back what Backup wrote. Only the state is replaced: the trust roots, the
// catalog and the launcher's marks of this machine stay where it has some, since an
// older one would take decisions of people back.
type Restore struct {
	Dirs    api.Dirs
	Version string
	Now     func() time.Time
	Say     func(format string, args ...any)
}

// restoring is a file in a directory that is being filled. Without it a directory next to
// the state is complete.
const restoring = ".restoring"

// Run restores from the archive at path, while no service runs.
func (r Restore) Run(ctx context.Context, path string) error {
	stage := r.Dirs.State + ".restore"
	if err := r.settle(stage); err != nil {
		return err
	}
	if err := os.Mkdir(stage, 0o700); err != nil {
		return err
	}
	mark := filepath.Join(stage, restoring)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return err
	}
	h, err := r.extract(ctx, path, stage)
	if err == nil {
		err = r.checkTrust(stage)
	}
	if err != nil {
		return errors.Join(api.Errorf(api.CodeInvalid, "restore: %s: %w", path, err).WithHint("nothing was changed"), os.RemoveAll(stage))
	}
	for _, step := range []func() error{
		func() error { return r.own(stage) },
		func() error { return r.keepAnchor(filepath.Join(stage, "state")) },
		func() error { return r.shareContent(h, stage) },
		func() error { return r.fillMissing(stage) },
		func() error { return r.swap(stage) },
	} {
		if err := step(); err != nil {
			return api.Errorf(api.CodeUnavailable, "restore: %w", err).WithHint("repeat the command when the cause is gone: it completes what it began")
		}
	}
	r.Say("the state is that of %s again, as version %s wrote it", h.At.Format(time.RFC3339), h.Version)
	return nil
}

// settle ends a restore that was interrupted: an incomplete one is removed. The state that
// a complete one replaced is kept.
func (r Restore) settle(stage string) error {
	if _, err := os.Lstat(filepath.Join(stage, restoring)); err == nil {
		return os.RemoveAll(stage)
	}
	if _, err := os.Lstat(stage); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return r.keep(filepath.Join(stage, "state"), stage)
}

// keep gives the replaced state a name that says when, and removes the directory it is in.
func (r Restore) keep(old, stage string) error {
	if _, err := os.Lstat(old); err == nil {
		kept := r.Dirs.State + ".before-" + r.Now().UTC().Format("20060102T150405.000000000Z")
		if err := os.Rename(old, kept); err != nil {
			return err
		}
		r.Say("the state that was there is %s", kept)
	}
	return os.RemoveAll(stage)
}

// extract fills stage from an archive and compares the digests. Its entries reach nothing
// outside of stage, whatever they name.
func (r Restore) extract(ctx context.Context, path, stage string) (h header, err error) {
	f, err := os.Open(path) //nolint:gosec // G304: as root named it
	if err != nil {
		return h, err
	}
	defer f.Close() //nolint:errcheck // only read
	packed, err := gzip.NewReader(f)
	if err != nil {
		return h, fmt.Errorf("want an archive of bailiwick-deploy backup: %w", err)
	}
	in := tar.NewReader(packed)
	if err := readJSON(in, headerName, &h); err != nil {
		return h, err
	}
	if h.V != 1 {
		return h, fmt.Errorf("format %d; this program reads 1", h.V)
	}
	if err := refuseNewer("the backup", h.Version, r.Version); err != nil {
		return h, err
	}
	root, err := os.OpenRoot(stage)
	if err != nil {
		return h, err
	}
	defer root.Close() //nolint:errcheck // a directory
	sums := map[string]string{}
	for {
		e, err := in.Next()
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return h, errors.New("it is cut off")
		}
		if err != nil {
			return h, err
		}
		if e.Name == sumsName {
			return h, compareSums(in, e, sums)
		}
		if err := extractEntry(root, in, e, sums); err != nil {
			return h, fmt.Errorf("%q: %w", e.Name, err)
		}
	}
}

func readJSON(in *tar.Reader, name string, into any) error {
	e, err := in.Next()
	if err != nil || e.Name != name || e.Size > maxPublic {
		return errors.Join(errors.New("want an archive of bailiwick-deploy backup"), err)
	}
	return json.NewDecoder(in).Decode(into)
}

func compareSums(in io.Reader, e *tar.Header, found map[string]string) error {
	if e.Size > maxSums {
		return errors.New("its list of digests is too large")
	}
	want := map[string]string{}
	if err := json.NewDecoder(in).Decode(&want); err != nil {
		return err
	}
	for name, digest := range want {
		if found[name] != digest {
			return fmt.Errorf("%q: digest mismatch: the archive is damaged", name)
		}
	}
	if len(want) != len(found) {
		return errors.New("it has files that its list of digests does not have")
	}
	return nil
}

func extractEntry(root *os.Root, in io.Reader, e *tar.Header, sums map[string]string) error {
	name := filepath.FromSlash(e.Name)
	first, _, _ := strings.Cut(e.Name, "/")
	switch first {
	case "etc", "state", "catalog", "launch":
	default:
		return errors.New("in no directory of an installation")
	}
	if dir := filepath.Dir(name); dir != "." {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	mode := fs.FileMode(e.Mode).Perm() //nolint:gosec // G115: permissions
	switch e.Typeflag {
	case tar.TypeDir:
		if err := root.MkdirAll(name, 0o700); err != nil {
			return err
		}
		if e.Mode&0o2000 != 0 {
			mode |= fs.ModeSetgid
		}
		return root.Chmod(name, mode|0o700)
	case tar.TypeSymlink:
		return root.Symlink(e.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(io.MultiWriter(f, sum), in) //nolint:gosec // G110: as large as the backup is; the disk bounds it
		sums[e.Name] = hexOf(sum)
		return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	}
	return fmt.Errorf("of an unknown type %q", e.Typeflag)
}

// checkTrust refuses a backup of other people: their log would count here.
func (r Restore) checkTrust(stage string) error {
	for _, path := range []string{r.Dirs.OperatorRoot()} {
		own, err := os.ReadFile(path) //nolint:gosec // G304: of the installation
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		theirs, theirErr := os.ReadFile(filepath.Join(stage, "etc", filepath.Base(path))) //nolint:gosec // G304: as above
		if err := errors.Join(err, theirErr); err != nil {
			return err
		}
		if !bytes.Equal(own, theirs) {
			return fmt.Errorf("its %s is not the file of this machine: it is a backup of another installation", filepath.Base(path))
		}
	}
	return nil
}

// own gives what was extracted to the accounts of this machine.
func (r Restore) own(stage string) error {
	u, err := user.Lookup(ServiceAccount)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	group, err := groupID(DeployGroup)
	if err != nil {
		return err
	}
	for name, to := range map[string][2]int{"state": {uid, gid}, "catalog": {0, group}, "etc": {0, 0}, "launch": {0, 0}} {
		err := walkIn(filepath.Join(stage, name), func(root *os.Root, path string, e fs.DirEntry) error {
			st, err := e.Info()
			if err == nil {
				err = root.Lchown(path, to[0], to[1])
			}
			if err == nil && st.Mode()&fs.ModeSetgid != 0 { // chown clears it
				err = root.Chmod(path, st.Mode())
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// keepAnchor copies the anchor in the state directory of this machine. It has the length of
// the log, so the service refuses an older log until an operator signs the loss.
func (r Restore) keepAnchor(to string) error {
	b, err := readOwn(r.Dirs.State, "high-water")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := filepath.Join(to, "high-water")
	if err := durable.Replace(path, b, 0o600); err != nil {
		return err
	}
	return chownLike(to, path)
}

// readOwn reads a file of the service's account, and nothing that a link in its place
// leads to.
func readOwn(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	return root.ReadFile(name)
}

// shareContent links what an upgrade's copy leaves out into the restored state: content
// that no migration changes.
func (r Restore) shareContent(h header, stage string) error {
	for _, name := range h.Without {
		inner, ok := strings.CutPrefix(name, "state/")
		if !ok {
			continue
		}
		from, to := filepath.Join(r.Dirs.State, inner), filepath.Join(stage, "state", inner)
		err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			if at := filepath.Join(to, rel); e.IsDir() {
				if err = os.MkdirAll(at, 0o700); err == nil {
					err = chownLike(path, at)
				}
			} else if e.Type().IsRegular() {
				err = os.Link(path, at) //nolint:gosec // G122: a link keeps owner and mode, so another file gives the service nothing to read
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// fillMissing puts places back that this machine does not have, the trust root last.
func (r Restore) fillMissing(stage string) error {
	for _, p := range places(r.Dirs) {
		from := filepath.Join(stage, p.name)
		switch list, err := os.ReadDir(p.dir); {
		case p.name == "state" || p.name == "etc":
			continue
		case err == nil && len(list) > 0:
			r.Say("%s stays as it is", p.dir)
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(p.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Rename(from, p.dir); err != nil {
			return err
		}
	}
	list, err := os.ReadDir(filepath.Join(stage, "etc"))
	if err != nil {
		return err
	}
	trust := filepath.Base(r.Dirs.TrustRoot())
	for _, last := range []bool{false, true} {
		for _, e := range list {
			to := filepath.Join(r.Dirs.Trust, e.Name())
			if _, err := os.Lstat(to); err == nil || (e.Name() == trust) != last || !e.Type().IsRegular() {
				continue
			}
			b, err := os.ReadFile(filepath.Join(stage, "etc", e.Name())) //nolint:gosec // G304: in the stage
			if err == nil {
				err = durable.Create(to, b, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// swap puts the restored state in place of the one that is there, in one step: a machine
// that stops in between has one of the two, and never an empty one.
func (r Restore) swap(stage string) error {
	from := filepath.Join(stage, "state")
	if err := durable.Sync(from); err != nil {
		return err
	}
	// Before the exchange: from here on the directory next to the state is complete, and is kept.
	if err := os.Remove(filepath.Join(stage, restoring)); err != nil {
		return err
	}
	err := exchange(from, r.Dirs.State)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(from, r.Dirs.State)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.Dirs.State, err)
	}
	return r.keep(from, stage)
}
