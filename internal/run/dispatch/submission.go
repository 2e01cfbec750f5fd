package dispatch

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
	"github.com/bailiwick-dev/bailiwick/internal/document/record"
)

// submission is a request of a caller, as it is compared with one that was made before.
type submission struct {
	caller  Caller
	request api.DispatchRequest
	task    *TaskRequest // nil for a dispatch outside a run
	digest  api.Digest   // of principal, request and task request
}

// newSubmission returns a request with every field in its canonical form. task is nil for
// a dispatch outside a run.
func newSubmission(caller Caller, req api.DispatchRequest, task *TaskRequest) (submission, error) {
	sub := submission{caller: caller, request: req, task: task}
	return sub, sub.normalise()
}

func (sub *submission) normalise() error {
	r := &sub.request
	if len(r.Input) == 0 {
		r.Input = json.RawMessage("{}")
	}
	input, err := canon.Canonicalize(r.Input)
	if err != nil {
		return api.Errorf(api.CodeInvalid, "input: %w", err)
	}
	r.Input = input
	switch {
	case input[0] != '{':
		return api.Errorf(api.CodeInvalid, "input: want a JSON object")
	case r.Subagent == "":
		return api.Errorf(api.CodeInvalid, "subagent: name the one to dispatch")
	case r.TimeoutSeconds < 0:
		return api.Errorf(api.CodeInvalid, "timeoutSeconds: want a positive number")
	case r.Source != nil && r.Source.Name == "":
		return api.Errorf(api.CodeInvalid, "source: name the one to start from")
	}
	for _, list := range [][]api.Name{r.Envs, r.Capabilities} {
		seen := make(map[api.Name]bool, len(list))
		for _, n := range list {
			if seen[n] {
				return api.Errorf(api.CodeInvalid, "duplicate name %q", n)
			}
			seen[n] = true
		}
	}
	if err := checkInputSize(input); err != nil {
		return err
	}
	if err := sub.normaliseTask(); err != nil {
		return err
	}
	sub.digest, err = sub.digestWith("task")
	return err
}

// digestWith returns the digest of what makes two requests the same, whose member of that
// name has the request of a task.
func (sub *submission) digestWith(member string) (api.Digest, error) {
	doc := map[string]any{"principal": sub.caller.Principal, "request": sub.request}
	if sub.task != nil {
		doc[member] = sub.task
	}
	text, err := canon.Marshal(doc)
	return api.DigestOf(text), err
}

// normaliseTask sorts the needs of a task request, and refuses one that leaves
// open what a run pins.
func (sub *submission) normaliseTask() error {
	if sub.task == nil {
		return nil
	}
	t, r := *sub.task, &sub.request
	if t.Run == "" || t.Task == "" || t.Revision == "" || t.Fence == 0 || r.DispatchID == "" {
		return api.Errorf(api.CodeInvalid, "request for task %q of run %q is incomplete", t.Task, t.Run)
	}
	if r.Source != nil && !fullCommit(r.Source.Commit) {
		return api.Errorf(api.CodeInvalid, "task %s: source %q: %q is not a full commit id", t.Task, r.Source.Name, r.Source.Commit)
	}
	if err := record.CheckNeeds(len(t.Needs), func(i int) (api.Name, string) { return t.Needs[i].Name, t.Needs[i].Item }); err != nil {
		return api.Errorf(api.CodeInvalid, "task %s: %w", t.Task, err)
	}
	t.Needs = slices.Clone(t.Needs)
	slices.SortFunc(t.Needs, func(x, y Need) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Item, y.Item)) })
	for _, n := range t.Needs {
		want := record.Need{Name: n.Name, Item: n.Item, Task: n.Task, Dispatch: n.Dispatch, Kind: n.Kind, Path: n.Path}
		if err := want.Check(); err != nil {
			return api.Errorf(api.CodeInvalid, "task %s: %w", t.Task, err)
		}
	}
	sub.task = &t
	return nil
}

// fullCommit reports whether s is an object name, which never changes its
// meaning.
func fullCommit(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && (len(b) == 20 || len(b) == 32)
}
