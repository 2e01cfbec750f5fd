package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// checkoutTime bounds the preparation of one checkout.
const checkoutTime = 5 * time.Minute

// startMargin is what an attempt that waited for its checkout has left of its manifest's time.
const startMargin = 30 * time.Second

// withCheckout calls start after it has begun to make the checkout that an attempt starts from. In mode system workers only read
// the checkouts of the service. The attempt does not wait: a worker that finds none makes its own. It waits for one whose source
// lies elsewhere than at its path, such as a linked work tree: its worker sees that path alone.
func (l *lifecycle) withCheckout(r row, m record.Manifest, start func()) {
	if m.Source == nil || !l.cfg.Dirs.System() {
		start()
		return
	}
	latest := m.Expires.Add(-startMargin)
	late := fmt.Errorf("source %q: its checkout was not ready at %s, when its worker had to start: submit the work again", m.Source.Name, latest.UTC().Format(time.RFC3339))
	ctx, cancel := context.WithTimeout(l.life, latest.Sub(l.cfg.Now()))
	l.pending.begin(r.record.ID, cancel)
	l.work.Go(func() {
		defer cancel()
		defer l.pending.done(r.record.ID)
		x, err := l.openCheckout(ctx, m)
		if err == nil && !x.src.Whole() {
			err = x.make(ctx)
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = late
		}
		switch {
		case l.life.Err() != nil: // the next service starts it
		case err != nil:
			reason := api.ReasonFetch
			if _, ok := errors.AsType[*capture.TooLargeError](err); ok {
				reason = api.ReasonLimit
			}
			l.failStart(r, reason, err)
		case x.src.Whole():
			l.work.Go(func() { l.prepareCheckout(r, x) })
			start()
		default:
			start()
		}
	})
}

// prepareCheckout makes a checkout that no attempt waits for.
func (l *lifecycle) prepareCheckout(r row, x checkout) {
	ctx, cancel := context.WithTimeout(l.life, checkoutTime)
	defer cancel()
	if err := x.make(ctx); err != nil && l.life.Err() == nil {
		l.logger(&r.record).WarnContext(ctx, "the checkout of a source was not prepared; its workers make their own, which takes longer", slog.Any("err", err))
	}
}

// checkout is a commit of an open source.
type checkout struct {
	dirs   api.Dirs
	source api.Source
	src    *capture.Source
	commit string
	most   int64 // bytes
}

func (l *lifecycle) openCheckout(ctx context.Context, m record.Manifest) (checkout, error) {
	snapshot, err := l.cfg.InForce.At(ctx, m.RevisionDigest)
	if err != nil {
		return checkout{}, err
	}
	source, _, err := snapshot.Revision.Source(m.Source.Name)
	if err != nil {
		return checkout{}, err
	}
	src, err := capture.OpenSource(ctx, l.cfg.Dirs.Repository(source))
	if err != nil {
		return checkout{}, fmt.Errorf("source %q: %w", source.Name, err)
	}
	return checkout{l.cfg.Dirs, source, src, m.Source.Commit, int64(m.Limits.Disk)}, nil
}

func (x *checkout) make(ctx context.Context) error {
	scratch := filepath.Join(x.dirs.Scratch(), "checkout-"+rand.Text())
	err := checkoutcache.New(x.dirs.Checkouts()).Prepare(ctx, x.src, x.source.Repo, x.commit, scratch, x.most)
	if err != nil {
		return fmt.Errorf("source %q: %w", x.source.Name, err)
	}
	return nil
}
