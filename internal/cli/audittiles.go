package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

func (t *tree) auditTilesCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "tiles --to DIR", Short: "Copy the whole log as files, for other tools to read and verify", Args: cobra.NoArgs,
		Long: `Copy the whole log to a folder in the layout of C2SP tlog-tiles: checkpoint,
tile/L/N and tile/entries/N. Only the entries are fetched. The tree over them is
built here, and the copy gets its checkpoint once it has the root that was
signed. Run again, it goes on where it was, or takes over what is new: the log
must then go on the checkpoint that the folder has. Nothing is overwritten but
that checkpoint.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return api.Errorf(api.CodeInvalid, "--to: want the folder to write to")
			}
			c := t.conn()
			defer c.Close()
			x := tileCopy{dir: dir, o: c.Operator(), sum: note.NewRange()}
			if err := x.run(cmd.Context()); err != nil {
				return err
			}
			if t.output == "text" {
				t.row("checkpoint", "%d entries of %s\nroot %x\nsigned by %s", x.to.Size, x.to.Origin, x.to.Root, strings.Join(x.keys, ", "))
				t.row("folder", "%s: %d new files", dir, x.written)
				return nil
			}
			return t.printJSON(struct {
				Origin  string   `json:"origin"`
				Size    uint64   `json:"size"`
				Root    string   `json:"root"` // hexadecimal
				Keys    []string `json:"keys"`
				Written int      `json:"written"` // new files
			}{x.to.Origin, x.to.Size, fmt.Sprintf("%x", x.to.Root), x.keys, x.written})
		},
	}
	cmd.Flags().StringVar(&dir, "to", "", "folder to write to; made where there is none")
	return cmd
}

const (
	tileWidth      = 256
	checkpointName = "checkpoint"
	maxBundle      = tileWidth * (2 + 1<<16)
)

// tileCopy copies a log to a folder.
type tileCopy struct {
	dir     string
	o       client.Operator
	had, to note.Checkpoint // of the folder before, and after
	keys    []string        // that signed to
	sum     *note.Range     // over the entries that were copied
	levels  [][]note.Hash   // the tile of each level that is not whole yet
	counts  []uint64        // of whole tiles, by level
	written int
}

func (x *tileCopy) run(ctx context.Context) error {
	trust, err := logTrust(ctx, x.o)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := x.o.Checkpoint(ctx, &b); err != nil {
		return err
	}
	signed := b.Bytes()
	if x.to, x.keys, err = openCheckpoint(signed, trust); err != nil {
		return err
	}
	if err := x.readHad(trust); err != nil {
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
		err = fmt.Errorf("the entries that the service gave are not those of the checkpoint that it signed over %d", x.to.Size)
	}
	if err != nil {
		return err
	}
	return x.finish(signed)
}

// readHad reads the checkpoint of an earlier copy. A file of that name that is
// none of this log is somebody else's.
func (x *tileCopy) readHad(trust trusted) error {
	path := filepath.Join(x.dir, checkpointName)
	old, err := os.ReadFile(path) //nolint:gosec // G304: the user names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		x.had, _, err = openCheckpoint(old, trust)
	}
	if err != nil {
		return api.Errorf(api.CodeConflict, "%s: %w", path, err).WithHint("nothing is overwritten but a copy of the same log; name another folder")
	}
	if x.had.Size > x.to.Size {
		return api.Errorf(api.CodeConflict, "%s has %d entries, and the log says that it has %d: entries were taken away", path, x.had.Size, x.to.Size).
			WithHint("keep the folder, it is evidence")
	}
	return x.holdHad()
}

// holdHad compares what was copied so far with the earlier copy.
func (x *tileCopy) holdHad() error {
	if x.had.Origin == "" || x.sum.Size() != x.had.Size {
		return nil
	}
	root, err := x.sum.Root()
	if err == nil && root != x.had.Root {
		err = api.Errorf(api.CodeConflict, "the first %d entries are not those of %s: the log was changed", x.had.Size, filepath.Join(x.dir, checkpointName)).
			WithHint("keep the folder, it is evidence")
	}
	return err
}

// bundle takes over the next entries, up to 256 of them.
func (x *tileCopy) bundle(ctx context.Context) error {
	index := x.sum.Size() / tileWidth
	n := min(tileWidth, x.to.Size-x.sum.Size())
	name := tileName("entries", index, n)
	content, err := os.ReadFile(filepath.Join(x.dir, name)) //nolint:gosec // G304: the user names the folder
	here := err == nil
	if errors.Is(err, fs.ErrNotExist) {
		content, err = x.fetch(ctx, index, n)
	}
	if err != nil {
		return err
	}
	entries, err := split(content, n)
	if err != nil {
		return api.Errorf(api.CodeConflict, "%s: %w", name, err).WithHint("remove the file if it is not yours, and run this again")
	}
	for _, entry := range entries {
		if err := x.add(note.LeafHash(entry)); err != nil {
			return err
		}
	}
	if here {
		return nil
	}
	return x.put(name, content)
}

// fetch asks for n entries of a bundle. A whole one may have taken the place of
// the part that was signed.
func (x *tileCopy) fetch(ctx context.Context, index, n uint64) ([]byte, error) {
	var b bytes.Buffer
	err := x.o.Tile(ctx, tileName("entries", index, n), &b)
	if api.CodeOf(err) == api.CodeNotFound && n < tileWidth {
		b.Reset()
		err = x.o.Tile(ctx, tileName("entries", index, tileWidth), &b)
	}
	if err != nil {
		return nil, err
	}
	content, end := b.Bytes(), 0
	for range n {
		if len(content) < end+2 {
			break // split says so
		}
		end = min(len(content), end+2+int(binary.BigEndian.Uint16(content[end:])))
	}
	return content[:end], nil
}

// split returns the n entries of a bundle, each behind its length.
func split(content []byte, n uint64) ([][]byte, error) {
	if len(content) > maxBundle {
		return nil, fmt.Errorf("%d bytes, more than a bundle has", len(content))
	}
	list := make([][]byte, 0, n)
	for range n {
		if len(content) < 2 {
			return nil, fmt.Errorf("it has %d entries, want %d", len(list), n)
		}
		size := int(binary.BigEndian.Uint16(content))
		if content = content[2:]; len(content) < size {
			return nil, fmt.Errorf("entry %d of %d is cut", len(list)+1, n)
		}
		list, content = append(list, content[:size]), content[size:]
	}
	if len(content) > 0 {
		return nil, fmt.Errorf("%d bytes behind its %d entries", len(content), n)
	}
	return list, nil
}

func (x *tileCopy) add(leaf note.Hash) error {
	err := x.sum.Add(leaf)
	if err == nil {
		err = x.holdHad()
	}
	if err == nil {
		err = x.push(0, leaf)
	}
	return err
}

// push adds a node to a level. A tile that is whole is written, and its root
// goes up.
func (x *tileCopy) push(level int, h note.Hash) error {
	if level == len(x.levels) {
		x.levels, x.counts = append(x.levels, nil), append(x.counts, 0)
	}
	x.levels[level] = append(x.levels[level], h)
	if len(x.levels[level]) < tileWidth {
		return nil
	}
	above := note.NewRange()
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

// tile writes the tile of a level that is being filled.
func (x *tileCopy) tile(level int) error {
	hashes := x.levels[level]
	return x.put(tileName(strconv.Itoa(level), x.counts[level], uint64(len(hashes))), bytes.Join(chunks(hashes), nil))
}

func chunks(hashes []note.Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i := range hashes {
		out[i] = hashes[i][:]
	}
	return out
}

// put writes a file that is not there yet, whole or not at all. One that is
// there must be the same.
func (x *tileCopy) put(name string, content []byte) error {
	path := filepath.Join(x.dir, name)
	old, err := os.ReadFile(path) //nolint:gosec // G304: the user names the folder
	switch {
	case err == nil && bytes.Equal(old, content):
		return nil
	case err == nil:
		return api.Errorf(api.CodeConflict, "%s is there and is not that of this log", path).WithHint("nothing is overwritten; name another folder, or remove what is in the way")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // G301: others are to read it
		return err
	}
	part, err := writePart(filepath.Dir(path), content)
	if err != nil {
		return err
	}
	x.written++
	return errors.Join(inTheWay(os.Link(part, path)), os.Remove(part))
}

// finish puts the checkpoint there, once everything that it is over is.
func (x *tileCopy) finish(signed []byte) error {
	if err := os.MkdirAll(x.dir, 0o755); err != nil { //nolint:gosec // G301: others are to read it
		return err
	}
	part, err := writePart(x.dir, signed)
	if err != nil {
		return err
	}
	path := filepath.Join(x.dir, checkpointName)
	if x.had.Origin == "" {
		return errors.Join(inTheWay(os.Link(part, path)), os.Remove(part))
	}
	return os.Rename(part, path)
}

// writePart writes a file under a name of its own.
func writePart(dir string, content []byte) (string, error) {
	f, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// tileName is how C2SP tlog-tiles names a tile of n hashes, or entries: groups
// of three digits, and its width where it is not whole.
func tileName(level string, index, n uint64) string {
	name := fmt.Sprintf("%03d", index%1000)
	for index /= 1000; index > 0; index /= 1000 {
		name = fmt.Sprintf("x%03d/", index%1000) + name
	}
	if n < tileWidth {
		name += fmt.Sprintf(".p/%d", n)
	}
	return "tile/" + level + "/" + name
}
