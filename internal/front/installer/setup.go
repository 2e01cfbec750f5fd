package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// The accounts of an installation.
const (
	ServiceAccount = "bailiwick"
	DeployGroup    = "bailiwick-deploy"
)

// Setup writes the first trust of a machine: once, and the trust root last, since it
// makes the machine an installation.
type Setup struct {
	Dirs    api.Dirs
	Answers Answers
	Version string // of this program
	// Catalog creates an empty catalog under the trust root.
	Catalog func(dir string, root seal.TrustRoot) error
}

// written is a file that setup writes.
type written struct {
	path, what string
	content    []byte
}

// AlreadySetUp is the error of a machine that has a trust root.
func (s Setup) AlreadySetUp() error {
	path := s.Dirs.TrustRoot()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return api.Errorf(api.CodeConflict, "this machine is set up: %s exists", path).
			WithHint("change it with bailiwick-deploy trust, or bailiwick operators; to begin again, and lose everything: bailiwick-deploy purge")
	}
	return nil
}

// files are those that setup writes, the trust root last.
func (s Setup) files() (list []written, err error) {
	trust, err := s.Answers.Deploy.Encode()
	if err != nil {
		return nil, fmt.Errorf("deploy keys: %w", err)
	}
	operators, err := s.Answers.Operators.Encode()
	if err == nil {
		_, err = seal.NewOperators(s.Answers.Operators)
	}
	if err != nil {
		return nil, fmt.Errorf("operators: %w", err)
	}
	return []written{
		{s.Dirs.ServiceConfig(), "settings of the service", s.Answers.settings()},
		{s.Dirs.OperatorRoot(), "operators", operators},
		{s.Dirs.TrustRoot(), "trust root", trust},
	}, nil
}

// Show lists what setup writes.
func (s Setup) Show(line func(format string, args ...any)) error {
	list, err := s.files()
	if err != nil {
		return err
	}
	for _, f := range list {
		line("%s (%s, root's):", f.path, f.what)
		for text := range strings.Lines(string(f.content)) {
			line("  %s", strings.TrimSuffix(text, "\n"))
		}
	}
	for _, set := range []struct {
		what string
		root seal.TrustRoot
	}{{"a catalog", s.Answers.Deploy}, {"a decision of operators", s.Answers.Operators}} {
		line("%s needs %d of these signatures:", set.what, set.root.Threshold)
		for _, k := range set.root.Keys {
			line("  %s  %s %s", k.ID, k.Name, k.Principal)
		}
	}
	line("%s (key that decrypts secrets, root's alone) and %s (what encrypts them)", s.identity(), s.Dirs.SecretsRecipient())
	line("%s (an empty catalog, written by the group %s)", s.Dirs.Catalog(), DeployGroup)
	for _, m := range s.Answers.Members {
		line("the account %s joins the group %s", m, DeployGroup)
	}
	return nil
}

// Write writes it. Each step is complete or not there, and repeating an interrupted setup
// completes it: until the trust root exists, nothing starts.
func (s Setup) Write(ctx context.Context, h Host) error {
	list, err := s.files()
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { return s.places() },
		func() error { return durable.Replace(stamp(s.Dirs), []byte(s.Version+"\n"), 0o644) },
		s.secrets,
		s.catalog,
		func() error { return s.members(ctx, h) },
	}
	last := len(list) - 1
	for _, f := range list[:last] {
		steps = append(steps, func() error { return durable.Replace(f.path, f.content, 0o644) })
	}
	// Created, not replaced: of two at once, one fails here.
	steps = append(steps, func() error { return durable.Create(list[last].path, list[last].content, 0o644) })
	for _, step := range steps {
		if err := step(); err != nil {
			if errors.Is(err, fs.ErrExist) {
				err = errors.Join(s.AlreadySetUp(), err)
			}
			return api.Errorf(api.CodeUnavailable, "setup: %w", err).WithHint("repeat the command when the cause is gone: it completes what it began")
		}
	}
	return nil
}

// places refuses directories that are missing or that another account than root owns.
func (s Setup) places() error {
	for _, dir := range []string{s.Dirs.Trust, s.Dirs.Data, s.Dirs.LauncherState()} {
		if err := rootOwns(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s Setup) identity() string { return filepath.Join(s.Dirs.LauncherState(), "identity") }

// secrets creates the key that decrypts secrets, unless an interrupted setup has.
func (s Setup) secrets() error { return seal.EnsureIdentity(s.identity(), s.Dirs.SecretsRecipient()) }

// catalog creates an empty catalog that every member of the group can write: its
// directories hand the group on, and its files are replaced, never written.
func (s Setup) catalog() error {
	dir := s.Dirs.Catalog()
	if err := s.Catalog(dir, s.Answers.Deploy); err != nil {
		return err
	}
	gid, err := groupID(DeployGroup)
	if err != nil {
		return err
	}
	lock, err := durable.OpenLock(dir + ".lock") // no link that a member of the group has put there
	if err != nil {
		return err
	}
	if err := errors.Join(lock.Chown(0, gid), lock.Chmod(0o660), lock.Close()); err != nil { //nolint:gosec // G302: for the group
		return err
	}
	return walkIn(dir, func(root *os.Root, path string, e fs.DirEntry) error {
		if err := root.Lchown(path, 0, gid); err != nil || !e.IsDir() {
			return err
		}
		return root.Chmod(path, 0o775|fs.ModeSetgid)
	})
}

// walkIn calls do for all that is below dir, and for dir itself. Nothing that do names
// below root is outside of dir, even if links change meanwhile.
func walkIn(dir string, do func(root *os.Root, path string, e fs.DirEntry) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return do(root, path, e)
	})
	return errors.Join(err, root.Close())
}

// members puts accounts into the group that writes the catalog.
func (s Setup) members(ctx context.Context, h Host) error {
	for _, m := range s.Answers.Members {
		if err := h.run(ctx, "usermod", "--append", "--groups", DeployGroup, m); err != nil {
			return err
		}
	}
	return nil
}

func groupID(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// checkMembers refuses accounts that do not exist, and the service's own.
func checkMembers(members []string) error {
	for _, m := range members {
		u, err := user.Lookup(m)
		if err != nil {
			return fmt.Errorf("members: %w", err)
		}
		if u.Uid == "0" || slices.Contains([]string{ServiceAccount, "bailiwick-web"}, m) {
			return fmt.Errorf("members: %s: want the account of a person", m)
		}
	}
	return nil
}
