package runverbs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

// queueVerbs are the verbs about queues.
type queueVerbs struct{ *commands }

func (t *queueVerbs) listCommand(v *console.Verb) {
	t.connVerb(v, func(ctx context.Context, c *client.Conn, _ []string) error {
		list, err := c.Operator().Queues(ctx)
		if err != nil {
			return err
		}
		return t.printQueues(list)
	})
}

// change makes a verb that changes a queue.
func (t *queueVerbs) change(do func(client.Operator, context.Context, api.Name) (api.Queue, error)) func(*console.Verb) {
	return func(v *console.Verb) {
		v.Do(func(ctx context.Context, args []string) error {
			name, err := api.ParseName(args[0])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "queue %w", err).WithHint("see: bailiwick queue list")
			}
			return t.withConn(func(c *client.Conn) error {
				q, err := do(c.Operator(), ctx, name)
				if err != nil {
					return err
				}
				if t.Format == "json" {
					return t.JSON(q)
				}
				return t.printQueues([]api.Queue{q})
			})
		})
	}
}

func (t *queueVerbs) printQueues(list []api.Queue) error {
	return console.List(t.Output, list, func(q api.Queue) string { return string(q.Name) }, "QUEUE\tSLOTS\tRUNNING\tREADY\tRUNS\tWEIGHTS\tPAUSED", func(q api.Queue) string {
		paused := "-"
		if q.PausedBy != "" {
			paused = "by " + string(q.PausedBy)
			if q.PausedAt != nil {
				paused += " at " + t.Ago(*q.PausedAt)
			}
		}
		var weights []string
		for _, p := range slices.Sorted(maps.Keys(q.Weights)) {
			weights = append(weights, fmt.Sprintf("%s %d", p, q.Weights[p]))
		}
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%s\t%s", q.Name, q.Slots, q.Running, q.Ready, q.Runs, console.Joined(weights, ", ", "-"), paused)
	})
}
