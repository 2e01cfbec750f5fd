package toolhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/redact"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/state/blob"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
	"github.com/bailiwick-dev/bailiwick/internal/worker/mcpclient"
)

// Config configures Run.
type Config struct {
	Start        io.ReadCloser // a record.ToolStart and its files
	In           io.Reader     // a record.ToolRequest a line
	Out          io.Writer     // gets a record.ToolReply a line
	Err          io.Writer     // see record.ToolStart
	Certificates string        // file of those that the service trusts instead of the system's; "" for none
	Now          func() time.Time
}

// host is a tool host with its server.
type host struct {
	cfg   Config
	start record.ToolStart
	files []jail.File
	gate  *gate // nil: no call that people approve is made
	says  *speaker
	ctx   context.Context //nolint:containedctx // of everything that it runs; ends with In
	busy  sync.WaitGroup

	writing sync.Mutex // one reply at a time

	mu       sync.Mutex
	sessions map[int64]*mcpclient.Session // guarded by mu
	calls    map[int64]context.CancelFunc // guarded by mu
	redact   *redact.Set                  // of secrets and tokens; guarded by mu
	tokens   []string                     // guarded by mu
}

// Run serves the server that Start names until In ends.
func Run(ctx context.Context, cfg Config) error {
	h := &host{cfg: cfg, sessions: map[int64]*mcpclient.Session{}, calls: map[int64]context.CancelFunc{}}
	if err := errors.Join(h.read(ctx), cfg.Start.Close()); err != nil {
		return fmt.Errorf("read the server: %w", err)
	}
	h.redact = redact.New(h.secrets())
	h.says = newSpeaker(cfg.Err, h.redact, cfg.Now)
	defer h.says.close()
	ctx, cancel := context.WithCancel(ctx)
	h.ctx = ctx
	err := h.serve()
	cancel() // what runs is of no use to anybody
	for _, s := range h.open() {
		h.busy.Go(func() { _ = s.Close() })
	}
	h.busy.Wait()
	return err
}

func (h *host) secrets() []string { return slices.Collect(maps.Values(h.start.Secrets)) }

// read reads the document, verifies the server, and reads its files.
func (h *host) read(ctx context.Context) error {
	in := bufio.NewReaderSize(h.cfg.Start, 64<<10)
	content := func(f api.File) ([]byte, error) {
		text := make([]byte, f.Size)
		_, err := io.ReadFull(in, text)
		return text, err
	}
	line, err := readLine(in, record.MaxToolStart)
	if err != nil {
		return err
	}
	defer clear(line)
	if err := canon.Decode(line, &h.start); err != nil {
		return err
	}
	if h.start.Gate != nil {
		if h.gate, err = newGate(ctx, *h.start.Gate, h.start.Server, h.cfg.Now); err != nil {
			return err
		}
		store, err := blob.Open(blob.Config{Dir: h.start.Gate.Catalog})
		if err != nil {
			return err
		}
		defer store.Close() //nolint:errcheck // only read
		content = func(f api.File) ([]byte, error) { return store.Get(ctx, f.Digest, f.Size) }
	}
	left := int64(catalog.MaxBundle)
	for _, f := range h.start.Files {
		if left -= f.Size; f.Size < 0 || left < 0 {
			return fmt.Errorf("its files have more than %d bytes", int64(catalog.MaxBundle))
		}
		text, err := content(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if got := api.DigestOf(text); got != f.Digest {
			return fmt.Errorf("%s: digest %s, its capability says %s", f.Path, got.Short(), f.Digest.Short())
		}
		h.files = append(h.files, jail.File{Path: f.Path, Mode: os.FileMode(f.Mode & 0o777), Content: text})
	}
	return nil
}

func readLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > most:
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
