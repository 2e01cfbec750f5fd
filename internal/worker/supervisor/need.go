package supervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// layNeeds copies the needs of a task below inputs/ of a layer, before anything of
// the dispatch runs. Each is read once, so that what is verified is what is
// copied.
func (ws *workspace) layNeeds(layer *os.Root) error {
	for i := range ws.manifest.Needs {
		n := &ws.manifest.Needs[i]
		if err := layNeed(ws.dir, layer, n); err != nil {
			return fmt.Errorf("need %q, the %s of task %s: %w", n.Place(), n.Kind, n.Task, err)
		}
	}
	return nil
}

func layNeed(dir string, layer *os.Root, n *record.Need) error {
	// A fifo would block the worker, and a link would lead elsewhere.
	from, err := os.OpenFile(filepath.Join(dir, n.File()), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) //nolint:gosec // G304: our own directory
	if err != nil {
		return fail(api.ReasonIntegrity, "%w", err)
	}
	defer from.Close() //nolint:errcheck // only read
	if info, err := from.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() != n.Size {
		return fail(api.ReasonIntegrity, "not a regular file of %d bytes, the size in the manifest", n.Size)
	}
	const mode = 0o644
	if n.Item != "" {
		if err := layer.Mkdir(inputsDir+"/"+string(n.Name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	to, err := layer.OpenFile(inputsDir+"/"+n.Place(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, n.Size+1))
	if err := errors.Join(err, to.Chmod(mode), to.Close()); err != nil {
		return err
	}
	if got := api.Digest("sha256:" + hex.EncodeToString(sum.Sum(nil))); size != n.Size || got != n.Digest {
		return fail(api.ReasonIntegrity, "%d bytes of digest %s, the manifest says %d of %s", size, got.Short(), n.Size, n.Digest.Short())
	}
	return nil
}
