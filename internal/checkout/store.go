package checkout

import (
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

	"github.com/bailiwick-dev/bailiwick/internal/capture"
)

// Store is a folder of checkouts. Any number of processes of one account may
// use the same one.
//
//	KEY/tree, index, about, boot     a checkout and what is known of it
//	KEY/git/…                        the same of a directory with its .git, where one was asked for
//	KEY.lock                         locked by who makes or removes KEY
//	KEY.new-…                        being made
//	KEY.gone-…                       being removed, or still in use and to be removed
type Store struct {
	dir  string
	boot string // names this run of the machine; empty: unknown, so nothing outlives it
}

// New returns the store in dir, which is made when it is first written to.
func New(dir string) *Store {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		id = nil
	}
	return &Store{dir: dir, boot: strings.TrimSpace(string(id))}
}

// Checkout is one that cannot be removed until it is closed.
type Checkout struct {
	Tree  string         // the directory; nobody may write there
	Index *capture.Index // of Tree

	store       *Store
	key, commit string
	holds       []*os.File
}

// Close gives it back. The end of the process does so too.
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
		return "", fmt.Errorf("checkout of %s: not the full name of a commit", capture.Printable(commit))
	}
	return key, nil
}

func (s *Store) path(key string) string { return filepath.Join(s.dir, key) }

// Acquire returns the checkout of a commit (full object name) of the repository
// source, which repo borrows from. It makes it, or makes it anew, when it is
// not there as it was made. From then on repo knows the commit's tree without
// reading it.
func (s *Store) Acquire(ctx context.Context, repo *capture.Repo, source, commit string) (*Checkout, error) {
	key, err := keyOf(source, commit)
	if err != nil {
		return nil, err
	}
	c := &Checkout{Tree: filepath.Join(s.path(key), treeDir), store: s, key: key, commit: commit}
	about := about{Source: source, Commit: commit}
	c.Index, err = c.keep(ctx, s.path(key), about, func(tree string) (*capture.Index, error) {
		if _, err := repo.Checkout(ctx, commit, tree); err != nil {
			return nil, err
		}
		return repo.IndexCheckout(ctx, commit, tree)
	}, func(x *capture.Index) error { return repo.Bind(ctx, commit, x) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("checkout of %s: %w", commit, err), c.Close())
	}
	return c, nil
}

// Worktree returns a directory with a .git, to be laid over Tree, which makes
// it a git work tree: see Repo.Worktree. It stays as long as the checkout.
func (c *Checkout) Worktree(ctx context.Context, repo *capture.Repo) (string, error) {
	dir := filepath.Join(c.store.path(c.key), gitDir)
	_, err := c.keep(ctx, dir, about{Commit: c.commit}, func(tree string) (*capture.Index, error) {
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

// keep holds dir, once it is there as fill made it and fits says so.
func (c *Checkout) keep(ctx context.Context, dir string, a about, fill func(tree string) (*capture.Index, error), fits func(*capture.Index) error) (*capture.Index, error) {
	use := func() (*capture.Index, error) {
		f, err := hold(dir)
		if err != nil {
			return nil, err
		}
		x, err := c.store.load(ctx, dir)
		if err == nil {
			err = fits(x)
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
	unlock, err := c.store.lock(ctx, c.key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if x, err = use(); !unusable(err) { // somebody else made it meanwhile
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
