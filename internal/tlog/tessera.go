package tlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/transparency-dev/tessera"
	"github.com/transparency-dev/tessera/storage/posix"
	sumnote "golang.org/x/mod/sumdb/note"
	"k8s.io/klog/v2"

	"github.com/bailiwick-dev/bailiwick/internal/audit"
	"github.com/bailiwick-dev/bailiwick/internal/note"
)

const (
	// treeName is Tessera's directory below ours.
	treeName = "tree"
	// treeVersion is what Tessera writes as the version of its layout.
	treeVersion = "1"
	// batchAge is how long Tessera waits for more entries: it gets what there is
	// at once.
	batchAge = 10 * time.Millisecond
	// publishAge is how often Tessera signs, with a key of its own that is worth
	// nothing: our checkpoints are ours.
	publishAge = time.Second
	// endTime is how long Tessera may take to end.
	endTime = 100 * time.Millisecond
)

// Route makes what Tessera says part of the log of the service. It is called
// once, before anything is opened.
func Route(logger *slog.Logger) { klog.SetSlogLogger(logger) }

// builder is Tessera with a directory.
type builder struct {
	dir      string
	add      tessera.AddFn
	shutdown func(context.Context) error
	cancel   context.CancelFunc
}

// openTessera opens the tree in dir or begins it. Tessera panics where it
// cannot open its lock.
func openTessera(dir, origin string) (b *builder, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("open the tree: %v", r)
		}
	}()
	skey, _, err := sumnote.GenerateKey(nil, origin)
	if err != nil {
		return nil, err
	}
	signer, err := sumnote.NewSigner(skey)
	if err != nil {
		return nil, err
	}
	// What it starts ends with its own context, after it was shut down: the other
	// way round whoever waits for an entry waits for ever.
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	driver, err := posix.New(ctx, posix.Config{Path: dir})
	if err != nil {
		return nil, err
	}
	appender, shutdown, _, err := tessera.NewAppender(ctx, driver, tessera.NewAppendOptions().
		WithCheckpointSigner(signer).
		WithCheckpointInterval(publishAge).
		WithBatching(audit.LeafBatch, batchAge).
		WithGarbageCollectionInterval(0)) // prune does it: what we remove, we know of
	if err != nil {
		return nil, fmt.Errorf("open the tree: %w", err)
	}
	return &builder{dir, appender.Add, shutdown, cancel}, nil
}

// ready refuses what Tessera would panic about in a goroutine of its own, which
// would end the service.
func (b *builder) ready() error {
	f, err := os.OpenFile(filepath.Join(b.dir, ".state", "treeState.lock"), os.O_RDWR|os.O_CREATE, 0o644) //nolint:gosec // G302: as Tessera makes it
	if err != nil {
		return err
	}
	return f.Close()
}

// feed hands over entries that follow those that the tree has, and returns
// what came of it when all of them are in it or one of them cannot be. Nobody
// may wait for that without an end: where the disk hangs, it never comes.
func (b *builder) feed(list []audit.Committed) <-chan error {
	came := make(chan error, 1)
	if err := b.ready(); err != nil {
		came <- err
		return came
	}
	go func() {
		futures := make([]tessera.IndexFuture, len(list))
		for i := range list { // one after the other: the order is the log's
			futures[i] = b.add(context.Background(), tessera.NewEntry(list[i].Leaf))
		}
		// Each is waited for, also behind an error: then nothing is under way.
		var first error
		for i, future := range futures {
			at, err := future()
			if err == nil && at.Index != list[i].Seq {
				err = fmt.Errorf("entry #%d became number %d of the tree: %w", list[i].Seq, at.Index, errDamaged)
			}
			if first == nil {
				first = err
			}
		}
		came <- first
	}()
	return came
}

func (b *builder) close() {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	// It waits for a checkpoint of its own, which nobody needs.
	_ = b.shutdown(ctx)
	b.cancel()
}

// state is what Tessera says the tree is. Where it says nothing or nonsense the
// error is errDamaged; empty is where nothing was ever built.
func (t tiles) state() (size uint64, root note.Hash, err error) {
	b, err := os.ReadFile(filepath.Join(t.dir, ".state", "treeState"))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(t.dir); errors.Is(err, fs.ErrNotExist) {
			return 0, note.EmptyRoot(), nil
		}
		return 0, note.Hash{}, fmt.Errorf("the state of the tree is missing: %w", errDamaged)
	}
	if err != nil {
		return 0, note.Hash{}, err
	}
	var s struct {
		Size uint64 `json:"size"`
		Root []byte `json:"root"`
	}
	if err := json.Unmarshal(b, &s); err != nil || len(s.Root) != hashSize {
		return 0, note.Hash{}, fmt.Errorf("the state of the tree cannot be read: %w", errDamaged)
	}
	return s.Size, note.Hash(s.Root), t.version()
}

// version holds the mark that Tessera leaves of its layout to be the one that it
// opens. Where a cut made something else of it, or it is another Tessera's, that
// would be a refusal for ever.
func (t tiles) version() error {
	b, err := os.ReadFile(filepath.Join(t.dir, ".state", "version"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it makes it
	}
	if err == nil && string(b) != treeVersion {
		err = fmt.Errorf("the layout of the tree has version %.20q, want %q: %w", b, treeVersion, errDamaged)
	}
	return err
}
