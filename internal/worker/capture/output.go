package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
)

// OutputConfig bounds the outputs. Zero means the default. Files beyond a bound are
// left out and reported.
type OutputConfig struct {
	Dir      string // directory of the workspace: outputs
	MaxFiles int    // number of files: 1,000
	MaxFile  int64  // bytes of one file: 256 MiB
	MaxTotal int64  // bytes of all files, each at its full size: 1 GiB
	Setting  string // that MaxTotal comes from, for people; may be empty
}

// Output is one file below outputs/.
type Output struct {
	Path string // relative, clean, printable text
	Size int64
	Exec bool // executable by its owner
}

// Outputs calls take for every regular file below outputs/, in bytewise order of
// their paths, and lists what it left out: names that are not printable text,
// symbolic links, fifos and so on. take reads exactly Size bytes or returns an
// error, which ends the call.
func Outputs(ctx context.Context, root *os.File, cfg OutputConfig, take func(Output, io.Reader) error) ([]api.LeftOut, error) {
	if cfg.Dir == "" {
		cfg.Dir = "outputs"
	}
	cfg.MaxFiles, cfg.MaxFile, cfg.MaxTotal = or(cfg.MaxFiles, 1000), or(cfg.MaxFile, 256<<20), or(cfg.MaxTotal, 1<<30)
	out := report{}
	switch why, err := outputsProblem(root, cfg.Dir); {
	case errors.Is(err, unix.ENOENT):
		return nil, nil // no outputs
	case err != nil:
		return nil, fmt.Errorf("outputs: open: %w", err)
	case why != "":
		out.add(cfg.Dir, why)
		return out.done(), nil
	}
	walk := Config{MaxEntries: 50_000, MaxNames: 16 << 20, MaxFile: cfg.MaxFile, MaxPath: 1024, MaxDepth: 32}.withDefaults()
	w := &walker{ctx: ctx, cfg: walk, skip: func(string) bool { return false }, refuse: func(p string) string {
		if Printable(p) != p || !utf8.ValidString(p) {
			return "a name that is not printable text"
		}
		return ""
	}}
	list, err := w.walk(root, cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("outputs: %w", err)
	}
	files, total := 0, int64(0)
	for i := range list {
		e := &list[i]
		switch {
		case e.why != "":
		case e.mode == modeLink:
			e.why = "a symbolic link"
		case files >= cfg.MaxFiles:
			e.why = fmt.Sprintf("more than %d files", cfg.MaxFiles)
		case total+e.size > cfg.MaxTotal:
			if e.why = fmt.Sprintf("more than %d bytes in total", cfg.MaxTotal); cfg.Setting != "" {
				e.why += "; raise " + cfg.Setting
			}
		}
		if e.why == "" {
			if e.why, err = takeOutput(ctx, root, cfg.Dir, e, take); err != nil {
				return out.done(), fmt.Errorf("outputs: %s: %w", Printable(e.path), err)
			}
			files, total = files+1, total+e.size
		}
		if e.why != "" {
			out.add(strings.Trim(cfg.Dir, "/")+"/"+e.path, e.why)
		}
	}
	return out.done(), nil
}

func or[T int | int64](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// outputsProblem returns why the directory itself is left out, or "".
func outputsProblem(root *os.File, dir string) (string, error) {
	fd, err := openBelow(int(root.Fd()), dir, unix.O_PATH)
	if err != nil {
		if why := openProblem(err); why != "" && !errors.Is(err, unix.ENOENT) {
			return why, nil
		}
		return "", err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	_ = unix.Close(fd)
	switch {
	case err != nil:
		return "", err
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return "a symbolic link", nil
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "not a directory", nil
	}
	if fd, err = openBelow(int(root.Fd()), dir, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		if why := openProblem(err); why != "" {
			return why, nil
		}
		return "", err
	}
	return "", unix.Close(fd)
}

func takeOutput(ctx context.Context, root *os.File, dir string, e *entry, take func(Output, io.Reader) error) (string, error) {
	f, why, err := openRegular(root, strings.Trim(dir, "/")+"/"+e.path, e)
	if err != nil || why != "" {
		return why, err
	}
	defer f.Close() //nolint:errcheck // only read
	content := &exactReader{r: contextReader{ctx, f}, left: e.size}
	if err := take(Output{Path: e.path, Size: e.size, Exec: e.mode == modeExec}, content); err != nil {
		return "", err
	}
	if content.left != 0 {
		return "", fmt.Errorf("%d of %d bytes were not read", content.left, e.size)
	}
	return "", nil
}

// exactReader returns exactly as many bytes as the file had, or an error.
type exactReader struct {
	r    io.Reader
	left int64
}

func (x *exactReader) Read(p []byte) (int, error) {
	if x.left == 0 {
		return 0, io.EOF
	}
	n, err := x.r.Read(p[:min(int64(len(p)), x.left)])
	x.left -= int64(n)
	if x.left > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
