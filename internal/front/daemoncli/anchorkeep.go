package daemoncli

import (
	"context"
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

// anchorService anchors the log while the service runs. A nil one is not open yet.
type anchorService struct {
	keeper     *anchor.Keeper
	uncompared []api.AnchorStatus // remembered anchors that cannot be reached
}

// openAnchors compares the log with every anchor, also with those of the previous
// configuration, and starts to anchor it. It needs the tree.
func (s *service) openAnchors(ctx context.Context) error {
	views := s.t.anchorOpener(nil).views
	if err := errors.Join(os.RemoveAll(views), os.MkdirAll(views, 0o700)); err != nil {
		return err
	}
	c, err := s.anchorComparer(ctx)
	if err != nil {
		return err
	}
	unreached, uncompared, err := c.compareFormer(ctx)
	var keeper *anchor.Keeper
	if err == nil {
		keeper, err = anchor.Open(ctx, c.Config)
	}
	if err == nil {
		s.anchors = &anchorService{keeper, uncompared}
		return newMemory(s.t.Dirs.State, s.set, unreached).write(s.t.memoryPath())
	}
	if e, ok := errors.AsType[*anchor.MismatchError](err); ok {
		return api.Errorf(api.CodeIntegrity, "%w", err).WithHint("restore the newest state, or the anchor. If that is lost for good, keep what the anchor holds as evidence; an operator can sign that: bailiwick anchor lost %s", e.Anchor.Name)
	}
	return err
}

// refusal returns why nothing new may be admitted.
func (a *anchorService) refusal() error {
	if a == nil {
		return nil
	}
	return a.keeper.Err()
}

// status returns the status of the anchors.
func (a *anchorService) status(ctx context.Context) ([]api.AnchorStatus, error) {
	if a == nil {
		return nil, nil
	}
	list, err := a.keeper.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []api.AnchorStatus
	for _, one := range list {
		to := api.AnchorStatus{Name: one.Name, Kind: string(one.Kind), Place: one.Place, Entries: one.Size, Behind: one.Behind, Compared: one.Compared, Lost: one.Lost, EverySeconds: one.Every.Seconds()}
		if !one.At.IsZero() {
			to.At = &one.At
		}
		if one.Err != nil {
			since := one.Since.UTC()
			to.Error, to.FailingSince = one.Err.Error(), &since
		}
		out = append(out, to)
	}
	return append(out, a.uncompared...), nil
}

// state returns the state of the anchors for metrics.
func (a *anchorService) state(ctx context.Context) (list []telemetry.Anchor) {
	if a == nil {
		return nil
	}
	all, err := a.keeper.Status(ctx)
	if err != nil {
		return nil // shutting down, or the store is poisoned, which has its own metric
	}
	for _, one := range all {
		to := telemetry.Anchor{Name: one.Name, Kind: string(one.Kind), Size: one.Size, Behind: one.Behind, OK: one.Err == nil}
		if !one.At.IsZero() {
			to.At = float64(one.At.UnixMicro()) / 1e6
		}
		list = append(list, to)
	}
	return list
}

func (a *anchorService) close() error {
	if a == nil {
		return nil
	}
	return a.keeper.Close()
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
