package capture

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file with the value of a secret is left out whole, in text, in binary content and
// in a name; the rest of the patch stays exact. Control: without the check the value
// is in the patch.
//
// proves R-D8
func TestAFileWithASecretIsLeftOut(t *testing.T) {
	const value = "the-value"
	for _, checked := range []bool{true, false} {
		s := newScene(t, "sha1", func(dir string) {
			write(t, filepath.Join(dir, "kept.txt"), "one\n")
			write(t, filepath.Join(dir, "config.txt"), "token: TOKEN\n")
		})
		if checked {
			s.cfg.Secret = func(r io.Reader) (bool, error) {
				b, err := io.ReadAll(r)
				return bytes.Contains(b, []byte(value)), err
			}
		}
		s.snapshot()
		write(t, filepath.Join(s.work, "kept.txt"), "two\n")
		write(t, filepath.Join(s.work, "config.txt"), "token: "+value+"\n")
		write(t, filepath.Join(s.work, "image.bin"), "\x00\x01"+value)
		write(t, filepath.Join(s.work, value, "file"), "x\n")
		must(t, os.Symlink("/"+value, filepath.Join(s.work, "link")))
		res := s.capture()
		patch, err := os.ReadFile(res.PatchFile)
		must(t, err)
		s.applied(res)
		if found := bytes.Contains(patch, []byte(value)); found == checked || res.Secrets != checked {
			t.Errorf("checked %v: the value is in the patch: %v, marked: %v", checked, found, res.Secrets)
		}
		if got := changes(res.Files); checked && got != "m kept.txt\n" {
			t.Errorf("the patch has %s", got)
		}
		if left := leftOut(res.LeftOut); checked && strings.Count(left, whySecret) != 4 {
			t.Errorf("left out: %s", left)
		}
	}
}
