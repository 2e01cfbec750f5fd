package record

import (
	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/canon"
)

// ShownTask returns what people are shown of a task: the products of its dispatch, whose
// signed result document has the digest result.
func ShownTask(task api.TaskID, id api.DispatchID, result api.Digest, sum *api.ResultSummary) (api.ShownTask, error) {
	s := api.ShownTask{Task: task, Dispatch: id, Result: result, Patch: sum.Patch, Outputs: sum.Outputs}
	if sum.Verify != nil {
		s.Changed = sum.Verify.Changed
	}
	if len(sum.Value) > 0 {
		value, err := canon.Canonicalize(sum.Value)
		if err != nil {
			return s, err
		}
		s.Value = api.DigestOf(value)
	}
	if sum.Text != "" {
		s.Text = api.DigestOf([]byte(sum.Text))
	}
	return s, nil
}
