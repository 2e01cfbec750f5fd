package webpage

import (
	"encoding/json"
	"net/http"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/internal/base/visibletext"
)

// inboxSize bounds what the inbox shows in full.
const inboxSize = 100

// waitingItem is something that waits for a person, with all that a decision needs.
type waitingItem struct {
	api.Waiting
	Question         *api.Question     // nil: answered meanwhile, or no question
	Request          *api.ApprovalView // of an approval
	Action           string            // canonical JSON that is approved
	Command, Approve string
	Error            string
}

// inbox shows what waits for a person, oldest first, with the commands for each.
func (s homePages) inbox(r *http.Request) (*view, error) {
	ctx := r.Context()
	list, err := s.runtime(ctx).Waiting(ctx)
	if err != nil {
		return nil, err
	}
	more := max(0, len(list)-inboxSize)
	items := make([]waitingItem, 0, len(list)-more)
	for _, w := range list[:len(list)-more] {
		item := waitingItem{Waiting: w}
		var err error
		switch w.Kind {
		case api.WaitingQuestion:
			var d api.Dispatch
			if d, err = s.runtime(ctx).Describe(ctx, w.DispatchID, 0); err == nil && d.Attempt == w.Attempt {
				item.Question = d.Question
			}
		case api.WaitingApproval:
			var a api.ApprovalView
			if a, err = s.runtime(ctx).Approval(ctx, w.Approval); err == nil {
				item.Request, item.Action = &a, pretty(a.Action)
			}
		case api.WaitingFailed: // its counts say it
		}
		if err != nil {
			item.Error = err.Error()
		}
		item.Command, item.Approve = w.Commands(item.Question)
		items = append(items, item)
	}
	return &view{"inbox", "Inbox", struct {
		Items []waitingItem
		More  int
	}{items, more}}, nil
}

// pretty is v as JSON for people.
func pretty(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return visibletext.JSON(b)
}
