package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *auditVerbs) tilesCommand(v *console.Verb) {
	var dir string
	var wait coverage
	t.operatorVerb(v, func(ctx context.Context, o client.Operator, _ []string) error {
		if dir == "" {
			return api.Errorf(api.CodeInvalid, "--to: want the folder to write to")
		}
		if err := wait.check(); err != nil {
			return err
		}
		x := tileCopy{dir: dir, o: o, sum: logproof.NewRange()}
		var signed bytes.Buffer
		waits := wait.tell(t.Stderr, "the newest entry")
		err := o.Checkpoint(ctx, wait.limit, &signed)
		if waits.Stop(); err != nil {
			return err
		}
		if err := x.run(ctx, signed.Bytes()); err != nil {
			return err
		}
		return t.Emit(tilesAnswer{x.to.Origin, x.to.Size, fmt.Sprintf("%x", x.to.Root), x.keys, x.written}, "", func() {
			t.Row("checkpoint", "%s of %s\nroot %x\nsigned by %s", record.Plural(x.to.Size, "entry"), x.to.Origin, x.to.Root, strings.Join(x.keys, ", "))
			t.Row("folder", "%s: %s", dir, record.Plural(x.written, "new file"))
		})
	})
	v.Flag(&dir, "to")
	wait.flag(v)
}

// tilesAnswer is the JSON answer of audit tiles.
type tilesAnswer struct {
	Origin  string   `json:"origin"`
	Size    uint64   `json:"size"`
	Root    string   `json:"root"` // hexadecimal
	Keys    []string `json:"keys"`
	Written int      `json:"written"` // new files
}

// tileCopy copies a log to a folder.
type tileCopy struct {
	dir     string
	o       client.Operator
	old, to logproof.Checkpoint // of the folder before and after
	keys    []string            // ids of the keys that signed to
	sum     *logproof.Range     // over the entries that were copied
	levels  [][]logproof.Hash   // the incomplete tile of each level
	counts  []uint64            // of complete tiles, by level
	written int
}

// run copies what a signed checkpoint covers.
func (x *tileCopy) run(ctx context.Context, signed []byte) error {
	trust, err := logTrust(ctx, x.o)
	if err != nil {
		return err
	}
	if x.to, x.keys, err = openCheckpoint(signed, trust); err != nil {
		return err
	}
	if err := x.readOld(trust); err != nil {
		return err
	}
	for x.sum.Size() < x.to.Size {
		if err := x.bundle(ctx); err != nil {
			return err
		}
	}
	for level := range x.levels {
		if n := len(x.levels[level]); n > 0 {
			if err := x.tile(level); err != nil {
				return err
			}
		}
	}
	root, err := x.sum.Root()
	if err == nil && root != x.to.Root {
		err = fmt.Errorf("the entries that the service returned do not match its signed checkpoint of %s", record.Plural(x.to.Size, "entry"))
	}
	if err != nil {
		return err
	}
	return x.finish(signed)
}

// readOld reads the checkpoint of an earlier copy. A checkpoint of another log is
// an error.
func (x *tileCopy) readOld(trust trustFile) error {
	path := filepath.Join(x.dir, logproof.CheckpointName)
	old, err := os.ReadFile(path) //nolint:gosec // G304: the user names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		x.old, _, err = openCheckpoint(old, trust)
	}
	if err != nil {
		return api.Errorf(api.CodeConflict, "%s: %w", path, err).WithHint("only a copy of the same log is updated; name another folder")
	}
	if x.old.Size > x.to.Size {
		return api.Errorf(api.CodeConflict, "%s has %s, but the log has %d: entries were removed", path, record.Plural(x.old.Size, "entry"), x.to.Size).
			WithHint("keep the folder: it is evidence")
	}
	return x.compareOld()
}

// compareOld compares the entries copied so far with the earlier copy.
func (x *tileCopy) compareOld() error {
	if x.old.Origin == "" || x.sum.Size() != x.old.Size {
		return nil
	}
	root, err := x.sum.Root()
	if err == nil && root != x.old.Root {
		err = api.Errorf(api.CodeConflict, "the first %s differ from %s: the log was changed", record.Plural(x.old.Size, "entry"), filepath.Join(x.dir, logproof.CheckpointName)).
			WithHint("keep the folder: it is evidence")
	}
	return err
}

// bundle copies the next entries, up to 256 of them.
func (x *tileCopy) bundle(ctx context.Context) error {
	index := x.sum.Size() / logproof.TileWidth
	n := min(logproof.TileWidth, x.to.Size-x.sum.Size())
	name := logproof.TileName("entries", index, n)
	content, err := os.ReadFile(filepath.Join(x.dir, name)) //nolint:gosec // G304: the user names the folder
	exists := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		content, err = x.fetch(ctx, index, n)
	}
	if err != nil {
		return err
	}
	entries, err := logproof.SplitBundle(content, n)
	if err != nil {
		return api.Errorf(api.CodeConflict, "%s: %w", name, err).WithHint("remove the file if it is not yours, and run the command again")
	}
	for _, entry := range entries {
		if err := x.documents(ctx, x.sum.Size(), entry); err != nil {
			return err
		}
		if err := x.add(logproof.LeafHash(entry)); err != nil {
			return err
		}
	}
	if exists {
		return nil
	}
	return x.put(name, content)
}

// documents copies the signed documents that an entry names, unless they are here.
func (x *tileCopy) documents(ctx context.Context, seq uint64, leaf []byte) error {
	e, err := record.DecodeEntry(leaf)
	if err != nil || e.SignedRef() == "" {
		return nil //nolint:nilerr // the entry is copied as it is; bailiwick-verify reports it
	}
	name := logproof.SignedName(seq)
	if _, err := os.Stat(filepath.Join(x.dir, name)); err == nil {
		return nil
	}
	var b bytes.Buffer
	if err := x.o.Tile(ctx, name, &b); err != nil {
		return err
	}
	return x.put(name, b.Bytes())
}

// fetch requests n entries of a bundle. A complete bundle may have replaced the
// partial one since the checkpoint.
func (x *tileCopy) fetch(ctx context.Context, index, n uint64) ([]byte, error) {
	var b bytes.Buffer
	err := x.o.Tile(ctx, logproof.TileName("entries", index, n), &b)
	if api.CodeOf(err) == api.CodeNotFound && n < logproof.TileWidth {
		b.Reset()
		err = x.o.Tile(ctx, logproof.TileName("entries", index, logproof.TileWidth), &b)
	}
	if err != nil {
		return nil, err
	}
	return logproof.CutBundle(b.Bytes(), n), nil
}

func (x *tileCopy) add(leaf logproof.Hash) error {
	err := x.sum.Add(leaf)
	if err == nil {
		err = x.compareOld()
	}
	if err == nil {
		err = x.push(0, leaf)
	}
	return err
}

// push adds a node to a level. A complete tile is written, and its root pushed to
// the level above.
func (x *tileCopy) push(level int, h logproof.Hash) error {
	if level == len(x.levels) {
		x.levels, x.counts = append(x.levels, nil), append(x.counts, 0)
	}
	x.levels[level] = append(x.levels[level], h)
	if len(x.levels[level]) < logproof.TileWidth {
		return nil
	}
	above := logproof.NewRange()
	for _, h := range x.levels[level] {
		if err := above.Add(h); err != nil {
			return err
		}
	}
	root, err := above.Root()
	if err == nil {
		err = x.tile(level)
	}
	if err != nil {
		return err
	}
	x.levels[level] = x.levels[level][:0]
	x.counts[level]++
	return x.push(level+1, root)
}

// tile writes the current tile of a level.
func (x *tileCopy) tile(level int) error {
	hashes := x.levels[level]
	var content []byte
	for _, h := range hashes {
		content = append(content, h[:]...)
	}
	return x.put(logproof.TileName(strconv.Itoa(level), x.counts[level], uint64(len(hashes))), content)
}

// put creates a file, completely or not at all. An existing file must have the
// same content.
func (x *tileCopy) put(name string, content []byte) error {
	path := filepath.Join(x.dir, name)
	old, err := os.ReadFile(path) //nolint:gosec // G304: the user names the folder
	switch {
	case err == nil && bytes.Equal(old, content):
		return nil
	case err == nil:
		return api.Errorf(api.CodeConflict, "%s exists with different content", path).WithHint("existing files are not overwritten; name another folder, or remove the file")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // G301: others are to read it
		return err
	}
	x.written++
	return console.AlreadyExists(durable.Create(path, content, 0o644))
}

// finish writes the checkpoint, after everything that it covers.
func (x *tileCopy) finish(signed []byte) error {
	if err := os.MkdirAll(x.dir, 0o755); err != nil { //nolint:gosec // G301: others are to read it
		return err
	}
	path := filepath.Join(x.dir, logproof.CheckpointName)
	if x.old.Origin != "" {
		return durable.Replace(path, signed, 0o644)
	}
	return console.AlreadyExists(durable.Create(path, signed, 0o644))
}
