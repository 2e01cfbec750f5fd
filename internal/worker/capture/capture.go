package capture

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// Result is the outcome of a capture.
type Result struct {
	// PatchFile is the patch, in the Repo's directory; "" when nothing changed. It
	// is binary-safe git diff output and applies to Base.
	PatchFile string
	PatchSize int64
	Base      string           // tree that the patch applies to
	Tree      string           // tree of the base with the patch applied
	Files     []api.FileChange // with printable paths
	Changed   []string         // paths of Files as they are
	LeftOut   []api.LeftOut
	Secrets   bool // a file was left out because it has the value of a secret
	// LinksOut are the symbolic links in the patch whose target is absolute or
	// outside the tree. A reader should review them.
	LinksOut []string
}

// Capture compares a workspace, in which no process runs any more, with its
// baseline and writes the patch, which is verified: applied to the base it gives
// Tree. The error is a *LimitError when the workspace or its change exceeds a
// bound. The same workspace gives the same bytes.
func (r *Repo) Capture(ctx context.Context, root *os.File, baseline *Snapshot) (Result, error) {
	r.capture.Lock()
	defer r.capture.Unlock()
	now, err := r.snapshot(ctx, root, baseline.base, baseline.cfg)
	if err != nil {
		return Result{}, fmt.Errorf("capture: %w", err)
	}
	c := &change{before: baseline, now: now, deleted: map[string]bool{}}
	c.compare()
	if err := c.leaveOutSecrets(ctx, root); err != nil {
		return Result{}, fmt.Errorf("capture: %w", err)
	}
	res := Result{Base: baseline.base.id, Tree: baseline.base.id, LeftOut: c.out.done(), LinksOut: c.linksOut(), Secrets: c.secrets}
	if len(c.set)+len(c.deleted) > now.cfg.MaxChanged {
		return res, &LimitError{What: "changed paths", Limit: int64(now.cfg.MaxChanged)}
	}
	if c.total > now.cfg.MaxTotal {
		return res, &LimitError{What: "bytes of changed files", Limit: now.cfg.MaxTotal}
	}
	if len(c.set)+len(c.deleted) == 0 {
		return res, nil
	}
	if err := (&patcher{r, root, c, &res}).make(ctx); err != nil {
		r.wrapGit(&err, "capture")
		return Result{LeftOut: res.LeftOut}, err
	}
	return res, nil
}

// change is the part of the difference between a baseline and now that a patch can
// carry.
type change struct {
	before, now *Snapshot
	set         []entry         // new or different, bytewise by path
	deleted     map[string]bool // removed paths of the base
	total       int64
	out         report
	secrets     bool // leaveOutSecrets left something out
}

func (c *change) compare() {
	var unseen []string // left out now: the base's content stays
	for _, p := range c.now.order {
		e := c.now.entries[p]
		old, had := c.before.entries[p]
		switch {
		case e.why != "":
			unseen = append(unseen, p)
			if !had || old.why != e.why || (!e.dir || e.why == whySubmodule) && old.stamp != e.stamp {
				c.out.add(p, e.why)
			}
		case had && old.why == "" && old.mode == e.mode && old.id == e.id:
		case c.now.overlay[p]:
			c.out.add(p, "a capability's file; what the agent changed in it is not taken")
		default:
			c.set = append(c.set, *e)
			c.total += e.size
		}
	}
	c.findDeleted(unseen)
	ignored := map[string]int{}
	for p, now := range c.now.ignored {
		if c.before.ignored[p] != now {
			top, _, _ := strings.Cut(p, "/")
			ignored[top]++
		}
	}
	for _, top := range sortedKeys(ignored) {
		c.out.add(top, fmt.Sprintf("%d untracked files that the .gitignore files of the base ignore", ignored[top]))
	}
}

// findDeleted marks paths of the base that existed at the baseline and are missing
// now, unless an entry that was left out is in their place.
func (c *change) findDeleted(unseen []string) {
	hidden := func(p string) bool {
		for q := p; q != ""; q = parent(q) {
			if _, ok := slices.BinarySearch(unseen, q); ok {
				return true
			}
		}
		return false
	}
	for _, p := range c.before.order {
		if _, still := c.now.entries[p]; still || hidden(p) {
			continue
		}
		if c.now.overlay[p] {
			c.out.add(p, "a capability's file; that the agent deleted it is not taken")
			continue
		}
		missing := []string{p}
		if c.before.entries[p].dir {
			missing = c.before.base.under(p) // it was left out as a whole at the baseline
		}
		for _, q := range missing {
			if f, ok := c.before.base.byPath[q]; ok && f.mode != modeGitlink && !c.now.cfg.excluded(q) && !c.now.overlay[q] {
				if _, still := c.now.entries[q]; !still {
					c.deleted[q] = true
				}
			}
		}
	}
}

func (c *change) linksOut() []string {
	var out []string
	for _, e := range c.set {
		if e.mode == modeLink && leaves(e.path, e.link) && len(out) < maxReported {
			out = append(out, Printable(e.path))
		}
	}
	return out
}

// leaves reports whether a link at p to target points out of the tree, lexically.
func leaves(p, target string) bool {
	to := path.Join(parent(p), target)
	return path.IsAbs(target) || to == ".." || strings.HasPrefix(to, "../")
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
