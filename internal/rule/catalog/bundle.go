package catalog

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bailiwick-dev/bailiwick/api"
)

const (
	maxPath  = 1024
	maxDepth = 32
)

// CheckPath refuses a path that is not printable, clean and relative, or that
// belongs to git or Bailiwick.
func CheckPath(p string) error {
	switch {
	case p == "" || len(p) > maxPath || strings.Count(p, "/") >= maxDepth:
		return fmt.Errorf("a path has 1 to %d bytes and at most %d levels", maxPath, maxDepth)
	case !utf8.ValidString(p):
		return errors.New("the path is not valid UTF-8")
	case strings.HasPrefix(p, "/"):
		return errors.New("the path is absolute")
	case path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return errors.New("the path is not clean or leads out of the bundle")
	case strings.Contains(p, `\`):
		return errors.New("the path contains a backslash")
	}
	for _, r := range p {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the path contains the unprintable character %U", r)
		}
	}
	for part := range strings.SplitSeq(p, "/") {
		switch strings.ToLower(part) {
		case ".git", ".bailiwick":
			return fmt.Errorf("%s is not allowed: its content would control the worker's own tools", part)
		}
	}
	return nil
}

// checkBundle checks that the files of a capability are listed as deploy lists them.
func checkBundle(c api.Capability) error {
	if len(c.Files) > MaxFiles {
		return fmt.Errorf("%d files, want at most %d", len(c.Files), MaxFiles)
	}
	var total int64
	setup := c.Setup == ""
	for i, f := range c.Files {
		if err := CheckPath(f.Path); err != nil {
			return fmt.Errorf("file %.200q: %w", f.Path, err)
		}
		if _, err := api.ParseDigest(string(f.Digest)); err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
		if f.Mode != 0o644 && f.Mode != 0o755 {
			return fmt.Errorf("file %s: mode %04o, want 0644 or 0755", f.Path, f.Mode)
		}
		if f.Size < 0 || f.Size > MaxBundle {
			return fmt.Errorf("file %s: size %d", f.Path, f.Size)
		}
		if i > 0 && c.Files[i-1].Path >= f.Path {
			return fmt.Errorf("file %s: duplicate, or not in bytewise order", f.Path)
		}
		if i > 0 && strings.HasPrefix(f.Path, c.Files[i-1].Path+"/") {
			return fmt.Errorf("file %s: is also a directory", c.Files[i-1].Path)
		}
		total += f.Size
		setup = setup || f.Path == c.Setup
	}
	if total > MaxBundle {
		return fmt.Errorf("%d bytes, want at most %d", total, MaxBundle)
	}
	if !setup {
		return fmt.Errorf("setup script %.200q is not among the files", c.Setup)
	}
	return nil
}
