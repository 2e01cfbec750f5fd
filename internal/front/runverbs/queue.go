package runverbs

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
	"github.com/bailiwick-dev/bailiwick/internal/front/console"
)

func (t *commands) queueCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List queues and how full they are", Args: cobra.NoArgs,
		Example: console.Examples("bailiwick queue list", "bailiwick queue list -o json"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.withConn(func(c *client.Conn) error {
				list, err := c.Operator().Queues(cmd.Context())
				if err != nil {
					return err
				}
				return t.printQueues(list)
			})
		},
	}
	return console.Noun("queue", "Pause and resume the queues in which tasks wait for a free slot", console.Group{Commands: []*cobra.Command{
		list,
		t.queueVerb("pause", "Start no more tasks of a queue; running ones continue", client.Operator.PauseQueue),
		t.queueVerb("resume", "Resume a paused queue", client.Operator.ResumeQueue),
	}})
}

func (t *commands) queueVerb(verb, short string, do func(client.Operator, context.Context, api.Name) (api.Queue, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " QUEUE", Short: short, Args: cobra.ExactArgs(1),
		Example: console.Examples("bailiwick queue "+verb+" default", "bailiwick queue "+verb+" default -o json"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := api.ParseName(args[0])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "queue %w", err).WithHint("see: bailiwick queue list")
			}
			return t.withConn(func(c *client.Conn) error {
				q, err := do(c.Operator(), cmd.Context(), name)
				if err != nil {
					return err
				}
				if t.Format == "json" {
					return t.JSON(q)
				}
				return t.printQueues([]api.Queue{q})
			})
		},
	}
}

func (t *commands) printQueues(list []api.Queue) error {
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
