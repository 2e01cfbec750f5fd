package checkoutcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
)

// Store is a directory of checkouts, which the processes of one account share.
//
//	KEY/tree, index, about, boot     a checkout and its metadata
//	KEY/git/…                        the same for its .git directory, once requested
//	KEY.lock                         locked while KEY is created or removed
//	KEY.new-…                        being created
//	KEY.gone-…                       being removed, or to be removed after use
type Store struct {
	dir      string
	boot     string // id of the current boot; empty: unknown, so content is always verified
	readOnly bool   // dir is mounted read-only, as for a worker with a uid of its own
}

// ErrReadOnly means that a store that is only shown to this process lacks a checkout, or that it has changed.
var ErrReadOnly = errors.New("the shared checkouts are read-only here, and this one is not ready")

// New returns the store in dir, which is created when first written to.
func New(dir string) *Store {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = nil
	}
	readOnly := errors.Is(unix.Access(dir, unix.W_OK), unix.EROFS)
	return &Store{dir: dir, boot: strings.TrimSpace(string(id)), readOnly: readOnly}
}

// Checkout is a checkout in use, which cannot be removed until it is closed.
type Checkout struct {
	Tree  string         // the directory, read-only
	Index *capture.Index // of Tree

	store       *Store
	key, commit string
	holds       []*os.File
}

// Close ends the use, as the end of the process does.
func (c *Checkout) Close() error {
	var errs []error
	for _, f := range c.holds {
		errs = append(errs, f.Close())
	}
	c.holds = nil
	return errors.Join(errs...)
}

var keyShape = regexp.MustCompile(`^[0-9a-f]{16}-([0-9a-f]{40}|[0-9a-f]{64})$`) //nolint:gochecknoglobals // compiled once, never written

func keyOf(source, commit string) (string, error) {
	sum := sha256.Sum256([]byte(source))
	key := hex.EncodeToString(sum[:8]) + "-" + commit
	if !keyShape.MatchString(key) {
		return "", fmt.Errorf("checkout of %s: want the full object name of a commit", capture.Printable(commit))
	}
	return key, nil
}

func (s *Store) path(key string) string { return filepath.Join(s.dir, key) }

// Acquire returns the checkout of a commit (full object name) of the repository
// source, which repo borrows from. It creates a checkout that is missing or
// changed; where it may only read, the error is ErrReadOnly then. From then on repo knows the commit's tree without reading it.
func (s *Store) Acquire(ctx context.Context, repo *capture.Repo, source, commit string) (*Checkout, error) {
	key, err := keyOf(source, commit)
	if err != nil {
		return nil, err
	}
	c := &Checkout{Tree: filepath.Join(s.path(key), treeDir), store: s, key: key, commit: commit}
	about := about{Source: source, Commit: commit}
	c.Index, err = c.acquire(ctx, s.path(key), about, func(tree string) (*capture.Index, error) {
		if err := repo.Checkout(ctx, commit, tree); err != nil {
			return nil, err
		}
		return repo.IndexCheckout(ctx, commit, tree)
	}, func(x *capture.Index) error { return cmp.Or(repo.Fits(x), repo.Bind(ctx, commit, x)) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("checkout of %s: %w", commit, err), c.Close())
	}
	return c, nil
}

// Prepare makes the checkout of a commit of an open source, for processes that may only read the store, and marks it as used now. It
// is for the account that owns the store. What lies elsewhere than at the path of its source also gets the repository that
// Repository returns. scratch is a directory that does not exist; most bounds the checkout's bytes. What is there is checked once a
// minute, and made again if it was changed: readers refuse it, each at the cost of its own.
func (s *Store) Prepare(ctx context.Context, src *capture.Source, source, commit, scratch string, most int64) error {
	key, err := keyOf(source, commit)
	if err != nil {
		return err
	}
	dir := s.path(key)
	if s.checkedLately(dir) && (src.Whole() || s.verified(filepath.Join(dir, gitDir))) {
		now := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, dir, now, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) { // else it was removed at this moment
			return err
		}
	}
	repo, err := src.CreateRepo(scratch)
	if err != nil {
		return err
	}
	repo.MaxCheckout = most
	c, err := s.Acquire(ctx, repo, source, commit)
	if err == nil {
		if !src.Whole() {
			_, err = c.Worktree(ctx, repo)
		}
		err = errors.Join(err, s.writeBoot(dir), c.Close())
	}
	return errors.Join(err, os.RemoveAll(scratch))
}

// Repository returns where a process that may only read the store has the objects of a commit, if Prepare put them here: the
// process cannot read where its source has them. Empty: the process reads the source.
func (s *Store) Repository(source, commit string) string {
	key, err := keyOf(source, commit)
	if err != nil || !s.readOnly {
		return ""
	}
	dir := filepath.Join(s.path(key), gitDir)
	if !s.verified(dir) {
		return ""
	}
	return filepath.Join(dir, treeDir)
}

// Worktree returns a directory with a .git that, laid over Tree, makes it a git
// work tree: see Repo.Worktree. It lives as long as the checkout.
func (c *Checkout) Worktree(ctx context.Context, repo *capture.Repo) (string, error) {
	dir := filepath.Join(c.store.path(c.key), gitDir)
	_, err := c.acquire(ctx, dir, about{Commit: c.commit}, func(tree string) (*capture.Index, error) {
		if err := repo.Worktree(ctx, c.commit, tree); err != nil {
			return nil, err
		}
		return repo.IndexDir(ctx, tree)
	}, func(*capture.Index) error { return nil })
	if err != nil {
		return "", fmt.Errorf("work tree of %s: %w", c.commit, err)
	}
	return filepath.Join(dir, treeDir), nil
}

// acquire holds dir, which fill creates if it is missing or changed, and which
// bind must accept.
func (c *Checkout) acquire(ctx context.Context, dir string, a about, fill func(tree string) (*capture.Index, error), bind func(*capture.Index) error) (*capture.Index, error) {
	use := func() (*capture.Index, error) {
		f, err := hold(dir)
		if err != nil {
			return nil, err
		}
		x, err := c.store.load(ctx, dir)
		if err == nil {
			err = bind(x)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		c.holds = append(c.holds, f)
		return x, nil
	}
	x, err := use()
	if !unusable(err) {
		return x, err
	}
	if c.store.readOnly {
		return nil, fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	unlock, err := c.store.lock(ctx, c.key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if x, err = use(); !unusable(err) { // created meanwhile by another process
		return x, err
	}
	if err := c.store.discard(c.key, dir); err != nil {
		return nil, err
	}
	if err := c.store.build(c.key, dir, a, fill); err != nil {
		return nil, err
	}
	return use()
}

func unusable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, capture.ErrDamaged)
}
