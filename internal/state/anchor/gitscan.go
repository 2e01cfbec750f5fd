package anchor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
)

// Scan implements Anchor. It reads the checkpoint of every commit of the branch,
// and every other object of the repository that could be one: on other branches,
// and what no ref reaches any more.
func (g *Git) Scan(ctx context.Context, _ func(uint64) []byte, see func(Item) error) error {
	list, err := os.ReadDir(g.cfg.Repository)
	if err != nil || len(list) == 0 {
		return g.absent(err, see)
	}
	problem := func(err error) error { // it is there, and git cannot read it
		_, failed := errors.AsType[*gitexec.Error](err)
		_, unreadable := errors.AsType[*unreadableError](err)
		if !failed && !unreadable || ctx.Err() != nil {
			return err
		}
		return see(Item{Where: "the repository", Problem: err.Error()})
	}
	var commits []string
	err = g.lines(ctx, nil, func(line string) error {
		commits = append(commits, line)
		return beat(len(commits), see)
	}, "rev-list", g.ref())
	if tip, tipErr := g.tip(ctx); err != nil && tipErr == nil && tip == "" {
		if _, err = os.Lstat(filepath.Join(g.cfg.Repository, g.ref())); err == nil {
			err = see(Item{Where: g.ref(), Problem: "names no commit"})
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil // no branch yet
		}
	}
	if err := problem(err); err != nil {
		return err
	}
	done, err := g.branch(ctx, commits, see)
	if err := problem(err); err != nil {
		return err
	}
	if err := problem(g.strays(ctx, done, see)); err != nil {
		return err
	}
	if err := g.check(ctx); err != nil {
		return &UnfitError{err}
	}
	return nil
}

// beat tells see now and then that the anchor answers.
func beat(n int, see func(Item) error) error {
	if n%1000 != 0 {
		return nil
	}
	return see(Item{})
}

// absent judges a place without a repository. err is why it cannot be read, or nil
// if it is an empty directory.
func (g *Git) absent(err error, see func(Item) error) error {
	why := errors.New("is an empty directory")
	switch _, there := os.Lstat(g.cfg.Repository); {
	case err != nil && there == nil:
		return see(Item{Where: "the repository", Problem: err.Error()})
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil:
		if err := parent(g.cfg.Repository); err != nil {
			return err
		}
		why = errors.New("does not exist")
	}
	return &UnfitError{fmt.Errorf("repository %s: %w; run: %s", g.cfg.Repository, why, visibletext.ShellText("git", "init", "--bare", g.cfg.Repository))}
}

// branch has see see the checkpoint of every commit, and returns the blobs.
func (g *Git) branch(ctx context.Context, commits []string, see func(Item) error) (map[string]bool, error) {
	done := make(map[string]bool, len(commits))
	var names strings.Builder
	for _, c := range commits {
		names.WriteString(c + ":" + gitFile + "\n")
	}
	n := 0
	err := g.batch(ctx, names.String(), func(o object) error {
		if n >= len(commits) {
			return fmt.Errorf("repository %s: git cat-file printed more than was asked for", g.cfg.Repository)
		}
		it := Item{Where: "commit " + commits[n], ID: commits[n], Signed: o.content}
		n++
		switch {
		case o.kind != "blob":
			it.Problem = "it has no readable file " + gitFile
		case o.content == nil:
			it.Problem = "its file " + gitFile + " is larger than any checkpoint"
		}
		done[o.name] = true
		return see(it)
	})
	if err == nil && n < len(commits) {
		err = see(Item{Where: "commit " + commits[n], Problem: "git does not read it"})
	}
	return done, err
}

// strays has see see all other blobs of the repository that could be a checkpoint.
func (g *Git) strays(ctx context.Context, done map[string]bool, see func(Item) error) error {
	var names strings.Builder
	n, blobs := 0, 0
	err := g.lines(ctx, nil, func(line string) error {
		if n++; n > 4*maxItems { // a commit, a tree and a blob for each checkpoint
			return errTooMany
		}
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == "blob" && !done[f[0]] {
			if size, err := strconv.Atoi(f[2]); err == nil && size <= logproof.MaxSigned {
				if blobs++; blobs > maxItems {
					return errTooMany
				}
				names.WriteString(f[0] + "\n")
			}
		}
		return beat(n, see)
	}, "cat-file", "--batch-check", "--batch-all-objects", "--unordered")
	if err != nil || names.Len() == 0 {
		return err
	}
	n = 0
	return g.batch(ctx, names.String(), func(o object) error {
		if n++; o.kind != "blob" {
			return beat(n, see)
		}
		return see(Item{Where: "object " + o.name, Signed: o.content, Stray: true})
	})
}

// lines runs git in the repository and calls see for each line that it prints.
func (g *Git) lines(ctx context.Context, stdin io.Reader, see func(string) error, args ...string) error {
	return g.stream(ctx, stdin, func(r *bufio.Reader) error {
		for {
			line, err := r.ReadString('\n')
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = see(strings.TrimSuffix(line, "\n"))
			}
			if err != nil {
				return err
			}
		}
	}, args...)
}

// object is what git cat-file says about one name.
type object struct {
	name    string // its id, or the name if git does not find it
	kind    string // such as blob, or missing
	content []byte // nil if it is larger than a checkpoint
}

// batch calls see for each of the named objects, in their order.
func (g *Git) batch(ctx context.Context, names string, see func(object) error) error {
	return g.stream(ctx, strings.NewReader(names), func(r *bufio.Reader) error {
		for {
			line, err := r.ReadString('\n')
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			f := strings.Fields(line)
			if len(f) < 2 {
				return fmt.Errorf("repository %s: git cat-file printed %.80q", g.cfg.Repository, line)
			}
			o := object{name: f[0], kind: f[1]}
			if size, err := strconv.ParseInt(f[len(f)-1], 10, 64); len(f) == 3 && err == nil {
				if o.content, err = content(r, size); err != nil {
					return err
				}
			}
			if err := see(o); err != nil {
				return err
			}
		}
	}, "cat-file", "--batch", "--buffer")
}

// content reads an object and the line feed behind it.
func content(r *bufio.Reader, size int64) ([]byte, error) {
	if size > logproof.MaxSigned {
		_, err := io.CopyN(io.Discard, r, size+1)
		return nil, err
	}
	b := make([]byte, size+1)
	_, err := io.ReadFull(r, b)
	return b[:size], err
}

// stream runs git in a view of the repository and has read read what it prints. The
// error of read counts before that of git, which it ends.
func (g *Git) stream(ctx context.Context, stdin io.Reader, read func(*bufio.Reader) error, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return g.view(ctx, func(git gitexec.Git) error {
		git.Stdin = stdin
		cmd, err := git.Command(ctx, args...)
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return cmd.Wrap(err)
		}
		readErr := read(bufio.NewReaderSize(out, 64<<10))
		if readErr != nil && !errors.Is(readErr, io.ErrUnexpectedEOF) && !errors.Is(readErr, io.EOF) {
			cancel()
			_ = cmd.Wait()
			return readErr
		}
		if err := cmd.Wait(); err != nil {
			return cmd.Wrap(err)
		}
		return readErr
	})
}
