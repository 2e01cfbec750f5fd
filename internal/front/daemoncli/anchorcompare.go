package daemoncli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
)

// anchorComparer compares the log with anchors, one by one: with the configured ones, and
// with those of the previous configuration.
type anchorComparer struct {
	anchor.Config
	opener anchorOpener
	former []anchorSettings
}

// anchorComparer needs the tree and the registry.
func (s *service) anchorComparer(ctx context.Context) (c anchorComparer, err error) {
	c = anchorComparer{opener: s.t.anchorOpener(s.logger), former: s.set.former}
	schedules, err := c.opener.schedules(s.set.Anchors)
	if err != nil {
		return c, api.Errorf(api.CodeInvalid, "%w", err).WithHint("fix the anchor in %s", s.set.File)
	}
	tree := s.log.Load()
	var known []ed25519.PublicKey
	for _, p := range s.keys.history.Keys {
		known = append(known, p.Key.Public)
	}
	is, err := tree.Status(ctx)
	c.Config = anchor.Config{
		Store: s.store, Len: s.ledger.Len, Log: tree, Origin: is.Origin, Keys: known, Anchors: schedules, Lost: s.registry.AnchorLost, Now: s.t.Now, Logger: s.logger,
	}
	return c, err
}

// find compares the log with the anchor of a name, as the start does: with the
// configured one, and then with one of the previous configuration.
func (c *anchorComparer) find(ctx context.Context, name string) (*anchor.MismatchError, error) {
	found, err := anchor.Find(ctx, c.Config, name)
	for _, a := range c.former {
		if a.Name == name && found == nil {
			found, err = c.findFormer(ctx, a)
		}
	}
	return found, err
}

// compareFormer compares the log with remembered anchors that are no longer
// configured. It returns those that cannot be reached, which the next start compares, and
// their status.
func (c *anchorComparer) compareFormer(ctx context.Context) (unreached []anchorSettings, status []api.AnchorStatus, err error) {
	for _, a := range c.former {
		found, err := c.findFormer(ctx, a)
		if found != nil && !c.Lost(a.Name, found.Found) {
			return nil, nil, found
		}
		if err == nil {
			continue
		}
		c.Logger.WarnContext(ctx, "an anchor of the previous configuration cannot be compared; the next start tries again", slog.String("anchor", a.Name), slog.Any("err", err))
		unreached = append(unreached, a)
		status = append(status, api.AnchorStatus{Name: a.Name, Kind: string(a.Kind), Place: a.place(), Remembered: true, EverySeconds: a.Every.Seconds(), Error: err.Error()})
	}
	return unreached, status, nil
}

// findFormer compares the log with one anchor that is no longer configured.
func (c *anchorComparer) findFormer(ctx context.Context, a anchorSettings) (*anchor.MismatchError, error) {
	one, err := c.opener.open(a)
	if err != nil {
		return nil, err
	}
	cfg := c.Config
	cfg.Anchors = []anchor.Schedule{{Anchor: one, Every: a.Every}}
	found, err := anchor.Find(ctx, cfg, a.Name)
	if _, unfit := errors.AsType[*anchor.UnfitError](err); unfit {
		err = nil // it was read
	}
	return found, err
}
