package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/client"
	sumnote "golang.org/x/mod/sumdb/note"
	sumtlog "golang.org/x/mod/sumdb/tlog"

	"github.com/bailiwick-dev/bailiwick/internal/document/logproof"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
)

// vkey returns the only thing that a foreign reader has of us.
func (w *world) vkey(t *testing.T) sumnote.Verifier {
	t.Helper()
	text, err := logproof.VerifierKey(seal.LogOrigin(w.key.KeyID()), public(w.key))
	must(t, err)
	v, err := sumnote.NewVerifier(text)
	must(t, err)
	return v
}

// proves R-A5: Tessera's client reads the checkpoint, tiles and bundles over HTTP,
// and verifies that an entry is in the log and that the log only grew.
func TestTesserasClientReadsAndChecksTheLog(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	web := httptest.NewServer(http.FileServerFS(w.log.Files()))
	defer web.Close()
	at, err := url.Parse(web.URL + "/")
	must(t, err)
	fetch, err := client.NewHTTPFetcher(at, web.Client())
	must(t, err)
	v, ctx := w.vkey(t), t.Context()

	w.grow(t, 300)
	w.covered(t)
	before, err := fetch.ReadCheckpoint(ctx)
	must(t, err)
	tracker, err := client.NewLogStateTracker(ctx, fetch.ReadTile, before, v, v.Name(), client.UnilateralConsensus(fetch.ReadCheckpoint))
	must(t, err)
	w.grow(t, 1000)
	w.covered(t)
	if _, _, _, err := tracker.Update(ctx); err != nil { // verifies a consistency proof
		t.Fatal(err)
	}
	c := tracker.Latest()
	if c.Size != 1300 {
		t.Fatalf("the client saw %d entries", c.Size)
	}
	prove, err := client.NewProofBuilder(ctx, c.Size, fetch.ReadTile)
	must(t, err)
	for _, index := range []uint64{0, 255, 256, 299, 300, 1024, 1299} {
		bundle, err := client.GetEntryBundle(ctx, fetch.ReadEntryBundle, index/256, c.Size)
		must(t, err)
		leaf := rfc6962.DefaultHasher.HashLeaf(bundle.Entries[index%256])
		p, err := prove.InclusionProof(ctx, index)
		must(t, err)
		must(t, proof.VerifyInclusion(rfc6962.DefaultHasher, index, c.Size, leaf, p, c.Hash))
		if !strings.Contains(string(bundle.Entries[index%256]), fmt.Sprintf(`"entry %d"`, index)) {
			t.Errorf("entry #%d is %s", index, bundle.Entries[index%256])
		}
	}
	// Control: a changed tile is detected.
	lying := func(ctx context.Context, level, index uint64, p uint8) ([]byte, error) {
		b, err := fetch.ReadTile(ctx, level, index, p)
		if len(b) > 0 {
			b[0] ^= 1
		}
		return b, err
	}
	prove, err = client.NewProofBuilder(ctx, c.Size, lying)
	must(t, err)
	p, err := prove.InclusionProof(ctx, 7)
	must(t, err)
	leaf, err := w.ledger.Get(ctx, 7)
	must(t, err)
	if proof.VerifyInclusion(rfc6962.DefaultHasher, 7, c.Size, leaf.Hash[:], p, c.Hash) == nil {
		t.Error("control: a changed tile was not detected")
	}
}

// goReader reads tiles as the Go checksum database's client does.
type goReader struct {
	files fs.FS
	harm  bool
}

func (r goReader) Height() int                        { return 8 }
func (r goReader) SaveTiles([]sumtlog.Tile, [][]byte) {}
func (r goReader) ReadTiles(list []sumtlog.Tile) ([][]byte, error) {
	var data [][]byte
	for _, tile := range list {
		// The path of the checksum database without the height.
		name := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
		b, err := fs.ReadFile(r.files, name)
		if errors.Is(err, fs.ErrNotExist) {
			name, _, _ = strings.Cut(name, ".p/")
			b, err = fs.ReadFile(r.files, name)
		}
		if err != nil {
			return nil, err
		}
		if r.harm {
			b = bytes.Clone(b)
			b[len(b)-1] ^= 1
		}
		data = append(data, b[:tile.W*32])
	}
	return data, nil
}

// proves R-A5: the client of the Go checksum database verifies the log.
func TestTheGoChecksumDatabasesReaderChecksTheLog(t *testing.T) {
	w := newWorld(t)
	must(t, w.open(t))
	w.grow(t, 1300)
	w.covered(t)
	f, err := w.log.Files().Open("checkpoint")
	must(t, err)
	signed, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	n, err := sumnote.Open(signed, sumnote.VerifierList(w.vkey(t)))
	must(t, err)
	var origin string
	var size int64
	var root string
	if _, err := fmt.Sscanf(n.Text, "%s\n%d\n%s\n", &origin, &size, &root); err != nil {
		t.Fatal(err)
	}
	hash, err := sumtlog.ParseHash(root)
	must(t, err)
	tree := sumtlog.Tree{N: size, Hash: hash}
	for _, index := range []int64{0, 255, 256, 1279, 1299} {
		leaf, err := w.ledger.Get(t.Context(), uint64(index))
		must(t, err)
		p, err := sumtlog.ProveRecord(size, index, sumtlog.TileHashReader(tree, goReader{files: w.log.Files()}))
		must(t, err)
		must(t, sumtlog.CheckRecord(p, size, hash, index, sumtlog.RecordHash(leaf.Leaf)))
	}
	if _, err := sumtlog.ProveRecord(size, 7, sumtlog.TileHashReader(tree, goReader{w.log.Files(), true})); err == nil {
		t.Error("control: a changed tile was not detected")
	}
}
