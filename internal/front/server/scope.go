package server

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
)

// scopes makes the ids that callers choose their own: one that another principal
// uses is neither taken nor tells that it exists. The operator, who sees all
// dispatches and runs, chooses them as they are stored. For any other principal
// a chosen id is stored with a digest of both, and found by either spelling. An id
// that is stored as its principal chose it, as in older state, stays that.
type scopes struct{ cfg *Config }

// owners returns the owners of the dispatches, or runs, whose id begins with
// prefix and has length characters, by id.
type owners func(ctx context.Context, prefix string, length int) (map[string]api.Principal, error)

func (s scopes) dispatches(ctx context.Context, prefix string, length int) (map[string]api.Principal, error) {
	return s.cfg.Dispatch.Owners(ctx, prefix, length)
}

func (s scopes) runs(ctx context.Context, prefix string, length int) (map[string]api.Principal, error) {
	return s.cfg.Reader.Owners(ctx, prefix, length)
}

// choose returns the id by which p stores what it chose id for.
func (s scopes) choose(ctx context.Context, p api.Principal, id string, of owners) (string, error) {
	if id == "" || !s.scoped(p) {
		return id, nil
	}
	stored, err := of(ctx, id, len(id))
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
	if found, err := of(ctx, stored, len(stored)); err != nil || found[stored] != p {
		return id, err
	}
	return stored, nil
}

// resolve replaces the ids that the caller of r names by those stored. Nil and
// empty ids stay. A person whose operator key is in force finds what is stored under the
// person's own choice first, then what one other principal named so.
func (s scopes) resolve(r *request, run *api.RunID, dispatch *api.DispatchID) error {
	set := func(id *string, of owners) error {
		if id == nil || *id == "" {
			return nil
		}
		stored, err := s.find(r.Context(), r.caller.Principal, *id, of)
		if err == nil && stored == *id && s.readsAll(r.Context(), r.caller) {
			stored, err = s.findAny(r.Context(), stored, of)
		}
		*id = stored
		return err
	}
	if err := set((*string)(run), s.runs); err != nil {
		return err
	}
	return set((*string)(dispatch), s.dispatches)
}

func (s scopes) findAny(ctx context.Context, id string, of owners) (string, error) {
	if found, err := of(ctx, id, len(id)); s.cfg.Operator == "" || err != nil || id == "" || len(found) > 0 {
		return id, err
	}
	prefix := id[:min(len(id), maxChosen)] + "-"
	found, err := of(ctx, prefix, len(prefix)+digestLen)
	maps.DeleteFunc(found, func(stored string, p api.Principal) bool { return scopedID(p, id) != stored })
	stored := slices.Sorted(maps.Keys(found))
	if len(stored) > 1 {
		return id, &malformedError{api.Errorf(api.CodeInvalid, "%d principals use the id %q", len(stored), id).
			WithHint("name one of them as it is listed: %s", strings.Join(stored[:min(len(stored), 5)], ", "))}
	}
	if len(stored) == 1 {
		id = stored[0]
	}
	return id, err
}

// readsAll reports whether the caller reads the dispatches of every principal. Without a
// policy in force nobody but the operator does.
func (s scopes) readsAll(ctx context.Context, who caller) bool {
	engine, err := s.cfg.InForce.Engine(ctx)
	return err == nil && engine.Decide(policy.Request{Principal: who.Principal, Action: policy.ActionDispatchRead, Resource: "all", Token: who.byToken}).Allowed()
}

func (s scopes) scoped(p api.Principal) bool { return s.cfg.Operator != "" && p != s.cfg.Operator }

// maxChosen is how much of a chosen id is kept in the stored one, for readers.
const maxChosen = 40

// digestLen is the number of characters of the digest in a stored id.
const digestLen = 20

// scopedID is an id that no other principal's choice leads to.
func scopedID(p api.Principal, id string) string {
	sum := sha256.Sum256([]byte(string(p) + "\x00" + id))
	digest := strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
	return id[:min(len(id), maxChosen)] + "-" + digest[:digestLen]
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
