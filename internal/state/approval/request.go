package approval

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"strings"
	"time"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/base/cuttext"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/state/store"
)

// maxOpen bounds the open requests of one dispatch.
const maxOpen = 32

// maxWords bounds what is kept of an agent's words, in bytes.
const maxWords = api.MaxReport

// Ask returns the request for the same call of the same dispatch, open, approved or
// denied, or makes one: durable together with its log entry. It fills in the id of
// action. words are what the agent reported last. A denial is returned whatever the
// dispatch has read since: taint can only add requirements.
func (a *Approvals) Ask(ctx context.Context, action api.ToolAction, attempt int, words string) (api.Approval, error) {
	now := a.cfg.Now().UTC()
	if action.Expires.IsZero() {
		action.Expires = now.Add(time.Duration(api.DefaultApprovalExpiry))
	}
	arguments, err := canon.Canonicalize(action.Arguments)
	if err != nil {
		return api.Approval{}, api.Errorf(api.CodeInvalid, "approval: arguments: %w", err)
	}
	action.Arguments = arguments
	same, err := sameness(action)
	if err != nil {
		return api.Approval{}, api.Errorf(api.CodeInvalid, "approval: %w", err)
	}
	if found, ok, err := a.find(ctx, &action, same); ok || err != nil {
		return found, err
	}
	action.ID, action.Expires = newID(), action.Expires.UTC().Truncate(time.Second)
	doc, err := canon.Marshal(action)
	if err != nil {
		return api.Approval{}, err
	}
	r := row{action: action.Action(), digest: api.DigestOf(doc), attempt: attempt, state: api.ApprovalOpen, requested: now, words: cut(words)}
	_, err = a.cfg.Ledger.Record(ctx, entry(record.KindApprovalRequest, r), func(tx *store.Tx) error { return insert(tx, r, same, doc) })
	if errors.Is(err, errAsked) {
		found, _, err := a.find(ctx, &action, same)
		return found, err
	}
	if err != nil {
		return api.Approval{}, err
	}
	return a.asked(r), nil
}

// asked begins to wait for people after a request is durable.
func (a *Approvals) asked(r row) api.Approval {
	a.deadlines.left(&r.action)
	a.announce(r.action)
	a.wake.Send()
	return r.approval(nil)
}

var errAsked = errors.New("the same call was asked for or denied meanwhile")

func insert(tx *store.Tx, r row, same api.Digest, doc []byte) error {
	var open, twice int
	dispatch := string(r.action.Dispatch)
	if err := tx.Get("SELECT count(*), coalesce(sum(same = ?), 0) FROM approval WHERE dispatch = ? AND state = 'open'", store.Args{string(same), dispatch}, &open, &twice); err != nil {
		return err
	}
	switch {
	case twice > 0:
		return errAsked
	case open >= maxOpen:
		return api.Errorf(api.CodeConflict, "dispatch %s has %d open requests for approvals, the limit is %d: wait until people decide", dispatch, open, maxOpen)
	}
	denied, err := aboutCall(tx, r.action.Call, api.ApprovalDenied)
	if err == nil && len(denied) > 0 {
		err = errAsked
	}
	if err != nil {
		return err
	}
	return r.insert(tx, same, doc)
}

// insert stores an open request.
func (r *row) insert(tx *store.Tx, same api.Digest, doc []byte) error {
	x, run, task := &r.action, "", ""
	dispatch := x.Dispatch
	if x.Step != nil {
		run, task, dispatch = string(x.Run), string(x.Task), x.Step.Starts()
	}
	_, err := tx.Exec("INSERT INTO approval(id, dispatch, attempt, same, state, requested, action, words, run, task) VALUES (?, ?, ?, ?, 'open', ?, ?, ?, ?, ?)",
		string(x.ID), string(dispatch), r.attempt, string(same), r.requested.UnixNano(), string(doc), r.words, run, task)
	return err
}

// find returns the request for the same call that stands. What a human denied once
// stays denied in its dispatch, however often its agent asks and whatever it has read.
func (a *Approvals) find(ctx context.Context, action *api.ToolAction, same api.Digest) (found api.Approval, ok bool, err error) {
	list, err := a.list(ctx, "dispatch = ? AND (state = 'denied' OR state = 'open' AND same = ?) ORDER BY state, requested, id", store.Args{string(action.Dispatch), string(same)})
	if err != nil {
		return found, false, err
	}
	for i := range list {
		call := list[i].Action.Call
		switch {
		case list[i].State == api.ApprovalDenied && (call == nil || !policy.SameCall(call, action)), list[i].State == api.ApprovalExpired:
			continue
		case call == nil:
			return found, false, api.Errorf(api.CodeIntegrity, "the row of approval %s is about no call", list[i].Action.ID)
		case list[i].State == api.ApprovalDenied:
			return list[i], true, nil
		}
		if of, err := sameness(*call); err != nil || of != same { // people approved another call
			return found, false, errors.Join(err, api.Errorf(api.CodeIntegrity, "the row of approval %s is about another call than its action", list[i].Action.ID))
		}
		return list[i], true, nil
	}
	return found, false, nil
}

// aboutCall returns the ids of the requests in a state that are about the same call as
// action, in a transaction.
func aboutCall(tx *store.Tx, action *api.ToolAction, state api.ApprovalState) (ids []api.ApprovalID, err error) {
	err = each(tx, "dispatch = ? AND state = ? ORDER BY requested, id", store.Args{string(action.Dispatch), string(state)}, func(r row) error {
		if r.action.Call != nil && policy.SameCall(r.action.Call, action) {
			ids = append(ids, r.action.ID)
		}
		return nil
	})
	return ids, err
}

// Wait returns a request once it is no longer open. If ctx ends before, it returns the
// request as it stands, with the error of ctx.
func (a *Approvals) Wait(ctx context.Context, id api.ApprovalID) (api.Approval, error) {
	for {
		changed := a.Changed()
		found, err := a.Get(context.WithoutCancel(ctx), id)
		if err != nil || found.State != api.ApprovalOpen {
			return found, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
}

// Use marks an approved request as used, in the transaction of the entry of the call
// that was asked for. It fails unless the request is open, unexpired, and approved by
// votes that count by the rules in force.
func (a *Approvals) Use(tx *store.Tx, id api.ApprovalID) error {
	r, err := load(tx, id)
	if err != nil {
		return err
	}
	votes, err := a.cfg.Votes.VotesIn(tx, id, r.digest)
	if err != nil {
		return err
	}
	var denied []api.ApprovalID
	if r.action.Call != nil {
		if denied, err = aboutCall(tx, r.action.Call, api.ApprovalDenied); err != nil {
			return err
		}
	}
	rules := a.rules.Load()
	switch {
	case r.state != api.ApprovalOpen:
		return api.Errorf(api.CodeConflict, "approval %s is %s", id, r.state)
	case len(denied) > 0:
		return api.Errorf(api.CodeConflict, "approval %s: the same call was denied in approval %s", id, denied[0])
	case a.deadlines.left(&r.action) <= 0:
		return api.Errorf(api.CodeConflict, "approval %s expired at %s", id, r.action.Expires.Format(time.RFC3339))
	case rules == nil || !rules.Approved(&r.action, votes):
		return api.Errorf(api.CodeConflict, "approval %s is not approved", id)
	}
	return settle(tx, id, api.ApprovalUsed)
}

// EndDispatch ends the open requests of a dispatch, in the transaction of its end.
func (a *Approvals) EndDispatch(tx *store.Tx, id api.DispatchID) error {
	_, err := tx.Exec("UPDATE approval SET state = 'ended' WHERE dispatch = ? AND state = 'open'", string(id))
	return err
}

// entry is a log entry about a request.
func entry(kind record.Kind, r row) record.Entry {
	d := record.ApprovalRequest{Approval: string(r.action.ID), Needs: int64(r.action.Needs), Policies: []string{}}
	var e record.Entry
	if x := r.action.Call; x != nil {
		m := record.Manifest{ID: x.Dispatch, Attempt: r.attempt, Role: x.Role, Run: x.Run, Task: x.Task}
		d.Policies = x.Policies
		e = record.CallEntry(kind, &m, x.Tool, &x.Tier, d)
	} else {
		e = record.Entry{Kind: kind, Run: string(r.action.Run), Task: string(r.action.Task), Detail: d}
	}
	e.Refs = map[string]api.Digest{record.RefAction: r.digest}
	return e
}

func newID() api.ApprovalID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
	return api.ApprovalID("a-" + strings.ToLower(text[:12]))
}

func cut(s string) string { return cuttext.Text(strings.ToValidUTF8(s, "\uFFFD"), maxWords) }
