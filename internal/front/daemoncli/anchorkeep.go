package daemoncli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/front/telemetry"
	"github.com/bailiwick-dev/bailiwick/internal/state/anchor"
	"github.com/bailiwick-dev/bailiwick/internal/verify/receipt"
)

// openAnchors compares the log with every anchor, also with those of the previous
// configuration, and starts to anchor it. It needs the tree.
func (s *service) openAnchors(ctx context.Context) error {
	views := s.t.anchorOpener(nil).views
	if err := errors.Join(os.RemoveAll(views), os.MkdirAll(views, 0o700)); err != nil {
		return err
	}
	cfg, err := s.anchorConfig(ctx)
	if err != nil {
		return err
	}
	unreached, err := s.compareFormer(ctx, cfg)
	if err == nil {
		s.anchors, err = anchor.Open(ctx, cfg)
	}
	if err == nil {
		return s.remember(unreached)
	}
	if e, ok := errors.AsType[*anchor.MismatchError](err); ok {
		return api.Errorf(api.CodeIntegrity, "%w", err).WithHint("restore the newest state, or the anchor. If that is lost for good, keep what the anchor holds as evidence; an operator can sign that: bailiwick anchor lost %s", e.Anchor.Name)
	}
	return err
}

// anchorConfig needs the tree and the registry.
func (s *service) anchorConfig(ctx context.Context) (cfg anchor.Config, err error) {
	schedules, err := s.t.anchorOpener(s.logger).schedules(s.set.Anchors)
	if err != nil {
		return cfg, api.Errorf(api.CodeInvalid, "%w", err).WithHint("fix the anchor in %s", s.set.File)
	}
	tree := s.log.Load()
	var known []ed25519.PublicKey
	for _, p := range s.keys.history.Keys {
		known = append(known, p.Key.Public)
	}
	is, err := tree.Status(ctx)
	return anchor.Config{
		Store: s.store, Len: s.ledger.Len, Log: tree, Origin: is.Origin, Keys: known, Anchors: schedules, Lost: s.registry.AnchorLost, Now: s.t.Now, Logger: s.logger,
	}, err
}

// anchorsErr returns why nothing new may be admitted.
func (s *service) anchorsErr() error {
	if s.anchors == nil {
		return nil
	}
	return s.anchors.Err()
}

// anchorStatus returns the status of the anchors.
func (s *service) anchorStatus(ctx context.Context) ([]api.AnchorStatus, error) {
	if s.anchors == nil {
		return nil, nil
	}
	list, err := s.anchors.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []api.AnchorStatus
	for _, a := range list {
		to := api.AnchorStatus{Name: a.Name, Kind: string(a.Kind), Place: a.Place, Entries: a.Size, Behind: a.Behind, Compared: a.Compared, Lost: a.Lost, EverySeconds: a.Every.Seconds()}
		if !a.At.IsZero() {
			to.At = &a.At
		}
		if a.Err != nil {
			since := a.Since.UTC()
			to.Error, to.FailingSince = a.Err.Error(), &since
		}
		out = append(out, to)
	}
	return append(out, s.uncompared...), nil
}

// anchorState returns the state of the anchors for metrics.
func (s *service) anchorState(ctx context.Context) (list []telemetry.Anchor) {
	if s.anchors == nil {
		return nil
	}
	all, err := s.anchors.Status(ctx)
	if err != nil {
		return nil // shutting down, or the store is poisoned, which has its own metric
	}
	for _, a := range all {
		one := telemetry.Anchor{Name: a.Name, Kind: string(a.Kind), Size: a.Size, Behind: a.Behind, OK: a.Err == nil}
		if !a.At.IsZero() {
			one.At = float64(a.At.UnixMicro()) / 1e6
		}
		list = append(list, one)
	}
	return list
}

func (s *service) closeAnchors() error {
	if s.anchors == nil {
		return nil
	}
	return s.anchors.Close()
}

// anchorTimeout bounds doctor's check of one anchor.
const anchorTimeout = 10 * time.Second

// anchorChecks are doctor's checks of what each anchor holds.
func (t *doctor) anchorChecks(ctx context.Context) (out []check) {
	s, err := t.settings()
	if err != nil {
		return nil // reported by configCheck
	}
	list := s.Anchors.all(t.Dirs.State)
	if len(list) == 0 {
		out = append(out, check{name: "anchors", advice: true, found: "none: a rollback of the log to an earlier state would only be noticed on this machine", fix: "write anchors in " + t.Dirs.ServiceConfig()})
	}
	for _, a := range s.former {
		out = append(out, check{name: "anchor " + a.Name, advice: true, found: fmt.Sprintf("%s %s: remembered, NOT COMPARED: the state was started with it, and the configuration no longer has it", a.Kind, a.place()), fix: "make it reachable: the next start compares it, and then forgets it"})
	}
	for _, a := range list {
		out = append(out, t.anchorCheck(ctx, a))
	}
	return out
}

func (t *doctor) anchorCheck(ctx context.Context, a anchorSettings) check {
	c := check{name: "anchor " + a.Name}
	opener := t.anchorOpener(nil)
	opener.views = ""
	one, err := opener.open(a)
	if err != nil {
		c.found, c.fix = err.Error(), "fix the anchor; the service does not start with it"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, anchorTimeout)
	defer cancel()
	where := fmt.Sprintf("%s %s", a.Kind, one.ID().Place)
	largest, problem, err := anchor.Survey(ctx, one)
	if errors.Is(err, fs.ErrNotExist) && a.Kind == receipt.File && filepath.Dir(a.Path) == t.Dirs.State {
		err = nil // no service has created the state yet
	}
	switch {
	case problem != "":
		c.found, c.fix, c.invalid = where+": holds what the service did not write: "+problem, "the service does not start with it; see: bailiwick anchor show "+a.Name, true
		return c
	case err != nil && ctx.Err() != nil && largest != nil: // the start has more time
		c.found = fmt.Sprintf("%s: has a checkpoint of %s, and more than can be read in %s", where, record.Plural(largest.Size, "entry"), anchorTimeout)
	case err != nil:
		c.found, c.fix, c.advice = where+": "+err.Error(), "the service starts without it, and the anchor falls behind", true
		return c
	case a.Kind == receipt.TSA:
		c.found = where + ": queried when there is something to stamp"
	case largest == nil:
		c.found = where + ": no checkpoint yet"
	default:
		c.found = fmt.Sprintf("%s: has a checkpoint of %s", where, record.Plural(largest.Size, "entry"))
	}
	c.ok = true
	if a.Kind == receipt.File && sameDisk(t.Dirs.State, filepath.Dir(a.Path)) {
		c.ok, c.advice = false, true
		c.found += "; on the same disk as the state"
		c.fix = "add an anchor on another disk or machine: anchors in " + t.Dirs.ServiceConfig()
	}
	return c
}

// sameDisk reports whether two directories are on the same file system.
func sameDisk(a, b string) bool {
	one, err := os.Stat(a)
	two, err2 := os.Stat(b)
	if err != nil || err2 != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	x, ok := one.Sys().(*syscall.Stat_t)
	y, ok2 := two.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Dev == y.Dev
}

func modeOf(path string) (fs.FileMode, error) {
	st, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return st.Mode().Perm(), nil
}
