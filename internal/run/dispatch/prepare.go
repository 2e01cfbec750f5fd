package dispatch

import (
	"context"
	"errors"
	"io/fs"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
	"github.com/bailiwick-dev/bailiwick/internal/rule/policy"
	"github.com/bailiwick-dev/bailiwick/internal/worker/agent"
)

// preparer finds what an allowed submission needs to run. It decides and logs nothing.
type preparer struct {
	*reader
	sources sources
	trees   trees
}

// prepare checks what only an allowed caller gets an answer about. It pins the source, or
// takes over what a task needs, whose source is pinned.
func (s *preparer) prepare(ctx context.Context, sub *submission, x subject, d policy.Decision) (p prepared, err error) {
	p = prepared{subject: x, caller: sub.caller, digest: sub.digest, forTask: sub.task, decision: d}
	schema, err := inputSchema(&x.subagent)
	if err == nil {
		err = checkInput(schema, &x.subagent, x.request.Input)
	}
	if err != nil {
		return p, err
	}
	if _, err := x.checkEnvs(); err != nil {
		return p, err
	}
	switch {
	case sub.task != nil:
		if x.request.Source != nil {
			p.commit = x.request.Source.Commit
		}
		p.taken, err = s.take(ctx, &x, sub.task)
	default:
		if err = x.checkTimeout(); err == nil && x.request.Source != nil {
			p.commit, err = s.sources.pin(ctx, x.snapshot, *x.request.Source)
		}
	}
	if err == nil {
		p.pure, err = s.describePure(ctx, &p.subject)
	}
	if p.request.DispatchID == "" {
		p.request.DispatchID = api.NewDispatchID(s.cfg.Now())
	}
	return p, err
}

// take finds the content of a task's needs in the records of the dispatches that they
// name, and protects it from removal. The taint is that of the first tainted need, in the
// order of their names, else of the item, else of what decided that the task runs.
func (s *preparer) take(ctx context.Context, x *subject, t *TaskRequest) (got taken, err error) {
	for _, n := range t.Needs {
		found, taint, err := s.product(ctx, x, n)
		if err != nil {
			return got, err
		}
		if got.taint == nil {
			got.taint = taint
		}
		got.needs = append(got.needs, record.Need{
			Name: n.Name, Item: n.Item, Task: n.Task, Dispatch: n.Dispatch, Kind: n.Kind, Path: n.Path, Digest: found.Digest, Size: found.Size,
		})
	}
	item, err := s.itemTaint(ctx, x, t.ItemFrom)
	if got.taint == nil {
		got.taint = item
	}
	if err == nil && got.taint == nil {
		got.taint, got.decidedBy, err = s.influence(ctx, t.Influences)
	}
	return got, err
}

// itemTaint returns the taint of the dispatch whose products gave the item of a task.
func (s *preparer) itemTaint(ctx context.Context, x *subject, from api.DispatchID) (*api.Taint, error) {
	if from == "" {
		return nil, nil //nolint:nilnil // no item, no taint
	}
	r, ok, err := s.row(ctx, from)
	if err == nil && (!ok || r.record.Principal != x.principal || r.record.State != api.EventFinished) {
		err = api.Errorf(api.CodeNotFound, "item of task %s: no finished dispatch %s in a run of %s", x.task, from, x.principal)
	}
	return r.record.Taint, err
}

// influence returns the taint of the first tainted dispatch in list.
func (s *preparer) influence(ctx context.Context, list []api.DispatchID) (*api.Taint, api.DispatchID, error) {
	if len(list) == 0 {
		return nil, "", nil
	}
	reports, err := s.Reports(ctx, list)
	if err != nil {
		return nil, "", storeError(err)
	}
	for _, id := range list {
		if t := reports[id].Taint; t != nil {
			return t, id, nil
		}
	}
	return nil, "", nil
}

// product returns the content of a need, and the taint that comes with it. A dispatch
// of another principal or task gives the same answer as one that does not exist.
func (s *preparer) product(ctx context.Context, x *subject, n Need) (found api.Artifact, taint *api.Taint, err error) {
	r, ok, err := s.row(ctx, n.Dispatch)
	if err != nil {
		return found, nil, err
	}
	d := &r.record
	if !ok || d.Principal != x.principal || d.Task != n.Task || d.State != api.EventFinished || d.Outcome == nil {
		return found, nil, api.Errorf(api.CodeNotFound, "need %q of task %s: task %s has no finished dispatch %s in a run of %s", n.Name, x.task, n.Task, n.Dispatch, x.principal)
	}
	if err := s.addRetention(ctx, d); err != nil {
		return found, nil, err
	}
	if r := removal(d.Removed, api.ClassContent); r != nil {
		return found, nil, removedError(d.ID, n.String(), r)
	}
	found, ok = record.Product(d.Outcome, n.Kind, n.Path)
	if !ok {
		return found, nil, api.Errorf(api.CodeNotFound, "need %q of task %s: task %s finished without a %s", n.Name, x.task, n.Task, n).
			WithHint("see its result: bailiwick dispatch show %s", d.ID)
	}
	if found.Redacted {
		return found, nil, api.Errorf(api.CodeInvalid, "need %q of task %s: values of secrets were removed from the %s of task %s, so it is not what the agent wrote", n.Name, x.task, n, n.Task).
			WithHint("have the agent work without writing values into files")
	}
	if n.Kind == record.NeedPatch && found.Size == 0 { // the empty patch of a dispatch that changed nothing is not stored
		if _, err := s.cfg.Blobs.Put(ctx, nil); err != nil {
			return found, nil, storeError(err)
		}
	}
	size, err := s.cfg.Blobs.Claim(ctx, found.Digest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found, nil, s.explainMissing(ctx, d.ID, n.String(), err)
	case err == nil && size != found.Size:
		err = api.Errorf(api.CodeIntegrity, "need %q of task %s: the %s of dispatch %s has %d bytes, its result says %d", n.Name, x.task, n, d.ID, size, found.Size)
	}
	return found, d.Taint, err
}

// describePure returns what the manifest of a pure subagent has and others have not.
// Nil: it is not pure, or what it would run with cannot be known, so that it runs.
func (s *preparer) describePure(ctx context.Context, x *subject) (*record.Pure, error) {
	if x.subagent.Effect != api.EffectPure {
		return nil, nil //nolint:nilnil // see above
	}
	p := &record.Pure{}
	if x.subagent.Agent != "command" {
		_, stamp, err := agent.Installed(s.cfg.Dirs.Agents(), x.subagent.Agent)
		if err != nil { // on the PATH of the jail, or missing: only the worker finds out
			return nil, nil //nolint:nilnil,nilerr // see above
		}
		p.Version, p.Integrity = stamp.Version, stamp.Integrity
	}
	if x.request.Source == nil {
		return p, nil
	}
	src, _, err := x.snapshot.Revision.Source(x.request.Source.Name)
	if err != nil {
		return nil, err
	}
	if p.Tree, err = s.trees.resolve(ctx, s.cfg.Dirs.Repository(src), x.commit, s.cfg.Dirs.Scratch()); err != nil { // the worker reports it
		return nil, ctx.Err() //nolint:nilerr // see above
	}
	return p, nil
}
