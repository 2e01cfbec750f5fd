package capture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/internal/base/gitexec"
)

// maxObject bounds the trees, commits and tags that are read whole.
const maxObject = 64 << 20

// errMissing is also the answer of a shallow or partial clone for objects that it
// has not fetched; this package never fetches.
var errMissing = errors.New("not in the repository")

// missingError is errMissing for one object.
type missingError struct{ object string }

func (e *missingError) Error() string { return fmt.Sprintf("object %s: %v", e.object, errMissing) }

// Is implements the interface of package errors.
func (e *missingError) Is(target error) bool { return target == errMissing }

// incomplete words the error of an object that the repository refers to: a partial
// clone lacks it until its owner fetches it. The result is errMissing no more, since
// the commit exists.
func (r *Repo) incomplete(err error) error {
	e, missing := errors.AsType[*missingError](err)
	if !missing || r.source == nil || !r.source.partial {
		return err
	}
	return fmt.Errorf("object %s is missing from %s, a partial clone (git clone --filter), and a dispatch does not fetch it; %s",
		e.object, Printable(r.source.path), gitexec.FetchMissing(r.source.path, r.source.remote))
}

// wrapGit is wrap that says how a partial clone may have caused a failure of git.
func (r *Repo) wrapGit(err *error, what string) {
	if _, ok := errors.AsType[*gitexec.Error](*err); ok && r.source != nil && r.source.partial {
		*err = fmt.Errorf("%w; %s is a partial clone (git clone --filter) and may lack objects; %s", *err, Printable(r.source.path), gitexec.FetchMissing(r.source.path, r.source.remote))
	}
	wrap(err, what)
}

// objects is a running `git cat-file --batch-command`, which answers on flush.
type objects struct {
	ctx  context.Context
	repo *Repo
	cmd  *gitexec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
}

func (r *Repo) openObjects(ctx context.Context) (*objects, error) {
	cmd, err := r.git().Command(ctx, "cat-file", "--batch-command", "--buffer")
	if err != nil {
		return nil, err
	}
	o := &objects{ctx: ctx, repo: r, cmd: cmd}
	if o.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.out = bufio.NewReaderSize(out, 1<<16)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	return o, nil
}

// close kills the process. Its exit status adds nothing to its answers.
func (o *objects) close() {
	_ = o.in.Close()
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

// next reads the header of the next answer.
func (o *objects) next() (id, kind string, size int64, err error) {
	line, err := o.out.ReadString('\n')
	if err != nil {
		_ = o.in.Close()
		return "", "", 0, o.cmd.Wrap(err)
	}
	return parseBatchHeader(strings.TrimSuffix(line, "\n"))
}

// parseBatchHeader parses "<object> <type> <size>", or "<name> missing".
func parseBatchHeader(line string) (id, kind string, size int64, err error) {
	f := strings.Split(line, " ")
	switch {
	case len(f) == 2 && f[1] == "missing":
		return "", "", 0, &missingError{Printable(f[0])}
	case len(f) == 2 && f[1] == "ambiguous":
		return "", "", 0, fmt.Errorf("object %s: ambiguous; use more digits", Printable(f[0]))
	case len(f) != 3 || !fullObject.MatchString(f[0]):
		return "", "", 0, fmt.Errorf("git cat-file: unexpected answer %s", Printable(line))
	}
	size, err = strconv.ParseInt(f[2], 10, 64)
	if err != nil || size < 0 || f[2] != strconv.FormatInt(size, 10) {
		return "", "", 0, fmt.Errorf("git cat-file: unexpected answer %s", Printable(line))
	}
	return f[0], f[1], size, nil
}

// get reads and verifies one object. Its hexadecimal name may be abbreviated.
func (o *objects) get(name string) (id, kind string, content []byte, err error) {
	if !objectName.MatchString(name) {
		return "", "", nil, fmt.Errorf("object %s: not an object name", Printable(name))
	}
	if _, err := io.WriteString(o.in, "contents "+name+"\nflush\n"); err != nil {
		return "", "", nil, fmt.Errorf("git cat-file: %w", err)
	}
	id, kind, size, err := o.next()
	if err != nil {
		return "", "", nil, err
	}
	if size > maxObject {
		return "", "", nil, fmt.Errorf("object %s: %s of %d bytes, over the limit of %d", id, kind, size, maxObject)
	}
	content = make([]byte, size+1)
	if _, err := io.ReadFull(o.out, content); err != nil {
		return "", "", nil, fmt.Errorf("git cat-file: %w", err)
	}
	content = content[:size]
	if got := o.repo.objectID(kind, content); got != id {
		return "", "", nil, fmt.Errorf("object %s: content does not match its name (%s)", id, got)
	}
	return id, kind, content, nil
}

// peel follows tags to a commit, and a commit to its tree. If name is a tree, commit
// is "".
func (r *Repo) peel(ctx context.Context, name string) (commit, root string, err error) {
	o, err := r.openObjects(ctx)
	if err != nil {
		return "", "", err
	}
	defer o.close()
	return o.peel(name)
}

func (o *objects) peel(name string) (commit, root string, err error) {
	for depth := range 10 {
		id, kind, content, err := o.get(name)
		if depth > 0 {
			err = o.repo.incomplete(err)
		}
		if err != nil {
			return "", "", err
		}
		switch kind {
		case "tree":
			return commit, id, nil
		case "commit":
			if commit != "" {
				return "", "", errors.New("malformed commit")
			}
			commit = id
			name, err = headerField(content, "tree")
		case "tag":
			name, err = headerField(content, "object")
		default:
			return "", "", fmt.Errorf("%w: is a %s", ErrNoCommit, Printable(kind))
		}
		if err != nil {
			return "", "", err
		}
	}
	return "", "", errors.New("too many nested tags")
}

// headerField reads the object name in the first line of a commit or tag.
func headerField(content []byte, key string) (string, error) {
	line, _, _ := strings.Cut(string(content[:min(len(content), 128)]), "\n")
	if value, ok := strings.CutPrefix(line, key+" "); ok && fullObject.MatchString(value) {
		return value, nil
	}
	return "", fmt.Errorf("malformed object: no %s", key)
}
