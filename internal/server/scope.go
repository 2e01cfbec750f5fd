package server

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
)

// scopes makes the ids that callers choose their own: one that another principal
// uses is neither taken nor tells that it exists. The operator, who sees all
// dispatches and runs, chooses them as they are stored. For any other principal
// a chosen id is stored with a digest of both, and found by either spelling. An id
// that is stored as its principal chose it, as in older state, stays that.
type scopes struct{ cfg *Config }

// owners returns the owners of the dispatches, or runs, whose id begins with
// prefix, by id; with exact only of that one.
type owners func(ctx context.Context, prefix string, exact bool) (map[string]api.Principal, error)

func (s scopes) dispatches(ctx context.Context, prefix string, exact bool) (map[string]api.Principal, error) {
	return s.cfg.Dispatch.Owners(ctx, prefix, exact)
}

func (s scopes) runs(ctx context.Context, prefix string, exact bool) (map[string]api.Principal, error) {
	return s.cfg.Reader.Owners(ctx, prefix, exact)
}

// choose returns the id by which p stores what it chose id for.
func (s scopes) choose(ctx context.Context, p api.Principal, id string, of owners) (string, error) {
	if id == "" || !s.scoped(p) {
		return id, nil
	}
	stored, err := of(ctx, id, true)
	if owner := stored[id]; err != nil || owner == p || owner == "" && generated.MatchString(id) {
		return id, err
	}
	return scopedID(p, id), nil
}

// generated matches an id that a client generated: 24 characters of time and
// chance, which no other principal can guess, so it is stored as it is.
var generated = regexp.MustCompile(`^[dr]-[0-9a-z]{24}$`)

// find returns the id by which p stored what it names id; id itself if that is
// nothing of its own. The operator finds what one other principal named id.
func (s scopes) find(ctx context.Context, p api.Principal, id string, of owners) (string, error) {
	if !s.scoped(p) {
		return s.findAny(ctx, id, of)
	}
	stored, err := s.choose(ctx, p, id, of)
	if err != nil || stored == id {
		return id, err
	}
	if found, err := of(ctx, stored, true); err != nil || found[stored] != p {
		return id, err
	}
	return stored, nil
}

func (s scopes) findAny(ctx context.Context, id string, of owners) (string, error) {
	if found, err := of(ctx, id, true); s.cfg.Operator == "" || err != nil || id == "" || len(found) > 0 {
		return id, err
	}
	found, err := of(ctx, id[:min(len(id), maxChosen)]+"-", false)
	maps.DeleteFunc(found, func(stored string, p api.Principal) bool { return scopedID(p, id) != stored })
	if len(found) == 1 {
		for stored := range found {
			return stored, err
		}
	}
	return id, err
}

func (s scopes) scoped(p api.Principal) bool { return s.cfg.Operator != "" && p != s.cfg.Operator }

// maxChosen is how much of a chosen id is kept in the stored one, for readers.
const maxChosen = 40

// scopedID is an id that no other principal's choice leads to.
func scopedID(p api.Principal, id string) string {
	sum := sha256.Sum256([]byte(string(p) + "\x00" + id))
	digest := strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
	return id[:min(len(id), maxChosen)] + "-" + digest[:20]
}

// chooseRun gives the run of a request its stored id, whether the request or the
// plan names it. A plan that cannot be read is refused where it is validated.
func (s scopes) chooseRun(ctx context.Context, p api.Principal, req *api.RunRequest) error {
	id := string(req.RunID)
	if id == "" {
		var named struct{ ID api.RunID }
		_ = json.Unmarshal(req.Plan, &named) // an invalid id stays empty, and is refused with the plan
		id = string(named.ID)
	}
	stored, err := s.choose(ctx, p, id, s.runs)
	if err == nil && stored != id {
		req.RunID = api.RunID(stored)
	}
	return err
}
