package launch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// blocks is the range of uid blocks: a file for each that was used, with what uses it, locked
// while its program is started. A block is used again once no process is left in its control
// group, or where none was made under its uids. So no kill loses a block or gives it twice.
type blocks struct {
	dir    string
	first  int // uid
	count  int
	groups *account.Groups

	mu   sync.Mutex
	next atomic.Int64 // where a free block is sought first: the one freed last, whose namespaces account keeps
}

// block is a block in use.
type block struct {
	account.Block

	lock    *os.File
	group   *account.Group
	scratch string
}

func (b *blocks) block(n int) account.Block { return account.Block{First: b.first + n*account.Size} }

func (b *blocks) path(n int) string { return filepath.Join(b.dir, strconv.Itoa(n)) }

// name names a block's control group by its first uid, so that launchers with ranges of their
// own share a parent.
func (b *blocks) name(n int) string { return "block-" + strconv.Itoa(b.block(n).First) }

func (b *blocks) scratch(n int) string { return filepath.Join(b.dir, "..", "scratch", strconv.Itoa(n)) }

// open opens the file of a block, which its program does not see.
func (b *blocks) open(n int) (*os.File, error) {
	return os.OpenFile(b.path(n), os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
}

func (b *blocks) lock(n int) (f *os.File, err error) {
	if f, err = b.open(n); err == nil {
		if err = durable.TryLock(f); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return f, err
}

// Close ends a start, once the group is made: from then on that tells whether the block is in use.
func (b *block) Close() error {
	_ = b.group.Wait() // the start has failed with it
	return b.lock.Close()
}

// take returns a free block for who, whose group is made meanwhile.
func (b *blocks) take(who Running, limits account.Limits) (*block, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, err
	}
	doc, err := canon.Marshal(who)
	if err != nil {
		return nil, err
	}
	for i := range b.count {
		n := (int(b.next.Load()) + i) % b.count
		f, err := b.lock(n)
		if errors.Is(err, durable.ErrLocked) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if free, err := b.free(n, f); err != nil || !free {
			if err := errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			continue
		}
		if err := os.WriteFile(b.path(n), doc, 0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		group := b.groups.Begin(b.name(n), b.block(n), limits)
		b.next.Store(int64(n + 1))
		return &block{b.block(n), f, group, b.scratch(n)}, nil
	}
	return nil, api.Errorf(api.CodeThrottled, "all %d uid blocks from uid %d on are in use", b.count, b.first).
		WithHint("wait until attempts end, or raise uids.blocks in launch.yaml")
}

// free reports whether nothing runs in an unlocked block, and removes its group.
func (b *blocks) free(n int, f *os.File) (bool, error) {
	group, err := b.groups.Open(b.name(n))
	switch {
	case err == nil:
		if running, err := group.Running(); err != nil || running {
			return false, err
		}
		return true, errors.Join(group.Remove(), os.RemoveAll(b.scratch(n)))
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	if st, err := f.Stat(); err != nil || st.Size() == 0 { // never used
		return err == nil, err
	}
	if pids, err := b.block(n).Processes(); err != nil || len(pids) > 0 {
		return false, err
	}
	return true, os.RemoveAll(b.scratch(n))
}

// each calls fn with each block that was used, and what uses it, if anything does, until it returns false.
func (b *blocks) each(fn func(n int, f *os.File, who Running) (more bool, err error)) error {
	list, err := os.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		n, err := strconv.Atoi(e.Name())
		if err != nil || n < 0 || n >= b.count {
			continue
		}
		f, err := b.open(n)
		if err != nil {
			return err
		}
		who, err := userOf(f)
		more := true
		if err == nil {
			more, err = fn(n, f, who)
		}
		if err = errors.Join(err, f.Close()); err != nil || !more {
			return err
		}
	}
	return nil
}

// userOf returns what used a block last, by its file.
func userOf(f *os.File) (who Running, err error) {
	doc, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<10))
	if err != nil || len(doc) == 0 || canon.DecodeExact(doc, &who) != nil {
		return Running{}, err
	}
	return who, nil
}

// running lists what holds a block. It removes what ended starts and killed launchers left.
func (b *blocks) running() (list []Running, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.each(func(n int, f *os.File, who Running) (bool, error) {
		if errors.Is(durable.TryLock(f), durable.ErrLocked) {
			list = append(list, who)
			return true, nil
		}
		free, err := b.free(n, f)
		if err == nil && !free && who != (Running{}) {
			list = append(list, who)
		}
		return true, err
	})
	return list, err
}

// end kills what is left in the block of who, and frees it once nothing is. Its lock keeps a start, or another end, of the
// block away meanwhile.
func (b *blocks) end(who Running) error {
	return b.each(func(n int, f *os.File, of Running) (bool, error) {
		if of != who {
			return true, nil
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { //nolint:gosec // a descriptor
			return false, err
		}
		if of, err := userOf(f); err != nil || of != who {
			return false, err
		}
		group, err := b.groups.Open(b.name(n))
		if err == nil {
			err = group.Kill()
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err = errors.Join(err, b.block(n).Kill()); err != nil {
			return false, fmt.Errorf("dispatch %s attempt %d: %w", who.Dispatch, who.Attempt, err)
		}
		if _, err = b.free(n, f); err == nil {
			err = os.Truncate(b.path(n), 0)
		}
		b.next.Store(int64(n))
		return false, err
	})
}
