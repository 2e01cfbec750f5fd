package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bailiwick-dev/bailiwick/api"
	"github.com/bailiwick-dev/bailiwick/client"
)

func (t *tree) queueCommand() *cobra.Command {
	cmd := group("queue", "Where the tasks of runs wait for a free slot")
	cmd.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List queues and how full they are", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return t.runConn(func(c *client.Conn) error {
					list, err := c.Operator().Queues(cmd.Context())
					if err != nil {
						return err
					}
					return t.printQueues(append([]api.Queue{}, list...))
				})
			},
		},
		t.queueActCommand("pause", "Start nothing more of a queue's runs; what runs goes on", func(ctx context.Context, o client.Operator, name api.Name) (api.Queue, error) {
			return o.PauseQueue(ctx, name)
		}),
		t.queueActCommand("resume", "Let a queue that was paused go on", func(ctx context.Context, o client.Operator, name api.Name) (api.Queue, error) {
			return o.ResumeQueue(ctx, name)
		}))
	return cmd
}

func (t *tree) queueActCommand(verb, about string, do func(context.Context, client.Operator, api.Name) (api.Queue, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " QUEUE", Short: about, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := api.ParseName(args[0])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "queue %w", err).WithHint("see: bailiwick queue list")
			}
			return t.runConn(func(c *client.Conn) error {
				q, err := do(cmd.Context(), c.Operator(), name)
				if err != nil {
					return err
				}
				if t.output == "json" {
					return t.printJSON(q)
				}
				return t.printQueues([]api.Queue{q})
			})
		},
	}
}

func (t *tree) printQueues(list []api.Queue) error {
	return printList(t, list, func(q api.Queue) string { return string(q.Name) }, "QUEUE\tSLOTS\tRUNNING\tREADY\tRUNS\tPAUSED", func(q api.Queue) string {
		paused := "-"
		if q.PausedBy != "" {
			paused = "by " + string(q.PausedBy)
			if q.PausedAt != nil {
				paused += " at " + q.PausedAt.Format(timeFormat)
			}
		}
		return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%s", q.Name, q.Slots, q.Running, q.Ready, q.Runs, paused)
	})
}
