package jail

import (
	"archive/tar"
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxFileBytes bounds the content of Spec.Home, and of Spec.Files, in bytes.
const maxFileBytes = 64 << 20

// validateFiles returns what is wrong with the files of a directory.
func validateFiles(what, dir string, files []File) error {
	size, kinds := 0, map[string]bool{} // true for a directory
	for _, f := range files {
		switch {
		case f.Path == "." || !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path || strings.ContainsRune(f.Path, 0):
			return fmt.Errorf("%s file %q: give a clean path below %s", what, f.Path, dir)
		case f.Mode&^0o777 != 0:
			return fmt.Errorf("%s file %q: mode %v: give permission bits only", what, f.Path, f.Mode)
		}
		if _, taken := kinds[f.Path]; taken {
			return fmt.Errorf("%s file %q: the path is given twice", what, f.Path)
		}
		kinds[f.Path] = false
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if isDir, taken := kinds[dir]; taken && !isDir {
				return fmt.Errorf("%s file %q: %q is a file", what, f.Path, dir)
			}
			kinds[dir] = true
		}
		if size += len(f.Content); size > maxFileBytes {
			return fmt.Errorf("%s files: more than %d bytes together", what, maxFileBytes)
		}
	}
	return nil
}

// packFiles writes the files, and the directories that they need, as a tar stream for [unpack].
func packFiles(w io.Writer, files []File) error {
	out := bufio.NewWriterSize(w, streamBuffer)
	t := tar.NewWriter(out)
	made := map[string]bool{".": true}
	var parents func(string) error
	parents = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		if err := parents(path.Dir(dir)); err != nil {
			return err
		}
		return t.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o700, Format: tar.FormatPAX})
	}
	for _, f := range files {
		if err := parents(path.Dir(f.Path)); err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{
			Name: f.Path, Typeflag: tar.TypeReg, Mode: int64(cmp.Or(f.Mode, 0o600)), Size: int64(len(f.Content)), Format: tar.FormatPAX,
		}); err != nil {
			return err
		}
		if _, err := t.Write(f.Content); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// Home returns a descriptor of the agent's home directory, to be used like that of Workspace. What is in it is the agent's:
// links lead anywhere, and a directory may refuse to be read.
func (j *Jail) Home() *os.File { return j.home }
