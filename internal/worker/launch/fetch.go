package launch

import (
	"context"
	"fmt"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// Fetch has a process of its own fetch a commit of a source by URL into the state, with the
// value of the source's secret. The process ends with ctx, and with this one.
func (l *Launcher) Fetch(ctx context.Context, o Order, _, secret string) (record.FetchResult, error) {
	return l.fetch(ctx, o, secret, nil)
}

// fetch is Fetch. In mode system the launcher reads the value itself, perhaps from sealed.
func (l *Launcher) fetch(ctx context.Context, o Order, secret string, sealed map[api.Name][]byte) (record.FetchResult, error) {
	req := record.FetchRequest{Commit: o.Commit, Secret: secret}
	var of api.Secret
	if err := l.revisions.read(ctx, o.Revision, l.sys != nil, func(cat *catalog.Catalog, rev, head *catalog.Revision) (err error) {
		if head != nil && rev.Digest() != head.Digest() {
			return fmt.Errorf("revision %d is not in force: try again", rev.Number())
		}
		if l.sys != nil {
			if err := l.sys.marks.follow(ctx, cat, head, rev, nil, "", nil, l.cfg.Now); err != nil {
				return api.Errorf(api.CodeIntegrity, "source %q: %w", o.Source, err)
			}
		}
		if req.Source, _, err = rev.Source(o.Source); err == nil && req.Source.Secret != "" {
			of, _, err = rev.Secret(req.Source.Secret)
		}
		return err
	}); err != nil {
		return record.FetchResult{}, err
	}
	if !api.IsRemote(req.Source.Repo) {
		return record.FetchResult{}, api.Errorf(api.CodeInvalid, "source %q is not fetched: it is no URL", o.Source)
	}
	p := account.Program{Path: l.cfg.Fetcher, Env: l.cfg.Env}
	if l.sys != nil {
		if of.Ref != "" {
			var err error
			if req.Secret, err = l.sys.resolver(l.sys.marks.known(), sealed)(ctx, api.SecretRef{Ref: of.Ref}); err != nil {
				return record.FetchResult{}, api.Errorf(api.CodeInvalid, "source %q: secret %q: %w", o.Source, of.Name, err)
			}
		}
		b, err := l.sys.blocks.take(Fetching(o.Source), account.Limits{Memory: 1 << 30, Processes: 128, CPU: 1, Held: l.sys.cfg.System.Settings.Held})
		if err != nil {
			return record.FetchResult{}, err
		}
		defer b.Close() //nolint:errcheck // held until the process has ended
		mounts, err := account.Open(l.cfg.UID, []account.Path{{At: l.cfg.Dirs.Fetched(req.Source), Write: true}})
		if err != nil {
			return record.FetchResult{}, err
		}
		defer mounts.Close() //nolint:errcheck // only opened to be mounted
		p.Block, p.Group, p.Mounts = &b.Block, b.group, mounts
	}
	result, err := account.Fetch(ctx, p, req)
	if result.Error != "" {
		result.Error = req.Source.Repo + ": " + result.Error
	}
	return result, err
}

// Fetching names what fetches a source.
func Fetching(source api.Name) Running {
	return Running{Dispatch: api.DispatchID("fetch-" + string(source)), Attempt: 1}
}
