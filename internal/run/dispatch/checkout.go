package dispatch

import (
	"context"
	"crypto/rand"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/worker/checkoutcache"
)

// checkoutTime bounds the preparation of one checkout.
const checkoutTime = 5 * time.Minute

// prepareCheckout makes the checkout that an attempt starts from. In mode system workers only read the checkouts of the service.
// The attempt does not wait: a worker that finds none makes its own.
func (l *lifecycle) prepareCheckout(r row, m record.Manifest) {
	if m.Source == nil || !l.cfg.Dirs.System() {
		return
	}
	l.work.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, checkoutTime)
		defer cancel()
		if err := l.checkout(ctx, m); err != nil && l.life.Err() == nil {
			l.logger(&r.record).WarnContext(ctx, "the checkout of a source was not prepared; its workers make their own, which takes longer", slog.Any("err", err))
		}
	})
}

func (l *lifecycle) checkout(ctx context.Context, m record.Manifest) error {
	snapshot, err := l.cfg.InForce.At(ctx, m.RevisionDigest)
	if err != nil {
		return err
	}
	source, _, err := snapshot.Revision.Source(m.Source.Name)
	if err != nil {
		return err
	}
	scratch := filepath.Join(l.cfg.Dirs.Scratch(), "checkout-"+rand.Text())
	return checkoutcache.New(l.cfg.Dirs.Checkouts()).Prepare(ctx, l.cfg.Dirs.Repository(source), source.Repo, m.Source.Commit, scratch, int64(m.Limits.Disk))
}
