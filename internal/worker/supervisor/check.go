package supervisor

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/worker/capture"
	"github.com/bailiwick-dev/bailiwick/internal/worker/jail"
)

// changedChecks returns the files of the patch that the verify command is known to run, in
// the tree of base and patch: by their own path, or by one through symbolic links.
func (ws *workspace) changedChecks(ctx context.Context, changed []string, tree string, v *api.Verify) ([]string, error) {
	if len(changed) == 0 {
		return nil, nil
	}
	links, err := ws.repo.Links(ctx, tree)
	if err != nil {
		return nil, err
	}
	return changedBy(v.Runs(), changed, links), nil
}

func changedBy(runs func(name string) bool, changed []string, links map[string]string) (list []string) {
	by := linksByTarget(links)
	for _, name := range changed {
		if by.leadsTo(name, runs) {
			list = append(list, capture.Printable(name))
		}
	}
	slices.Sort(list)
	return list[:min(len(list), api.MaxChanged)]
}

// linkTargets are the paths of symbolic links by what they lead to; "" is the top of the
// workspace.
type linkTargets map[string][]string

func linksByTarget(links map[string]string) linkTargets {
	by := linkTargets{}
	for name, target := range links {
		to := path.Join("/", path.Dir(name), target)
		if path.IsAbs(target) {
			below, ok := strings.CutPrefix(path.Clean(target)+"/", jail.WorkspaceDir+"/")
			if !ok {
				continue // out of the workspace
			}
			to = path.Join("/", below)
		}
		to = strings.TrimPrefix(to, "/")
		by[to] = append(by[to], name)
	}
	return by
}

// Bounds of the names of one file: how many links one passes, and how many names are tried.
const (
	maxLinks = 8
	maxNames = 4096
)

// leadsTo reports whether runs holds for a path or for another name of the same file. A
// file with too many names counts as one that is run.
func (by linkTargets) leadsTo(name string, runs func(string) bool) bool {
	type alias struct {
		name string
		used []string // links, each at most once: one may lead to a directory above itself
	}
	names := []alias{{name: name}}
	for i := 0; i < len(names); i++ {
		one := names[i]
		if runs(one.name) || len(names) > maxNames {
			return true
		}
		if len(one.used) == maxLinks {
			continue
		}
		for dir, rest := one.name, ""; ; {
			for _, link := range by[dir] {
				if !slices.Contains(one.used, link) {
					names = append(names, alias{path.Join(link, rest), append(slices.Clip(one.used), link)})
				}
			}
			if dir == "" {
				break
			}
			up := strings.TrimSuffix(path.Dir("/"+dir), "/")
			rest = path.Join(path.Base(dir), rest)
			dir = strings.TrimPrefix(up, "/")
		}
	}
	return false
}
