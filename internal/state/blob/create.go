package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
)

// clearUnfinished removes what an interrupted Create left before the directory
// was a store: no layout, no blob, no index but the empty one. It refuses a
// directory with anything else in it.
func (s *Store) clearUnfinished(index []byte) error {
	notEmpty := fmt.Errorf("the directory is not empty: %w", fs.ErrExist)
	var leftover []string // an inner directory before the one around it
	err := fs.WalkDir(s.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case e.IsDir() && (name == ocispec.ImageBlobsDir || name == blobDir || name == tempDir):
		case e.Type().IsRegular() && name == ocispec.ImageIndexFile:
			if b, err := s.readSmall(name, int64(len(index))); err != nil || !bytes.Equal(b, index) {
				return notEmpty
			}
		case e.Type().IsRegular() && !strings.Contains(name, "/") && strings.HasSuffix(name, tempEnd):
		default:
			return notEmpty
		}
		leftover = append([]string{name}, leftover...)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range leftover {
		if err := s.root.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// syncNames makes the names of the store's directories durable, and of those
// above it: a power cut removes everything below a name that is not durable.
func (s *Store) syncNames() error {
	return errors.Join(durable.SyncIn(s.root, ocispec.ImageBlobsDir), durable.SyncIn(s.root, "."), durable.SyncParents(s.cfg.Dir))
}
