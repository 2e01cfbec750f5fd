package launch

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/document/seal"
	"github.com/bailiwick-dev/bailiwick/internal/rule/catalog"
	"github.com/bailiwick-dev/bailiwick/internal/worker/account"
)

// ToolHost starts the tool host of a server, an Order's, under a uid block of its own. It ends
// with its standard input, and outlives ctx.
func (l *Launcher) ToolHost(ctx context.Context, o Order, sealed map[api.Name][]byte, streams []*os.File) (*Process, Running, error) {
	who := Running{api.DispatchID("tool-" + string(o.Source)), int(rand.Uint32())} //nolint:gosec // G404: only a name
	if err := account.CheckPipes(streams, uint32(l.cfg.UID)); err != nil {         //nolint:gosec // G115: a uid
		return nil, who, api.Errorf(api.CodeInvalid, "tool host: %w", err)
	}
	disk, err := os.Open(l.cfg.Dirs.LauncherState())
	if err != nil {
		return nil, who, err
	}
	defer disk.Close() //nolint:errcheck // only names the disk
	h, service := account.ToolHost{}, l.sys.marks.known()
	err = l.revisions.read(ctx, o.Revision, true, func(cat *catalog.Catalog, rev, head *catalog.Revision) (err error) {
		if err = l.sys.marks.follow(ctx, cat, head, rev, nil, "", nil, l.cfg.Now); err != nil {
			return api.Errorf(api.CodeIntegrity, "tool host: %w", err)
		}
		if _, is, err := head.ToolServer(o.Source); rev.Number() < head.Number() {
			if _, was, _ := rev.ToolServer(o.Source); err != nil || is != was {
				return api.Errorf(api.CodeIntegrity, "tool host: tool server %q of revision %d is not in revision %d any more: submit the work again", o.Source, rev.Number(), head.Number())
			}
		}
		least, err := l.sys.operators.mark(service)
		if err != nil {
			return err
		}
		gate := record.ToolGate{Service: string(service), Least: least, Kept: filepath.Join(l.cfg.Dirs.LauncherState(), "toolservers", string(o.Source))}
		h, err = account.ToolHostOf(l.cfg.Dirs, l.cfg.UID, rev, o.Source, gate, l.sys.own(l.cfg.System.Settings.ToolHost, disk), func(ref string) (string, error) {
			return l.sys.resolver(service, sealed)(ctx, api.SecretRef{Ref: ref})
		})
		return err
	})
	if err != nil {
		return nil, who, err
	}
	defer h.Close() //nolint:errcheck // the tool host has its own copies
	b, err := l.sys.blocks.take(who, h.Limits)
	if err != nil {
		return nil, who, err
	}
	defer b.Close() //nolint:errcheck // its group tells from now on
	started, err := account.Start(account.Program{Path: l.cfg.ToolHost, Env: l.cfg.Env, Block: &b.Block, Group: b.group, Mounts: h.Mounts, File: append(slices.Clone(streams), h.Start)})
	if err != nil {
		return nil, who, err
	}
	return processOf(started, b.group.Lacks), who, nil
}

// mark is the newest decision that the launcher has.
func (o *operators) mark(service seal.KeyID) (record.ToolMark, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.load(service); err != nil {
		return record.ToolMark{}, err
	}
	return o.chain.Mark(), nil
}
