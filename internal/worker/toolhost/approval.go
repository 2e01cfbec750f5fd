package toolhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/durable"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// The files that tool hosts of one server keep in their directory: how far they have seen
// the catalog and the operators' decisions, and the action of each approval that was used
// up, by its digest. An approval is used up, durably, before its call is sent. So a tool
// host that is killed in between never sends it, and no other does.
const (
	catalogMark = "catalog.json"
	chainMark   = "operators.json"
	usedPrefix  = "used-"
	usedSuffix  = ".json"
	markLock    = "lock"
)

// keepUsed is how long after its expiry the file of an approval is kept: longer than a
// clock is set back.
const keepUsed = 30 * 24 * time.Hour

// mark reads a mark; one that was never set is zero.
func (g *gate) mark(name string, to any) error {
	text, err := g.kept.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = canon.DecodeExact(text, to)
	}
	if err != nil {
		return refused("%s: %v: what tool hosts of %s keep is damaged; restore %s", name, err, g.server.Name, g.kept.Name())
	}
	return nil
}

// setMark raises a mark, unless another tool host has raised it more.
func (g *gate) setMark(ctx context.Context, name string, to record.ToolMark) error {
	lock, err := durable.OpenLock(filepath.Join(g.kept.Name(), markLock))
	if err != nil {
		return refused("%v", err)
	}
	defer lock.Close() //nolint:errcheck // the lock ends with it
	if err := durable.PollLock(ctx, func() error { return durable.TryLock(lock) }); err != nil {
		return refused("%v", err)
	}
	var now record.ToolMark
	if err := g.mark(name, &now); err != nil || now.Number >= to.Number {
		return err
	}
	text, err := canon.Marshal(to)
	if err == nil {
		err = durable.ReplaceIn(g.kept, name, text, 0o600)
	}
	if err != nil {
		return refused("%s: %v", name, err)
	}
	return nil
}

func usedName(action api.Digest) string { return usedPrefix + action.Hex() + usedSuffix }

// spend uses an approval up.
func (g *gate) spend(a *api.ToolAction, action api.Digest, doc []byte) error {
	err := durable.Create(filepath.Join(g.kept.Name(), usedName(action)), doc, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return refused("approval %s was used before: each is good for one call", a.ID)
	}
	if err != nil {
		return refused("approval %s could not be used up: %v", a.ID, err)
	}
	return nil
}

// restore makes an approval whose call was not sent usable again.
func (g *gate) restore(a *api.ToolAction) error {
	doc, err := canon.Marshal(a)
	if err == nil {
		err = g.kept.Remove(usedName(api.DigestOf(doc)))
	}
	return err
}

// sweep removes the files of approvals that expired long ago.
func (g *gate) sweep() error {
	dir, err := g.kept.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), usedPrefix) || !strings.HasSuffix(e.Name(), usedSuffix) {
			continue
		}
		text, err := g.kept.ReadFile(e.Name())
		var a api.ToolAction
		if err != nil || json.Unmarshal(text, &a) != nil || a.Expires.IsZero() {
			continue // it still says that something was used
		}
		if g.now().After(a.Expires.Add(keepUsed)) {
			if err := g.kept.Remove(e.Name()); err != nil {
				return fmt.Errorf("an approval that has expired: %w", err)
			}
		}
	}
	return nil
}
